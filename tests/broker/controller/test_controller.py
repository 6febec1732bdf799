"""The controller of a single node, from a client's request to the requests that its own broker carries out."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from odradek.broker.controller import terms
from odradek.broker.metadata.metadata_cache import NO_LEADER
from odradek.broker.metadata.new_topic import NewPartitions, NewTopic
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import ConnectionLost, Create, StoreUnavailable
from odradek.broker.metadata_store.start_up import ClusterIdMismatch, open_store
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.producers import AllocateProducerIdsRequest
from odradek.protocol.messages.replica_control import (
    ControlledShutdownRequest,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import LeaderAndIsrType
from tests.broker.controller.harness import BROKER_ID, ControllerHarness
from tests.patience import until


@pytest.fixture
async def harness() -> AsyncIterator[ControllerHarness]:
    harness = await ControllerHarness().start()
    yield harness
    await harness.stop()


async def create(harness: ControllerHarness, *topics: NewTopic, **options: object) -> list[ErrorCode]:
    results = await harness.controller.topics.create(topics, **{"timeout_ms": 1000, **options})  # type: ignore[arg-type]
    return [codes(result) for result in results]


def codes(result: object) -> ErrorCode:
    return result.code if isinstance(result, ProtocolError) else ErrorCode.NONE


async def turns() -> None:
    """Runs all ready tasks."""
    for _ in range(30):
        await asyncio.sleep(0)


def leadership(harness: ControllerHarness, key: TopicPartition) -> tuple[int, int]:
    """The leader and the leader epoch that the broker knows."""
    return harness.broker.roles[key].leader, harness.broker.roles[key].leader_epoch


async def test_a_topic_is_stored_led_and_visible(harness: ControllerHarness) -> None:
    assert await create(harness, NewTopic("t", 3, 1, configs={"retention.ms": "5"})) == [ErrorCode.NONE]
    assert harness.topics == {"t": 3}
    role = harness.broker.roles[TopicPartition("t", 2)]
    assert (role.leader, role.leader_epoch, role.replicas, role.isr) == (BROKER_ID, 0, [BROKER_ID], [BROKER_ID])
    assert (role.is_new, role.controller_epoch, role.partition_epoch) == (True, 1, 0)
    assert znodes.parse_config("", (await harness.store.get(znodes.topic_config_path("t"))).data) == {
        "retention.ms": "5"
    }


async def test_a_topic_is_one_request_of_each_kind_and_leaders_come_before_metadata(harness: ControllerHarness) -> None:
    harness.broker.requests.clear()
    await create(harness, NewTopic("t", 3, 1), NewTopic("u", 2, 1))
    lead, update = harness.broker.requests
    assert isinstance(lead, LeaderAndIsrRequest)
    assert isinstance(update, UpdateMetadataRequest)
    assert [len(topic.partition_states) for topic in lead.topic_states] == [3, 2]
    assert (lead.type, lead.live_leaders[0].host_name) == (LeaderAndIsrType.INCREMENTAL, "127.0.0.1")
    assert lead.broker_epoch == update.broker_epoch == harness.broker.broker_epoch
    assert [topic.topic_id for topic in lead.topic_states] == [topic.topic_id for topic in update.topic_states]


async def test_a_start_is_one_request_of_each_kind_however_many_partitions_there_are(
    harness: ControllerHarness,
) -> None:
    await create(harness, *(NewTopic(f"t{number}", 10, 1) for number in range(100)))
    again = await harness.again()
    update, lead = again.broker.requests
    assert isinstance(update, UpdateMetadataRequest)
    assert isinstance(lead, LeaderAndIsrRequest)
    assert lead.type == LeaderAndIsrType.FULL
    assert (len(again.broker.roles), len(again.broker.metadata)) == (1000, 1000)
    await again.stop()


async def test_acknowledged_topics_survive_a_crash(harness: ControllerHarness) -> None:
    await create(harness, NewTopic("kept", 2), NewTopic("gone"), NewTopic("more"))
    await harness.controller.topics.delete(["gone"], timeout_ms=1000)
    await harness.controller.topics.add_partitions([NewPartitions("more", 4)], timeout_ms=1000)
    again = await harness.again()
    assert again.cluster_id == harness.cluster_id
    assert again.topics == harness.topics == {"kept": 2, "more": 4}
    assert again.broker.roles.keys() == harness.broker.roles.keys()
    await again.stop()


async def test_a_restart_keeps_leader_epochs_and_raises_the_controller_epoch(harness: ControllerHarness) -> None:
    await create(harness, NewTopic("t"))
    assert harness.controller.terms.epoch == 1
    again = await harness.again()
    assert again.controller.terms.epoch == 2
    assert leadership(again, TopicPartition("t", 0)) == (BROKER_ID, 0)
    assert again.broker.broker_epoch > harness.broker.broker_epoch
    assert harness.active_controllers == again.active_controllers == [BROKER_ID]
    await again.stop()


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("taken"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (NewTopic("taken", configs={"retention.ms": None}), ErrorCode.TOPIC_ALREADY_EXISTS),
        (NewTopic("a/b", 0, configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (NewTopic("a/b", 0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("x" * 249), ErrorCode.NONE),
        (NewTopic("dots_and"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("n", -2), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("n", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("n", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("n", configs={"cleanup.policy": "foo"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("n", configs={"no.such.setting": "1"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("n", assignments={0: [7], 1: [7]}), ErrorCode.NONE),
        (NewTopic("n", assignments={0: [7], 2: [7]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("n", assignments={0: [7, 7]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("n", assignments={0: [99]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("n", assignments={0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("n", assignments={0: [7], 1: [7, 8]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("n", 1, 1, assignments={0: [7]}), ErrorCode.INVALID_REQUEST),
        (NewTopic("a/b", assignments={0: []}), ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
async def test_a_topic_is_created_or_refused_with_kafkas_error_code(
    harness: ControllerHarness, topic: NewTopic, code: ErrorCode
) -> None:
    await create(harness, NewTopic("taken"), NewTopic("dots.and"))
    assert await create(harness, topic, validate_only=True) == [code]
    assert await create(harness, topic) == [code]
    assert (topic.name in harness.topics) == (code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS))


async def test_topics_of_one_request_fail_independently_and_see_each_other(harness: ControllerHarness) -> None:
    result = await create(harness, NewTopic("e.d"), NewTopic("a/b"), NewTopic("e_d"), NewTopic("f"))
    invalid = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert result == [ErrorCode.NONE, invalid, invalid, ErrorCode.NONE]
    assert list(harness.topics) == ["e.d", "f"]


async def test_unset_counts_are_the_brokers_defaults() -> None:
    harness = await ControllerHarness(settings={"num.partitions": "4"}).start()
    await create(harness, NewTopic("t"))
    assert harness.topics == {"t": 4}
    await harness.stop()


async def test_validate_only_changes_nothing(harness: ControllerHarness) -> None:
    await create(harness, NewTopic("t"))
    before, requests = harness.files.contents(), len(harness.broker.requests)
    assert await create(harness, NewTopic("n", 5), validate_only=True, timeout_ms=0) == [ErrorCode.NONE]
    more = await harness.controller.topics.add_partitions([NewPartitions("t", 5)], timeout_ms=0, validate_only=True)
    assert more == [None]
    assert (harness.files.contents(), len(harness.broker.requests)) == (before, requests)


async def test_a_timeout_of_zero_begins_the_change_and_does_not_wait(harness: ControllerHarness) -> None:
    await create(harness, NewTopic("taken"))
    results = await create(harness, NewTopic("taken"), NewTopic("t"), NewTopic("a/b"), timeout_ms=0)
    assert results == [
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    await harness.changes_done()
    assert "t" in harness.topics
    wishes = [NewPartitions("t", 2), NewPartitions("t", 1)]
    more = await harness.controller.topics.add_partitions(wishes, timeout_ms=0)
    assert [codes(result) for result in more] == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.INVALID_PARTITIONS]
    await harness.changes_done()
    assert harness.topics == {"t": 2, "taken": 1}
    (deleted,) = await harness.controller.topics.delete(["t"], timeout_ms=-1)
    assert codes(deleted) == ErrorCode.REQUEST_TIMED_OUT
    await harness.changes_done()
    assert "t" not in harness.topics


def slow_writes(harness: ControllerHarness) -> asyncio.Event:
    """Writes of the store wait for the event."""
    gate = asyncio.Event()

    async def slowly(work: Any) -> None:
        await gate.wait()
        work()

    harness.store._run_blocking = slowly
    return gate


async def test_a_change_continues_after_its_timeout(harness: ControllerHarness) -> None:
    gate = slow_writes(harness)
    creating = asyncio.ensure_future(create(harness, NewTopic("t"), timeout_ms=20))
    await turns()
    harness.pass_time(19)
    await turns()
    assert not creating.done()
    harness.pass_time(1)
    assert await creating == [ErrorCode.REQUEST_TIMED_OUT]
    assert harness.purgatory.expired == 1
    gate.set()
    await harness.changes_done()
    assert "t" in harness.topics


async def test_a_creation_is_answered_when_this_broker_knows_the_leaders(harness: ControllerHarness) -> None:
    gate = asyncio.Event()

    async def wait(request: Any) -> None:
        if isinstance(request, UpdateMetadataRequest):
            await gate.wait()

    harness.broker.before = wait
    creating = asyncio.ensure_future(create(harness, NewTopic("t"), timeout_ms=5000))
    await turns()
    assert TopicPartition("t", 0) in harness.broker.roles
    assert not creating.done()
    gate.set()
    assert await creating == [ErrorCode.NONE]
    assert "t" in harness.topics


async def test_topic_changes_wait_in_the_purgatory_under_the_topics_names(harness: ControllerHarness) -> None:
    """As in Kafka's purgatory `topic`: creations, added partitions and deletions wait until they are complete."""
    await create(harness, NewTopic("grows"), NewTopic("goes"))
    gate = slow_writes(harness)
    changes = [
        asyncio.ensure_future(create(harness, NewTopic("a"), NewTopic("b"), timeout_ms=5000)),
        asyncio.ensure_future(harness.controller.topics.add_partitions([NewPartitions("grows", 4)], timeout_ms=5000)),
        asyncio.ensure_future(harness.controller.topics.delete(["goes"], timeout_ms=5000)),
    ]
    await turns()
    assert (harness.purgatory.delayed, harness.purgatory.watched, harness.timer.size) == (3, 4, 3)
    assert {key for row in harness.purgatory.waiting() for key in row.keys} == {"a", "b", "grows", "goes"}
    gate.set()
    assert await asyncio.gather(*changes) == [[ErrorCode.NONE, ErrorCode.NONE], [None], [None]]
    assert (harness.purgatory.delayed, harness.purgatory.completed, harness.timer.size) == (0, 4, 0)


