import asyncio
import errno

import pytest

from odradek.broker.controller import znodes
from odradek.broker.controller.metadata_store import Create, StoreUnavailable
from odradek.broker.controller.start_up import ClusterIdMismatch
from odradek.broker.controller.state import NewPartitions, NewTopic
from odradek.broker.metadata.metadata_cache import NO_LEADER
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.controller.rooms import BROKER_ID, ControllerRoom, at_once


@pytest.fixture
async def room() -> ControllerRoom:
    return await ControllerRoom().start()


async def create(room: ControllerRoom, *topics: NewTopic, **options: object) -> list[ErrorCode]:
    results = await room.controller.create_topics(topics, **{"timeout_ms": 1000, **options})  # type: ignore[arg-type]
    return [codes(result) for result in results]


def codes(result: object) -> ErrorCode:
    return result.code if isinstance(result, ProtocolError) else ErrorCode.NONE


async def turns() -> None:
    """Runs all ready tasks."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_topic_is_stored_led_and_visible(room: ControllerRoom) -> None:
    assert await create(room, NewTopic("t", 3, 1, configs={"retention.ms": "5"})) == [ErrorCode.NONE]
    topic = room.cache.topic("t")
    assert topic is not None
    assert list(topic.partitions) == [0, 1, 2]
    state = topic.partitions[2]
    assert (state.leader, state.leader_epoch, state.replicas, state.isr) == (BROKER_ID, 0, (BROKER_ID,), (BROKER_ID,))
    assert room.cache.topic_by_id(topic.topic_id) is topic
    assert room.partitions.led == {TopicPartition("t", number): topic.topic_id for number in range(3)}
    assert room.partitions.configs["t"].retention_ms == 5
    assert room.cache.topic_config("t") == {"retention.ms": "5"}


async def test_acknowledged_topics_survive_a_crash(room: ControllerRoom) -> None:
    await create(room, NewTopic("kept", 2), NewTopic("gone"), NewTopic("more"))
    await room.controller.delete_topics(["gone"], timeout_ms=1000)
    await room.controller.create_partitions([NewPartitions("more", 4)], timeout_ms=1000)
    await room.controller.alter_topic_config("kept", at_once(lambda config: {**config, "segment.bytes": "1000"}))
    await room.controller.alter_broker_config(None, at_once(lambda config: {"log.retention.ms": "77"}))
    await room.controller.alter_broker_config(BROKER_ID, at_once(lambda config: {"log.cleaner.threads": "2"}))
    again = await room.again()
    assert again.cache.cluster_id == room.cache.cluster_id
    assert again.cache.topic_names() == ["kept", "more"]
    assert again.cache.topic("kept") == room.cache.topic("kept")
    assert again.cache.topic("more") == room.cache.topic("more")
    assert again.partitions.led == room.partitions.led
    assert again.partitions.configs["kept"].segment_bytes == 1000
    assert again.partitions.configs["kept"].retention_ms == 77
    assert again.cache.broker_config(BROKER_ID) == {"log.cleaner.threads": "2"}


async def test_a_restart_keeps_leader_epochs_and_raises_the_controller_epoch(room: ControllerRoom) -> None:
    await create(room, NewTopic("t"))
    assert room.cache.controller_epoch == 1
    again = await room.again()
    assert again.cache.controller_epoch == 2
    assert again.partitions.epochs == {TopicPartition("t", 0): 0}
    assert again.cache.brokers[BROKER_ID].epoch > room.cache.brokers[BROKER_ID].epoch


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
    room: ControllerRoom, topic: NewTopic, code: ErrorCode
) -> None:
    await create(room, NewTopic("taken"), NewTopic("dots.and"))
    assert await create(room, topic, validate_only=True) == [code]
    assert await create(room, topic) == [code]
    assert (room.cache.topic(topic.name) is not None) == (code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS))


async def test_topics_of_one_request_fail_independently_and_see_each_other(room: ControllerRoom) -> None:
    result = await create(room, NewTopic("e.d"), NewTopic("a/b"), NewTopic("e_d"), NewTopic("f"))
    invalid = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert result == [ErrorCode.NONE, invalid, invalid, ErrorCode.NONE]
    assert room.cache.topic_names() == ["e.d", "f"]


async def test_unset_counts_are_the_brokers_defaults() -> None:
    room = await ControllerRoom(settings={"num.partitions": "4"}).start()
    await create(room, NewTopic("t"))
    topic = room.cache.topic("t")
    assert topic is not None
    assert len(topic.partitions) == 4


async def test_validate_only_changes_nothing(room: ControllerRoom) -> None:
    await create(room, NewTopic("t"))
    before = room.files.contents()
    assert await create(room, NewTopic("n", 5), validate_only=True, timeout_ms=0) == [ErrorCode.NONE]
    more = await room.controller.create_partitions([NewPartitions("t", 5)], timeout_ms=0, validate_only=True)
    assert more == [None]
    await room.controller.alter_topic_config("t", at_once(lambda _: {"retention.ms": "1"}), validate_only=True)
    assert room.files.contents() == before
    assert room.cache.topic_config("t") == {}


async def test_a_timeout_of_zero_begins_the_change_and_does_not_wait(room: ControllerRoom) -> None:
    await create(room, NewTopic("taken"))
    results = await create(room, NewTopic("taken"), NewTopic("t"), NewTopic("a/b"), timeout_ms=0)
    assert results == [
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    await asyncio.gather(*room.tasks)
    assert room.cache.topic("t") is not None
    wishes = [NewPartitions("t", 2), NewPartitions("t", 1)]
    more = await room.controller.create_partitions(wishes, timeout_ms=0)
    assert [codes(result) for result in more] == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.INVALID_PARTITIONS]
    await asyncio.gather(*room.tasks)
    assert list(room.partitions.led) == [TopicPartition("taken", 0), TopicPartition("t", 0), TopicPartition("t", 1)]
    (deleted,) = await room.controller.delete_topics(["t"], timeout_ms=-1)
    assert codes(deleted) == ErrorCode.REQUEST_TIMED_OUT
    await asyncio.gather(*room.tasks)
    assert room.cache.topic("t") is None


async def test_a_change_continues_after_its_timeout(room: ControllerRoom) -> None:
    gate = asyncio.Event()

    async def slowly(work):  # type: ignore[no-untyped-def]
        await gate.wait()
        work()

    room.store._run_blocking = slowly
    creating = asyncio.ensure_future(create(room, NewTopic("t"), timeout_ms=20))
    await turns()
    room.pass_time(19)
    await turns()
    assert not creating.done()
    room.pass_time(1)
    assert await creating == [ErrorCode.REQUEST_TIMED_OUT]
    assert room.purgatory.expired == 1
    gate.set()
    await asyncio.gather(*room.tasks)
    assert room.cache.topic("t") is not None


async def test_topic_changes_wait_in_the_purgatory_under_the_topics_names(room: ControllerRoom) -> None:
    """As in Kafka's purgatory `topic`: creations, added partitions and deletions wait until they are complete."""
    await create(room, NewTopic("grows"), NewTopic("goes"))
    gate = asyncio.Event()

    async def slowly(work):  # type: ignore[no-untyped-def]
        await gate.wait()
        work()

    room.store._run_blocking = slowly
    changes = [
        asyncio.ensure_future(create(room, NewTopic("a"), NewTopic("b"), timeout_ms=5000)),
        asyncio.ensure_future(room.controller.create_partitions([NewPartitions("grows", 4)], timeout_ms=5000)),
        asyncio.ensure_future(room.controller.delete_topics(["goes"], timeout_ms=5000)),
    ]
    await turns()
    assert (room.purgatory.delayed, room.purgatory.watched, room.timer.size) == (3, 4, 3)
    assert {key for row in room.purgatory.waiting() for key in row.keys} == {"a", "b", "grows", "goes"}
    gate.set()
    assert await asyncio.gather(*changes) == [[ErrorCode.NONE, ErrorCode.NONE], [None], [None]]
    assert (room.purgatory.delayed, room.purgatory.completed, room.timer.size) == (0, 4, 0)


