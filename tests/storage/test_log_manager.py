"""Directories of log.dirs: who owns them, which partitions they contain, how they are closed."""

import math
import random
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoint import (
    HIGH_WATERMARK,
    LOG_START_OFFSET,
    RECOVERY_POINT,
    CorruptCheckpoint,
    read_epochs,
    read_offsets,
    read_partition_metadata,
    write_partition_metadata,
)
from odradek.storage.directories.log_creation import NewLog
from odradek.storage.directories.log_directory import DirectoryLocked
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.directories.meta_properties import MetaPropertiesError, read_meta_properties
from odradek.storage.file_names import deleted_folder, is_deleted_folder, parse_folder
from odradek.storage.files import Files, OsFiles
from odradek.storage.log.log import Log
from odradek.storage.log_config import LogConfig
from odradek.timer import ManualClock
from tests.memory_files import ForgetfulFiles
from tests.storage.small_logs import NOW, append, batch, headers_of, idempotent, run_flush_jobs

CLUSTER = "nlQg0zzARJuGzyqjahpCMg"
TOPIC_ID = uuid.UUID("52278a74-9d53-4a97-89a5-03a14210367d")
CONFIG = LogConfig({"segment.bytes": 300})


@pytest.fixture
def files() -> ForgetfulFiles:
    return ForgetfulFiles()


def started(files: Files, *dirs: str, clock: ManualClock | None = None, broker_id: int = 1, **load: Any) -> LogManager:
    manager = LogManager(
        dirs or ["/data"],
        files,
        clock or ManualClock(wall_ms=NOW),
        random_source=random.Random(3),
        default_config=CONFIG,
    )
    manager.open()
    manager.claim(broker_id, CLUSTER)
    manager.load(**load)
    return manager


def partition(number: int = 0, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, number)


def test_a_clean_restart_reads_no_segment_and_keeps_every_offset(files: ForgetfulFiles, logged: list[Any]) -> None:
    manager = started(files)
    log = manager.get_or_create(partition(), TOPIC_ID, CONFIG)
    for _ in range(9):
        append(log)
    log.start.delete_records_before(4)
    log.update_high_watermark(8)
    manager.shutdown()
    assert files.read_file("/data/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":-1}'
    again = started(files)
    assert not files.exists("/data/.kafka_cleanshutdown")
    log = again.logs[partition()]
    assert (
        log.state.log_start_offset,
        log.state.high_watermark,
        log.state.log_end_offset,
        log.state.recovery_point,
    ) == (4, 8, 9, 9)
    assert log.folder.topic_id == TOPIC_ID
    assert not [entry for entry in logged if entry["event"].startswith("recovering")]


def test_a_start_after_a_crash_recovers(files: ForgetfulFiles, logged: list[Any]) -> None:
    manager = started(files)
    append(manager.get_or_create(partition(), TOPIC_ID, CONFIG))
    manager.release()
    again = started(files)
    assert again.logs[partition()].state.log_end_offset == 1
    assert [entry["event"] for entry in logged if entry["event"].startswith("recovering")] == [
        "recovering directory",
        "recovering log",
    ]


def test_checkpoints_have_kafkas_format(files: ForgetfulFiles) -> None:
    manager = started(files)
    log = manager.get_or_create(partition(3, "a.b-c_d"), None, CONFIG)
    for _ in range(3):
        append(log)
    log.flush()
    log.start.delete_records_before(2)
    manager.checkpoints.write(RECOVERY_POINT)
    manager.checkpoints.write(HIGH_WATERMARK)
    manager.checkpoints.write(LOG_START_OFFSET)
    assert files.read_file("/data/replication-offset-checkpoint") == b"0\n1\na.b-c_d 3 3\n"
    assert files.read_file("/data/log-start-offset-checkpoint") == b"0\n1\na.b-c_d 3 2\n"
    # one less than the end: the active segment's indexes are not on the disk
    assert files.read_file("/data/recovery-point-offset-checkpoint") == b"0\n1\na.b-c_d 3 2\n"
    manager.shutdown()
    assert files.read_file("/data/recovery-point-offset-checkpoint") == b"0\n1\na.b-c_d 3 3\n"


