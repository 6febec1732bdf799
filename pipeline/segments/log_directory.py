"""The contents of a broker's log directories: partitions, segments, and the checkpoint of log start offsets."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.segments.batches import SegmentFile, walk
from odradek.pipeline.segments.options import Options, TopicPartition

LOG_START_OFFSET = "log-start-offset-checkpoint"
LOG, SWAP, CLEANED, DELETED = ".log", ".log.swap", ".log.cleaned", ".log.deleted"
_PARTITION = re.compile(r"(.+)-(\d{1,10})")
_SEGMENT = re.compile(r"(\d{20})(\.log(?:\.swap|\.cleaned)?)")
_TRIES = 20


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment's .log file (or .log.swap, see `list_segments`), with its inode and size."""

    base_offset: int
    path: str
    identity: int
    size: int

    def beside(self, suffix: str) -> str:
        """Returns the path of the segment's file with this suffix: '.index', '.txnindex'."""
        return f"{os.path.dirname(self.path)}/{self.base_offset:020d}{suffix}"

    def open(self) -> SegmentFile:
        return SegmentFile(self.path, self.base_offset)


def find_partitions(options: Options) -> dict[TopicPartition, str]:
    """Returns the directories of the wanted partitions. Raises PipelineError."""
    found: dict[TopicPartition, str] = {}
    for path in options.paths:
        for name in _names_in(path):
            match = _PARTITION.fullmatch(name)
            if match is None or not options.wants(match[1]) or not os.path.isdir(f"{path}/{name}"):
                continue
            partition = (match[1], int(match[2]))
            if partition in found:
                raise PipelineError(
                    f"{name} is in {Path(found[partition]).parent} and in {path}", "set the log.dirs of one broker"
                )
            found[partition] = f"{path}/{name}"
    present = {topic for topic, _ in found}
    if missing := [topic for topic in options.topics if topic not in present]:
        raise PipelineError(
            f"{', '.join(options.paths)} has no partition of {', '.join(missing)}", "check path and topic"
        )
    return dict(sorted(found.items()))


def _names_in(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError as error:
        raise PipelineError(f"the log directory {path} cannot be read: {error.strerror}") from error


def list_segments(directory: str) -> list[Segment]:
    """Returns a consistent list of the segments by offset, though a broker may roll, clean or delete. Raises OSError.

    A `.swap` file is a cleaned segment before its final rename. It replaces all segments from its base to its end,
    unless a `.cleaned` file with the same or a lower base exists (Kafka's LogLoader)."""
    for _ in range(_TRIES):
        names = sorted(os.listdir(directory))
        segments = _segments(directory, names)
        if segments is not None and sorted(os.listdir(directory)) == names:
            return segments
    raise PipelineError(f"{directory} changes faster than it can be listed", "try again")


def _segments(directory: str, names: list[str]) -> list[Segment] | None:
    """Returns None if a file vanished."""
    kinds: dict[str, dict[int, str]] = {LOG: {}, SWAP: {}, CLEANED: {}}
    for name in names:
        if match := _SEGMENT.fullmatch(name):
            kinds[match[2]][int(match[1])] = f"{directory}/{name}"
    lowest_cleaned = min(kinds[CLEANED], default=2**63)
    try:
        segments = {base: _segment(base, path) for base, path in kinds[LOG].items()}
        for base, path in kinds[SWAP].items():
            if base < lowest_cleaned:
                swap = _segment(base, path)
                end = _next_offset(swap)
                segments = {key: one for key, one in segments.items() if not base <= key < end}
                segments[base] = swap
    except FileNotFoundError:
        return None
    return [segments[base] for base in sorted(segments)]


def _segment(base: int, path: str) -> Segment:
    status = os.stat(path)
    return Segment(base, path, status.st_ino, status.st_size)


def _next_offset(segment: Segment) -> int:
    end = segment.base_offset + 1
    with segment.open() as file:
        for _, header in walk(file, 0, file.size):
            end = header.last_offset + 1
    return end


def read_start_offsets(path: str) -> dict[TopicPartition, int]:
    """Reads log-start-offset-checkpoint: a version, a count, then lines of `topic partition offset`.

    Raises PipelineError."""
    file = f"{path}/{LOG_START_OFFSET}"
    try:
        lines = Path(file).read_text("utf-8", "replace").split()
    except FileNotFoundError:
        return {}
    if not lines:
        return {}
    words = lines[2:]
    if lines[0] != "0" or len(lines) < 2 or not lines[1].isdigit() or len(words) != 3 * int(lines[1]):
        raise PipelineError(f"{file} is not a checkpoint of offsets", "start the broker on it, or remove it")
    try:
        return {(words[at], int(words[at + 1])): int(words[at + 2]) for at in range(0, len(words), 3)}
    except ValueError as error:
        raise PipelineError(f"{file} is not a checkpoint of offsets: {error}") from error
