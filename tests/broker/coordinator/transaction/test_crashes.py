"""kill -9 at every step: after each record of `__transaction_state`, after each marker, and again during the
completion. Acknowledged requests hold. Other transactions end the same way in every partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from odradek.broker.coordinator.transaction.timeouts import abort_timed_out, expiry_steps
from odradek.broker.coordinator.transaction.transaction import ProducerIdAndEpoch
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.coordinator.transaction.harness import MINUTE_MS, ORDERS, RETURNS, TransactionHarness

WEEK_MS = 7 * 24 * 60 * MINUTE_MS
MOST_STEPS = 200
BOTH = frozenset({ORDERS, RETURNS})


class Killed(BaseException):
    """The process was killed."""


class Story:
    """The requests of a client and their responses until the process is killed."""

    def __init__(self, harness: TransactionHarness) -> None:
        self.harness = harness
        self.producers: dict[str, ProducerIdAndEpoch] = {}
        """By id: the last producer that was returned."""
        self.added: dict[str, frozenset[TopicPartition]] = {}
        """By id: the acknowledged partitions of the open transaction."""
        self.asked: dict[str, bool] = {}
        """By id: an EndTxn without a response."""
        self.ended: list[tuple[ProducerIdAndEpoch, frozenset[TopicPartition], bool]] = []
        """Transactions whose end was acknowledged."""

    def init(self, name: str, times: int = 3) -> ProducerIdAndEpoch:
        for _ in range(times):
            answer = self.harness.init(name)
            if answer is ErrorCode.CONCURRENT_TRANSACTIONS:
                self.added.pop(name, None)
                continue
            assert isinstance(answer, ProducerIdAndEpoch), answer
            self.producers[name] = answer
            return answer
        raise AssertionError(f"{name} is never free")

    def add(self, name: str, *partitions: TopicPartition) -> None:
        assert self.harness.add(self.producers[name], *partitions, name=name) is ErrorCode.NONE
        self.added[name] = self.added.get(name, frozenset()) | frozenset(partitions)

    def end(self, name: str, committed: bool) -> None:
        self.asked[name] = committed
        assert self.harness.end(self.producers[name], committed, name) is ErrorCode.NONE
        del self.asked[name]
        self.ended.append((self.producers[name], self.added.pop(name), committed))

    def run(self) -> None:
        """Runs commits, aborts, a new producer, a timeout and the expiry of an id."""
        self.init("a")
        self.add("a", ORDERS)
        self.add("a", RETURNS)
        self.end("a", True)
        self.add("a", ORDERS, RETURNS)
        self.end("a", False)
        self.init("b")
        self.add("b", ORDERS, RETURNS)
        self.end("b", True)
        self.add("b", RETURNS)
        self.init("b")  # aborts the open transaction
        self.add("a", ORDERS, RETURNS)
        self.harness.clock.advance(MINUTE_MS + 1)
        self.late = True
        abort_timed_out(self.harness.coordinator, self.harness.clock.wall_ms())
        self.added.pop("a")
        self.init("a")
        self.harness.clock.advance(WEEK_MS)
        self.expired = True
        list(expiry_steps(self.harness.coordinator, self.harness.clock.wall_ms(), WEEK_MS))

    late = expired = False


def killed_after(harness: TransactionHarness, steps: int) -> None:
    """Kills the process after `steps` durable steps."""
    left = steps

    def count(step: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed

    harness.on_step = count


def run_until_killed(harness: TransactionHarness, steps: int) -> tuple[Story, bool]:
    story = Story(harness)
    killed_after(harness, steps)
    try:
        story.run()
    except Killed:
        harness.crash()
        return story, True
    return story, False


def revive(harness: TransactionHarness) -> None:
    harness.on_step = lambda step: None
    harness.crash()
    harness.start()


def check(harness: TransactionHarness, story: Story) -> None:
    """Checks that all acknowledged requests hold."""
    for transaction in harness.shard.transactions.values():
        assert not transaction.state.is_prepared
        assert transaction.pending is None
    for producer, partitions, committed in story.ended:
        for key in partitions:
            assert (producer, committed) in markers_of(harness, key)
    for name, partitions in story.added.items():
        if name not in story.asked and not story.late and not is_fenced(harness, story, name):
            assert all(harness.verify(story.producers[name], key, name) is ErrorCode.NONE for key in partitions)
    check_one_ending(harness)
    if not story.expired:
        for name, producer in story.producers.items():
            assert newer(harness, name, producer)


def is_fenced(harness: TransactionHarness, story: Story, name: str) -> bool:
    return harness.transaction(name).producer_epoch > story.producers[name].producer_epoch


def newer(harness: TransactionHarness, name: str, producer: ProducerIdAndEpoch) -> bool:
    """Whether the next producer of the id fences the one that was returned."""
    for _ in range(2):
        answer: Any = harness.init(name)
        if isinstance(answer, ProducerIdAndEpoch):
            return answer.producer_id == producer.producer_id and answer.producer_epoch > producer.producer_epoch
    return False


def markers_of(harness: TransactionHarness, key: TopicPartition) -> list[tuple[ProducerIdAndEpoch, bool]]:
    return [(marker.producer, marker.committed) for marker in harness.markers.get(key, [])]


def check_one_ending(harness: TransactionHarness) -> None:
    """Transactions of the story with the same producer are a commit, then an abort, both of two partitions. So
    each partition has the same markers in the same order, except markers that are written again after a crash.
    """

    def endings(key: TopicPartition, producer: ProducerIdAndEpoch) -> list[bool]:
        found: list[bool] = []
        for other, committed in markers_of(harness, key):
            if other == producer and (not found or found[-1] != committed):
                found.append(committed)
        return found

    for producer in {producer for key in BOTH for producer, _ in markers_of(harness, key)}:
        if endings(ORDERS, producer):
            assert endings(ORDERS, producer) == endings(RETURNS, producer)


def steps() -> Iterator[int]:
    """Yields each number of steps after which the process can be killed."""
    for count in range(MOST_STEPS):
        yield count
        if not run_until_killed(TransactionHarness(), count)[1]:
            return
    raise AssertionError("the story does not end")


def test_acknowledged_requests_survive_a_kill_at_every_step() -> None:
    walked = 0
    for count in steps():
        harness = TransactionHarness()
        story, killed = run_until_killed(harness, count)
        revive(harness)
        check(harness, story)
        walked += killed
    assert walked >= 30


def test_acknowledged_requests_survive_further_kills_during_completion() -> None:
    walked = 0
    for count in steps():
        for further in range(4):
            harness = TransactionHarness()
            story, _ = run_until_killed(harness, count)
            for _ in range(3):
                killed_after(harness, further)
                try:
                    harness.start()
                except Killed:
                    walked += 1
                harness.crash()
            revive(harness)
            check(harness, story)
    assert walked >= 30


def test_a_commit_decision_in_the_log_is_completed_although_it_was_not_acknowledged() -> None:
    outcomes = set()
    for count in range(8):
        harness = TransactionHarness()
        story = Story(harness)
        story.init("a")
        story.add("a", ORDERS, RETURNS)
        killed_after(harness, count)
        try:
            story.end("a", True)
        except Killed:
            pass
        revive(harness)
        state = harness.state("a")
        outcomes.add(state)
        assert harness.end(story.producers["a"], True, "a") is ErrorCode.NONE
        for key in BOTH:
            assert set(markers_of(harness, key)) == {(story.producers["a"], True)}
    assert outcomes == {"CompleteCommit"}


def test_a_record_whose_append_timed_out_takes_effect_after_a_restart() -> None:
    harness = TransactionHarness()
    producer = harness.init()
    harness.add(producer, ORDERS, RETURNS)
    harness.append_failure, harness.written_though_failed = ErrorCode.REQUEST_TIMED_OUT, True
    assert harness.end(producer) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (harness.state(), harness.markers) == ("Ongoing", {})
    harness.append_failure = None
    harness.restart()
    assert harness.state() == "CompleteCommit"
    assert harness.end(producer) is ErrorCode.NONE


def test_the_last_record_wins_over_one_whose_append_timed_out() -> None:
    harness = TransactionHarness()
    producer = harness.init()
    harness.add(producer, ORDERS, RETURNS)
    harness.append_failure, harness.written_though_failed = ErrorCode.REQUEST_TIMED_OUT, True
    assert harness.end(producer, True) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.append_failure = None
    assert harness.end(producer, False) is ErrorCode.NONE
    harness.restart()
    assert harness.state() == "CompleteAbort"
    assert markers_of(harness, ORDERS) == [(producer, False)]


@pytest.mark.parametrize("committed", [True, False])
def test_a_new_coordinator_writes_markers_with_its_own_epoch(committed: bool) -> None:
    harness = TransactionHarness()
    producer = harness.init()
    harness.add(producer, ORDERS, RETURNS)
    harness.markers_held = True
    harness.end(producer, committed)
    harness.crash()
    harness.markers_held = False
    harness.start()
    assert harness.markers == {key: [(producer, committed, 1)] for key in BOTH}
