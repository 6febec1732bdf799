"""Kafka's own DumpLogSegments reads the files that our storage writes, and finds no errors."""

import io
import subprocess
from pathlib import Path
from typing import Any

import lz4.frame
import pytest

from odradek.protocol.batch_header import Compression
from odradek.protocol.control_records import ControlType
from odradek.protocol.record import record_bytes
from odradek.protocol.record_validation import AppendOrigin
from odradek.protocol.records import Record, build_end_transaction_marker
from odradek.storage.dump.files import DumpOptions, dump_files
from odradek.storage.files import OsFiles
from tests.protocol.test_sent_streams import STORED_NOTHING
from tests.scenarios.hostile_batches import batch_of
from tests.storage.small_logs import NOW, append, batch, idempotent, open_small
from tests.storage.vector_logs import copy_of, open_manager

KINDS = (".log", ".index", ".timeindex", ".snapshot", ".txnindex")


def kafkas_dump(tools: list[str], folder: Path, names: list[str], *flags: str) -> list[str]:
    command = [*tools, "kafka.tools.DumpLogSegments", "--files", ",".join(names), *flags]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=True, timeout=120, stdin=subprocess.DEVNULL
    )
    return (done.stdout + done.stderr).split("\n")[:-1]


def our_dump(folder: Path, names: list[str], options: DumpOptions, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(folder)
    out, errors = io.StringIO(), io.StringIO()
    assert dump_files(OsFiles(), names, options, out, errors)
    return (out.getvalue() + errors.getvalue()).split("\n")[:-1]


def check(tools: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = sorted(path.name for path in folder.iterdir() if path.suffix in KINDS)
    deep = kafkas_dump(tools, folder, names, "--deep-iteration", "--print-data-log")
    assert deep == our_dump(folder, names, DumpOptions(deep_iteration=True, print_data_log=True), monkeypatch)
    assert not [line for line in deep if line.endswith("isvalid: false") or "invalid" in line]
    wrong = ("Mismatches", "Found", "Non-consecutive", "The following")
    assert not [line for line in deep if line.startswith(wrong)]
    indexes = [name for name in names if name.endswith("index") and not name.endswith(".txnindex")]
    sane = kafkas_dump(tools, folder, indexes, "--index-sanity-check")
    assert sane == our_dump(folder, indexes, DumpOptions(index_sanity_check=True), monkeypatch)
    results = [line for line in sane if not line.startswith("Dumping")]
    assert len(results) == len(indexes)
    assert all(line.endswith(("passed sanity check.", "is empty.")) for line in results)


def fill(folder: Path, clean: bool, **settings: Any) -> None:
    settings = {"segment_bytes": 3000, "index_interval_bytes": 200, **settings}
    log = open_small(OsFiles(), str(folder), **settings)
    for number in range(60):
        values = [b"value %d" % number] * (1 + number % 3)
        append(log, batch(*values, timestamp=NOW + 10 * (number ^ 3), compression=number % 5))
        append(log, idempotent(number, b"idempotent", timestamp=NOW + 10 * number))
        transaction = idempotent(number, b"t", producer_id=9, is_transactional=True, timestamp=NOW + 10 * number)
        append(log, transaction)
        control_type = ControlType.ABORT if number % 2 else ControlType.COMMIT
        marker = build_end_transaction_marker(
            control_type, timestamp=NOW, producer_id=9, producer_epoch=0, coordinator_epoch=2
        )
        log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)
    if clean:
        log.close()
    else:
        log.flush()
        log.segments.close_files()


def test_kafka_reads_the_lz4_frames_with_another_end_mark_that_a_producer_may_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, java_tools: list[str]
) -> None:
    folder = tmp_path / "orders-0"
    log = open_small(OsFiles(), str(folder))
    frames: list[tuple[bytes, dict[str, bool]]] = [
        (STORED_NOTHING, {}),
        (STORED_NOTHING * 2, {}),
        (STORED_NOTHING + bytes(4), {"store_size": True}),
        (STORED_NOTHING, {"block_checksum": True}),
    ]
    values = [b"value %d" % number for number in range(3)]
    for end, options in frames:
        records = b"".join(record_bytes(Record(value=value), delta, 0) for delta, value in enumerate(values))
        frame = lz4.frame.compress(records, block_linked=False, **{"store_size": False} | options)
        append(log, batch_of(frame.removesuffix(bytes(4)) + end, 3, Compression.LZ4))
    log.close()
    names = ["00000000000000000000.log"]
    lines = kafkas_dump(java_tools, folder, names, "--deep-iteration", "--print-data-log")
    shown = [line.rpartition("payload: ")[2].encode() for line in lines if "payload" in line]
    assert shown == values * len(frames)
    assert lines == our_dump(folder, names, DumpOptions(deep_iteration=True, print_data_log=True), monkeypatch)


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
def test_kafka_finds_no_errors_in_our_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, java_tools: list[str], clean: bool
) -> None:
    folder = tmp_path / "orders-0"
    fill(folder, clean)
    check(java_tools, folder, monkeypatch)


def test_kafka_finds_no_errors_in_logs_with_log_append_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, java_tools: list[str]
) -> None:
    folder = tmp_path / "orders-0"
    fill(folder, True, message_timestamp_type="LogAppendTime", compression_type="lz4")
    check(java_tools, folder, monkeypatch)


def test_kafka_finds_no_errors_in_recovered_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, java_tools: list[str]
) -> None:
    directory = copy_of("damaged", tmp_path / "data")
    manager = open_manager(directory)
    manager.shutdown()
    for partition in ("plain-0", "plain-1", "compressed-0", "untidy-times-0", "append-time-0"):
        check(java_tools, directory / partition, monkeypatch)