async def test_a_client_that_disconnects_leaves_nothing_in_the_purgatory(room: ControllerRoom) -> None:
    gate = asyncio.Event()

    async def slowly(work):  # type: ignore[no-untyped-def]
        await gate.wait()
        work()

    room.store._run_blocking = slowly
    creating = asyncio.ensure_future(create(room, NewTopic("t"), timeout_ms=5000))
    await turns()
    creating.cancel()
    await asyncio.gather(creating, return_exceptions=True)
    assert (room.purgatory.delayed, room.timer.size) == (0, 0)
    gate.set()
    await asyncio.gather(*room.tasks)
    assert room.cache.topic("t") is not None


async def test_deleting_a_topic_removes_its_logs_entries_and_settings_and_frees_its_name(room: ControllerRoom) -> None:
    await create(room, NewTopic("t", 2, configs={"retention.ms": "5"}))
    first_id = room.cache.topic_id("t")
    results = await room.controller.delete_topics(["t", "missing", "t"], timeout_ms=1000)
    assert [result and result.code for result in results] == [None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None]
    assert room.partitions.led == {}
    assert room.partitions.removed == [TopicPartition("t", 0), TopicPartition("t", 1)]
    for parent in (znodes.TOPICS, znodes.TOPIC_CONFIGS, znodes.DELETE_TOPICS):
        assert await room.store.children(parent) == []
    assert room.cache.topic_by_id(first_id) is None
    assert await create(room, NewTopic("t")) == [ErrorCode.NONE]
    assert room.cache.topic_id("t") != first_id
    assert room.cache.topic_config("t") == {}


