"""The coordinator against the reference model of test_model.py, with clients of both versions of transactions at once.

The level of the feature changes between 1 and 2, so that all states are in the log whole. Few epochs make producer ids
end often.
"""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.coordinator.transaction import rules, transaction
from odradek.broker.coordinator.transaction.transaction import ProducerIdAndEpoch
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.coordinator.transaction.test_model import (
    CONCURRENT,
    EVERY_ANSWER,
    FENCED,
    LARGEST_EPOCH,
    NAMES,
    STEPS,
    UNMAPPED,
    UNWRITTEN,
    Comparison,
    Id,
    Reference,
    _quiet,
)
from tests.soak import rounds

__all__ = ["_quiet"]

LAST = LARGEST_EPOCH - 1


class EpochId(Id):
    """`previous`: the producer id before the last change. `following`: the producer after the completion. `is_newer`:
    whether the last transaction has ended in version 2."""

    previous = -1
    is_newer = False
    following: ProducerIdAndEpoch | None = None


class EpochReference(Reference):
    level = 2

    def become(self, name: str, producer: ProducerIdAndEpoch, before: ProducerIdAndEpoch | None, timeout: int) -> Any:
        known = self.ids.get(name)
        answer = super().become(name, producer, before, timeout)
        if answer is not UNWRITTEN:
            made = EpochId(producer, before, self.now, timeout)
            made.previous = -1 if known is None else known.producer.producer_id
            if known is None:
                made.previous = producer.producer_id
            self.ids[name] = made
        return answer

    def add(self, name: str, producer: ProducerIdAndEpoch, partitions: frozenset[TopicPartition]) -> ErrorCode:
        found = self.ids.get(name)
        before = None if found is None else (found.open, frozenset(found.partitions))
        code = super().add(name, producer, partitions)
        if found is not None and code is ErrorCode.NONE and before != (True, frozenset(found.partitions)):
            self._of(found).previous = found.producer.producer_id
        return code

    def end_epoch(self, name: str, producer: ProducerIdAndEpoch, committed: bool) -> Any:
        found = self.ids.get(name)
        if found is None:
            return UNMAPPED
        if found.ending:
            return CONCURRENT
        current, ended = found.producer, found.ended if not found.open else None
        moved_on = (
            self._of(found).previous == producer.producer_id
            and producer.producer_epoch == LAST
            and current.producer_epoch == 0
        )
        if current.producer_id != producer.producer_id and not moved_on:
            return UNMAPPED
        if producer.producer_epoch == current.producer_epoch:
            if committed and not found.open:
                return ErrorCode.INVALID_TXN_STATE
            return self._end_epoch(found, committed)
        if (
            ended is None
            or not self._of(found).is_newer
            or not (moved_on or producer.producer_epoch + 1 == current.producer_epoch)
        ):
            return FENCED
        return current if ended is committed else ErrorCode.INVALID_TXN_STATE

    def _end_epoch(self, found: Id, committed: bool) -> Any:
        old = found.producer
        following = ProducerIdAndEpoch(old.producer_id, min(old.producer_epoch + 1, LARGEST_EPOCH))
        if old.producer_epoch >= LAST:
            self.last_producer_id += 1
        if self.failing:
            return UNWRITTEN
        if not found.open:
            found.partitions, found.start = set(), self.now
        found.producer, found.before = following, old
        if old.producer_epoch >= LAST:
            following = ProducerIdAndEpoch(self.last_producer_id, 0)
        self._of(found).following = following
        self._of(found).is_newer = True
        self.prepare(found, committed)
        return following

    def fence(self, found: Id) -> ErrorCode | None:
        if self.level < 2:
            self._of(found).following = None
            self._of(found).is_newer = False
            return super().fence(found)
        answer = self._end_epoch(found, False)
        return UNWRITTEN if answer is UNWRITTEN else None

    def end(self, name: str, producer: ProducerIdAndEpoch, committed: bool) -> ErrorCode:
        found = self.ids.get(name)
        if found is not None and found.open:
            self._of(found).following = None
            self._of(found).is_newer = False
        return super().end(name, producer, committed)

    def prepare(self, found: Id, committed: bool) -> ErrorCode:
        code = super().prepare(found, committed)
        if self.held and not found.partitions:
            self.complete(found)  # there is no marker to hold
        return code

    def restart(self) -> None:
        super().restart()
        for found in self.ids.values():
            if found.ending and self.held and not found.partitions:
                self.complete(found)

    def complete(self, found: Id) -> None:
        super().complete(found)
        if not found.ending:
            self._completed(found)

    def settle(self) -> None:
        ending = [found for found in self.ids.values() if found.ending and found.marked]
        super().settle()
        for found in ending:
            self._completed(found)

    def _completed(self, found: Id) -> None:
        mine = self._of(found)
        mine.previous = found.producer.producer_id
        if mine.following is not None:
            found.producer, mine.following = mine.following, None

    @staticmethod
    def _of(found: Id) -> EpochId:
        assert isinstance(found, EpochId)
        return found


class EpochComparison(Comparison):
    """Old and new requests come from the same producers."""

    reference: EpochReference

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.reference = EpochReference()
        self.harness.transaction_version = 2
        self.sync()

    def step(self) -> None:
        kind = self.random.choices(
            ("init", "add", "end", "end_epoch", "time", "late", "expire", "restart", "hold", "fail", "settle", "level"),
            (10, 35, 8, 28, 8, 3, 3, 1, 2, 2, 6, 2),
        )[0]
        getattr(self, kind)()
        self.compare()

    def end_epoch(self) -> None:
        name = self.random.choice(NAMES)
        producer, committed = self.producer(name), self.random.random() < 0.7
        ours = self.harness.end_epoch(producer, committed, name)
        self.answered("end_epoch", ours, self.reference.end_epoch(name, producer, committed))
        if isinstance(ours, ProducerIdAndEpoch):
            self.known[name].append(ours)

    def late(self) -> None:
        """New producer ids are given out in the order in which the transactions are aborted."""
        known = self.reference.ids
        self.reference.ids = {**{name: known[name] for name in self.harness.shard.open}, **known}
        super().late()

    def level(self) -> None:
        self.harness.transaction_version = self.reference.level = self.random.choice((1, 2))


@pytest.mark.usefixtures("_quiet")
@pytest.mark.soak("100,000 steps on each of 20 seeds", minutes=1)
@pytest.mark.parametrize("seed", range(rounds(1, in_soak=20)))
def test_random_steps_of_old_and_new_clients_match_the_reference_model(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    for module in (rules, transaction):
        monkeypatch.setattr(module, "LARGEST_EPOCH", LARGEST_EPOCH)
    comparison = EpochComparison(seed)
    for number in range(STEPS):
        try:
            comparison.step()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, step {number}: {error}") from error
    comparison.settle()
    comparison.compare_markers()
    codes = ("CONCURRENT_TRANSACTIONS", "PRODUCER_FENCED", "INVALID_PRODUCER_ID_MAPPING", "COORDINATOR_NOT_AVAILABLE")
    wanted = {f"end_epoch {code}" for code in (*codes, "INVALID_TXN_STATE", "producer")}
    assert set(comparison.answers) == EVERY_ANSWER | wanted
