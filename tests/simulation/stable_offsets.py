"""Looks for transactions that are open below the last stable offset of a replica, by the batches of its log.

A transaction is open until the high watermark has passed its marker. If the log was loaded or truncated with the marker
in it, only until the marker: a snapshot of producers does not have it, in Kafka neither.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping

from odradek.broker.replica.partition.partition import Partition
from odradek.broker.server import Broker
from odradek.protocol.batch_header import BatchHeader, read_batch_header
from odradek.protocol.errors import ProtocolError
from odradek.protocol.records import iter_batches
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.log.log import Log
from tests.simulation.log_contents import segment_bytes
from tests.simulation.machine import Machine
from tests.simulation.transaction_history import Unstable


class _Scan:
    """The transactions in the first batches of a log. `last`: where the last one is, and what it is."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.generation = 0
        """That of the log: when it is truncated, or cleaned, there is another one."""
        self.next_offset = 0
        self.last: tuple[int, int, int] | None = None
        self.open: dict[int, int] = {}
        """The first offset of each open transaction, by producer id."""
        self.ended: list[tuple[int, int]] = []
        """The first offsets of transactions and where their markers are."""

    def forget_markers(self) -> None:
        """They were there before the broker has counted them."""
        self.ended.clear()

    def take(self, header: BatchHeader, position: int) -> None:
        """Adds the next batch."""
        if header.is_control:
            first = self.open.pop(header.producer_id, None)
            if first is not None:
                self.ended.append((first, header.base_offset))
        elif header.is_transactional:
            self.open.setdefault(header.producer_id, header.base_offset)
        self.next_offset = header.last_offset + 1
        self.last = (header.base_offset, position, header.crc)

    def first_open(self, high_watermark: int) -> int | None:
        """The first offset of a transaction that has no marker below the high watermark."""
        self.ended = [each for each in self.ended if each[1] >= high_watermark]
        return min((*self.open.values(), *(first for first, _ in self.ended)), default=None)


class StableOffsets:
    """Call `look` now and then: it reads what is new in the logs of some topics. They must not be compacted."""

    def __init__(self, machines: Mapping[int, Machine], topics: Collection[str]) -> None:
        self._machines = machines
        self._topics = topics
        self._scans: dict[tuple[str, TopicPartition], _Scan] = {}

    def look(self) -> Iterator[Unstable]:
        """What must not be."""
        for machine in self._machines.values():
            broker = machine.running
            if broker is None:
                continue
            for partition in broker.replica_manager.partitions:
                if partition.topic_partition.topic in self._topics:
                    yield from self._look_at(broker, machine.name, partition)

    def _look_at(self, broker: Broker, name: str, partition: Partition) -> Iterator[Unstable]:
        key, log = partition.topic_partition, partition.log
        scan = self._scans.get((name, key))
        generation = log.state.generation
        if scan is not None and scan.broker is broker and scan.generation == generation and _continues(scan, log):
            _read_on(scan, log)
        else:
            scan = self._scans[name, key] = _Scan(broker)
            scan.generation = generation
            _read_on(scan, log)
            scan.forget_markers()
        first_open = scan.first_open(log.state.high_watermark)
        if first_open is not None and max(first_open, log.state.log_start_offset) < log.last_stable_offset:
            yield Unstable(
                process=name, partition=key, last_stable_offset=log.last_stable_offset, first_open=first_open
            )


def _continues(scan: _Scan, log: Log) -> bool:
    """Whether the last batch of a scan is still there."""
    if scan.last is None:
        return True
    base_offset, position, crc = scan.last
    slot = bisect_right(log.segments.base_offsets, base_offset) - 1
    if slot < 0 or log.state.log_end_offset < scan.next_offset:
        return False
    try:
        header = read_batch_header(segment_bytes(log, log.segments[slot], position))
    except ProtocolError:
        return False
    return header.base_offset == base_offset and header.crc == crc


def _read_on(scan: _Scan, log: Log) -> None:
    if scan.next_offset >= log.state.log_end_offset:
        return
    base_offsets = log.segments.base_offsets
    first = 0 if scan.last is None else max(bisect_right(base_offsets, scan.last[0]) - 1, 0)
    for slot in range(first, len(log.segments)):
        segment = log.segments[slot]
        start = scan.last[1] if scan.last is not None and slot == first else 0
        content = segment_bytes(log, segment, start)
        for position, header in iter_batches(content):
            if header.base_offset >= scan.next_offset:
                scan.take(header, start + position)
