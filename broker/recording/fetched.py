"""What all Fetch responses of a recording say together.

How much one response returns depends on timing: on how far producers were when it was answered, and on sessions, which
leave out what has no news. So record batches are compared by their partition and offset, whichever response of the
connection has them, and the errors of a partition as a set. High watermarks are not compared: where they are when a
fetch is answered is a matter of timing, too.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from odradek.broker.recording.decoding import Document
from odradek.broker.recording.topic_names import TopicNames
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.records import BATCH_OVERHEAD, BatchHeader, iter_batches

Batch = tuple[Any, ...]


class Of(NamedTuple):
    """A partition that a connection has fetched."""

    connection: int
    topic: str
    partition: int


class Fetched:
    """The batches and errors of all partitions, of the recording or of a target."""

    def __init__(self, names: TopicNames) -> None:
        self._names = names
        self.batches: dict[Of, dict[int, Batch]] = {}
        self.errors: dict[Of, set[str]] = {}

    def add(self, response: Document, connection: int) -> None:
        """Adds a response."""
        for topic in response["Responses"]:
            name = topic.get("Topic") or self._names.name(topic.get("TopicId", ""))
            for partition in topic["Partitions"]:
                of = Of(connection, name, partition["PartitionIndex"])
                if partition["ErrorCode"]:
                    self.errors.setdefault(of, set()).add(ErrorCode.of(partition["ErrorCode"]).name)
                if partition["Records"]:
                    found = self.batches.setdefault(of, {})
                    found.update(_batches(base64.b64decode(partition["Records"])))


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
