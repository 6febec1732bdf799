"""Directories of a real broker, clean, killed or damaged, are opened and have the content that Kafka reported."""

import base64
import hashlib
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.background.stepwise import finished
from odradek.protocol.control_records import read_control_type, read_coordinator_epoch
from odradek.protocol.errors import ProtocolError
from odradek.protocol.record_validation import AppendOrigin
from odradek.protocol.records import Record, build_batch, check_crc, iter_batches, read_batch_header, read_records
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.log.log import Log
from odradek.storage.segment.segment import LogSegment
from tests.storage.small_logs import bytes_of
from tests.storage.vector_logs import LOGS, answers, config_of, contents, copy_of, open_manager, partition_folders

READ_UNCOMMITTED, READ_COMMITTED = 0, 1

# clean/ is the directory of killed/ after a restart; the broker cleaned these logs once more.
CLEANED_SINCE = {
    TopicPartition("compacted", 0),
    TopicPartition("compacted-idempotent", 0),
    TopicPartition("compacted-transactions", 0),
}


@pytest.fixture(scope="module")
def managers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    opened = {}
    for name, source in (("clean", "clean"), ("recovered", "damaged"), ("killed", "killed")):
        directory = copy_of(source, tmp_path_factory.mktemp(source) / "data")
        opened[name] = open_manager(directory)
    yield opened
    for manager in opened.values():
        manager.release()


CASES = [(name, partition) for name in ("clean", "recovered") for partition in partition_folders(name)]
ANSWERED = [(name, partition) for name in ("clean", "recovered") for partition in sorted(answers(name))]


def log_of(managers: dict[str, LogManager], name: str, partition: TopicPartition) -> Log:
    log = managers[name].get(partition)
    assert log is not None
    # what the leader of a single replica does first
    if name != "killed" and partition in answers(name):
        latest = answers(name)[partition]["listOffsets"][0]
        assert latest["timestampAsked"] == -1
        log.assign_epoch_start_offset(latest["leaderEpoch"])
    log.update_high_watermark(log.state.log_end_offset)
    return log


def text(value: bytes | None) -> Any:
    if value is None:
        return None
    if len(value) > 512:
        return {"length": len(value), "sha256": hashlib.sha256(value).hexdigest()}
    return base64.b64encode(value).decode()


def described_record(record: Record, is_control: bool) -> dict[str, Any]:
    described: dict[str, Any] = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "sequence": record.sequence,
        "key": text(record.key),
        "value": text(record.value),
        "headers": [[key, text(value)] for key, value in record.headers],
    }
    if is_control:
        described["controlType"] = read_control_type(record.key).name
        described["coordinatorEpoch"] = read_coordinator_epoch(record.value)
    return described


def described_segment(segment: LogSegment) -> list[dict[str, Any]]:
    data = bytes(segment.file.read(0, segment.size))
    described = []
    for position, header in iter_batches(data):
        described.append(
            {
                "segment": segment.path(".log").rpartition("/")[2],
                "position": position,
                "baseOffset": header.base_offset,
                "lastOffset": header.last_offset,
                "sizeInBytes": header.size_in_bytes,
                "crc": header.crc,
                "crcOk": check_crc(data, position, header),
                "rawMaxTimestamp": header.max_timestamp,
                "partitionLeaderEpoch": header.partition_leader_epoch,
                "attributes": header.attributes,
                "producerId": header.producer_id,
                "producerEpoch": header.producer_epoch,
                "baseSequence": header.base_sequence,
                "records": [
                    described_record(record, header.is_control) for record in read_records(data, position, header)
                ],
            }
        )
    return described


@pytest.mark.parametrize(("name", "partition"), CASES, ids=str)
def test_every_batch_equals_the_one_that_kafka_reads(
    managers: dict[str, LogManager], name: str, partition: TopicPartition
) -> None:
    log = log_of(managers, name, partition)
    found = [batch for segment in log.segments for batch in described_segment(segment)]
    expected = contents(name, partition)
    assert [{key: batch[key] for key in found[0]} for batch in expected] == found


