"""The coordinator against a reference model with random requests, timeouts, failures and restarts.

The reference gives the response to each request, the state of each id, and for each partition and producer
id the markers in their order. It has no records, transits or pending changes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
import structlog

from odradek.broker.coordinator.transaction import rules, transaction
from odradek.broker.coordinator.transaction.timeouts import abort_timed_out, expiry_steps
from odradek.broker.coordinator.transaction.transaction import ProducerIdAndEpoch
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.coordinator.transaction.harness import TransactionHarness
from tests.soak import rounds

STEPS = rounds(10_000, in_soak=100_000)
LARGEST_EPOCH = 7
EXPIRATION_MS = 50_000
NAMES = ("a", "b", "c")
PARTITIONS = [TopicPartition("t", number) for number in range(4)]
CONCURRENT, FENCED, UNMAPPED = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)
UNWRITTEN = ErrorCode.COORDINATOR_NOT_AVAILABLE


class Id:
    """The reference's state of an id. `ended`: how the last transaction ended, None without a transaction."""

    def __init__(self, producer: ProducerIdAndEpoch, before: ProducerIdAndEpoch | None, now: int, timeout: int) -> None:
        self.producer, self.before = producer, before
        self.open = self.ending = self.marked = self.fence_failed = False
        self.ended: bool | None = None
        self.partitions: set[TopicPartition] = set()
        self.start, self.used, self.timeout = -1, now, timeout

    @property
    def label(self) -> str:
        if self.open:
            return "Ongoing"
        outcome = {None: "Empty", True: "Commit", False: "Abort"}[self.ended]
        return outcome if self.ended is None else ("Prepare" if self.ending else "Complete") + outcome


class Reference:
    def __init__(self) -> None:
        self.ids: dict[str, Id] = {}
        self.last_producer_id = 1000
        self.now = 0
        self.failing = self.held = False
        self.markers: dict[tuple[TopicPartition, int], list[tuple[ProducerIdAndEpoch, bool]]] = {}

    def init(self, name: str, expected: ProducerIdAndEpoch | None, timeout: int) -> Any:
        found = self.ids.get(name)
        if found is None:
            self.last_producer_id += 1
            return self.become(name, ProducerIdAndEpoch(self.last_producer_id, 0), None, timeout)
        if found.ending:
            return CONCURRENT
        is_current = expected in (None, found.producer)
        if not is_current and (found.open or expected != found.before):
            return FENCED
        if found.open:
            return self.fence(found) or CONCURRENT
        if not is_current:
            return self.become(name, found.producer, found.before, timeout)
        if found.producer.producer_epoch >= LARGEST_EPOCH - 1:
            self.last_producer_id += 1
            return self.become(name, ProducerIdAndEpoch(self.last_producer_id, 0), expected, timeout)
        producer = found.producer._replace(producer_epoch=found.producer.producer_epoch + 1)
        return self.become(name, producer, expected, timeout)

    def become(self, name: str, producer: ProducerIdAndEpoch, before: ProducerIdAndEpoch | None, timeout: int) -> Any:
        if self.failing:
            return UNWRITTEN
        self.ids[name] = Id(producer, before, self.now, timeout)
        return producer

    def refusal(self, name: str, producer: ProducerIdAndEpoch) -> ErrorCode | None:
        found = self.ids.get(name)
        if found is None or found.producer.producer_id != producer.producer_id:
            return UNMAPPED
        if found.producer != producer or producer.producer_epoch == LARGEST_EPOCH:
            return FENCED
        return CONCURRENT if found.ending else None

    def add(self, name: str, producer: ProducerIdAndEpoch, partitions: frozenset[TopicPartition]) -> ErrorCode:
        if name in self.ids and self.ids[name].ending:
            return CONCURRENT
        refusal = self.refusal(name, producer)
        if refusal is not None:
            return refusal
        found = self.ids[name]
        if found.open and partitions <= found.partitions:
            return ErrorCode.NONE
        if self.failing:
            return UNWRITTEN
        if not found.open:
            found.start, found.open, found.partitions = self.now, True, set()
        found.partitions |= partitions
        found.used, found.fence_failed = self.now, False
        return ErrorCode.NONE

    def end(self, name: str, producer: ProducerIdAndEpoch, committed: bool) -> ErrorCode:
        refusal = self.refusal(name, producer)
        if refusal is not None:
            return refusal
        found = self.ids[name]
        if not found.open:
            return ErrorCode.NONE if found.ended is committed else ErrorCode.INVALID_TXN_STATE
        return UNWRITTEN if self.failing else self.prepare(found, committed)

    def fence(self, found: Id) -> ErrorCode | None:
        if not found.fence_failed:
            found.producer = found.producer._replace(producer_epoch=found.producer.producer_epoch + 1)
            found.before = None
        found.fence_failed = self.failing
        if self.failing:
            return UNWRITTEN
        self.prepare(found, False)
        return None

    def prepare(self, found: Id, committed: bool) -> ErrorCode:
        found.open, found.ending, found.ended, found.used = False, True, committed, self.now
        found.fence_failed = found.marked = False
        if not self.held:
            self.complete(found)
        return ErrorCode.NONE

    def complete(self, found: Id) -> None:
        """Writes the markers and, unless the log fails, the completion."""
        for key in found.partitions:
            self.markers.setdefault((key, found.producer.producer_id), []).append((found.producer, bool(found.ended)))
        found.marked, found.ending = True, self.failing

    def settle(self) -> None:
        self.failing = self.held = False
        for found in self.ids.values():
            if found.ending and found.marked:
                found.ending = False
            elif found.ending:
                self.complete(found)

    def restart(self) -> None:
        for found in self.ids.values():
            found.before = None
            if found.fence_failed:
                found.producer = found.producer._replace(producer_epoch=found.producer.producer_epoch - 1)
                found.fence_failed = False
            if found.ending:
                found.used, found.marked = self.now, False
                if not self.held:
                    self.complete(found)

    def abort_late(self) -> None:
        for found in self.ids.values():
            if found.open and found.start + found.timeout < self.now:
                self.fence(found)

    def expire(self) -> None:
        if not self.failing:
            for name, found in list(self.ids.items()):
                if not found.open and not found.ending and found.used <= self.now - EXPIRATION_MS:
                    del self.ids[name]