@pytest.mark.parametrize("content", [b"1\n0\n", b"0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na 0 x\n", b"\xff"])
def test_a_corrupt_checkpoint_is_logged_and_all_segments_are_read_again(
    files: ForgetfulFiles, content: bytes, logged: list[Any]
) -> None:
    manager = started(files)
    for _ in range(5):
        append(manager.get_or_create(partition(), None, CONFIG))
    manager.shutdown()
    files.content("/data/recovery-point-offset-checkpoint")[:] = content
    with pytest.raises(CorruptCheckpoint):
        read_offsets(files, "/data/recovery-point-offset-checkpoint")
    again = started(files)
    assert [entry["event"] for entry in logged if entry["log_level"] == "warning"] == ["checkpoint unusable"]
    assert again.logs[partition()].state.log_end_offset == 5


# ---- owners of directories


def test_a_directory_is_locked_while_it_is_used(tmp_path: Path) -> None:
    first = started(OsFiles(), str(tmp_path))
    with pytest.raises(DirectoryLocked):
        started(OsFiles(), str(tmp_path))
    first.shutdown()
    started(OsFiles(), str(tmp_path)).shutdown()


def test_if_one_directory_is_locked_the_other_locks_are_released(files: ForgetfulFiles) -> None:
    holder = started(files, "/b")
    with pytest.raises(DirectoryLocked):
        started(files, "/a", "/b")
    holder.shutdown()
    started(files, "/a", "/b").shutdown()


def test_meta_properties_are_written_as_version_0(files: ForgetfulFiles) -> None:
    started(files, broker_id=7)
    assert files.read_file("/data/meta.properties") == f"#\nbroker.id=7\nversion=0\ncluster.id={CLUSTER}\n".encode()


@pytest.mark.parametrize("folder", ["logs/clean", "zookeeper"])
def test_meta_properties_of_both_versions_are_read_and_left_as_they_are(files: ForgetfulFiles, folder: str) -> None:
    content = (Path(__file__).parent.parent / "vectors" / folder / "meta.properties").read_bytes()
    files.make_directories("/data")
    files.replace_file("/data/meta.properties", content)
    meta = read_meta_properties(files, "/data")
    assert meta is not None
    expected = (1, 1, "AAAAAAAAQACAAAAAAAAAAA") if folder == "logs/clean" else (0, 7, CLUSTER)
    assert (meta.version, meta.broker_id, meta.cluster_id) == expected
    manager = LogManager(["/data"], files, ManualClock())
    manager.open()
    assert (manager.broker_id, manager.cluster_id) == expected[1:]
    manager.claim(expected[1], expected[2])
    assert files.read_file("/data/meta.properties") == content


def test_a_directory_of_another_cluster_or_broker_is_refused(files: ForgetfulFiles) -> None:
    started(files, broker_id=7).shutdown()
    before = dict.fromkeys(files.names)
    for broker_id, cluster in ((7, "another"), (8, CLUSTER)):
        manager = LogManager(["/data"], files, ManualClock())
        manager.open()
        with pytest.raises(MetaPropertiesError):
            manager.claim(broker_id, cluster)
        manager.release()
    assert dict.fromkeys(files.names) == before


@pytest.mark.parametrize("content", [b"version=2\n", b"broker.id=x\nversion=0\n", b"", b"broker.id=1\n"])
def test_invalid_meta_properties_are_refused(files: ForgetfulFiles, content: bytes) -> None:
    files.make_directories("/data")
    files.replace_file("/data/meta.properties", content)
    with pytest.raises(MetaPropertiesError):
        started(files)


# ---- partitions


def test_new_partitions_are_created_in_the_directory_with_the_fewest(files: ForgetfulFiles) -> None:
    manager = started(files, "/a", "/b/")
    for number in range(5):
        manager.get_or_create(partition(number), None, CONFIG)
    places = [manager.directory_of(manager.logs[partition(number)]) for number in range(5)]
    assert sorted(places) == ["/a", "/a", "/a", "/b", "/b"]
    manager.shutdown()
    again = started(files, "/a", "/b")
    assert [again.directory_of(again.logs[partition(number)]) for number in range(5)] == places


