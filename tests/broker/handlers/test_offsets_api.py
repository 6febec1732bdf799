"""OffsetCommit, OffsetFetch, OffsetDelete and TxnOffsetCommit of a broker: expiry, deletion, errors and counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.broker.coordinator.group.offsets.offsets import GroupOffsets
from odradek.broker.coordinator.group.offsets.records import CommittedOffset
from odradek.broker.coordinator.runtime.shard import nobody_waits
from odradek.protocol.errors import ErrorCode, UnwritableMessage
from odradek.protocol.messages.configs import IncrementalAlterConfigsRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.group_admin import DescribeGroupsRequest, ListGroupsRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from odradek.protocol.messages.producers import InitProducerIdRequest
from odradek.protocol.messages.topics import DeleteTopicsRequest
from odradek.protocol.messages.transactions import AddOffsetsToTxnRequest, EndTxnRequest, TxnOffsetCommitRequest
from odradek.timer import ManualClock
from tests.patience import until
from tests.wire import requests
from tests.wire.api import Api, api_of_a_broker

MINUTE_MS = 60_000
SETTINGS: dict[str, object] = {"offsets.topic.num.partitions": 2, "transaction.state.log.num.partitions": 2}

_CommitTopic = OffsetCommitRequest.OffsetCommitRequestTopic
_CommitPartition = OffsetCommitRequest.OffsetCommitRequestPartition


async def coordinated(api: Api, *topics: str) -> None:
    """Creates the topics, with two partitions each, and waits until both coordinators are available."""
    await api(requests.create_topics(*topics, partitions=2), 5)
    for key_type in (0, 1):
        request = FindCoordinatorRequest(key="any", key_type=key_type)

        async def is_found(request: FindCoordinatorRequest = request) -> bool:
            return bool((await api(request, 1)).error_code == ErrorCode.NONE)

        await until(is_found)
    await loaded(api)


async def loaded(api: Api) -> None:
    runtimes = api.broker.coordinators.runtimes
    await until(lambda: not any(runtime.loading for runtime in runtimes))


async def commit(
    api: Api, topic: str, offsets: dict[int, int], group: str = "g", version: int = 8, **more: Any
) -> list[int]:
    """Commits and returns the error codes in the order of the partitions."""
    partly = {key: more.pop(key) for key in list(more) if key.startswith("committed_")}
    partitions = [_CommitPartition(partition_index=p, committed_offset=o, **partly) for p, o in offsets.items()]
    request = OffsetCommitRequest(group_id=group, topics=[_CommitTopic(name=topic, partitions=partitions)], **more)
    response = await api(request, version)
    return [partition.error_code for topic in response.topics for partition in topic.partitions]


async def fetched(api: Api, group: str = "g", *, require_stable: bool = False) -> dict[str, dict[int, int]]:
    """Returns all committed offsets of the group; -1 minus the error code where a partition has an error."""
    response = await api(OffsetFetchRequest(group_id=group, topics=None, require_stable=require_stable), 7)
    assert response.error_code == 0
    return {
        topic.name: {
            each.partition_index: -1 - each.error_code if each.error_code else each.committed_offset
            for each in topic.partitions
        }
        for topic in response.topics
    }


async def group_ids(api: Api) -> list[str]:
    return sorted(group.group_id for group in (await api(ListGroupsRequest(), 4)).groups)


async def begin(api: Api, group: str = "g") -> dict[str, Any]:
    """Begins a transaction that includes the group and returns its producer."""
    given = await api(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000), 4)
    assert given.error_code == 0
    producer = {
        "transactional_id": "tx",
        "producer_id": given.producer_id,
        "producer_epoch": given.producer_epoch,
    }
    assert (await api(AddOffsetsToTxnRequest(group_id=group, **producer), 3)).error_code == 0
    return producer


async def commit_in(
    api: Api, producer: dict[str, Any], topic: str, offsets: dict[int, int], group: str = "g", version: int = 3
) -> list[int]:
    partitions = [
        TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=p, committed_offset=o)
        for p, o in offsets.items()
    ]
    named = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)
    response = await api(TxnOffsetCommitRequest(group_id=group, topics=[named], **producer), version)
    return [partition.error_code for topic in response.topics for partition in topic.partitions]


async def set_on_offsets_topic(api: Api, name: str, value: str) -> None:
    config = IncrementalAlterConfigsRequest.AlterableConfig(name=name, value=value)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=2, resource_name="__consumer_offsets", configs=[config]
    )
    response = await api(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert response.responses[0].error_code == 0


async def test_offsets_of_version_0_survive_a_restart_and_are_kept_separately(tmp_path: Path) -> None:
    asked = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])
    async with api_of_a_broker(SETTINGS, data_dir=tmp_path) as api:
        await coordinated(api, "t")
        assert await commit(api, "t", {0: 5, 7: 5}, version=0) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert await commit(api, "t", {0: 6}, version=0) == [0]
        assert await commit(api, "t", {0: 6}, "", version=0) == [ErrorCode.INVALID_GROUP_ID]
        assert await fetched(api) == {}
    async with api_of_a_broker(SETTINGS, data_dir=tmp_path) as api:
        answer = (await api(OffsetFetchRequest(group_id="g", topics=[asked]), 0)).topics[0].partitions
        assert [(each.committed_offset, each.error_code) for each in answer] == [
            (6, ErrorCode.NONE),
            (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]


async def test_offsets_expire_and_their_group_is_removed_with_the_last_offset(tmp_path: Path) -> None:
    clock = ManualClock()
    settings = {**SETTINGS, "offsets.retention.minutes": 10}
    async with api_of_a_broker(settings, clock=clock, data_dir=tmp_path) as api:
        await coordinated(api, "t")
        work = api.broker.periodic_work
        await commit(api, "t", {0: 5})
        await commit(api, "t", {0: 5}, "stays")
        clock.advance(5 * MINUTE_MS)
        await commit(api, "t", {1: 6})
        clock.advance(5 * MINUTE_MS)
        await commit(api, "t", {0: 6}, "stays")
        await work.expire_offsets()
        assert await fetched(api) == {"t": {1: 6}}
        clock.advance(5 * MINUTE_MS)
        await work.expire_offsets()
        assert await fetched(api) == {}
        assert await group_ids(api) == ["stays"]
        described = await api(DescribeGroupsRequest(groups=["g"]), 3)
        assert described.groups[0].group_state == "Dead"
        assert api.broker.coordinators.groups.offset_metrics.expirations == 2
        assert api.broker.coordinators.groups.offset_count == 1
    async with api_of_a_broker(settings, clock=clock, data_dir=tmp_path) as api:
        await loaded(api)
        assert await group_ids(api) == ["stays"]
        assert await fetched(api, "stays") == {"t": {0: 6}}


async def test_a_retention_given_in_the_commit_survives_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    async with api_of_a_broker(SETTINGS, clock=clock, data_dir=tmp_path) as api:
        await coordinated(api, "t")
        await commit(api, "t", {0: 5}, version=2, retention_time_ms=MINUTE_MS)
        await commit(api, "t", {1: 6}, version=2, retention_time_ms=-1)
    async with api_of_a_broker(SETTINGS, clock=clock, data_dir=tmp_path) as api:
        await loaded(api)
        clock.advance(MINUTE_MS - 1)
        await api.broker.periodic_work.expire_offsets()
        assert await fetched(api) == {"t": {0: 5, 1: 6}}
        clock.advance(1)
        await api.broker.periodic_work.expire_offsets()
        assert await fetched(api) == {"t": {1: 6}}


async def test_a_retention_beyond_the_largest_timestamp_never_expires() -> None:
    clock = ManualClock()
    async with api_of_a_broker(SETTINGS, clock=clock) as api:
        await coordinated(api, "t")
        assert await commit(api, "t", {0: 5}, version=2, retention_time_ms=2**63 - 1) == [0]
        clock.advance(1000 * 365 * 24 * 60 * MINUTE_MS)
        await api.broker.periodic_work.expire_offsets()
        assert await fetched(api, require_stable=True) == {"t": {0: 5}}


async def test_a_group_named_several_times_is_returned_once() -> None:
    """Otherwise a small request could return a large group ten thousand times."""
    async with api_of_a_broker(SETTINGS) as api:
        await coordinated(api, "t")
        await commit(api, "t", {0: 5})
        groups = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("g", "h", "g")]
        found = (await api(OffsetFetchRequest(groups=groups), 8)).groups
        assert [(group.group_id, len(group.topics)) for group in found] == [("g", 1), ("h", 0)]
        described = (await api(DescribeGroupsRequest(groups=["g", "h", "g"]), 5)).groups
        assert [group.group_id for group in described] == ["g", "h"]


async def test_a_commit_that_cannot_be_encoded_leaves_nothing_waiting() -> None:
    offsets = GroupOffsets()
    unwritable = CommittedOffset(5, -1, "", commit_timestamp=2**63)
    with pytest.raises(UnwritableMessage):
        offsets.commit("g", {"t": {0: unwritable}}, nobody_waits)
    assert not offsets.has_offsets("g")


async def test_deleting_a_topic_deletes_its_committed_offsets(tmp_path: Path) -> None:
    async with api_of_a_broker(SETTINGS, data_dir=tmp_path) as api:
        await coordinated(api, "t", "u")
        await commit(api, "t", {0: 5, 1: 6})
        await commit(api, "u", {0: 7})
        await commit(api, "t", {0: 5}, "only")
        producer = await begin(api)
        await commit_in(api, producer, "t", {0: 6})
        await api(DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 5)
        assert await fetched(api) == {"u": {0: 7}}
        assert await fetched(api, "only") == {}
        assert await group_ids(api) == ["g"]
        await coordinated(api, "t")
        assert (await api(EndTxnRequest(committed=True, **producer), 3)).error_code == 0
        assert await fetched(api) == {"u": {0: 7}}
    async with api_of_a_broker(SETTINGS, data_dir=tmp_path) as api:
        await loaded(api)
        assert await fetched(api) == {"u": {0: 7}}
        assert await group_ids(api) == ["g"]


async def test_a_commit_that_the_log_refuses_is_an_error_and_changes_nothing() -> None:
    async with api_of_a_broker(SETTINGS) as api:
        await coordinated(api, "t")
        await commit(api, "t", {0: 5})
        await set_on_offsets_topic(api, "max.message.bytes", "1")
        assert await commit(api, "t", {0: 6}) == [ErrorCode.INVALID_COMMIT_OFFSET_SIZE]
        await set_on_offsets_topic(api, "max.message.bytes", "1000000")
        assert await fetched(api, require_stable=True) == {"t": {0: 5}}
        assert await commit(api, "t", {0: 7, 9: 7}) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert await fetched(api) == {"t": {0: 7}}


@pytest.mark.parametrize(("version", "answered"), [(1, 3), (2, 0), (7, 0), (8, 0), (9, 0)])
async def test_a_broker_that_is_not_the_coordinator_returns_the_error_in_every_version(
    version: int, answered: int
) -> None:
    """No FindCoordinator was sent yet, so there is no coordinator."""
    asked = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1, 2])
    one = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=[])
    async with api_of_a_broker(SETTINGS) as api:
        response = await api(OffsetFetchRequest(group_id="g", topics=[asked], groups=[one]), version)
        partitions = [each.error_code for topic in response.topics for each in topic.partitions]
        assert partitions == [ErrorCode.NOT_COORDINATOR] * answered
        codes = [response.error_code, *(group.error_code for group in response.groups)]
        assert ErrorCode.NOT_COORDINATOR in codes or version == 1


@pytest.mark.parametrize(
    ("version", "code"),
    [*((version, ErrorCode.INVALID_TXN_STATE) for version in range(4)), (4, ErrorCode.TRANSACTION_ABORTABLE)],
)
async def test_a_group_that_is_not_in_the_transaction_is_refused_with_an_error_that_the_version_knows(
    version: int, code: ErrorCode
) -> None:
    async with api_of_a_broker(SETTINGS) as api:
        await coordinated(api, "t")
        producer = await begin(api, group="other")
        ended = await api(EndTxnRequest(committed=True, **producer), 3)
        assert ended.error_code == 0
        await until(lambda: api.broker.coordinators.transactions.describe("tx").state.label == "CompleteCommit")
        assert await commit_in(api, producer, "t", {0: 5, 9: 5}, version=version) == [
            code,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        late = {**producer, "producer_epoch": producer["producer_epoch"] + 1}
        assert await commit_in(api, late, "t", {0: 5}, version=version) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert await fetched(api) == {}


async def test_version_9_knows_groups_that_do_not_exist() -> None:
    """Members of a classic group do not name themselves to fetch offsets."""
    async with api_of_a_broker(SETTINGS) as api:
        await coordinated(api, "t")
        assert await commit(api, "t", {0: 5}, version=9) == [0]
        named: dict[str, Any] = {"generation_id_or_member_epoch": 3, "member_id": "m"}
        assert await commit(api, "t", {0: 6}, "none", version=8, **named) == [ErrorCode.ILLEGAL_GENERATION]
        assert await commit(api, "t", {0: 6}, "none", version=9, **named) == [ErrorCode.GROUP_ID_NOT_FOUND]
        assert await commit(api, "t", {0: 6}, version=9, **named) == [ErrorCode.UNKNOWN_MEMBER_ID]
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", member_id="m", member_epoch=3, topics=None)
        (found,) = (await api(OffsetFetchRequest(groups=[group]), 9)).groups
        assert (found.error_code, found.topics[0].partitions[0].committed_offset) == (0, 5)


async def test_committed_offsets_are_counted() -> None:
    async with api_of_a_broker(SETTINGS) as api:
        await coordinated(api, "t")
        await commit(api, "t", {0: 5, 1: 6, 2: 7})
        await commit(api, "t", {0: 6})
        deleted = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=1)
        topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(name="t", partitions=[deleted])
        response = await api(OffsetDeleteRequest(group_id="g", topics=[topic]), 0)
        assert (response.error_code, response.topics[0].partitions[0].error_code) == (0, 0)
        assert await fetched(api) == {"t": {0: 6}}
        metrics = api.broker.coordinators.groups.offset_metrics
        assert (metrics.commits, metrics.expirations, metrics.deletions) == (3, 0, 1)
        assert api.broker.coordinators.groups.offset_count == 1


async def test_the_maximum_length_of_offset_metadata_is_a_setting() -> None:
    async with api_of_a_broker({**SETTINGS, "offset.metadata.max.bytes": 3}) as api:
        await coordinated(api, "t")
        assert await commit(api, "t", {0: 5}, committed_metadata="abc") == [0]
        assert await commit(api, "t", {0: 6}, committed_metadata="abcd") == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
        assert await fetched(api) == {"t": {0: 5}}
