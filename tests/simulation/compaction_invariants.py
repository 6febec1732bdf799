"""The invariants of compacted topics.

    compacted     In the log of each replica, the last record of each key is the last that was acknowledged, or a later
                  one. What is left is where it was acknowledged, and in the order in which it was sent. Replicas of
                  which nothing is under way have the same last record of each key.

One producer writes a key, in one partition. Source: Kafka's documentation of log compaction ("What guarantees does log
compaction provide").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.final_state import FinalState, ReplicaLog, keyed_records
from tests.simulation.history import History, Outcome, Send
from tests.simulation.violation import Violation

KEYS, RARE_KEYS, RARELY = 8, 97, 7


def key_of(text: str) -> bytes:
    """The key of a record in a compacted topic of clients: one of a few, or now and then one that is written once in a
    run, so that its record must stay."""
    number = int(text.rpartition(":")[2])
    return b"rare key %d" % (number % RARE_KEYS) if number % RARELY == 0 else b"key %d" % (number % KEYS)


class Last(NamedTuple):
    """The last record of a key."""

    offset: int
    value: bytes | None
    """None: a tombstone."""


def compacted_logs_keep_the_last_of_each_key(history: History, final: FinalState) -> Iterator[Violation]:
    """compacted"""
    replicas: dict[TopicPartition, list[ReplicaLog]] = defaultdict(list)
    for replica in final.replicas:
        if replica.is_compacted:
            replicas[replica.partition].append(replica)
    sends: dict[TopicPartition, list[Send]] = defaultdict(list)
    for send in history.of(Send):
        if send.partition in replicas:
            sends[send.partition].append(send)
    for partition, logs in replicas.items():
        for log in logs if partition in sends else ():
            yield from _kept(log, sends[partition])
        first, *others = sorted(logs, key=lambda log: (-log.high_watermark, log.broker_id))
        for other in others:
            yield from _differences(first, other)


def superseded_us(sends: Iterable[Send]) -> Mapping[str, int]:
    """For each record of which a later one has the key: when that one was sent, in virtual microseconds. From then on a
    cleaning may remove the record. Each replica is cleaned on its own, so that others may keep it.

    `sends`: to one partition, in their order.
    """
    found: dict[str, int] = {}
    latest: dict[bytes, str] = {}
    for send in sends:
        for text in send.records if send.outcome is not Outcome.FAILED else ():
            key = key_of(text)
            if key in latest:
                found[latest[key]] = send.invoked_us
            latest[key] = text
    return found


def _kept(log: ReplicaLog, sends: Sequence[Send]) -> Iterator[Violation]:
    """Judges what is left by what was sent, in this order."""
    where = f"{log.partition} on broker {log.broker_id}"
    place = {text: number for number, text in enumerate(text for send in sends for text in send.records)}
    latest: dict[bytes, int] = {}
    for record in log.records:
        key, number = key_of(record.text), place.get(record.text, -1)
        if number < latest.get(key, -1):
            yield Violation("compacted", f"{record.text} of {where} comes after one that was sent later")
            return
        latest[key] = number
    texts = {record.offset: record.text for record in log.records}
    for send in sends:
        if send.outcome is not Outcome.OK:
            continue
        for offset, text in enumerate(send.records, send.base_offset):
            if offset >= log.high_watermark:
                return
            if place[text] > latest.get(key_of(text), -1):
                yield Violation("compacted", f"{text} or a later one of its key is not in {where}", (send,))
                return
            if texts.get(offset, text) != text:
                yield Violation("compacted", f"{where} has {texts[offset]} at {offset}, not {text}", (send,))
                return


def _differences(one: ReplicaLog, other: ReplicaLog) -> Iterator[Violation]:
    """Leaves out the keys of transactions: the records of aborted ones go with the next compaction. And those whose
    last record is a tombstone: each replica removes it at a time of its own."""
    if one.high_watermark != other.high_watermark:
        return
    (mine, my_transactions), (its, its_transactions) = _last_of_each_key(one), _last_of_each_key(other)
    for key in sorted((mine.keys() | its.keys()) - my_transactions - its_transactions):
        if mine.get(key) != its.get(key):
            brokers = f"brokers {one.broker_id} and {other.broker_id}"
            offsets = " and ".join(str(last.offset) if last else "none" for last in (mine.get(key), its.get(key)))
            yield Violation(
                "compacted", f"{brokers} differ in the last record of {key!r} of {one.partition}: {offsets}"
            )
            return


def _last_of_each_key(log: ReplicaLog) -> tuple[Mapping[bytes, Last], Set[bytes]]:
    """The last records, without tombstones, and the keys that are in transactions."""
    found: dict[bytes, Last] = {}
    in_transactions: set[bytes] = set()
    for batch in log.batches:
        if batch.base_offset >= log.high_watermark:
            break
        for record in keyed_records(batch.content):
            found[record.key] = Last(record.offset, record.value)
            if record.is_transactional:
                in_transactions.add(record.key)
    return {key: last for key, last in found.items() if last.value is not None}, in_transactions
