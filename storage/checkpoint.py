"""Kafka's small text files: checkpoints of offsets and of leader epochs, `partition.metadata`.

The lines of a checkpoint are its version (0), the number of entries, and the entries. An offset entry is `topic
partition offset`, an epoch entry is `epoch start-offset`. Files are always replaced as a whole (Files.replace_file).
"""

import base64
import uuid
from collections.abc import Iterable, Mapping

from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.files import Files

RECOVERY_POINT = "recovery-point-offset-checkpoint"
HIGH_WATERMARK = "replication-offset-checkpoint"
LOG_START_OFFSET = "log-start-offset-checkpoint"
CLEANER_OFFSET = "cleaner-offset-checkpoint"
LEADER_EPOCH = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
CLEAN_SHUTDOWN_CONTENT = b'{"version":0,"brokerEpoch":-1}'
_VERSION = 0


class CorruptCheckpoint(Exception):
    """The checkpoint is damaged; the message names the file and the line."""


def read_offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    """Reads an offset checkpoint; empty if the file does not exist. Raises CorruptCheckpoint."""
    offsets = {}
    for line in _entries(files, path):
        words = line.split(" ")
        if len(words) != 3 or not words[1].isdigit() or not words[2].isdigit():
            raise CorruptCheckpoint(f"{path}: {line!r} is not a topic, partition and offset")
        offsets[TopicPartition(words[0], int(words[1]))] = int(words[2])
    return offsets


def write_offsets(files: Files, path: str, offsets: Mapping[TopicPartition, int], *, sync: bool = True) -> None:
    entries = (f"{partition.topic} {partition.partition} {offset}" for partition, offset in offsets.items())
    _write(files, path, entries, sync=sync)


def read_epochs(files: Files, path: str) -> list[tuple[int, int]]:
    """Reads a partition's leader epochs as (epoch, start offset); empty if the file does not exist. Raises
    CorruptCheckpoint.
    """
    epochs = []
    for line in _entries(files, path):
        words = line.split(" ")
        if len(words) != 2 or not words[0].isdigit() or not words[1].isdigit():
            raise CorruptCheckpoint(f"{path}: {line!r} is not an epoch and start offset")
        epochs.append((int(words[0]), int(words[1])))
    return epochs


def write_epochs(files: Files, path: str, epochs: Iterable[tuple[int, int]], *, sync: bool = True) -> None:
    _write(files, path, (f"{epoch} {start_offset}" for epoch, start_offset in epochs), sync=sync)


def _entries(files: Files, path: str) -> list[str]:
    if not files.exists(path):
        return []
    lines = files.read_file(path).decode("utf-8", "replace").split("\n")
    if lines == [""]:
        return []
    if len(lines) < 2 or lines[0] != str(_VERSION) or not lines[1].isdigit():
        raise CorruptCheckpoint(f"{path}: does not start with version {_VERSION} and a count")
    count = int(lines[1])
    entries = lines[2:]
    while entries and not entries[-1]:
        entries.pop()
    if len(entries) != count:
        raise CorruptCheckpoint(f"{path}: {count} entries expected, {len(entries)} found")
    return entries


def _write(files: Files, path: str, entries: Iterable[str], *, sync: bool = True) -> None:
    lines = list(entries)
    text = "\n".join([str(_VERSION), str(len(lines)), *lines, ""])
    files.replace_file(path, text.encode(), sync=sync)


def read_partition_metadata(files: Files, path: str) -> uuid.UUID | None:
    """Returns the topic id in `partition.metadata` (KIP-516); None if the file does not exist. Raises
    CorruptCheckpoint.
    """
    if not files.exists(path):
        return None
    text = files.read_file(path).decode("utf-8", "replace")
    fields = dict(line.split(": ", 1) for line in text.split("\n") if ": " in line)
    if fields.get("version") != str(_VERSION) or "topic_id" not in fields:
        raise CorruptCheckpoint(f"{path}: expected version {_VERSION} and a topic id")
    try:
        return uuid_from_text(fields["topic_id"].strip())
    except ValueError:
        raise CorruptCheckpoint(f"{path}: {fields['topic_id']!r} is not a topic id") from None


def write_partition_metadata(files: Files, path: str, topic_id: uuid.UUID, *, sync: bool = True) -> None:
    files.replace_file(path, f"version: {_VERSION}\ntopic_id: {uuid_to_text(topic_id)}".encode(), sync=sync)


def uuid_to_text(value: uuid.UUID) -> str:
    """Returns the id in Kafka's form: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def uuid_from_text(text: str) -> uuid.UUID:
    """Raises ValueError if the text does not have the 22 characters of an id."""
    if len(text) != 22:
        raise ValueError(f"{text!r} does not have the 22 characters of an id")
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
