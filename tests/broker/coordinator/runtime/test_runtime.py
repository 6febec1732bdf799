"""The coordinators' runtime: the leader of an id's partition, and the outcome of decisions."""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.broker.coordinator.runtime.shard import Decision
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.records import Compression, iter_batches, read_batch_header, read_records
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.log_config import LogConfig
from tests.broker.coordinator.runtime.harness import (
    PARTITION,
    TOPIC,
    Outcome,
    RecordingShard,
    RuntimeHarness,
    WatchedFile,
    runtime_harness,
)
from tests.broker.replica.harness import later
from tests.storage.small_logs import bytes_of


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[RuntimeHarness]:
    with runtime_harness(tmp_path) as harness:
        yield harness


def refusal(harness: RuntimeHarness, key: str = "g") -> ErrorCode | None:
    try:
        harness.runtime.shard_for(key)
    except ProtocolError as error:
        return error.code
    return None


def stored(harness: RuntimeHarness) -> bytes:
    log = harness.manager.partitions.find(PARTITION).log
    return bytes_of(log.reader.read(0, 1 << 20)) if log.state.log_end_offset else b""


# Who coordinates


def test_an_id_whose_partition_another_broker_leads_has_another_coordinator(harness: RuntimeHarness) -> None:
    assert refusal(harness) is ErrorCode.NOT_COORDINATOR
    harness.lead()
    assert refusal(harness) is None
    harness.manager.stop_replica(PARTITION)
    assert refusal(harness) is ErrorCode.NOT_COORDINATOR


def test_each_id_has_the_shard_of_its_partition(tmp_path: Path) -> None:
    with runtime_harness(tmp_path, partitions=50) as harness:
        harness.lead(TopicPartition(TOPIC, 3))
        harness.lead(TopicPartition(TOPIC, 0))
        found: Any = harness.runtime.shard_for("g")
        assert found.partition == 3
        found = harness.runtime.shard_for("polygenelubricants")  # its hash is the smallest int
        assert found.partition == 0
        assert refusal(harness, "h") is ErrorCode.NOT_COORDINATOR
        loaded: Any = harness.runtime.shards()
        assert [shard.partition for shard in loaded] == [0, 3]


def test_an_empty_partition_is_loaded_when_leadership_begins(harness: RuntimeHarness) -> None:
    harness.lead(epoch=7)
    assert (harness.shard.leader_epoch, harness.shard.events) == (7, ["loaded"])
    assert not harness.runtime.loading


def test_leadership_of_other_topics_is_ignored(harness: RuntimeHarness) -> None:
    harness.lead(TopicPartition("t", 0))
    harness.manager.stop_replica(TopicPartition("t", 0))
    assert harness.made == []


def test_renewed_leadership_in_the_same_epoch_changes_nothing(harness: RuntimeHarness) -> None:
    harness.lead(epoch=3)
    harness.write((b"k", b"v"))
    harness.lead(epoch=3)
    assert len(harness.made) == 1
    assert harness.shard.values == {b"k": b"v"}


@pytest.mark.parametrize("has_followed", [False, True], ids=["a new epoch", "a new leadership"])
def test_a_shard_is_loaded_again_in_a_new_epoch_if_it_has_one_and_in_any_new_leadership(
    tmp_path: Path, has_followed: bool
) -> None:
    with runtime_harness(tmp_path, loads_each_epoch=not has_followed) as harness:
        partition = harness.lead(epoch=3)
        harness.write((b"k", b"v"))
        if has_followed:
            harness.manager.become_follower(PARTITION, partition.topic_id, later(partition, 1, (0, 1)), LogConfig())
        harness.lead(epoch=5)
        old, new = harness.made
        assert old.events == ["loaded", "unloaded"]
        assert refusal(harness) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        harness.tasks.run()
        assert (new.leader_epoch, new.values, new.events) == (5, {b"k": b"v"}, ["loaded"])


def test_a_new_epoch_of_the_same_leadership_does_not_interrupt_a_coordinator(harness: RuntimeHarness) -> None:
    harness.lead(epoch=3)
    harness.write((b"k", b"v"))
    harness.lead(epoch=4)
    assert (len(harness.made), harness.shard.events) == (1, ["loaded"])
    harness.write((b"k", b"w"))
    assert harness.shard.values == {b"k": b"w"}


def test_partitions_that_are_led_before_the_start_are_loaded_at_the_start(tmp_path: Path) -> None:
    harness = RuntimeHarness(tmp_path)
    harness.lead()
    assert harness.made == []
    harness.runtime.start()
    assert harness.shard.events == ["loaded"]
    harness.logs.close()


