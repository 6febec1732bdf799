"""The coordinators' runtime: the leader of an id's partition, and the outcome of decisions."""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from odradek.broker.coordinator.record import CoordinatorRecord
from odradek.broker.coordinator.shard import Decision
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.records import Compression, iter_batches, read_batch_header, read_records
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.coordinator.workplace import PARTITION, TOPIC, Notes, Outcome, Workplace, workplace
from tests.storage.small_logs import bytes_of


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workplace]:
    with workplace(tmp_path) as place:
        yield place


def refusal(place: Workplace, key: str = "g") -> ErrorCode | None:
    try:
        place.runtime.shard_for(key)
    except ProtocolError as error:
        return error.code
    return None


def stored(place: Workplace) -> bytes:
    log = place.manager.partition(PARTITION).log
    return bytes_of(log.read(0, 1 << 20)) if log.log_end_offset else b""


# Who coordinates


def test_an_id_whose_partition_another_broker_leads_has_another_coordinator(place: Workplace) -> None:
    assert refusal(place) is ErrorCode.NOT_COORDINATOR
    place.lead()
    assert refusal(place) is None
    place.manager.stop_replica(PARTITION)
    assert refusal(place) is ErrorCode.NOT_COORDINATOR


def test_each_id_has_the_shard_of_its_partition(tmp_path: Path) -> None:
    with workplace(tmp_path, partitions=50) as place:
        place.lead(TopicPartition(TOPIC, 3))
        place.lead(TopicPartition(TOPIC, 0))
        found: Any = place.runtime.shard_for("g")
        assert found.partition == 3
        found = place.runtime.shard_for("polygenelubricants")  # its hash is the smallest int
        assert found.partition == 0
        assert refusal(place, "h") is ErrorCode.NOT_COORDINATOR
        loaded: Any = place.runtime.shards()
        assert [shard.partition for shard in loaded] == [0, 3]


def test_an_empty_partition_is_loaded_when_leadership_begins(place: Workplace) -> None:
    place.lead(epoch=7)
    assert (place.shard.leader_epoch, place.shard.events) == (7, ["loaded"])
    assert not place.runtime.loading


def test_leadership_of_other_topics_is_ignored(place: Workplace) -> None:
    place.lead(TopicPartition("t", 0))
    place.manager.stop_replica(TopicPartition("t", 0))
    assert place.made == []


def test_renewed_leadership_in_the_same_epoch_changes_nothing(place: Workplace) -> None:
    place.lead(epoch=3)
    place.write((b"k", b"v"))
    place.lead(epoch=3)
    assert len(place.made) == 1
    assert place.shard.values == {b"k": b"v"}


def test_a_new_leader_epoch_loads_the_shard_again(place: Workplace) -> None:
    place.lead(epoch=3)
    place.write((b"k", b"v"))
    place.lead(epoch=4)
    old, new = place.made
    assert old.events == ["loaded", "unloaded"]
    assert refusal(place) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    place.tasks.run()
    assert (new.leader_epoch, new.values, new.events) == (4, {b"k": b"v"}, ["loaded"])


def test_partitions_that_are_led_before_the_start_are_loaded_at_the_start(tmp_path: Path) -> None:
    place = Workplace(tmp_path)
    place.lead()
    assert place.made == []
    place.runtime.start()
    assert place.shard.events == ["loaded"]
    place.logs.close()


def test_a_deleted_topic_leaves_no_coordinator(place: Workplace) -> None:
    place.lead()
    place.write((b"k", b"v"))
    folder = place.log_file().parent
    place.manager.stop_replica(PARTITION, delete=True)
    assert place.shard.events == ["loaded", "unloaded"]
    shutil.rmtree(folder)
    place.lead(epoch=1)
    assert (len(place.made), place.shard.values, place.shard.events) == (2, {}, ["loaded"])


def test_a_stopping_runtime_unloads_every_shard_and_is_not_available(tmp_path: Path) -> None:
    with workplace(tmp_path, partitions=2) as place:
        for partition in range(2):
            place.lead(TopicPartition(TOPIC, partition))
        place.runtime.stop()
        assert [shard.events for shard in place.made] == [["loaded", "unloaded"]] * 2
        assert refusal(place) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert place.runtime.shards() == []
        place.lead(TopicPartition(TOPIC, 1), epoch=9)
        assert len(place.made) == 2


def test_a_shard_that_fails_to_unload_does_not_keep_others_from_unloading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(shard: Notes) -> None:
        shard.events.append("unloaded")
        raise RuntimeError("no")

    with workplace(tmp_path, partitions=2) as place:
        for partition in range(2):
            place.lead(TopicPartition(TOPIC, partition))
        monkeypatch.setattr(Notes, "unload", fails)
        place.runtime.stop()
        assert [shard.events for shard in place.made] == [["loaded", "unloaded"]] * 2


# Acting