@pytest.mark.parametrize(("name", "partition"), ANSWERED, ids=str)
def test_offsets_by_time_equal_kafkas(managers: dict[str, LogManager], name: str, partition: TopicPartition) -> None:
    log = log_of(managers, name, partition)
    for asked in answers(name)[partition]["listOffsets"]:
        last = log.last_stable_offset if asked["isolationLevel"] == READ_COMMITTED else log.state.high_watermark
        found = finished(log.search.offset_for_timestamp(asked["timestampAsked"]))
        timestamp, offset, epoch = found if found is not None else (-1, -1, -1)
        if asked["timestampAsked"] == -1:
            offset = last
        elif asked["timestampAsked"] != -2 and offset >= last:
            timestamp, offset, epoch = -1, -1, -1
        assert (timestamp, offset, epoch) == (asked["timestamp"], asked["offset"], asked["leaderEpoch"]), asked


@pytest.mark.parametrize(("name", "partition"), ANSWERED, ids=str)
def test_fetches_return_the_same_as_kafkas(
    managers: dict[str, LogManager], name: str, partition: TopicPartition
) -> None:
    log = log_of(managers, name, partition)
    for asked in answers(name)[partition]["fetch"]:
        committed = asked["isolationLevel"] == READ_COMMITTED
        upper = log.last_stable_offset_metadata if committed else log.positions.high_watermark
        if asked["errorCode"]:
            with pytest.raises(ProtocolError) as error:
                log.reader.read(asked["fetchOffset"], asked["partitionMaxBytes"], upper=upper)
            assert error.value.code == asked["errorCode"]
            continue
        data = log.reader.read(asked["fetchOffset"], asked["partitionMaxBytes"], upper=upper)
        assert len(data.records) == asked["bytes"], asked
        assert [header.base_offset for _, header in iter_batches(bytes_of(data))] == asked["batchBaseOffsets"], asked
        bounds = (asked["highWatermark"], asked["lastStableOffset"], asked["logStartOffset"])
        assert (log.state.high_watermark, log.last_stable_offset, log.state.log_start_offset) == bounds
        if committed:
            aborted = [(found.producer_id, found.first_offset) for found in log.reader.aborted_transactions(data)]
            expected = asked["abortedTransactions"] or []
            assert aborted == [(entry["ProducerId"], entry["FirstOffset"]) for entry in expected], asked


@pytest.mark.parametrize(("name", "partition"), ANSWERED, ids=str)
def test_end_offsets_of_leader_epochs_equal_kafkas(
    managers: dict[str, LogManager], name: str, partition: TopicPartition
) -> None:
    log = log_of(managers, name, partition)
    for asked in answers(name)[partition]["offsetForLeaderEpoch"]:
        found = log.end_offset_for_epoch(asked["epochAsked"])
        assert tuple(found) == (asked["leaderEpoch"], asked["endOffset"]), asked


@pytest.mark.parametrize(("name", "partition"), ANSWERED, ids=str)
def test_the_producers_equal_kafkas(managers: dict[str, LogManager], name: str, partition: TopicPartition) -> None:
    log = log_of(managers, name, partition)
    found = [
        {
            "ProducerId": entry.producer_id,
            "ProducerEpoch": entry.producer_epoch,
            "LastSequence": entry.last_sequence,
            "LastTimestamp": entry.last_timestamp,
            "CoordinatorEpoch": entry.coordinator_epoch,
            "CurrentTxnStartOffset": entry.current_transaction_first_offset,
        }
        for entry in log.producers.state.producers.values()
    ]
    key = lambda entry: entry["ProducerId"]  # noqa: E731
    assert sorted(found, key=key) == sorted(answers(name)[partition]["producers"], key=key)


@pytest.mark.parametrize("partition", partition_folders("killed"), ids=str)
def test_a_killed_brokers_directory_is_recovered_as_by_kafka(
    managers: dict[str, LogManager], partition: TopicPartition
) -> None:
    log = log_of(managers, "killed", partition)
    found = [batch for segment in log.segments for batch in described_segment(segment)]
    expected = contents("clean", partition)
    if partition in CLEANED_SINCE:
        # the cleaner ran after the restart: the records that it kept must equal ours at those offsets
        kept = {record["offset"]: record for batch in expected for record in batch["records"]}
        ours = {record["offset"]: record for batch in found for record in batch["records"]}
        assert all(ours[offset]["value"] == record["value"] for offset, record in kept.items() if offset in ours)
        assert set(kept) <= set(ours)
        return
    assert bool(found) == bool(expected)
    by_base = {batch["baseOffset"]: batch for batch in expected}
    for batch in found:
        assert batch["crcOk"]
        known = by_base.get(batch["baseOffset"])
        assert known is not None, batch["baseOffset"]
        assert batch["records"] == known["records"]