async def test_a_deletion_interrupted_by_a_crash_completes_at_the_next_start(room: ControllerRoom) -> None:
    await create(room, NewTopic("t", 2), NewTopic("other"))
    await room.store.multi([Create(znodes.deletion_path("t"))])  # the first step of the deletion
    again = await room.again()
    assert again.cache.topic_names() == ["other"]
    assert again.partitions.removed == [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert list(again.partitions.led) == [TopicPartition("other", 0)]
    assert await again.store.children(znodes.TOPICS) == ["other"]
    assert await again.store.children(znodes.DELETE_TOPICS) == []
    assert await create(again, NewTopic("t")) == [ErrorCode.NONE]


async def test_partitions_can_be_added_but_not_removed(room: ControllerRoom) -> None:
    await create(room, NewTopic("t", 2))
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
    results = await room.controller.create_partitions([wish for wish, _ in wishes], timeout_ms=1000)
    assert [result and result.code for result in results] == [code for _, code in wishes]
    topic = room.cache.topic("t")
    assert topic is not None
    assert list(topic.partitions) == list(range(6))
    assert room.partitions.led == {TopicPartition("t", number): topic.topic_id for number in range(6)}
    assert (await room.again()).cache.topic("t") == topic


async def test_altered_settings_reach_the_running_logs(room: ControllerRoom) -> None:
    await create(room, NewTopic("t", configs={"retention.ms": "5"}), NewTopic("u"))
    await room.controller.alter_topic_config("t", at_once(lambda config: {**config, "segment.bytes": "1000"}))
    assert room.cache.topic_config("t") == {"retention.ms": "5", "segment.bytes": "1000"}
    assert room.partitions.configs["t"].segment_bytes == 1000
    with pytest.raises(ProtocolError) as caught:
        await room.controller.alter_topic_config("t", at_once(lambda _: {"segment.bytes": "no number"}))
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    with pytest.raises(ProtocolError) as caught:
        await room.controller.alter_topic_config("missing", at_once(lambda _: {}))
    assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await room.controller.alter_topic_config("t", at_once(lambda _: {}))
    assert room.partitions.configs["t"].segment_bytes == room.config.log_config({}).segment_bytes
    await room.controller.alter_broker_config(None, at_once(lambda _: {"log.segment.bytes": "2000"}))
    assert room.partitions.configs["u"].segment_bytes == 2000


async def test_a_topic_whose_logs_cannot_be_created_is_rolled_back(
    room: ControllerRoom,
) -> None:
    room.partitions.failures[TopicPartition("t", 1)] = OSError(errno.ENOSPC, "No space left on device")
    assert await create(room, NewTopic("t", 3), NewTopic("u")) == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
    assert room.cache.topic_names() == ["u"]
    assert room.partitions.removed == [TopicPartition("t", 0), TopicPartition("t", 2)]
    assert await room.store.children(znodes.TOPICS) == ["u"]
    room.partitions.failures[TopicPartition("t", 1)] = ProtocolError(ErrorCode.INCONSISTENT_TOPIC_ID)
    assert await create(room, NewTopic("t", 3)) == [ErrorCode.INCONSISTENT_TOPIC_ID]
    room.partitions.failures.clear()
    assert await create(room, NewTopic("t", 3)) == [ErrorCode.NONE]


async def test_a_full_disk_refuses_changes_with_the_storage_error_until_there_is_space(room: ControllerRoom) -> None:
    await create(room, NewTopic("t"))
    room.files.room = 5
    assert await create(room, NewTopic("n")) == [ErrorCode.KAFKA_STORAGE_ERROR]
    (deleted,) = await room.controller.delete_topics(["t"], timeout_ms=1000)
    assert codes(deleted) == ErrorCode.KAFKA_STORAGE_ERROR
    (added,) = await room.controller.create_partitions([NewPartitions("t", 3)], timeout_ms=1000)
    assert codes(added) == ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(ProtocolError):
        await room.controller.alter_topic_config("t", at_once(lambda _: {"retention.ms": "1"}))
    assert list(room.partitions.led) == [TopicPartition("t", 0)]
    room.files.room = None
    assert await create(room, NewTopic("n")) == [ErrorCode.NONE]
    assert (await room.again()).cache.topic_names() == ["n", "t"]


async def test_one_partition_that_cannot_be_opened_does_not_keep_the_others_from_starting(
    room: ControllerRoom,
) -> None:
    await create(room, NewTopic("t", 3))
    again = ControllerRoom(room.files.crash())
    again.partitions.failures[TopicPartition("t", 1)] = OSError(errno.EIO, "Input/output error")
    await again.start()
    assert list(again.partitions.led) == [TopicPartition("t", 0), TopicPartition("t", 2)]


async def test_partitions_of_another_broker_have_no_leader_here(room: ControllerRoom) -> None:
    await create(room, NewTopic("t"))
    other = ControllerRoom(room.files.crash())
    other.cache.broker_id = 8
    await other.start()
    state = other.cache.partition("t", 0)
    assert state is not None
    assert (state.leader, state.replicas) == (NO_LEADER, (BROKER_ID,))
    assert other.partitions.led == {}


async def test_unknown_stored_settings_do_not_keep_a_topic_offline(room: ControllerRoom) -> None:
    await create(room, NewTopic("t"))
    config = znodes.encode_config({"a.setting.of.tomorrow": "1"})
    await room.store.set(znodes.topic_config_path("t"), config)
    again = await room.again()
    assert list(again.partitions.led) == [TopicPartition("t", 0)]
    assert again.cache.topic_config("t") == {"a.setting.of.tomorrow": "1"}


async def test_the_cluster_id_is_generated_once_and_another_one_is_refused() -> None:
    room = ControllerRoom()
    cluster_id = await room.controller.open_store(None)
    assert len(cluster_id) == 22
    await room.controller.stop()
    again = ControllerRoom(room.files)
    assert await again.controller.open_store(cluster_id) == cluster_id
    await again.controller.stop()
    with pytest.raises(ClusterIdMismatch, match=cluster_id):
        await ControllerRoom(room.files).controller.open_store("AAAAAAAAQACAAAAAAAAAAA")


async def test_a_known_cluster_id_is_kept() -> None:
    room = ControllerRoom()
    assert await room.controller.open_store("nlQg0zzARJuGzyqjahpCMg") == "nlQg0zzARJuGzyqjahpCMg"


async def test_stopping_waits_for_the_ongoing_change(room: ControllerRoom) -> None:
    change = asyncio.create_task(create(room, NewTopic("t", 100)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await room.controller.stop()
    assert await change == [ErrorCode.NONE]
    with pytest.raises(StoreUnavailable):
        await room.store.get("/")
    assert (await room.again()).cache.topic("t") == room.cache.topic("t")


async def test_concurrent_changes_do_not_disturb_each_other(room: ControllerRoom) -> None:
    results = await asyncio.gather(
        *(create(room, NewTopic(f"t{number % 10}")) for number in range(30)),
        *(room.controller.delete_topics([f"t{number}"], timeout_ms=1000) for number in range(0, 10, 2)),
    )
    created = [result for result in results[:30] if result == [ErrorCode.NONE]]
    assert len(created) == 10
    assert room.cache.topic_names() == ["t1", "t3", "t5", "t7", "t9"]
    again = await room.again()
    assert again.cache.topic_names() == room.cache.topic_names()
    assert again.partitions.led == room.partitions.led