async def test_a_client_that_disconnects_leaves_nothing_in_the_purgatory(harness: ControllerHarness) -> None:
    gate = slow_writes(harness)
    creating = asyncio.ensure_future(create(harness, NewTopic("t"), timeout_ms=5000))
    await turns()
    creating.cancel()
    await asyncio.gather(creating, return_exceptions=True)
    assert (harness.purgatory.delayed, harness.timer.size) == (0, 0)
    gate.set()
    await harness.changes_done()
    assert "t" in harness.topics


async def test_deleting_a_topic_removes_its_logs_entries_and_settings_and_frees_its_name(
    harness: ControllerHarness,
) -> None:
    await create(harness, NewTopic("t", 2, configs={"retention.ms": "5"}))
    harness.broker.requests.clear()
    results = await harness.controller.topics.delete(["t", "missing", "t"], timeout_ms=1000)
    assert [result and result.code for result in results] == [None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None]
    assert (harness.broker.roles, harness.broker.disk, harness.topics) == ({}, {}, {})
    assert [type(request) for request in harness.broker.requests] == [UpdateMetadataRequest, StopReplicaRequest]
    for parent in (znodes.TOPICS, znodes.TOPIC_CONFIGS, znodes.DELETE_TOPICS):
        assert await harness.store.children(parent) == []
    assert await create(harness, NewTopic("t")) == [ErrorCode.NONE]
    assert harness.topics == {"t": 1}