def test_a_decision_is_appended_as_one_batch_then_replayed_then_completed(place: Workplace) -> None:
    place.lead()
    order: list[str] = []
    shard: Any = place.runtime.shard_for("g")
    replay = shard.replay

    def noted(record: CoordinatorRecord, **where: Any) -> None:
        order.append("replayed")
        replay(record, **where)

    shard.replay = noted
    records = [CoordinatorRecord(b"a", b"1"), CoordinatorRecord(b"b", None)]
    decision = Decision(records, lambda error: order.append(f"done {error}"))
    place.runtime.act(shard, decision)
    assert order == ["replayed", "replayed", "done None"]
    assert decision.base_offset == 0
    data = stored(place)
    header = read_batch_header(data)
    assert (header.record_count, header.producer_id, header.base_sequence) == (2, -1, -1)
    assert not header.is_transactional
    assert [(record.key, record.value) for record in read_records(data, 0, header)] == [(b"a", b"1"), (b"b", None)]
    assert {record.timestamp for record in read_records(data, 0, header)} == {place.clock.wall_ms()}


def test_records_are_replayed_with_their_offsets(place: Workplace) -> None:
    place.lead()
    place.write((b"a", b"1"), (b"b", b"2"))
    place.write((b"c", b"3"))
    assert place.shard.offsets == [0, 1, 2]


def test_a_decision_without_records_completes_and_writes_nothing(place: Workplace) -> None:
    place.lead()
    assert place.write().is_done
    assert stored(place) == b""


def test_a_decision_may_skip_the_replay_of_its_records(place: Workplace) -> None:
    place.lead()
    assert place.write((b"a", b"1"), replay=False).is_done
    assert place.shard.values == {}
    assert place.load_again().values == {b"a": b"1"}


def test_a_transactional_decision_is_part_of_its_transaction(place: Workplace) -> None:
    place.lead()
    place.write((b"a", b"1"), producer_id=9, producer_epoch=2, base_sequence=0)
    header = read_batch_header(stored(place))
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 0)
    assert place.shard.values == {}
    place.mark(9, 2)
    assert place.shard.values == {b"a": b"1"}
    assert place.shard.events[-1] == ("ended", 9, 2, True)


def test_batches_are_compressed_with_the_configured_codec(tmp_path: Path) -> None:
    with workplace(tmp_path, compression=Compression.GZIP) as place:
        place.lead(compression_type="producer")
        place.write((b"a", b"1" * 1000))
        assert read_batch_header(stored(place)).compression == Compression.GZIP
        assert place.load_again().values == {b"a": b"1" * 1000}


def test_a_decision_completes_at_the_high_watermark(place: Workplace) -> None:
    partition = place.lead(replicas=(0, 1))
    outcome = place.write((b"a", b"1"))
    assert place.shard.values == {b"a": b"1"}
    assert outcome.results == []
    assert partition.update_follower(1, 1, 0)
    place.manager._wakeups.watermark_moved(partition)
    assert outcome.results == []  # not in the middle of the follower's fetch
    place.turn()
    assert outcome.is_done


def test_a_decision_completes_after_the_flush_if_the_topic_flushes_every_append(place: Workplace) -> None:
    place.lead(flush_messages=1)
    outcome = place.write((b"a", b"1"))
    assert outcome.results == []
    place.threads.run()
    place.turn()
    assert outcome.is_done


def test_an_append_that_is_not_replicated_in_time_is_coordinator_not_available(place: Workplace) -> None:
    place.lead(replicas=(0, 1))
    outcome = place.write((b"a", b"1"))
    slow = place.write((b"b", b"2"), timeout_ms=60_000)
    place.advance(4_999)
    assert outcome.results == []
    place.advance(2)
    assert (outcome.error.code, outcome.error.cause) == (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    )
    assert slow.results == []
    assert place.load_again().values == {b"a": b"1", b"b": b"2"}


def test_losing_leadership_while_an_append_waits_is_not_coordinator(place: Workplace) -> None:
    place.lead(replicas=(0, 1))
    shard = place.shard
    outcome = place.write((b"a", b"1"))
    place.manager.stop_replica(PARTITION)
    assert shard.events == ["loaded", "unloaded"]
    place.turn()
    assert (outcome.error.code, outcome.error.cause) == (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )


def test_a_decision_for_an_unloaded_shard_is_not_coordinator(place: Workplace) -> None:
    place.lead()
    shard = place.shard
    place.manager.stop_replica(PARTITION)
    outcome = Outcome()
    place.runtime.act(shard, Decision([CoordinatorRecord(b"a", b"1")], outcome))
    assert outcome.error.code is ErrorCode.NOT_COORDINATOR
    assert shard.values == {}


def test_a_full_disk_logs_one_line_for_all_refused_appends(place: Workplace) -> None:
    place.lead()
    place.disk.full = True
    with capture_logs() as lines:
        for _ in range(50):
            assert place.write((b"key", b"value")).error.cause is ErrorCode.KAFKA_STORAGE_ERROR
    assert Counter(line["event"] for line in lines) == {"coordinator append failed": 1, "append failed": 1}


