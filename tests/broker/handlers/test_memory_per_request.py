"""An answered request leaves nothing in memory except the sparse indexes of the logs that it wrote.

A round has as many requests as a segment remembers batches, so that the segment's memory of its newest batches is the
same at the end of every round.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest
from tests.broker.handlers.test_transactions_api import add, end, new_producer, prepare, produce
from tests.patience import until
from tests.wire.api import Api, api_of_a_broker

ROUND = 256
BLOCKS_PER_REQUEST = 0.9
"""A request that keeps one object on the heap fails. The unit is blocks, as a log's sparse index grows by 20 bytes per
4096 bytes."""

SMALL: dict[str, object] = {
    "transaction.state.log.num.partitions": 1,
    "offsets.topic.num.partitions": 1,
    "odradek.log.tail.bytes": 0,  # the cache of newest batches is bounded, but grows for longer than this test
}


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with api_of_a_broker(SMALL) as api:
        await prepare(api)
        yield api


async def growth(request: Callable[[int], Awaitable[object]]) -> float:
    """Returns the heap blocks that a request leaves: the smaller of two rounds after one that fills the caches."""
    counts = []
    for number in range(3 * ROUND):
        await request(number)
        if number % ROUND == ROUND - 1:
            gc.collect()
            counts.append(sys.getallocatedblocks())
    return min(counts[1] - counts[0], counts[2] - counts[1]) / ROUND


async def test_a_transaction_leaves_no_memory_behind(api: Api) -> None:
    producer = await new_producer(api)

    async def transaction(number: int) -> None:
        async def added() -> bool:
            return (await add(api, producer))["orders", 0] == 0

        await until(added)  # the previous transaction may not have all of its markers yet
        assert await produce(api, producer, b"x", sequence=number) == 0
        assert await end(api, producer) == 0

    assert await growth(transaction) < BLOCKS_PER_REQUEST


def commit_of(offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="orders", partitions=[partition])
    return OffsetCommitRequest(group_id="g", topics=[topic])


async def test_an_offset_commit_leaves_no_memory_behind(api: Api) -> None:
    async def committed(number: int = 0) -> bool:
        answer: Any = await api(commit_of(number), 8)
        return bool(answer.topics[0].partitions[0].error_code == 0)

    await api(FindCoordinatorRequest(key="g", key_type=0), 3)  # creates the offsets topic
    await until(committed)
    assert await growth(committed) < BLOCKS_PER_REQUEST