async def test_a_deletion_interrupted_by_a_crash_completes_at_the_next_start(harness: ControllerHarness) -> None:
    await create(harness, NewTopic("t", 2), NewTopic("other"))
    await harness.store.multi([Create(znodes.deletion_path("t"))])  # the first step of the deletion
    again = await harness.again()
    await turns()
    assert again.topics == {"other": 1}
    assert list(again.broker.roles) == [TopicPartition("other", 0)]
    assert await again.store.children(znodes.TOPICS) == ["other"]
    assert await again.store.children(znodes.DELETE_TOPICS) == []
    assert await create(again, NewTopic("t")) == [ErrorCode.NONE]
    await again.stop()


async def test_a_mark_without_a_topic_is_removed(harness: ControllerHarness) -> None:
    await harness.store.multi([Create(znodes.deletion_path("never.was"))])
    again = await harness.again()
    assert await again.store.children(znodes.DELETE_TOPICS) == []
    await again.stop()


async def test_a_topic_that_other_tools_have_changed_is_deleted_whole(harness: ControllerHarness) -> None:
    await create(harness, NewTopic("t", 2))
    await harness.store.create(f"{znodes.topic_path('t')}/left")
    await harness.store.delete(znodes.state_path("t", 1))
    assert await harness.controller.topics.delete(["t"], timeout_ms=1000) == [None]
    assert await harness.store.children(znodes.TOPICS) == []