def test_a_partition_in_two_directories_is_opened_once_and_logged(files: ForgetfulFiles, logged: list[Any]) -> None:
    for path in ("/a", "/b"):
        manager = started(files, path)
        append(manager.get_or_create(partition(), None, CONFIG))
        manager.shutdown()
    both = started(files, "/a", "/b")
    assert both.logs[partition()].folder.path == "/a/orders-0"
    (entry,) = [entry for entry in logged if entry["event"] == "folder ignored"]
    assert (entry["directory"], entry["folder"]) == ("/b", "orders-0")


def test_a_folder_unknown_to_the_metadata_store_is_logged_and_left_alone(
    files: ForgetfulFiles, logged: list[Any]
) -> None:
    manager = started(files)
    for number in range(2):
        append(manager.get_or_create(partition(number), TOPIC_ID, CONFIG))
    manager.shutdown()
    before = {name: bytes(inode.data) for name, inode in files.names.items() if inode and "orders-1" in name}
    again = started(files, known=lambda topic_partition, topic_id: topic_partition.partition == 0)
    assert list(again.logs) == [partition(0)]
    (entry,) = [entry for entry in logged if entry["event"] == "folder ignored"]
    assert entry["folder"] == "orders-1"
    again.shutdown()
    assert {name: bytes(inode.data) for name, inode in files.names.items() if inode and "orders-1" in name} == before


def new_replica(manager: LogManager, topic_id: uuid.UUID, *, is_new: bool = True) -> Log:
    creation = manager.creator.begin(NewLog(partition(), topic_id, 0, CONFIG, is_new))
    assert creation is not None
    creation.run()
    return manager.creator.finish(creation)


@pytest.mark.parametrize(
    ("is_same_topic", "is_new"),
    [(False, True), (True, True), (False, False)],
    ids=["another topic", "moved away and back", "another topic, by a controller that did not create it"],
)
def test_a_folder_that_was_ignored_makes_room_for_a_replica_and_is_kept(
    files: ForgetfulFiles, is_same_topic: bool, is_new: bool
) -> None:
    manager = started(files, "/a", "/b")
    append(manager.get_or_create(partition(), TOPIC_ID, CONFIG))
    append(manager.get_or_create(partition(1), TOPIC_ID, CONFIG))
    manager.shutdown()
    before = files.read_file("/a/orders-0/00000000000000000000.log")
    again = started(files, "/a", "/b", known=lambda topic_partition, topic_id: topic_partition.partition != 0)
    topic_id = TOPIC_ID if is_same_topic else uuid.uuid4()
    for unsure in (TOPIC_ID, None):
        with pytest.raises(ProtocolError) as error:
            again.get_or_create(partition(), unsure, CONFIG)
        assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    log = new_replica(again, topic_id, is_new=is_new)
    assert (log.state.log_end_offset, log.folder.topic_id) == (0, topic_id)
    append(log)
    again.shutdown()
    (stray,) = [name for name in files.list_directory("/a") if name.startswith("orders-0.") and name.endswith("-stray")]
    assert files.read_file(f"/a/{stray}/00000000000000000000.log") == before
    assert started(files, "/a", "/b").logs[partition()].folder.topic_id == topic_id


def test_a_log_that_could_not_be_opened_is_not_replaced_by_a_new_one(files: ForgetfulFiles) -> None:
    manager = started(files)
    append(manager.get_or_create(partition(), TOPIC_ID, CONFIG))
    manager.shutdown()
    again = started(files, known=lambda topic_partition, topic_id: False)
    again.directories["/data"].unopened[partition()] = "no space left"
    with pytest.raises(ProtocolError) as error:
        new_replica(again, TOPIC_ID)
    assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert files.exists("/data/orders-0/00000000000000000000.log")


def begun_and_failed(manager: LogManager, files: ForgetfulFiles) -> None:
    """The directory fails while a log is created in it, and is sound again afterwards."""
    creation = manager.creator.begin(NewLog(partition(), TOPIC_ID, 0, CONFIG))
    assert creation is not None
    files.broken = {"/data"}
    creation.run()
    with pytest.raises(ProtocolError) as error:
        manager.creator.finish(creation)
    assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    files.broken = set()
    assert files.exists("/data/orders-0")


