"""A broker with damaged internal topics serves all groups and transactional ids except the affected ones."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.broker.coordinator.runtime.shard import Decision
from odradek.broker.metadata.metadata_cache import GROUP_TOPIC, TRANSACTION_TOPIC
from odradek.broker.metadata.new_topic import NewTopic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from odradek.protocol.messages.producers import InitProducerIdRequest
from odradek.protocol.messages.transactions import ListTransactionsRequest
from tests.broker.coordinator.runtime.harness import overwrite
from tests.wire.api import Api, api_of_a_broker

ONE_PARTITION = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
GROUPS = [f"group {number}" for number in range(6)]


@asynccontextmanager
async def loaded_broker(data_dir: Path) -> AsyncIterator[Api]:
    async with api_of_a_broker(ONE_PARTITION, data_dir=data_dir) as api:
        while any(runtime.loading for runtime in api.broker.coordinators.runtimes):  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0)
        yield api


async def commit(api: Api, group: str, offset: int) -> int:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    response = await api(OffsetCommitRequest(group_id=group, topics=[topic], generation_id_or_member_epoch=-1), 2)
    return int(response.topics[0].partitions[0].error_code)


async def committed(api: Api, group: str) -> int:
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    response = await api(OffsetFetchRequest(group_id=group, topics=[topic]), 1)
    partition = response.topics[0].partitions[0]
    assert partition.error_code == 0
    return int(partition.committed_offset)


def batch_positions(api: Api, topic: str) -> list[int]:
    (partition,) = api.broker.replica_manager.partitions.of_topic(topic)
    return [batch.position for batch in partition.log.segments[0].scan(0)]


def errors(lines: list[Any]) -> list[Any]:
    return [line for line in lines if line["log_level"] == "error"]


async def test_a_damaged_commit_affects_only_its_group(tmp_path: Path) -> None:
    async with loaded_broker(tmp_path) as api:
        await api.broker.coordinators.internal_topics.ensure(GROUP_TOPIC)
        await api.broker.controller.topics.create([NewTopic("t")], timeout_ms=10_000)
        for offset, group in enumerate(GROUPS):
            assert await commit(api, group, offset) == 0
        positions = batch_positions(api, GROUP_TOPIC)
    overwrite(tmp_path / f"{GROUP_TOPIC}-0" / f"{0:020d}.log", positions[2] + 70, b"\xff")
    with capture_logs() as lines:
        async with loaded_broker(tmp_path) as api:
            assert [await committed(api, group) for group in GROUPS] == [0, 1, -1, 3, 4, 5]
            assert await commit(api, GROUPS[2], 7) == 0
    assert [line["event"] for line in errors(lines)] == [
        "internal topic bytes not readable",
        "coordinator loaded",
    ]
    async with loaded_broker(tmp_path) as api:
        assert [await committed(api, group) for group in GROUPS] == [0, 1, 7, 3, 4, 5]


@pytest.mark.parametrize(
    "record",
    [
        CoordinatorRecord(struct.pack(">h", 99) + b"of a newer release", b"x"),
        CoordinatorRecord(b"\x00", b"cut"),
        CoordinatorRecord(struct.pack(">hh", 2, 1) + b"g", b"\x00\x63 of no version"),
        CoordinatorRecord(struct.pack(">hh", 1, 30000) + b"g", None),
    ],
)
async def test_an_undecodable_record_affects_no_group(tmp_path: Path, record: CoordinatorRecord) -> None:
    async with loaded_broker(tmp_path) as api:
        await api.broker.coordinators.internal_topics.ensure(GROUP_TOPIC)
        await api.broker.controller.topics.create([NewTopic("t")], timeout_ms=10_000)
        assert await commit(api, "before", 1) == 0
        api.broker.coordinators.groups.shard_of("x").act(Decision([record], replay=False))
        assert await commit(api, "after", 2) == 0
    with capture_logs() as lines:
        async with loaded_broker(tmp_path) as api:
            assert [await committed(api, group) for group in ("before", "after")] == [1, 2]
    error, summary = errors(lines)
    assert (error["event"], error["offset"]) == ("internal topic record not decoded", 1)
    assert summary["passed_over"] == 1


async def test_a_damaged_transaction_affects_only_its_id(tmp_path: Path) -> None:
    ids = ["a", "b", "c"]
    async with loaded_broker(tmp_path) as api:
        await api.broker.coordinators.internal_topics.ensure(TRANSACTION_TOPIC)
        for name in ids:
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            assert (await api(request, 3)).error_code == 0
        positions = batch_positions(api, TRANSACTION_TOPIC)
        assert len(positions) == 3
    overwrite(tmp_path / f"{TRANSACTION_TOPIC}-0" / f"{0:020d}.log", positions[1] + 70, b"\xff")
    with capture_logs() as lines:
        async with loaded_broker(tmp_path) as api:
            listed = await api(ListTransactionsRequest(), 0)
            assert listed.error_code == ErrorCode.NONE
            assert sorted(one.transactional_id for one in listed.transaction_states) == ["a", "c"]
    assert len(errors(lines)) == 2