async def test_settings_that_an_earlier_topic_has_left_behind_are_replaced(harness: ControllerHarness) -> None:
    await harness.store.create(znodes.topic_config_path("t"), znodes.encode_config({"retention.ms": "1"}))
    await harness.store.create(znodes.topic_path("taken"), b"")
    results = await create(harness, NewTopic("t"), NewTopic("taken"), NewTopic("u"))
    assert results == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NONE]
    assert znodes.parse_config("", (await harness.store.get(znodes.topic_config_path("t"))).data) == {}


async def test_partitions_can_be_added_but_not_removed(harness: ControllerHarness) -> None:
    await create(harness, NewTopic("t", 2))
    wishes = [
        (NewPartitions("t", 4), None),
        (NewPartitions("t", 4), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", 3), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", -3), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("missing", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (NewPartitions("t", 6, [[7]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 6, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 5, [[]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 5, [[7, 7]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 5, [[99]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 6, [[7], [7]]), None),
    ]
    results = await harness.controller.topics.add_partitions([wish for wish, _ in wishes], timeout_ms=1000)
    assert [result and result.code for result in results] == [code for _, code in wishes]
    assert list(harness.broker.roles) == [TopicPartition("t", number) for number in range(6)]
    again = await harness.again()
    assert again.topics == {"t": 6}
    await again.stop()


async def test_a_topic_whose_log_cannot_be_created_stays_with_that_partition_offline(
    harness: ControllerHarness,
) -> None:
    """As in Kafka, where the creation does not wait for the disks."""
    key = TopicPartition("t", 1)
    harness.broker.offline[key] = None
    assert await create(harness, NewTopic("t", 3)) == [ErrorCode.NONE]
    assert harness.controller.terms.numbers().offline_partitions == 1
    assert harness.broker.metadata[key].leader == NO_LEADER
    assert harness.broker.metadata[key].offline_replicas == [BROKER_ID]
    assert harness.broker.metadata[TopicPartition("t", 2)].leader == BROKER_ID
    harness.broker.offline.clear()
    again = await harness.again()
    assert leadership(again, key) == (BROKER_ID, 2)
    await again.stop()


async def test_a_full_disk_refuses_changes_with_the_storage_error_until_there_is_space(
    harness: ControllerHarness,
) -> None:
    await create(harness, NewTopic("t"))
    harness.files.room = 5
    assert await create(harness, NewTopic("n")) == [ErrorCode.KAFKA_STORAGE_ERROR]
    (deleted,) = await harness.controller.topics.delete(["t"], timeout_ms=1000)
    assert codes(deleted) == ErrorCode.KAFKA_STORAGE_ERROR
    (added,) = await harness.controller.topics.add_partitions([NewPartitions("t", 3)], timeout_ms=1000)
    assert codes(added) == ErrorCode.KAFKA_STORAGE_ERROR
    assert list(harness.broker.roles) == [TopicPartition("t", 0)]
    harness.files.room = None
    assert await create(harness, NewTopic("n")) == [ErrorCode.NONE]
    again = await harness.again()
    assert again.topics == {"n": 1, "t": 1}
    await again.stop()


async def test_a_broker_whose_registration_was_deleted_registers_and_leads_again(harness: ControllerHarness) -> None:
    await create(harness, NewTopic("t"))
    epoch = harness.broker.broker_epoch
    await harness.store.delete(znodes.broker_path(BROKER_ID))
    await turns()
    assert harness.broker.broker_epoch > epoch
    assert leadership(harness, TopicPartition("t", 0)) == (BROKER_ID, 2)  # it had no leader in epoch 1


async def test_a_damaged_topic_costs_that_topic_alone(harness: ControllerHarness) -> None:
    await create(harness, *(NewTopic(name, 2) for name in ("bad.entry", "bad.state", "good", "without.id")))
    await harness.store.set(znodes.topic_path("bad.entry"), b"{")
    await harness.store.set(znodes.state_path("bad.state", 1), b"[]")
    await harness.store.set(znodes.topic_path("without.id"), b'{"version":1,"partitions":{"0":[7]}}')
    again = await harness.again()
    assert again.topics == {"good": 2, "without.id": 1}
    names = ["bad.entry", "bad.state"]
    assert await create(again, *map(NewTopic, names)) == [ErrorCode.TOPIC_ALREADY_EXISTS] * 2
    deleted = await again.controller.topics.delete(names, timeout_ms=1000)
    assert [codes(result) for result in deleted] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert (await again.store.get(znodes.topic_path("bad.entry"))).data == b"{"
    assert all(
        request.type == LeaderAndIsrType.INCREMENTAL  # nobody knows which replicas the damaged topics have
        for request in again.broker.requests
        if isinstance(request, LeaderAndIsrRequest)
    )
    await again.stop()


async def test_the_cluster_id_is_generated_once_and_another_one_is_refused() -> None:
    harness = await ControllerHarness().start()
    assert len(harness.cluster_id) == 22
    await harness.stop()
    again = await ControllerHarness(harness.files).start()
    assert again.cluster_id == harness.cluster_id
    await again.stop()
    third = ControllerHarness(harness.files)
    with pytest.raises(ClusterIdMismatch, match=harness.cluster_id):
        await open_store(third.store, "AAAAAAAAQACAAAAAAAAAAA", third.source)
    await third.store.close()


async def test_a_known_cluster_id_is_kept() -> None:
    harness = ControllerHarness()
    assert await open_store(harness.store, "nlQg0zzARJuGzyqjahpCMg", harness.source) == "nlQg0zzARJuGzyqjahpCMg"
    await harness.store.close()


async def test_stopping_waits_for_the_event_in_progress_and_refuses_the_rest(harness: ControllerHarness) -> None:
    change = asyncio.create_task(create(harness, NewTopic("t", 100)))
    await turns()
    later = asyncio.create_task(create(harness, NewTopic("later")))
    await harness.stop()
    assert await change == [ErrorCode.NONE]
    assert await later == [ErrorCode.NOT_CONTROLLER]
    with pytest.raises(StoreUnavailable):
        await harness.store.get("/")
    again = await harness.again()
    assert again.topics == {"t": 100}
    await again.stop()


async def test_concurrent_changes_do_not_disturb_each_other(harness: ControllerHarness) -> None:
    results = await asyncio.gather(
        *(create(harness, NewTopic(f"t{number % 10}")) for number in range(30)),
        *(harness.controller.topics.delete([f"t{number}"], timeout_ms=1000) for number in range(0, 10, 2)),
    )
    created = [result for result in results[:30] if result == [ErrorCode.NONE]]
    assert len(created) == 10
    assert list(harness.topics) == ["t1", "t3", "t5", "t7", "t9"]
    again = await harness.again()
    assert again.topics == harness.topics
    assert again.broker.roles.keys() == harness.broker.roles.keys()
    await again.stop()


async def test_a_broker_without_office_refuses_everything() -> None:
    harness = ControllerHarness()
    controller = harness.controller
    refused = [ErrorCode.NOT_CONTROLLER]
    assert await create(harness, NewTopic("t")) == refused
    assert await create(harness, NewTopic("t"), timeout_ms=0) == refused
    assert [codes(each) for each in await controller.topics.delete(["t"], timeout_ms=9)] == refused
    more = [NewPartitions("t", 3)]
    assert [codes(each) for each in await controller.topics.add_partitions(more, timeout_ms=9)] == refused
    assert not controller.terms.is_active
    assert controller.terms.numbers().active == 0
    for request in (
        ControlledShutdownRequest(broker_id=7, broker_epoch=1),
        AllocateProducerIdsRequest(broker_id=7, broker_epoch=1),
    ):
        with pytest.raises(ProtocolError) as caught:
            await controller.answer(request)
        assert caught.value.code is ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize(
    ("cause", "level"),
    [(ConnectionLost("", "the connection is lost"), "info"), (StoreUnavailable("", "the disk is full"), "error")],
)
async def test_an_event_that_fails_because_the_session_has_ended_is_no_error(
    harness: ControllerHarness, cause: StoreUnavailable, level: str
) -> None:
    """Whatever was under way begins anew in the next session; a store that cannot write is another matter."""
    failed = ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR)
    failed.__cause__ = cause
    with capture_logs() as logs:
        harness.controller.terms._failed("leaders", failed)
        harness.controller.terms._failed("leaders", cause)
    assert [(line["event"], line["log_level"]) for line in logs] == [("event of the controller failed", level)] * 2


async def test_a_term_that_cannot_begin_without_the_store_is_given_up_and_begun_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = ControllerHarness()
    await harness.open()
    read, failures = harness.store.children, [StoreUnavailable("/isr_change_notification", "the disk fails")]

    async def children(path: str, *arguments: Any) -> Any:
        if harness.controller.terms.is_active and failures:
            raise failures.pop()
        return await read(path, *arguments)

    monkeypatch.setattr(harness.store, "children", children)
    monkeypatch.setattr(terms, "RETRY_DELAY_S", 0.01)
    with capture_logs() as logs:
        await harness.start_controller()
        await until(lambda: harness.controller.terms.is_active)
    lines = [line for line in logs if line["event"] == "controller could not begin its term"]
    assert [(line["log_level"], line["epoch"], "exc_info" in line) for line in lines] == [("warning", 1, False)]
    assert harness.controller.terms.epoch == 2
    await harness.stop()
