"""Our cleaner compared with Apache Kafka's: Kafka's tools read our cleaned logs, and both keep the same records."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoint import CLEANER_OFFSET, read_offsets
from odradek.storage.cleaner.candidates import log_to_clean
from odradek.storage.files import OsFiles
from odradek.storage.log.log import Log
from tests.patience import PATIENCE_S
from tests.spawned_broker import free_port_beside_another
from tests.storage.cleaner.clean_logs import batches, clean, contents, end_transaction, put, seal
from tests.storage.small_logs import NOW, open_small
from tests.storage.vector_logs import LOGS, config_of, copy_of, open_manager

SETTINGS: dict[str, Any] = {
    "cleanup_policy": "compact",
    "segment_bytes": 3000,
    "index_interval_bytes": 200,
    "segment_index_bytes": 4096,
    "message_timestamp_after_max_ms": 2**63 - 1,
}


def fill(log: Log, now_ms: int, first: int = 0, rounds: int = 60) -> None:
    """Appends values, tombstones, codecs, an idempotent producer, and committed and aborted transactions."""
    for number in range(first, first + rounds):
        put(
            log,
            *[(b"%d" % (number * 7 % 23 + i), b"v%d" % number * (number % 9)) for i in range(3)],
            time=now_ms + number,
            compression=number % 5,
        )
        put(log, (b"%d" % (number % 11), None), time=now_ms + number)
        idempotent = {"producer_id": 1, "producer_epoch": 0, "base_sequence": number}
        put(log, (b"idempotent %d" % (number % 4), b"x"), time=now_ms + number, **idempotent)
        transaction = {"producer_id": 2, "producer_epoch": 0, "base_sequence": number, "is_transactional": True}
        put(log, (b"transaction %d" % (number % 5), b"%d" % number), time=now_ms + number, **transaction)
        end_transaction(log, 2, committed=number % 3 > 0, time=now_ms + number)


def kafkas_dump(tools: list[str], folder: Path, names: list[str], *flags: str) -> str:
    command = [*tools, "kafka.tools.DumpLogSegments", "--files", ",".join(names), *flags]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout + done.stderr


def test_kafka_finds_no_errors_in_cleaned_logs(tmp_path: Path, java_tools: list[str]) -> None:
    folder = tmp_path / "orders-0"
    log = open_small(OsFiles(), str(folder), **SETTINGS)
    for round_number in range(4):
        fill(log, NOW, 60 * round_number)
        seal(log)
        clean(log, NOW + round_number * 40_000_000)
    assert len(log.segments) > 2
    log.close()
    names = sorted(path.name for path in folder.iterdir() if path.suffix in (".log", ".index", ".timeindex"))
    deep = kafkas_dump(java_tools, folder, names, "--deep-iteration", "--print-data-log")
    assert "isvalid: false" not in deep
    assert not [
        line
        for line in deep.split("\n")
        if line.startswith(("Mismatches", "Found", "The following")) or "Exception" in line
    ]
    indexes = [name for name in names if name.endswith("index")]
    sane = kafkas_dump(java_tools, folder, indexes, "--index-sanity-check")
    assert sane.count("passed sanity check.") + sane.count("is empty.") == len(indexes)


COMPACTED = ["compacted-0", "compacted-idempotent-0", "compacted-transactions-0"]


@pytest.mark.parametrize("name", COMPACTED)
@pytest.mark.parametrize("state", ["clean", "killed"])
def test_logs_cleaned_by_kafka_are_cleaned_from_its_checkpoint_on(tmp_path: Path, name: str, state: str) -> None:
    """Records that Kafka kept stay, except for keys that later records have; a second clean changes nothing more."""
    directory = copy_of(state, tmp_path / "data")
    manager = open_manager(directory)
    log = manager.logs[TopicPartition(name.rpartition("-")[0], 0)]
    checkpointed = read_offsets(OsFiles(), str(LOGS / state / CLEANER_OFFSET)).get(log.topic_partition)
    assert log.state.cleaned_offset == checkpointed
    before = contents(log)
    log.update_high_watermark(log.state.log_end_offset)
    seal(log)
    now_ms = log.clock.wall_ms()
    bound = log_to_clean(log, now_ms).upper_bound_offset
    clean(log, now_ms)
    after = contents(log)
    assert set(after) <= set(before)
    last = {key: offset for offset, key, _ in after if offset < bound}
    assert [entry for entry in after if entry[0] < bound] == [
        entry for entry in after if last.get(entry[1]) == entry[0]
    ]
    put(log, (b"one more", b""))
    seal(log)
    clean(log, now_ms)
    assert [entry for entry in contents(log) if entry[0] < bound] == [entry for entry in after if entry[0] < bound]
    assert config_of(log.topic_partition.topic).compact
    manager.shutdown()


class Kafka:
    """A Kafka on `port` with its data below `directory`; the test starts and stops it."""

    def __init__(self, control: list[str], tools: list[str], directory: Path) -> None:
        self.port = free_port_beside_another()
        self.directory = directory
        self._control, self._tools = control, tools

    def start(self, *settings: str) -> None:
        command = [*self._control, "start", str(self.port), str(self.directory), *settings]
        subprocess.run(command, check=True, capture_output=True, timeout=120)

    def stop(self, *, check: bool = True) -> None:
        command = [*self._control, "stop", str(self.directory)]
        subprocess.run(command, check=check, capture_output=True, timeout=120)

    def create_topic(self) -> None:
        command = [*self._tools, "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", f"127.0.0.1:{self.port}"]
        command += ["--create", "--topic", "t", "--partitions", "1", "--replication-factor", "1"]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)


@pytest.fixture
def kafka(kafka_control: list[str], java_tools: list[str], tmp_path: Path) -> Iterator[Kafka]:
    kafka = Kafka(kafka_control, java_tools, tmp_path / "kafka")
    yield kafka
    kafka.stop(check=False)


def test_kafkas_cleaner_keeps_the_same_records_as_ours(tmp_path: Path, kafka: Kafka) -> None:
    """One of our logs replaces one of Kafka's, and both brokers clean it."""
    directory = kafka.directory
    settings = ["log.cleaner.backoff.ms=100", "log.cleaner.min.cleanable.ratio=0.01", "log.segment.bytes=3000"]
    settings += ["log.index.size.max.bytes=4096", "log.index.interval.bytes=200", "log.cleanup.policy=compact"]
    kafka.start(*settings, "log.cleaner.enable=true")
    kafka.create_topic()
    kafka.stop()

    now_ms = time.time_ns() // 1_000_000
    ours = tmp_path / "ours" / "t-0"
    log = open_small(OsFiles(), str(ours), **SETTINGS)
    fill(log, now_ms - 100_000)
    log.close()
    theirs = directory / "data" / "t-0"
    identity = (theirs / "partition.metadata").read_bytes()
    shutil.rmtree(theirs)
    shutil.copytree(ours, theirs)
    (theirs / "partition.metadata").write_bytes(identity)
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (directory / "data" / name).write_text(f"0\n1\nt 0 {log.state.log_end_offset}\n")

    log = open_small(OsFiles(), str(ours), **SETTINGS, options={"high_watermark": log.state.log_end_offset})
    sealed = log.segments.active.base_offset
    clean(log, now_ms)

    kafka.start(*settings)
    checkpoint = directory / "data" / CLEANER_OFFSET
    give_up = time.monotonic() + 60
    while not (checkpoint.exists() and f"t 0 {sealed}\n" in checkpoint.read_text()) and time.monotonic() < give_up:
        time.sleep(0.1)
    kafka.stop()
    by_kafka = open_small(OsFiles(), str(theirs), **SETTINGS)
    assert contents(by_kafka) == contents(log)

    def shapes(cleaned: Log) -> list[tuple[object, ...]]:
        """Without delete horizons, which depend on the two clocks."""
        return [
            (
                header.base_offset,
                header.last_offset,
                header.record_count,
                header.attributes,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.max_timestamp,
                [(record.offset, record.timestamp) for record in records],
            )
            for header, records in batches(cleaned)
            if header.last_offset + 1 != sealed  # 3.9.1 removes the last batch of a cleaned range
        ]

    assert shapes(by_kafka) == shapes(log)