def test_what_is_left_of_a_log_that_could_not_be_created_makes_room_for_the_next_attempt(
    files: ForgetfulFiles,
) -> None:
    manager = started(files)
    begun_and_failed(manager, files)
    files.broken = {"/data"}
    with pytest.raises(ProtocolError) as error:
        new_replica(manager, TOPIC_ID, is_new=False)
    assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    files.broken = set()
    log = new_replica(manager, TOPIC_ID, is_new=False)
    append(log)
    manager.shutdown()
    assert started(files).logs[partition()].state.log_end_offset == 1
    assert [name for name in files.list_directory("/data") if name.startswith("orders")] == ["orders-0"]


def left_by_a_creation(files: ForgetfulFiles) -> LogManager:
    manager = started(files)
    begun_and_failed(manager, files)
    return manager


def left_at_the_start(files: ForgetfulFiles) -> LogManager:
    manager = started(files)
    append(manager.get_or_create(partition(), TOPIC_ID, CONFIG))
    manager.release()
    for name in files.list_directory("/data/orders-0"):
        files.remove(f"/data/orders-0/{name}")
    files.room = 0
    again = started(files)
    files.room = None
    assert list(again.directories["/data"].unopened) == [partition()]
    return again


@pytest.mark.parametrize("leaves", [left_by_a_creation, left_at_the_start])
def test_the_folder_of_a_log_that_is_not_open_is_deleted_with_its_partition(
    files: ForgetfulFiles, leaves: Callable[[ForgetfulFiles], LogManager]
) -> None:
    manager = leaves(files)
    files.broken = {"/data"}
    with pytest.raises(ProtocolError) as error:
        manager.delete(partition())
    assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    files.broken = set()
    assert manager.delete(partition(), sync=False) == ["/data"]
    assert manager.delete(partition()) == []
    assert not files.exists("/data/orders-0")
    append(new_replica(manager, uuid.uuid4(), is_new=False))
    assert manager.shutdown() == {}


def test_the_folder_of_another_topic_is_not_deleted(files: ForgetfulFiles) -> None:
    manager = started(files)
    append(manager.get_or_create(partition(), TOPIC_ID, CONFIG))
    manager.shutdown()
    again = started(files, known=lambda topic_partition, topic_id: False)
    assert again.delete(partition()) == []
    assert files.exists("/data/orders-0/00000000000000000000.log")


def test_a_flush_that_is_late_does_not_touch_the_next_log_of_the_same_name(files: ForgetfulFiles) -> None:
    manager = started(files)
    log = manager.get_or_create(partition(), TOPIC_ID, CONFIG)
    for epoch in (3, 5):
        log.assign_epoch_start_offset(epoch)
        append(log)
    job = log.begin_flush()
    assert job is not None
    manager.delete(partition())
    creation = manager.creator.begin(NewLog(partition(), uuid.uuid4(), 0, CONFIG, is_new=True))
    assert creation is not None
    manager.creator.finish(creation)
    job.run()
    log.flusher.finish(job)
    assert read_epochs(files, "/data/orders-0/leader-epoch-checkpoint") == [(0, 0)]
    append(log)
    assert log.begin_flush() is None, "nobody has the log any more"


def test_a_log_refuses_another_topics_id(files: ForgetfulFiles) -> None:
    manager = started(files)
    manager.get_or_create(partition(), TOPIC_ID, CONFIG)
    assert files.read_file("/data/orders-0/partition.metadata") == b"version: 0\ntopic_id: UieKdJ1TSpeJpQOhQhA2fQ"
    with pytest.raises(ProtocolError) as error:
        manager.get_or_create(partition(), uuid.uuid4(), CONFIG)
    assert error.value.code == ErrorCode.INCONSISTENT_TOPIC_ID


