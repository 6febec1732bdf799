"""After a fault: the replicas of each partition have the same bytes, and nothing is wrong with any file."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from odradek.protocol.records import iter_batches
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.dump.files import DumpOptions, dump_files
from odradek.storage.file_names import is_deleted_folder
from odradek.storage.files import OsFiles
from tests.cluster.cluster import Cluster

DUMPED = (".log", ".index", ".timeindex", ".snapshot", ".txnindex")
COMPLAINTS = ("isvalid: false", "Non-consecutive", "mismatch", "Mismatch", "Exception", "orrupt", "out of order")


def assert_replicas_agree(cluster: Cluster, java_tools: Sequence[str] = ()) -> None:
    """Waits until all replicas are in sync, stops the brokers, and compares what they have stored.

    `java_tools`: the command before Kafka's DumpLogSegments, which then reads every file too.
    """
    view = cluster.until_whole()
    cluster.terminate_all()
    high_watermarks = {
        broker_id: checkpoint(node.data / "replication-offset-checkpoint") for broker_id, node in cluster.nodes.items()
    }
    for key, state in view.partitions.items():
        end = max(high_watermarks[broker_id].get(key, 0) for broker_id in state.replicas)
        first, *others = (stored(cluster.nodes[broker_id].data, key) for broker_id in state.replicas)
        for broker_id, other in zip(state.replicas[1:], others, strict=True):
            assert_equal_below(end, first, other, f"{key} on {state.replicas[0]} and {broker_id}")
    assert_dump_finds_nothing([node.data for node in cluster.nodes.values()], java_tools)


def checkpoint(path: Path) -> dict[TopicPartition, int]:
    """The offsets in a checkpoint file."""
    rows = (line.split() for line in path.read_text().splitlines()[2:])
    return {TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in rows}


def stored(data: Path, key: TopicPartition) -> dict[int, bytes]:
    """The batches of a partition by their base offset."""
    batches: dict[int, bytes] = {}
    segments = sorted((data / str(key)).glob("*.log"))
    assert segments, f"no log of {key} in {data}"
    for segment in segments:
        content = segment.read_bytes()
        for position, header in iter_batches(content):
            batches[header.base_offset] = content[position : position + header.size_in_bytes]
    return batches


def assert_equal_below(end: int, one: Mapping[int, bytes], other: Mapping[int, bytes], where: str) -> None:
    """Fails unless both have the same batches below the offset `end`."""
    start = max(min(one, default=0), min(other, default=0))
    left, right = ({offset: batch for offset, batch in each.items() if start <= offset < end} for each in (one, other))
    if left != right:
        offset = min(at for at in left.keys() | right.keys() if left.get(at) != right.get(at))
        raise AssertionError(f"{where}, offset {offset} of {end}: {left.get(offset)!r} and {right.get(offset)!r}")


def assert_dump_finds_nothing(directories: Sequence[Path], java_tools: Sequence[str] = ()) -> None:
    """Dumps every file of every partition with `odradek dump-log`, and with Kafka's tool if it is given."""
    folders = [folder for data in directories for folder in data.glob("*-[0-9]*") if not is_deleted_folder(folder.name)]
    files = sorted(path for folder in folders for path in folder.iterdir() if path.suffix in DUMPED)
    indexes = [path for path in files if path.suffix in (".index", ".timeindex")]
    for options, paths in (
        (DumpOptions(deep_iteration=True), files),
        (DumpOptions(index_sanity_check=True), indexes),
    ):
        output, errors = io.StringIO(), io.StringIO()
        is_good = dump_files(OsFiles(), [str(path) for path in paths], options, output, errors)
        assert_without_complaint(output.getvalue() + errors.getvalue())
        assert is_good, errors.getvalue()
    if java_tools:
        assert_without_complaint(kafka_dump(java_tools, files))


def assert_without_complaint(text: str) -> None:
    lines = text.splitlines()
    complaints = [line for line in lines if any(complaint in line for complaint in COMPLAINTS)]
    assert not complaints, complaints[:5]


def kafka_dump(tools: Sequence[str], files: Sequence[Path]) -> str:
    """What Kafka's tool prints. It compares each entry of an index with the log, too."""
    command = [*tools, "kafka.tools.DumpLogSegments", "--deep-iteration", "--files", ",".join(map(str, files))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr
