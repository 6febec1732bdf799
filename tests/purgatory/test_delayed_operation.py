"""An operation completes exactly once, by an event or by its timeout."""

import gc
import weakref

import pytest

from odradek.purgatory import DelayedOperation
from tests.purgatory.harness import Operation, PurgatoryHarness


def test_an_operation_that_can_complete_at_once_is_never_parked(harness: PurgatoryHarness) -> None:
    operation = Operation()
    operation.ready = True
    assert harness.purgatory.try_complete_else_watch(operation, ["key"])
    assert operation.events == ["complete"]
    assert (harness.purgatory.watched, harness.purgatory.delayed, harness.timer.size) == (0, 0, 0)


def test_an_event_completes_the_operations_that_wait_for_it(harness: PurgatoryHarness) -> None:
    operation = harness.park("key")
    harness.happened("key")
    assert not operation.is_completed
    operation.ready = True
    harness.happened("key")
    assert operation.events == ["complete"]
    assert (harness.purgatory.completed, harness.purgatory.expired) == (1, 0)


def test_the_timeout_completes_an_operation_that_no_event_completed(harness: PurgatoryHarness) -> None:
    operation = harness.park("key", delay_ms=500)
    harness.pass_time(499)
    assert operation.events == []
    harness.pass_time(1)
    assert operation.events == ["complete", "expired"]
    assert operation.is_expired
    assert (harness.purgatory.completed, harness.purgatory.expired) == (0, 1)


def test_an_operation_completes_once_if_event_and_timeout_coincide(harness: PurgatoryHarness) -> None:
    operation = harness.park("key", delay_ms=500)
    operation.ready = True
    harness.clock.advance(500)
    harness.completions.add(harness.purgatory, "key")
    harness.timer.advance_clock()
    harness.loop.until_idle()
    assert operation.events.count("complete") == 1
    assert harness.purgatory.completed + harness.purgatory.expired == 1


def test_an_event_between_the_timeout_and_its_processing_wins(harness: PurgatoryHarness) -> None:
    operation = harness.park("key", delay_ms=500)
    harness.clock.advance(500)
    harness.timer.advance_clock()
    assert operation.force_complete()
    harness.loop.until_idle()
    assert operation.events == ["complete"]
    assert not operation.is_expired
    assert (harness.purgatory.completed, harness.purgatory.expired) == (1, 0)


def test_the_second_force_complete_returns_false() -> None:
    operation = Operation()
    assert operation.force_complete()
    assert not operation.force_complete()
    assert operation.events == ["complete"]


def test_a_completed_operation_leaves_the_timer_at_once(harness: PurgatoryHarness) -> None:
    operation = harness.park("key", delay_ms=2_147_483_647)
    assert harness.timer.size == 1
    operation.force_complete()
    assert harness.timer.size == 0


def test_nothing_references_a_completed_operation_after_its_key_was_tried(harness: PurgatoryHarness) -> None:
    operation = harness.park("key", delay_ms=2_147_483_647)
    operation.ready = True
    gone = weakref.ref(operation)
    gc.disable()
    try:
        harness.happened("key")
        del operation
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("delay_ms", [0, -1])
def test_an_operation_that_must_not_wait_expires_after_the_handler(harness: PurgatoryHarness, delay_ms: int) -> None:
    operation = harness.park("key", delay_ms=delay_ms)
    assert operation.events == []
    harness.loop.until_idle()
    assert operation.events == ["complete", "expired"]


def test_an_abandoned_operation_never_completes(harness: PurgatoryHarness) -> None:
    operation = harness.park("key", delay_ms=500)
    assert operation.abandon()
    assert not operation.abandon()
    assert not operation.force_complete()
    assert (harness.timer.size, harness.purgatory.delayed) == (0, 0)
    harness.pass_time(1_000)
    harness.happened("key")
    assert operation.events == []
    assert operation.tried == 1
    assert (harness.purgatory.completed, harness.purgatory.expired, harness.purgatory.watched) == (0, 0, 0)


def test_an_operation_outside_any_purgatory_expires_on_the_timer(harness: PurgatoryHarness) -> None:
    operation = Operation(delay_ms=5)
    harness.timer.add(operation)
    harness.clock.advance(5)
    harness.timer.advance_clock()
    assert operation.events == ["complete", "expired"]


def test_an_operation_must_be_subclassed() -> None:
    with pytest.raises(NotImplementedError):
        DelayedOperation(0).try_complete()
    with pytest.raises(NotImplementedError):
        DelayedOperation(0).force_complete()