@pytest.mark.parametrize(
    "content", [b"", b"version: 1\ntopic_id: UieKdJ1TSpeJpQOhQhA2fQ", b"version: 0\ntopic_id: short"]
)
def test_a_corrupt_topic_id_is_logged_and_taken_from_the_metadata_store(
    files: ForgetfulFiles, content: bytes, logged: list[Any]
) -> None:
    manager = started(files)
    append(manager.get_or_create(partition(), TOPIC_ID, CONFIG))
    manager.shutdown()
    path = "/data/orders-0/partition.metadata"
    files.content(path)[:] = content
    asked: list[Any] = []

    def known(topic_partition: TopicPartition, topic_id: uuid.UUID | None) -> bool:
        asked.append((topic_partition, topic_id))
        return True

    again = started(files, known=known)
    assert asked == [(partition(), None)]
    assert [entry["event"] for entry in logged if entry["log_level"] == "error"] == ["topic id unreadable"]
    assert again.get_or_create(partition(), TOPIC_ID, CONFIG).state.log_end_offset == 1
    assert read_partition_metadata(files, path) == TOPIC_ID
    with pytest.raises(ProtocolError) as error:
        again.get_or_create(partition(), uuid.uuid4(), CONFIG)
    assert error.value.code == ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_folder_with_a_corrupt_topic_id_unknown_to_the_metadata_store_is_left_alone(files: ForgetfulFiles) -> None:
    manager = started(files)
    manager.get_or_create(partition(), TOPIC_ID, CONFIG)
    manager.shutdown()
    files.content("/data/orders-0/partition.metadata")[:] = b"?"
    assert started(files, known=lambda _, topic_id: False).logs == {}
    assert bytes(files.content("/data/orders-0/partition.metadata")) == b"?"


def test_a_shutdown_syncs_logs_in_groups_and_makes_them_durable(files: ForgetfulFiles) -> None:
    manager = started(files)
    for number in range(100):
        append(manager.get_or_create(partition(number), None, CONFIG), idempotent(0))
    sizes: list[int] = []

    for functions in manager.shutdown_steps():
        before = len(files.synced_paths)
        for function in reversed(functions):
            function()
        sizes.append(len(functions))
        assert len(files.synced_paths) >= before + len(functions)
    assert sizes == [64, 36]
    after = files.crash()
    assert after.exists("/data/.kafka_cleanshutdown")
    again = started(after)
    assert [log.state.log_end_offset for log in again.logs.values()] == [1] * 100
    assert [log.producers.state.producers[1].last_sequence for log in again.logs.values()] == [0] * 100
    again.release()


def test_a_log_that_cannot_be_synced_at_shutdown_makes_only_its_directory_unclean(
    files: ForgetfulFiles, logged: list[Any]
) -> None:
    manager = started(files, "/a", "/b")
    logs = [manager.get_or_create(partition(number), None, CONFIG) for number in range(4)]
    for log in logs:
        append(log)
    bad = next(log for log in logs if log.folder.path.startswith("/a/"))

    for functions in manager.shutdown_steps():
        for log, function in zip(logs, functions, strict=True):
            files.fail_sync = OSError(5, "the disk does not answer") if log is bad else None
            function()
        files.fail_sync = None
    assert not files.exists("/a/.kafka_cleanshutdown")
    assert files.exists("/b/.kafka_cleanshutdown")
    assert [log.state.closed for log in logs] == [log is not bad for log in logs]
    assert "flush failed" in [entry["event"] for entry in logged]


def test_partition_metadata_can_be_read_back(files: ForgetfulFiles) -> None:
    files.make_directories("/x")
    assert read_partition_metadata(files, "/x/partition.metadata") is None
    write_partition_metadata(files, "/x/partition.metadata", TOPIC_ID)
    assert read_partition_metadata(files, "/x/partition.metadata") == TOPIC_ID


def test_a_deleted_partition_is_renamed_and_removed_after_the_delay(files: ForgetfulFiles) -> None:
    clock = ManualClock(wall_ms=NOW)
    manager = started(files, clock=clock)
    append(manager.get_or_create(partition(), TOPIC_ID, LogConfig({"file.delete.delay.ms": 500})))
    manager.delete(partition())
    manager.delete(partition())
    assert manager.get(partition()) is None
    (folder,) = [name for name in files.list_directory("/data") if name.endswith("-delete")]
    assert is_deleted_folder(folder)
    assert manager.take_removals() is None
    # a topic of the same name may be created immediately
    fresh = manager.get_or_create(partition(), uuid.uuid4(), CONFIG)
    assert fresh.state.log_end_offset == 0
    clock.advance(500)
    removal = manager.take_removals()
    assert removal is not None
    removal.run()
    assert [name for name in files.list_directory("/data") if name.endswith("-delete")] == []
    assert files.exists("/data/orders-0")


