"""Our dump of Kafka's directories is the same as Kafka's."""

import contextlib
import io
from collections import Counter
from pathlib import Path

import pytest

from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.dump.coordinators import offsets_texts, plain_texts, transaction_texts
from odradek.storage.dump.files import DumpOptions, dump_files
from odradek.storage.files import OsFiles
from odradek.storage.producers.producer_state_entry import ProducerStateEntry
from odradek.storage.producers.snapshot_format import write_snapshot
from tests.storage.vector_logs import LOGS, partition_folders

CASES = [(name, partition) for name in ("clean", "recovered") for partition in partition_folders(name)]


def dumped(folder: Path, names: list[str], options: DumpOptions) -> tuple[list[str], list[str]]:
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder):
        dump_files(OsFiles(), names, options, out, errors)
    return out.getvalue().split("\n")[:-1], errors.getvalue().split("\n")[:-1]


def dump_and_warnings(lines: list[str]) -> tuple[list[str], Counter[tuple[str, ...]]]:
    """Returns the dump, followed by its groups of warnings: Kafka reports the files in no particular order."""
    body: list[str] = []
    groups: list[list[str]] = []
    for line in lines:
        if line.startswith(("Non-consecutive", "Found timestamp mismatch", "Mismatches")):
            groups.append([line.rpartition("/")[2].replace(":", "")])
        elif line.startswith("  "):
            groups[-1].append(line)
        else:
            body.append(line)
    for group in groups:
        group[0] = group[0].split(" ")[-1]
    return body, Counter(tuple(group) for group in groups)


@pytest.mark.parametrize(("name", "partition"), CASES, ids=str)
def test_our_dump_equals_kafkas_dump(name: str, partition: TopicPartition) -> None:
    folder = LOGS / name / str(partition)
    expected = (LOGS / name / "dump" / f"{partition}.txt").read_text(encoding="utf-8").split("\n")
    while not expected[-1]:
        expected.pop()
    known = (".index", ".log", ".snapshot", ".timeindex", ".txnindex")
    names = sorted(path.name for path in folder.iterdir() if path.suffix in known)
    texts = {"__consumer_offsets": offsets_texts, "__transaction_state": transaction_texts}.get(
        partition.topic, plain_texts
    )
    ours, problems = dumped(folder, names, DumpOptions(deep_iteration=True, print_data_log=True, texts=texts))
    indexes = [index for index in names if index.endswith((".index", ".timeindex"))]
    sanity, sanity_problems = dumped(folder, indexes, DumpOptions(index_sanity_check=True))
    assert sanity_problems == []
    body, groups = dump_and_warnings(expected)
    found_body, found_groups = dump_and_warnings(ours + problems + sanity)
    assert found_body == body
    assert found_groups == groups


def test_a_producer_that_has_written_nothing_since_its_transaction_ended_has_no_batch(tmp_path: Path) -> None:
    """The line is that which DumpLogSegments of Kafka 4.4 prints."""
    ended = ProducerStateEntry(0, producer_epoch=4, coordinator_epoch=0, last_timestamp=1795884320198)
    (tmp_path / "00000000000000000008.snapshot").write_bytes(write_snapshot([ended]))
    lines, problems = dumped(tmp_path, ["00000000000000000008.snapshot"], DumpOptions())
    assert problems == []
    assert lines[1:] == [
        "producerId: 0 producerEpoch: 4 coordinatorEpoch: 0 currentTxnFirstOffset: OptionalLong.empty lastTimestamp: "
        "1795884320198"
    ]