def test_a_deleted_topic_leaves_no_coordinator(harness: RuntimeHarness) -> None:
    harness.lead()
    harness.write((b"k", b"v"))
    folder = harness.log_file().parent
    harness.manager.stop_replica(PARTITION, delete=True)
    assert harness.shard.events == ["loaded", "unloaded"]
    shutil.rmtree(folder)
    harness.lead(epoch=1)
    assert (len(harness.made), harness.shard.values, harness.shard.events) == (2, {}, ["loaded"])


def test_a_stopping_runtime_unloads_every_shard_and_is_not_available(tmp_path: Path) -> None:
    with runtime_harness(tmp_path, partitions=2) as harness:
        for partition in range(2):
            harness.lead(TopicPartition(TOPIC, partition))
        harness.runtime.stop()
        assert [shard.events for shard in harness.made] == [["loaded", "unloaded"]] * 2
        assert refusal(harness) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert harness.runtime.shards() == []
        harness.lead(TopicPartition(TOPIC, 1), epoch=9)
        assert len(harness.made) == 2


def test_a_shard_that_fails_to_unload_does_not_keep_others_from_unloading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(shard: RecordingShard) -> None:
        shard.events.append("unloaded")
        raise RuntimeError("no")

    with runtime_harness(tmp_path, partitions=2) as harness:
        for partition in range(2):
            harness.lead(TopicPartition(TOPIC, partition))
        monkeypatch.setattr(RecordingShard, "unload", fails)
        harness.runtime.stop()
        assert [shard.events for shard in harness.made] == [["loaded", "unloaded"]] * 2


# Acting


def test_a_decision_is_appended_as_one_batch_then_replayed_then_completed(harness: RuntimeHarness) -> None:
    harness.lead()
    order: list[str] = []
    shard: Any = harness.runtime.shard_for("g")
    replay = shard.replay

    def noted(record: CoordinatorRecord, **where: Any) -> None:
        order.append("replayed")
        replay(record, **where)

    shard.replay = noted
    records = [CoordinatorRecord(b"a", b"1"), CoordinatorRecord(b"b", None)]
    decision = Decision(records, lambda error: order.append(f"done {error}"))
    shard.act(decision)
    assert order == ["replayed", "replayed", "done None"]
    assert decision.base_offset == 0
    data = stored(harness)
    header = read_batch_header(data)
    assert (header.record_count, header.producer_id, header.base_sequence) == (2, -1, -1)
    assert not header.is_transactional
    assert [(record.key, record.value) for record in read_records(data, 0, header)] == [(b"a", b"1"), (b"b", None)]
    assert {record.timestamp for record in read_records(data, 0, header)} == {harness.clock.wall_ms()}


def test_records_are_replayed_with_their_offsets(harness: RuntimeHarness) -> None:
    harness.lead()
    harness.write((b"a", b"1"), (b"b", b"2"))
    harness.write((b"c", b"3"))
    assert harness.shard.offsets == [0, 1, 2]


def test_a_decision_without_records_completes_and_writes_nothing(harness: RuntimeHarness) -> None:
    harness.lead()
    assert harness.write().is_done
    assert stored(harness) == b""


def test_a_decision_without_records_waits_for_those_that_it_has_seen(harness: RuntimeHarness) -> None:
    """They may be lost with the leader."""
    partition = harness.lead(replicas=(0, 1))
    harness.write((b"a", b"1"))
    outcome = harness.write()
    assert outcome.results == []
    assert partition.update_follower(1, 1, 0)
    harness.manager.wakeups.watermark_moved(partition)
    harness.turn()
    assert outcome.is_done
    assert harness.write().is_done


@pytest.mark.parametrize("options", [{"replay": False}, {"acks": 0}])
def test_a_decision_without_records_waits_for_what_was_replayed(harness: RuntimeHarness, options: Any) -> None:
    """Nobody has to wait for what changes the state only when it is replicated."""
    harness.lead(replicas=(0, 1))
    harness.write((b"a", b"1"), **options)
    assert harness.write().is_done is (options.get("replay") is False)


def test_a_decision_without_records_fails_with_those_that_it_has_seen(harness: RuntimeHarness) -> None:
    harness.lead(replicas=(0, 1))
    harness.write((b"a", b"1"))
    outcome = harness.write()
    harness.manager.stop_replica(PARTITION)
    harness.turn()
    assert outcome.error.code is ErrorCode.NOT_COORDINATOR


def test_a_decision_may_skip_the_replay_of_its_records(harness: RuntimeHarness) -> None:
    harness.lead()
    assert harness.write((b"a", b"1"), replay=False).is_done
    assert harness.shard.values == {}
    assert harness.load_again().values == {b"a": b"1"}


def test_a_transactional_decision_is_part_of_its_transaction(harness: RuntimeHarness) -> None:
    harness.lead()
    harness.write((b"a", b"1"), producer_id=9, producer_epoch=2, base_sequence=0)
    header = read_batch_header(stored(harness))
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 0)
    assert harness.shard.values == {}
    harness.mark(9, 2)
    assert harness.shard.values == {b"a": b"1"}
    assert harness.shard.events[-1] == ("ended", 9, 2, True)