@pytest.mark.parametrize("restarted", [False, True], ids=["in the same run", "after a restart"])
def test_checkpoints_of_a_deleted_partition_are_not_applied_to_a_new_one_after_a_crash(
    files: ForgetfulFiles, restarted: bool
) -> None:
    manager = started(files)
    old = manager.get_or_create(partition(), TOPIC_ID, CONFIG)
    for _ in range(9):
        append(old)
    old.update_high_watermark(9)
    old.start.delete_records_before(7)
    manager.checkpoints.write_all()
    if restarted:
        manager.shutdown()
        manager = started(files)
    manager.delete(partition())
    append(manager.get_or_create(partition(), uuid.uuid4(), CONFIG))
    manager.release()
    log = started(files).logs[partition()]
    assert (log.state.log_start_offset, log.state.log_end_offset) == (0, 1)


def test_an_interrupted_removal_is_finished_after_the_next_start(files: ForgetfulFiles) -> None:
    manager = started(files)
    append(manager.get_or_create(partition(), None, CONFIG))
    manager.delete(partition())
    manager.shutdown()
    clock = ManualClock(wall_ms=NOW)
    again = started(files, clock=clock)
    assert again.logs == {}
    clock.advance(60_000)
    removal = again.take_removals()
    assert removal is not None
    removal.run()
    assert not [name for name in files.names if "orders" in name]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-0", TopicPartition("orders", 0)),
        ("a-b-17", TopicPartition("a-b", 17)),
        ("__consumer_offsets-49", TopicPartition("__consumer_offsets", 49)),
        ("orders", None),
        ("-0", None),
        ("orders-", None),
        ("orders-x", None),
        ("orders-01", None),
        ("orders-2147483648", None),
        ("a b-0", None),
        ("..-0", None),
        ("orders-0.0123456789abcdef0123456789abcdef-delete", None),
    ],
)
def test_partitions_are_parsed_from_folder_names(name: str, expected: TopicPartition | None) -> None:
    assert parse_folder(name) == expected


def test_the_name_of_a_deleted_folder_is_not_too_long() -> None:
    name = deleted_folder(TopicPartition("t" * 249, 12), uuid.uuid4())
    assert len(name) == 255
    assert is_deleted_folder(name)


# ---- periodic work


def test_rolled_segments_are_flushed_in_the_background_with_their_indexes(files: ForgetfulFiles) -> None:
    manager = started(files)
    log = manager.get_or_create(partition(), None, CONFIG)
    for _ in range(9):
        append(log)
    assert len(log.segments) == 3
    files.synced_paths.clear()
    for owner, job in filter(None, manager.take_flush_jobs()):
        assert job.end_offset == log.segments.base_offsets[2]
        job.run()
        owner.flusher.finish(job)
    suffixes = (".log", ".index", ".timeindex")
    expected = {log.segments[number].path(suffix) for number in (0, 1) for suffix in suffixes}
    assert expected <= set(files.synced_paths)
    assert log.segments.active.path(".log") not in files.synced_paths
    assert log.state.recovery_point == log.segments.base_offsets[2]
    assert list(filter(None, manager.take_flush_jobs())) == []


def test_the_snapshot_is_synced_before_the_segments_and_the_directory(files: ForgetfulFiles) -> None:
    manager = started(files)
    log = manager.get_or_create(partition(), None, CONFIG)
    for _ in range(5):
        append(log)
    files.synced_paths.clear()
    log.flush()
    assert files.synced_paths.pop(0) == "/data/orders-0/leader-epoch-checkpoint"
    kinds = [path.rpartition(".")[2] for path in files.synced_paths]
    assert kinds == ["snapshot", "log", "index", "timeindex", "log"]
    assert f"/data/orders-0/{log.segments.active.base_offset:020d}.log" in files.durable_names


def test_flush_ms_flushes_records_after_that_time(files: ForgetfulFiles) -> None:
    clock = ManualClock(wall_ms=NOW)
    manager = started(files, clock=clock)
    log = manager.get_or_create(partition(), None, LogConfig({"flush.ms": 1000}))
    append(log)
    run_flush_jobs(manager)  # writes the leader epoch
    assert log.state.recovery_point == 0
    assert list(filter(None, manager.take_flush_jobs())) == []
    clock.advance(1000)
    ((_, job),) = filter(None, manager.take_flush_jobs())
    job.run()
    log.flusher.finish(job)
    assert log.state.recovery_point == 1
    clock.advance(1000)
    assert list(filter(None, manager.take_flush_jobs())) == []