class Comparison:
    """Drives both with the same steps. `known` holds the producers that each id has had."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.harness = TransactionHarness()
        self.harness.existing = set(PARTITIONS)
        self.reference = Reference()
        self.known: dict[str, list[ProducerIdAndEpoch]] = {name: [ProducerIdAndEpoch(5, 0)] for name in NAMES}
        self.answers: dict[str, int] = {}
        self.sync()

    def producer(self, name: str) -> ProducerIdAndEpoch:
        """Returns mostly the newest producer, sometimes an older one, another id's, or an unknown one."""
        chance = self.random.random()
        if chance < 0.85:
            return self.known[name][-1]
        if chance < 0.93:
            return self.random.choice(self.known[name][-6:])
        if chance < 0.96:
            return self.known[self.random.choice(NAMES)][-1]
        newest = self.known[name][-1]
        return newest._replace(producer_epoch=self.random.randrange(LARGEST_EPOCH + 1))

    def step(self) -> None:
        kind = self.random.choices(
            ("init", "add", "end", "time", "late", "expire", "restart", "hold", "fail", "settle"),
            (14, 35, 28, 8, 3, 3, 1, 2, 2, 6),
        )[0]
        getattr(self, kind)()
        self.compare()

    def answered(self, kind: str, ours: Any, theirs: Any) -> None:
        assert ours == theirs, f"{kind}: {ours!r}, but the reference says {theirs!r}"
        name = ours.name if isinstance(ours, ErrorCode) else "producer"
        self.answers[f"{kind} {name}"] = self.answers.get(f"{kind} {name}", 0) + 1

    def init(self) -> None:
        name, timeout = self.random.choice(NAMES), self.random.choice((500, 5000))
        expected = self.producer(name) if self.random.random() < 0.4 else None
        ours = self.harness.init(name, expected, timeout)
        self.answered("init", ours, self.reference.init(name, expected, timeout))
        if isinstance(ours, ProducerIdAndEpoch):
            self.known[name].append(ours)

    def add(self) -> None:
        name = self.random.choice(NAMES)
        producer, partitions = self.producer(name), frozenset(self.random.sample(PARTITIONS, self.random.randint(1, 3)))
        ours = self.harness.add(producer, *partitions, name=name)
        self.answered("add", ours, self.reference.add(name, producer, partitions))

    def end(self) -> None:
        name = self.random.choice(NAMES)
        producer, committed = self.producer(name), self.random.random() < 0.7
        ours = self.harness.end(producer, committed, name)
        self.answered("end", ours, self.reference.end(name, producer, committed))

    def time(self) -> None:
        passed = self.random.choice((1, 50, 600, 6000) * 5 + (EXPIRATION_MS,))
        self.harness.clock.advance(passed)

    def late(self) -> None:
        self.sync()
        abort_timed_out(self.harness.coordinator, self.harness.clock.wall_ms())
        self.reference.abort_late()

    def expire(self) -> None:
        self.sync()
        list(expiry_steps(self.harness.coordinator, self.harness.clock.wall_ms(), EXPIRATION_MS))
        self.reference.expire()

    def restart(self) -> None:
        self.harness.log = list({record.key: record for record in self.harness.log}.values())
        self.harness.restart()
        self.reference.restart()

    def hold(self) -> None:
        self.harness.markers_held = self.reference.held = True

    def fail(self) -> None:
        self.harness.append_failure = ErrorCode.NOT_ENOUGH_REPLICAS
        self.reference.failing = True

    def settle(self) -> None:
        self.harness.markers_held, self.harness.append_failure = False, None
        self.harness.release_markers()
        self.harness.run_delayed_calls()
        self.reference.settle()

    def sync(self) -> None:
        self.reference.now = self.harness.clock.wall_ms()

    def compare(self) -> None:
        self.sync()
        ours = {
            name: (
                found.state.label,
                ProducerIdAndEpoch(found.producer_id, found.producer_epoch),
                found.partitions if found.state.label == "Ongoing" else None,
            )
            for name, found in self.harness.shard.transactions.items()
        }
        theirs = {
            name: (found.label, found.producer, found.partitions if found.open else None)
            for name, found in self.reference.ids.items()
        }
        assert ours == theirs
        for found in self.harness.shard.transactions.values():
            found.check()
        assert set(self.harness.shard.open) == {name for name, found in self.reference.ids.items() if found.open}

    def compare_markers(self) -> None:
        ours: dict[tuple[TopicPartition, int], list[tuple[ProducerIdAndEpoch, bool]]] = {}
        for key, markers in self.harness.markers.items():
            for producer, committed, _ in markers:
                ours.setdefault((key, producer.producer_id), []).append((producer, committed))
        assert ours == self.reference.markers


@pytest.fixture
def _quiet() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


EVERY_ANSWER = {
    "init producer",
    "init CONCURRENT_TRANSACTIONS",
    "init PRODUCER_FENCED",
    "init COORDINATOR_NOT_AVAILABLE",
    *(
        f"{kind} {code}"
        for kind in ("add", "end")
        for code in (
            "NONE",
            "CONCURRENT_TRANSACTIONS",
            "PRODUCER_FENCED",
            "INVALID_PRODUCER_ID_MAPPING",
            "COORDINATOR_NOT_AVAILABLE",
        )
    ),
    "end INVALID_TXN_STATE",
}


@pytest.mark.usefixtures("_quiet")
@pytest.mark.soak("100,000 steps on each of 20 seeds", minutes=1)
@pytest.mark.parametrize("seed", range(rounds(1, in_soak=20)))
def test_random_steps_match_the_reference_model(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    for module in (rules, transaction):
        monkeypatch.setattr(module, "LARGEST_EPOCH", LARGEST_EPOCH)
    comparison = Comparison(seed)
    for number in range(STEPS):
        try:
            comparison.step()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, step {number}: {error}") from error
    comparison.settle()
    comparison.compare_markers()
    assert set(comparison.answers) == EVERY_ANSWER