@pytest.mark.parametrize("partition", partition_folders("recovered"), ids=str)
def test_the_rebuilt_indexes_of_a_damaged_log_find_the_same_as_kafkas(
    managers: dict[str, LogManager], partition: TopicPartition, tmp_path: Path
) -> None:
    log = log_of(managers, "recovered", partition)
    other = open_manager(copy_of("recovered", tmp_path / "data", str(partition), "meta.properties"))
    theirs = other.get(partition)
    assert theirs is not None
    assert log.segments.base_offsets == theirs.segments.base_offsets
    for ours, kafkas in zip(log.segments, theirs.segments, strict=True):
        for offset in range(kafkas.base_offset, log.state.log_end_offset + 1):
            assert ours.locate(offset) == kafkas.locate(offset)
        assert ours.transaction_index.entries() == kafkas.transaction_index.entries()
    other.release()


@pytest.mark.parametrize("name", ["clean", "killed", "damaged"])
def test_an_opened_directory_can_be_written_and_opened_again(name: str, tmp_path: Path) -> None:
    directory = copy_of(name, tmp_path / "data")
    manager = open_manager(directory)
    ends = {}
    for partition, log in manager.logs.items():
        batch = build_batch([Record(timestamp=1795231600000, key=b"k", value=b"v")])
        info = log.append_as_leader(batch, 9, origin=AppendOrigin.COORDINATOR)
        ends[partition] = info.last_offset + 1
    manager.shutdown()
    again = open_manager(directory)
    assert {partition: log.state.log_end_offset for partition, log in again.logs.items()} == ends
    for log in again.logs.values():
        assert log.leader_epochs.latest_epoch == 9
        data = log.reader.read(log.state.log_end_offset - 1, 1 << 20)
        assert read_batch_header(bytes_of(data)).partition_leader_epoch == 9
    again.shutdown()


def test_opening_and_closing_a_cleanly_closed_directory_does_not_change_it(tmp_path: Path) -> None:
    directory = copy_of("clean", tmp_path / "data")
    manager = open_manager(directory)
    manager.shutdown()
    for folder in partition_folders("clean"):
        files = sorted((LOGS / "clean" / str(folder)).iterdir())
        snapshots = [path for path in files if path.suffix == ".snapshot"]
        segments = {path.stem for path in files if path.suffix == ".log"}
        strays = [path for path in snapshots[:-1] if path.stem not in segments]  # Kafka's next start removes them too
        for before in files:
            if before in strays:
                continue
            after = directory / str(folder) / before.name
            if before.name == "leader-epoch-checkpoint" and not contents("clean", folder):
                continue  # Kafka too drops an epoch that starts at the log's end until there is a leader
            assert after.read_bytes() == before.read_bytes(), after
        extra = {path.name for path in (directory / str(folder)).iterdir()}
        assert extra == {path.name for path in files if path not in strays}, folder


def test_segments_marked_for_deletion_are_removed_when_the_directory_is_opened(
    managers: dict[str, LogManager], tmp_path: Path
) -> None:
    waiting = list((LOGS / "killed").rglob("*.deleted"))
    assert waiting
    manager = open_manager(copy_of("killed", tmp_path / "data"))
    assert not list((tmp_path / "data").rglob("*.deleted"))
    manager.release()


def test_a_lost_leader_epoch_checkpoint_is_rebuilt_even_after_a_clean_shutdown(tmp_path: Path) -> None:
    directory = copy_of("clean", tmp_path / "data")
    (directory / "plain-0" / "leader-epoch-checkpoint").unlink()
    manager = open_manager(directory)
    log = manager.get(TopicPartition("plain", 0))
    assert log is not None
    # epochs according to the batches: they start with their first batch, not with the election
    assert [epoch for epoch, _ in log.leader_epochs.entries] == [0, 2, 4]
    manager.release()


def test_kafkas_settings_were_used_for_these_directories() -> None:
    assert config_of("plain").segment_bytes == 4096
    assert max(path.stat().st_size for path in (LOGS / "clean" / "plain-0").glob("*.log")) <= 4096
