"""After the cleaner has compacted the internal topics, the state loaded from them equals the broker's state before."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from odradek.broker.metadata.metadata_cache import GROUP_TOPIC, TRANSACTION_TOPIC
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.group_admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from odradek.protocol.messages.offsets import OffsetDeleteRequest, OffsetFetchRequest
from odradek.protocol.messages.transactions import DescribeTransactionsRequest, EndTxnRequest, ListTransactionsRequest
from odradek.storage.log.log import Log
from tests.broker.handlers.test_bad_requests_to_coordinators import joined, leave_request
from tests.broker.handlers.test_offsets_api import begin, commit, commit_in, coordinated
from tests.patience import until
from tests.soak import seeds
from tests.wire.api import Api, api_of_a_broker

GROUPS = [f"group {number}" for number in range(6)]
SMALL = 2_000
STEPS = 100


def settings(delete_retention_ms: int) -> dict[str, object]:
    return {
        "group.initial.rebalance.delay.ms": 0,
        "log.cleaner.backoff.ms": 10,
        "log.cleaner.delete.retention.ms": delete_retention_ms,
        "log.cleaner.min.cleanable.ratio": 0,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.segment.bytes": SMALL,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.segment.bytes": SMALL,
    }


async def live(api: Api, chance: Random) -> None:
    """Creates and deletes groups, commits and deletes offsets, also in transactions. One transaction may stay open."""
    for _ in range(STEPS):
        group = chance.choice(GROUPS)
        match chance.randrange(10):
            case 0:
                await api(DeleteGroupsRequest(groups_names=[group]), 2)
            case 1:
                partition = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=chance.randrange(2))
                topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(name="t", partitions=[partition])
                await api(OffsetDeleteRequest(group_id=group, topics=[topic]), 0)
            case 2:
                await transact(api, chance)
            case 3:
                member = await joined(api, f"members of {group}")
                await api(leave_request(member.group_id, member.member_id), 3)
            case _:
                await commit(api, "t", {chance.randrange(2): chance.randrange(1000)}, group)
    await joined(api, "alive")


async def transact(api: Api, chance: Random) -> None:
    producer = await begin_when_it_can(api)
    assert await commit_in(api, producer, "t", {0: chance.randrange(1000)}) == [0]
    ended = await api(EndTxnRequest(committed=chance.random() < 0.5, **producer), 3)
    assert ended.error_code == 0


async def begin_when_it_can(api: Api) -> dict[str, Any]:
    for _ in range(500):
        try:
            return await begin(api)
        except AssertionError:  # the markers of the previous transaction are still being written
            await asyncio.sleep(0.01)
    raise AssertionError("it never can")


async def known(api: Api) -> list[str]:
    """Returns everything about groups and transactions that clients can query."""
    listed = await api(ListGroupsRequest(), 4)
    assert listed.error_code == ErrorCode.NONE
    groups = sorted(one.group_id for one in listed.groups)
    described = (await api(DescribeGroupsRequest(groups=groups), 5)).groups
    asked = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
    fetched = (await api(OffsetFetchRequest(groups=asked), 8)).groups
    stable = (await api(OffsetFetchRequest(groups=asked, require_stable=True), 8)).groups
    listed = await api(ListTransactionsRequest(), 0)
    ids = [one.transactional_id for one in listed.transaction_states]
    transactions = (await api(DescribeTransactionsRequest(transactional_ids=ids), 0)).transaction_states
    for group in (*fetched, *stable):
        for topic in group.topics:
            topic.partitions.sort(key=lambda partition: partition.partition_index)
    return [repr(each) for each in (*described, *fetched, *stable, *transactions)]


def logs(api: Api) -> list[Any]:
    partitions = api.broker.replica_manager.partitions
    return [partitions.of_topic(topic)[0].log for topic in (GROUP_TOPIC, TRANSACTION_TOPIC)]


async def cleaned(api: Api) -> None:
    """Cleans the logs as far as allowed: up to the active segment or the first open transaction."""
    for log in logs(api):
        await until(partial(is_clean, log))


def is_clean(log: Log) -> bool:
    limit = min(log.segments.active.base_offset, log.last_stable_offset)
    sealed = max((one.base_offset for one in log.segments if one.base_offset <= limit), default=0)
    return log.state.cleaned_offset is not None and log.state.cleaned_offset >= sealed > 0


async def until_settled(api: Api) -> None:
    async def is_settled() -> bool:
        described = (await api(DescribeTransactionsRequest(transactional_ids=["tx"]), 0)).transaction_states[0]
        return not described.transaction_state.startswith("Prepare")

    await until(is_settled)


@pytest.mark.parametrize("delete_retention_ms", [0, 86_400_000])
@pytest.mark.parametrize("seed", seeds(1, of=2))
async def test_the_state_loaded_after_cleaning_equals_the_state_before_it(
    tmp_path: Path, seed: int, delete_retention_ms: int
) -> None:
    chance = Random(seed)
    before: list[str] = []
    for number in range(3):
        async with api_of_a_broker(settings(delete_retention_ms), data_dir=tmp_path) as api:
            await coordinated(api, "t")
            if before:
                assert await known(api) == before
                producer: dict[str, Any] = {"transactional_id": "tx", "producer_id": -1, "producer_epoch": -1}
                described = (await api(DescribeTransactionsRequest(transactional_ids=["tx"]), 0)).transaction_states[0]
                producer |= {"producer_id": described.producer_id, "producer_epoch": described.producer_epoch}
                assert (await api(EndTxnRequest(committed=number == 1, **producer), 3)).error_code == 0
                for group in GROUPS:
                    await api(DeleteGroupsRequest(groups_names=[group]), 2)
            await api(leave_request("alive", ""), 5)
            await live(api, chance)
            producer = await begin_when_it_can(api)
            assert await commit_in(api, producer, "t", {0: 7, 1: number}) == [0, 0]
            await until_settled(api)
            await cleaned(api)
            for log in logs(api):
                assert sum(1 for segment in log.segments for _ in segment.scan(0)) < log.state.log_end_offset
            before = await known(api)
            assert "Ongoing" in before[-1]
