"""Logs of Apache Kafka are read as Kafka reads them: after a kill, after a clean stop, damaged and recovered."""

from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.segments.log_files import LOGS, as_vector, copy_of, json_lines, rows_of, stored

CLEAN = sorted(entry.name for entry in (LOGS / "clean").iterdir() if entry.is_dir() and entry.name[-1].isdigit())
RECOVERED = sorted(entry.name for entry in (LOGS / "recovered").iterdir() if entry.name[-1].isdigit())


def batches_of(name: str, partition: str) -> list[Any]:
    return json_lines(LOGS / name / "contents" / f"{partition}.jsonl")


def latest(name: str, partition: str) -> dict[int, int]:
    """The end offsets that the broker reported, by isolation level."""
    for answer in json_lines(LOGS / name / "answers.jsonl"):
        if f"{answer['topic']}-{answer['partition']}" == partition:
            return {
                one["isolationLevel"]: one["offset"] for one in answer["listOffsets"] if one["timestampAsked"] == -1
            }
    raise AssertionError(f"no answers for {partition}")


def without_aborted(batches: list[Any], stable: int) -> list[Any]:
    """The batches visible to read_committed, by the markers."""
    aborted: set[int] = set()
    pending: dict[int, list[int]] = {}
    for number, batch in enumerate(batches):
        if batch["isControl"]:
            members = pending.pop(batch["producerId"], [])
            if batch["records"] and batch["records"][0]["controlType"] == "ABORT":
                aborted.update(members)
        elif batch["isTransactional"]:
            pending.setdefault(batch["producerId"], []).append(number)
    return [one for number, one in enumerate(batches) if number not in aborted and one["lastOffset"] < stable]


def log_start(partition: str) -> int:
    return 101 if partition == "trimmed-0" else 0


@pytest.mark.parametrize(
    ("name", "partition"),
    [("clean", one) for one in CLEAN] + [("killed", one) for one in CLEAN if not one.startswith("__")],
)
def test_every_log_is_read_as_by_kafka(name: str, partition: str) -> None:
    topic, number = partition.rsplit("-", 1)
    rows = rows_of(LOGS / name, topic, isolationLevel="read_uncommitted")
    expected = stored(batches_of("clean", partition), topic, int(number))
    assert [as_vector(row) for row in rows if row["partition"] == int(number)] == [
        row for row in expected if row["offset"] >= log_start(partition)
    ]


@pytest.mark.parametrize("partition", ["transactions-0", "transactions-1", "compacted-transactions-0", "plain-0"])
def test_aborted_and_open_transactions_are_not_returned(partition: str) -> None:
    topic, number = partition.rsplit("-", 1)
    ends = latest("clean", partition)
    batches = without_aborted(batches_of("clean", partition), ends[1])
    rows = [as_vector(row) for row in rows_of(LOGS / "clean", topic) if row["partition"] == int(number)]
    assert rows == stored(batches, topic, int(number))


def test_the_vectors_have_aborted_and_open_transactions() -> None:
    ends = latest("clean", "transactions-0")
    batches = batches_of("clean", "transactions-0")
    assert ends[1] < ends[0]
    visible = without_aborted(batches, ends[1])
    assert 0 < len(visible) < len([batch for batch in batches if batch["lastOffset"] < ends[1]])


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("partition", RECOVERED)
def test_damaged_logs_are_read_as_kafka_recovers_them(partition: str, isolation: str) -> None:
    topic, number = partition.rsplit("-", 1)
    rows = rows_of(LOGS / "damaged", topic, isolationLevel=isolation)
    batches = batches_of("recovered", partition)
    if isolation == "read_committed":
        batches = without_aborted(batches, latest("recovered", partition)[1])
    assert [as_vector(row) for row in rows if row["partition"] == int(number)] == stored(batches, topic, int(number))


@pytest.mark.parametrize("damage", ["no snapshots", "damaged snapshots", "damaged transaction indexes", "no indexes"])
@pytest.mark.parametrize("partition", ["transactions-0", "transactions-1"])
def test_transactions_are_read_from_the_log_if_its_index_files_are_damaged(
    tmp_path: Path, partition: str, damage: str
) -> None:
    topic = "transactions"
    copy = copy_of("clean", tmp_path, partition)
    kind, suffix = {
        "no snapshots": ("remove", "snapshot"),
        "damaged snapshots": ("damage", "snapshot"),
        "damaged transaction indexes": ("damage", "txnindex"),
        "no indexes": ("remove", "index"),
    }[damage]
    files = [file for file in (copy / partition).iterdir() if file.suffix == f".{suffix}"]
    assert files
    for file in files:
        if kind == "remove":
            file.unlink()
        else:
            file.write_bytes(b"\x7f" + file.read_bytes()[1:])
    expected = [row for row in rows_of(LOGS / "clean", topic) if f"{topic}-{row['partition']}" == partition]
    assert expected
    assert rows_of(copy, topic) == expected