def test_a_full_disk_fails_the_decision_and_replays_nothing(place: Workplace) -> None:
    place.lead()
    place.write((b"a", b"1"))
    before = stored(place)
    place.disk.full = True
    outcome = place.write((b"a", b"2"))
    assert (outcome.error.code, outcome.error.cause) == (ErrorCode.NOT_COORDINATOR, ErrorCode.KAFKA_STORAGE_ERROR)
    assert place.shard.values == {b"a": b"1"}
    assert stored(place) == before
    place.disk.full = False
    assert place.write((b"a", b"3")).is_done
    assert place.shard.values == place.load_again().values == {b"a": b"3"}


def test_too_few_replicas_fail_the_decision_before_anything_is_written(place: Workplace) -> None:
    place.lead(replicas=(0, 1), isr=(0,), min_insync_replicas=2)
    outcome = place.write((b"a", b"1"))
    assert (outcome.error.code, outcome.error.cause) == (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    )
    assert (place.shard.values, stored(place)) == ({}, b"")


def test_a_batch_above_the_topics_limit_is_an_unknown_error(place: Workplace) -> None:
    place.lead(max_message_bytes=1000)
    outcome = place.write((b"a", b"x" * 1000))
    assert (outcome.error.code, outcome.error.cause) == (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.MESSAGE_TOO_LARGE)
    assert place.shard.values == {}


def test_an_append_that_raises_is_logged_and_the_coordinator_goes_on(place: Workplace) -> None:
    place.lead()
    place.write((b"a", b"1"))
    place.disk.fault = ValueError("a mistake in the file layer")
    with structlog.testing.capture_logs() as lines:
        outcome = place.write((b"a", b"2"))
    assert outcome.error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    (line,) = lines
    assert (line["event"], line["log_level"], line["partition"]) == (
        "coordinator append raised",
        "error",
        str(PARTITION),
    )
    assert (line["records"], line["written"]) == (1, False)
    place.disk.fault = None
    assert place.write((b"b", b"3")).is_done
    assert place.shard.values == {b"a": b"1", b"b": b"3"}
    assert place.shard.events == ["loaded"]
    assert place.load_again().values == {b"a": b"1", b"b": b"3"}


def test_a_marker_that_a_shard_cannot_replay_is_logged_and_skipped(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("no")

    place.lead()
    with monkeypatch.context() as faulty, structlog.testing.capture_logs() as lines:
        faulty.setattr(Notes, "replay_end_transaction", fails)
        place.mark(9)
    assert [(line["event"], line["log_level"]) for line in lines] == [("transaction marker not replayed", "error")]
    place.mark(9)
    assert place.shard.events == ["loaded", ("ended", 9, 0, True)]


class BreakingSession:
    """A fetch session that cannot be woken."""

    def awaken(self, target: object) -> bool:
        raise OSError("a mistake behind the append")


class BreakingTarget:
    session = BreakingSession()


def test_a_shard_is_loaded_again_if_its_append_raises_after_the_write(place: Workplace) -> None:
    partition: Any = place.lead(epoch=3)
    place.write((b"a", b"1"))
    partition.watchers = {BreakingTarget()}
    with structlog.testing.capture_logs() as lines:
        outcome = place.write((b"a", b"2"))
    assert outcome.error.code is ErrorCode.NOT_COORDINATOR
    assert [line["written"] for line in lines if line["event"] == "coordinator append raised"] == [True]
    place.tasks.run()
    old, new = place.made
    assert old.events == ["loaded", "unloaded"]
    assert (new.leader_epoch, new.events, new.values) == (3, ["loaded"], {b"a": b"2"})
    assert place.write((b"b", b"3")).is_done
    assert new.values == {b"a": b"2", b"b": b"3"}


def test_acknowledgment_by_the_leader_alone_can_be_configured(tmp_path: Path) -> None:
    with workplace(tmp_path, required_acks=1) as place:
        place.lead(replicas=(0, 1), isr=(0,), min_insync_replicas=2)
        assert place.write((b"a", b"1")).is_done


def test_a_stopping_broker_answers_waiting_requests(place: Workplace) -> None:
    place.lead(replicas=(0, 1))
    outcome = place.write((b"a", b"1"))
    place.runtime.stop()
    place.manager.shutdown()
    place.turn()
    assert outcome.error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_every_batch_of_many_decisions_is_there_after_a_restart(tmp_path: Path) -> None:
    expected = {}
    with workplace(tmp_path) as place:
        place.lead(segment_bytes=2000)
        for number in range(200):
            key, value = b"key %d" % (number % 60), None if number % 7 == 0 else b"value %d" % number
            assert place.write((key, value)).is_done
            expected[key] = value
        assert len(list(iter_batches(stored(place)))) > 0
    with workplace(tmp_path) as again:
        again.lead(segment_bytes=2000)
        again.tasks.run()
        assert again.shard.values == {key: value for key, value in expected.items() if value is not None}
        assert again.shard.offsets == list(range(200))