def test_flush_messages_requires_a_flush_before_the_response(files: ForgetfulFiles) -> None:
    manager = started(files)
    log = manager.get_or_create(partition(), None, LogConfig({"flush.messages": 3}))
    asked = [log.append_as_leader(batch(), 0, api_version=9).flush_required for _ in range(4)]
    assert asked == [False, False, True, True]
    log.flush()
    assert not log.append_as_leader(batch(), 0, api_version=9).flush_required


def test_expired_producers_are_dropped_in_all_logs(files: ForgetfulFiles) -> None:
    clock = ManualClock(wall_ms=NOW)
    manager = started(files, clock=clock)
    log = manager.get_or_create(partition(), None, CONFIG)
    append(log, batch(producer_id=4, producer_epoch=0, base_sequence=0))
    assert manager.expire_producers() == 0
    clock.advance(86400000)
    assert manager.expire_producers() == 1


def test_segments_beyond_the_cache_limit_are_released(tmp_path: Path) -> None:
    from odradek.storage.segment.segment_cache import SegmentCache
    from tests.storage.small_logs import open_small

    cache = SegmentCache(max_segments=3)
    log = open_small(OsFiles(), str(tmp_path / "orders-0"), segment_bytes=150, options={"cache": cache})
    for _ in range(20):
        append(log)
    log.flush()
    for _ in range(2):
        assert len(headers_of(log)) == 20
    assert len(cache) <= 3
    assert sum(not segment.is_released for segment in log.segments[:-1]) <= 3
    log.close()
    assert len(cache) == 0


class CountingFiles(OsFiles):
    """Counts how often each file is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()

    def read_file(self, path: str) -> bytes:
        self.reads[path] += 1
        return super().read_file(path)


def test_the_topic_id_of_a_folder_is_read_once_when_it_is_loaded(tmp_path: Path) -> None:
    manager = started(OsFiles(), str(tmp_path))
    manager.get_or_create(partition(), TOPIC_ID, CONFIG)
    manager.shutdown()
    files = CountingFiles()
    manager = started(files, str(tmp_path))
    assert manager.logs[partition()].folder.topic_id == TOPIC_ID
    assert files.reads[f"{tmp_path}/{partition()}/partition.metadata"] == 1
    manager.shutdown()


def test_the_manager_knows_when_there_will_be_something_to_flush_or_to_remove(files: ForgetfulFiles) -> None:
    clock = ManualClock(wall_ms=NOW)
    manager = started(files, "/data", clock=clock)
    assert manager.idle_until_ms() == math.inf
    log = manager.get_or_create(partition(), TOPIC_ID, LogConfig({"segment.bytes": 300, "flush.ms": 60_000}))
    run_flush_jobs(manager)
    assert manager.idle_until_ms() == math.inf
    clock.advance(1000)
    append(log, batch(b"x"))
    run_flush_jobs(manager)
    due_ms = log.flusher.last_flush_ms + 60_000
    assert manager.idle_until_ms() == due_ms
    clock.advance(int(due_ms - clock.now_ms()))
    assert [flushed for flushed, _ in filter(None, manager.take_flush_jobs())] == [log]
    manager.get_or_create(partition(1), TOPIC_ID, CONFIG)
    run_flush_jobs(manager)
    manager.delete(partition(1))
    assert manager.idle_until_ms() == clock.now_ms() + CONFIG.file_delete_delay_ms
    clock.advance(CONFIG.file_delete_delay_ms)
    assert manager.idle_until_ms() <= clock.now_ms()
    assert manager.take_removals() is not None


def test_a_checkpoint_is_written_until_its_offsets_change(files: ForgetfulFiles) -> None:
    manager = started(files)
    log = manager.get_or_create(partition(), TOPIC_ID, CONFIG)
    assert not manager.checkpoints.is_written(HIGH_WATERMARK)
    manager.checkpoints.write(HIGH_WATERMARK)
    assert manager.checkpoints.is_written(HIGH_WATERMARK)
    append(log, batch(b"x"))
    log.update_high_watermark(1)
    assert not manager.checkpoints.is_written(HIGH_WATERMARK)
