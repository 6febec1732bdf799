"""Plans a read: examines each partition once, fixes its offsets, and divides it into tasks.

A task is a segment, or a part of a large segment that starts at a batch in the offset index.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.segments.indexes import batch_at, position_before, read_offset_index
from odradek.pipeline.segments.log_directory import Segment, find_partitions, list_segments, read_start_offsets
from odradek.pipeline.segments.log_end import LogEnd, Transactions, find_log_end, find_transactions
from odradek.pipeline.segments.options import EARLIEST, LATEST, Offsets, Options, TopicPartition
from odradek.pipeline.segments.ranges import Planned, SegmentRange

SPLIT_BYTES = 128 << 20
_TRIES = 5
_log = logging.getLogger(__name__)


def plan(options: Options, split_bytes: int = SPLIT_BYTES) -> list[SegmentRange]:
    """Returns all tasks, ordered by topic, partition and offset. Raises PipelineError."""
    directories = find_partitions(options)
    _require_all("startingOffsets", options.starting_offsets, directories)
    _require_all("endingOffsets", options.ending_offsets, directories)
    starts = {key: value for path in options.paths for key, value in read_start_offsets(path).items()}
    ranges: list[SegmentRange] = []
    for partition, directory in directories.items():
        ranges += _plan_again(partition, directory, starts.get(partition, 0), options, split_bytes)
    return ranges


def _require_all(name: str, offsets: Offsets, directories: Mapping[TopicPartition, str]) -> None:
    """Raises PipelineError unless JSON offsets name exactly the existing partitions, as the connector requires."""
    if isinstance(offsets, int) or offsets.keys() == directories.keys():
        return
    differing = sorted(f"{topic}-{partition}" for topic, partition in offsets.keys() ^ directories.keys())
    raise PipelineError(f"{name} and the existing partitions differ in {', '.join(differing)}")


def _plan_again(
    partition: TopicPartition, directory: str, log_start: int, options: Options, split_bytes: int
) -> list[SegmentRange]:
    """Plans a partition. Retries, as a broker may rename a file after the directory was listed."""
    for _ in range(_TRIES):
        try:
            return _plan_partition(partition, directory, log_start, options, split_bytes)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise PipelineError(f"{error.filename or directory} cannot be read: {error.strerror}") from error
    raise PipelineError(f"{directory} vanishes while it is read", "is the topic being deleted?")


def _plan_partition(
    partition: TopicPartition, directory: str, log_start: int, options: Options, split_bytes: int
) -> list[SegmentRange]:
    segments = list_segments(directory)
    if not segments:
        return []
    log_start = max(log_start, segments[0].base_offset)
    end = find_log_end(segments[-1])
    if options.read_committed:
        transactions = find_transactions(directory, segments, log_start, end)
    else:
        transactions = Transactions(end.offset, [])
    start_offset, end_offset = _bounds(partition, options, min(log_start, end.offset), transactions.last_stable_offset)
    return _divide(partition, directory, segments, (start_offset, end_offset), end, transactions, split_bytes)


def _bounds(partition: TopicPartition, options: Options, earliest: int, latest: int) -> tuple[int, int]:
    """Returns the offsets to read. Requested offsets that do not exist are lost data."""
    start = _resolve(options.starting_offsets, partition, earliest, latest)
    end = _resolve(options.ending_offsets, partition, earliest, latest)
    name = f"{partition[0]}-{partition[1]}"
    if start > end:
        raise PipelineError(
            f"{name} cannot be read from {start} to {end}", "set endingOffsets to at least startingOffsets"
        )
    for asked in (start, end):
        if not earliest <= asked <= latest:
            what = "last stable offset" if options.read_committed else "log end"
            problem = f"{name} has the offsets from {earliest} to its {what} {latest}, but {asked} was requested"
            if options.fail_on_data_loss:
                raise PipelineError(problem, "change the offsets, or set failOnDataLoss=false to read what exists")
            _log.warning(problem)
    return min(max(start, earliest), latest), min(max(end, earliest), latest)


def _resolve(offsets: Offsets, partition: TopicPartition, earliest: int, latest: int) -> int:
    asked = offsets if isinstance(offsets, int) else offsets[partition]
    return {EARLIEST: earliest, LATEST: latest}.get(asked, asked)


def _divide(
    partition: TopicPartition,
    directory: str,
    segments: list[Segment],
    bounds: tuple[int, int],
    end: LogEnd,
    transactions: Transactions,
    split_bytes: int,
) -> list[SegmentRange]:
    ranges = []
    for number, segment in enumerate(segments):
        is_last = number == len(segments) - 1
        start_offset = max(bounds[0], segment.base_offset)
        end_offset = min(bounds[1], end.offset if is_last else segments[number + 1].base_offset)
        if start_offset >= end_offset:
            continue
        previous = segments[number - 1] if number else None
        cuts = _cuts(segment, start_offset, end_offset, end.position if is_last else segment.size, split_bytes)
        for (first, position), (after, limit) in pairwise(cuts):
            ranges.append(
                SegmentRange(
                    directory,
                    *partition,
                    Planned(segment.base_offset, segment.identity),
                    Planned(previous.base_offset, previous.identity) if previous else None,
                    first,
                    after,
                    position,
                    limit,
                    tuple(one for one in transactions.aborted if one.last_offset >= first and one.first_offset < after),
                )
            )
    return ranges


def _cuts(segment: Segment, start: int, end: int, limit: int, split_bytes: int) -> list[tuple[int, int]]:
    """Returns the offsets and positions at which the segment is split, about every `split_bytes`, with both ends.

    The last part may be up to 1.5 times `split_bytes`, as less than a half is not worth a task."""
    least = split_bytes // 2
    if start == segment.base_offset and limit <= split_bytes + least:
        return [(start, 0), (end, limit)]
    with segment.open() as file:
        cuts = [(start, position_before(segment, file, start) if start > segment.base_offset else 0)]
        entries = read_offset_index(segment)
        while True:
            at = int(np.searchsorted(entries[:, 1], cuts[-1][1] + split_bytes))
            if at >= len(entries) or entries[at, 1] > limit - least or (header := batch_at(file, entries[at])) is None:
                break
            if header.base_offset >= end:
                break
            if header.base_offset <= cuts[-1][0]:  # at or before the range's start: start reading there
                cuts[-1] = (cuts[-1][0], int(entries[at, 1]))
                continue
            cuts.append((header.base_offset, int(entries[at, 1])))
    return [*cuts, (end, limit)]