def test_batches_are_compressed_with_the_configured_codec(tmp_path: Path) -> None:
    with runtime_harness(tmp_path, compression=Compression.GZIP) as harness:
        harness.lead(compression_type="producer")
        harness.write((b"a", b"1" * 1000))
        assert read_batch_header(stored(harness)).compression == Compression.GZIP
        assert harness.load_again().values == {b"a": b"1" * 1000}


def test_a_decision_completes_at_the_high_watermark(harness: RuntimeHarness) -> None:
    partition = harness.lead(replicas=(0, 1))
    outcome = harness.write((b"a", b"1"))
    assert harness.shard.values == {b"a": b"1"}
    assert outcome.results == []
    assert partition.update_follower(1, 1, 0)
    harness.manager.wakeups.watermark_moved(partition)
    assert outcome.results == []  # not in the middle of the follower's fetch
    harness.turn()
    assert outcome.is_done


def test_a_decision_completes_after_the_flush_if_the_topic_flushes_every_append(harness: RuntimeHarness) -> None:
    harness.lead(flush_messages=1)
    outcome = harness.write((b"a", b"1"))
    assert outcome.results == []
    harness.threads.run()
    harness.turn()
    assert outcome.is_done


def test_a_decision_whose_flush_fails_is_in_the_log(harness: RuntimeHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(file: WatchedFile) -> None:
        raise OSError(5, "Input/output error")

    harness.lead(flush_messages=1)
    monkeypatch.setattr(WatchedFile, "sync", fail, raising=False)
    outcome = harness.write((b"a", b"1"))
    harness.threads.run()
    harness.turn()
    assert (outcome.error.cause, outcome.error.is_written) == (ErrorCode.KAFKA_STORAGE_ERROR, True)
    assert harness.shard.values == {b"a": b"1"}


def test_an_append_that_is_not_replicated_in_time_is_coordinator_not_available(harness: RuntimeHarness) -> None:
    harness.lead(replicas=(0, 1))
    outcome = harness.write((b"a", b"1"))
    slow = harness.write((b"b", b"2"), timeout_ms=60_000)
    harness.advance(4_999)
    assert outcome.results == []
    harness.advance(2)
    assert (outcome.error.code, outcome.error.cause) == (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    )
    assert slow.results == []
    assert harness.load_again().values == {b"a": b"1", b"b": b"2"}


def test_losing_leadership_while_an_append_waits_is_not_coordinator(harness: RuntimeHarness) -> None:
    harness.lead(replicas=(0, 1))
    shard = harness.shard
    outcome = harness.write((b"a", b"1"))
    harness.manager.stop_replica(PARTITION)
    assert shard.events == ["loaded", "unloaded"]
    harness.turn()
    assert (outcome.error.code, outcome.error.cause) == (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )


def test_a_decision_for_an_unloaded_shard_is_not_coordinator(harness: RuntimeHarness) -> None:
    harness.lead()
    shard = harness.shard
    harness.manager.stop_replica(PARTITION)
    outcome = Outcome()
    shard.act(Decision([CoordinatorRecord(b"a", b"1")], outcome))
    assert outcome.error.code is ErrorCode.NOT_COORDINATOR
    assert shard.values == {}


def test_a_full_disk_logs_one_line_for_all_refused_appends(harness: RuntimeHarness) -> None:
    harness.lead()
    harness.disk.full = True
    with capture_logs() as lines:
        for _ in range(50):
            assert harness.write((b"key", b"value")).error.cause is ErrorCode.KAFKA_STORAGE_ERROR
    assert Counter(line["event"] for line in lines) == {"coordinator append failed": 1, "append failed": 1}


def test_a_full_disk_fails_the_decision_and_replays_nothing(harness: RuntimeHarness) -> None:
    harness.lead()
    harness.write((b"a", b"1"))
    before = stored(harness)
    harness.disk.full = True
    outcome = harness.write((b"a", b"2"))
    assert (outcome.error.code, outcome.error.cause) == (ErrorCode.NOT_COORDINATOR, ErrorCode.KAFKA_STORAGE_ERROR)
    assert not outcome.error.is_written
    assert harness.shard.values == {b"a": b"1"}
    assert stored(harness) == before
    harness.disk.full = False
    assert harness.write((b"a", b"3")).is_done
    assert harness.shard.values == harness.load_again().values == {b"a": b"3"}


def test_too_few_replicas_fail_the_decision_before_anything_is_written(harness: RuntimeHarness) -> None:
    harness.lead(replicas=(0, 1), isr=(0,), min_insync_replicas=2)
    outcome = harness.write((b"a", b"1"))
    assert (outcome.error.code, outcome.error.cause) == (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    )
    assert (harness.shard.values, stored(harness)) == ({}, b"")


def test_a_batch_above_the_topics_limit_is_an_unknown_error(harness: RuntimeHarness) -> None:
    harness.lead(max_message_bytes=1000)
    outcome = harness.write((b"a", b"x" * 1000))
    assert (outcome.error.code, outcome.error.cause) == (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.MESSAGE_TOO_LARGE)
    assert harness.shard.values == {}


def test_an_append_that_raises_is_logged_and_the_coordinator_goes_on(harness: RuntimeHarness) -> None:
    harness.lead()
    harness.write((b"a", b"1"))
    harness.disk.fault = ValueError("a mistake in the file layer")
    with structlog.testing.capture_logs() as lines:
        outcome = harness.write((b"a", b"2"))
    assert outcome.error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    (line,) = lines
    assert (line["event"], line["log_level"], line["partition"]) == (
        "coordinator append raised",
        "error",
        str(PARTITION),
    )
    assert (line["records"], line["written"]) == (1, False)
    harness.disk.fault = None
    assert harness.write((b"b", b"3")).is_done
    assert harness.shard.values == {b"a": b"1", b"b": b"3"}
    assert harness.shard.events == ["loaded"]
    assert harness.load_again().values == {b"a": b"1", b"b": b"3"}


def test_a_marker_that_a_shard_cannot_replay_is_logged_and_skipped(
    harness: RuntimeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("no")

    harness.lead()
    with monkeypatch.context() as faulty, structlog.testing.capture_logs() as lines:
        faulty.setattr(RecordingShard, "replay_end_transaction", fails)
        harness.mark(9)
    assert [(line["event"], line["log_level"]) for line in lines] == [("transaction marker not replayed", "error")]
    harness.mark(9)
    assert harness.shard.events == ["loaded", ("ended", 9, 0, True)]


class BreakingSession:
    """A fetch session that cannot be woken."""

    def awaken(self, target: object) -> bool:
        raise OSError("a mistake behind the append")


class BreakingTarget:
    session = BreakingSession()


def test_a_shard_is_loaded_again_if_its_append_raises_after_the_write(harness: RuntimeHarness) -> None:
    partition: Any = harness.lead(epoch=3)
    harness.write((b"a", b"1"))
    partition.watchers = {BreakingTarget(): None}
    with structlog.testing.capture_logs() as lines:
        outcome = harness.write((b"a", b"2"))
    assert outcome.error.code is ErrorCode.NOT_COORDINATOR
    assert [line["written"] for line in lines if line["event"] == "coordinator append raised"] == [True]
    harness.tasks.run()
    old, new = harness.made
    assert old.events == ["loaded", "unloaded"]
    assert (new.leader_epoch, new.events, new.values) == (3, ["loaded"], {b"a": b"2"})
    assert harness.write((b"b", b"3")).is_done
    assert new.values == {b"a": b"2", b"b": b"3"}


def test_acknowledgment_by_the_leader_alone_can_be_configured(tmp_path: Path) -> None:
    with runtime_harness(tmp_path, required_acks=1) as harness:
        harness.lead(replicas=(0, 1), isr=(0,), min_insync_replicas=2)
        assert harness.write((b"a", b"1")).is_done


def test_a_decision_without_acks_is_written_although_too_few_replicas_are_in_sync(harness: RuntimeHarness) -> None:
    harness.lead(replicas=(0, 1), isr=(0,), min_insync_replicas=2)
    assert harness.write((b"a", b"1")).error.cause is ErrorCode.NOT_ENOUGH_REPLICAS
    assert harness.write((b"a", b"2"), acks=0).is_done
    assert harness.shard.values == {b"a": b"2"}


def test_a_stopping_broker_answers_waiting_requests(harness: RuntimeHarness) -> None:
    harness.lead(replicas=(0, 1))
    outcome = harness.write((b"a", b"1"))
    harness.runtime.stop()
    harness.manager.shutdown()
    harness.turn()
    assert outcome.error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_every_batch_of_many_decisions_is_there_after_a_restart(tmp_path: Path) -> None:
    expected = {}
    with runtime_harness(tmp_path) as harness:
        harness.lead(segment_bytes=2000)
        for number in range(200):
            key, value = b"key %d" % (number % 60), None if number % 7 == 0 else b"value %d" % number
            assert harness.write((key, value)).is_done
            expected[key] = value
        assert len(list(iter_batches(stored(harness)))) > 0
    with runtime_harness(tmp_path) as again:
        again.lead(segment_bytes=2000)
        again.tasks.run()
        assert again.shard.values == {key: value for key, value in expected.items() if value is not None}
        assert again.shard.offsets == list(range(200))
