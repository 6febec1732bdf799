"""The batches and errors in all Fetch responses of a recording.

What a single response contains depends on timing: on the records that producers had written by then, and on the fetch
session, which leaves out partitions without changes. So the comparison looks at all responses of a connection together:
record batches by partition and offset, and the errors of a partition as a set. It ignores high watermarks, which depend
on timing too. A batch that a target returns only later is fetched again (late_batches.py).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Container, Iterator
from typing import Any, NamedTuple

from odradek.clients.recording.decoding import Document
from odradek.clients.recording.topic_names import TopicNames
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.records import BATCH_OVERHEAD, BatchHeader, iter_batches

Batch = tuple[Any, ...]
LAST_OFFSET_DELTA = 1
"""Where a batch has it."""


class Of(NamedTuple):
    """A partition that a connection has fetched."""

    connection: int
    topic: str
    partition: int


Offsets = dict[Of, list[int]]
"""The base offsets of batches, ascending."""


class Fetched:
    """The batches and errors of all partitions, of the recording or of a target."""

    def __init__(self, names: TopicNames) -> None:
        self._names = names
        self.batches: dict[Of, dict[int, Batch]] = {}
        self.errors: dict[Of, set[str]] = {}

    def add(self, response: Document, connection: int) -> Offsets:
        """Adds a response. Returns which batches it has."""
        added: Offsets = {}
        for topic in response["Responses"]:
            name = topic.get("Topic") or self._names.name(topic.get("TopicId", ""))
            for partition in topic["Partitions"]:
                of = Of(connection, name, partition["PartitionIndex"])
                if partition["ErrorCode"]:
                    self.errors.setdefault(of, set()).add(ErrorCode.of(partition["ErrorCode"]).name)
                if partition["Records"]:
                    batches = dict(_batches(base64.b64decode(partition["Records"])))
                    self.batches.setdefault(of, {}).update(batches)
                    added[of] = list(batches)
        return added

    def missing(self, wanted: Offsets) -> Offsets:
        """Returns those of the batches that no response had."""
        missing = {of: [each for each in offsets if self._lacks(of, each)] for of, offsets in wanted.items()}
        return {of: offsets for of, offsets in missing.items() if offsets}

    def add_late(self, of: Of, offsets: Container[int], records: bytes) -> int | None:
        """Adds the batches at these offsets. Returns the offset behind all batches, None if there are none."""
        end = None
        for offset, batch in _batches(records):
            if offset in offsets:
                self.batches.setdefault(of, {})[offset] = batch
            end = offset + batch[LAST_OFFSET_DELTA] + 1 if offset >= 0 else None
        return end

    def _lacks(self, of: Of, offset: int) -> bool:
        return offset >= 0 and offset not in self.batches.get(of, ())


def fetched_differences(expected: Fetched, found: Fetched) -> Iterator[tuple[Of, str, Any, Any]]:
    """Yields (partition, where, expected, found) of errors and batches that differ or are missing."""
    for of in sorted(expected.errors.keys() | found.errors.keys()):
        one, other = (sorted(side.errors.get(of, ())) for side in (expected, found))
        if one != other:
            yield of, f"Fetch.{of.topic}-{of.partition}.errors", one, other
    for of in sorted(expected.batches):
        others = found.batches.get(of, {})
        for offset, batch in sorted(expected.batches[of].items()):
            if others.get(offset) != batch:
                yield of, f"Fetch.{of.topic}-{of.partition}.batch[{offset}]", batch, others.get(offset, "nothing")


def _batches(records: bytes) -> Iterator[tuple[int, Batch]]:
    try:
        for position, header in iter_batches(records):
            yield header.base_offset, _batch(records, position, header)
    except ProtocolError as error:
        yield -1, ("unreadable", str(error))


def _batch(records: bytes, position: int, header: BatchHeader) -> Batch:
    """What is compared of a batch: not its producer id and leader epoch, nor times that a broker has written."""
    payload = records[position + BATCH_OVERHEAD : position + header.size_in_bytes]
    times: tuple[int, ...] = (header.base_timestamp, header.max_timestamp)
    if header.timestamp_type or header.is_control:
        times = ()
    return (
        header.attributes,
        header.last_offset_delta,
        header.record_count,
        header.producer_epoch,
        header.base_sequence,
        times,
        hashlib.sha256(payload).hexdigest(),
    )
