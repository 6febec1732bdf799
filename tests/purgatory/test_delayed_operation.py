"""An operation completes exactly once, by an event or by its time-out."""

import gc
import weakref

import pytest

from odradek.purgatory import DelayedOperation
from tests.purgatory.rooms import Operation, PurgatoryRoom


def test_an_operation_that_can_complete_at_once_is_never_parked(room: PurgatoryRoom) -> None:
    operation = Operation()
    operation.ready = True
    assert room.purgatory.try_complete_else_watch(operation, ["key"])
    assert operation.events == ["complete"]
    assert (room.purgatory.watched, room.purgatory.delayed, room.timer.size) == (0, 0, 0)


def test_an_event_completes_the_operations_that_wait_for_it(room: PurgatoryRoom) -> None:
    operation = room.park("key")
    room.happened("key")
    assert not operation.is_completed
    operation.ready = True
    room.happened("key")
    assert operation.events == ["complete"]
    assert (room.purgatory.completed, room.purgatory.expired) == (1, 0)


def test_the_timeout_completes_an_operation_that_no_event_completed(room: PurgatoryRoom) -> None:
    operation = room.park("key", delay_ms=500)
    room.pass_time(499)
    assert operation.events == []
    room.pass_time(1)
    assert operation.events == ["complete", "expired"]
    assert operation.is_expired
    assert (room.purgatory.completed, room.purgatory.expired) == (0, 1)


def test_an_operation_completes_once_if_event_and_timeout_coincide(room: PurgatoryRoom) -> None:
    operation = room.park("key", delay_ms=500)
    operation.ready = True
    room.clock.advance(500)
    room.completions.add(room.purgatory, "key")
    room.timer.advance_clock()
    room.loop.until_idle()
    assert operation.events.count("complete") == 1
    assert room.purgatory.completed + room.purgatory.expired == 1


def test_an_event_between_the_timeout_and_its_processing_wins(room: PurgatoryRoom) -> None:
    operation = room.park("key", delay_ms=500)
    room.clock.advance(500)
    room.timer.advance_clock()
    assert operation.force_complete()
    room.loop.until_idle()
    assert operation.events == ["complete"]
    assert not operation.is_expired
    assert (room.purgatory.completed, room.purgatory.expired) == (1, 0)


def test_the_second_force_complete_returns_false() -> None:
    operation = Operation()
    assert operation.force_complete()
    assert not operation.force_complete()
    assert operation.events == ["complete"]


def test_a_completed_operation_leaves_the_timer_at_once(room: PurgatoryRoom) -> None:
    operation = room.park("key", delay_ms=2_147_483_647)
    assert room.timer.size == 1
    operation.force_complete()
    assert room.timer.size == 0


def test_nothing_references_a_completed_operation_after_its_key_was_tried(room: PurgatoryRoom) -> None:
    operation = room.park("key", delay_ms=2_147_483_647)
    operation.ready = True
    gone = weakref.ref(operation)
    gc.disable()
    try:
        room.happened("key")
        del operation
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("delay_ms", [0, -1])
def test_an_operation_that_must_not_wait_expires_after_the_handler(room: PurgatoryRoom, delay_ms: int) -> None:
    operation = room.park("key", delay_ms=delay_ms)
    assert operation.events == []
    room.loop.until_idle()
    assert operation.events == ["complete", "expired"]


def test_an_abandoned_operation_never_completes(room: PurgatoryRoom) -> None:
    operation = room.park("key", delay_ms=500)
    assert operation.abandon()
    assert not operation.abandon()
    assert not operation.force_complete()
    assert (room.timer.size, room.purgatory.delayed) == (0, 0)
    room.pass_time(1_000)
    room.happened("key")
    assert operation.events == []
    assert operation.tried == 1
    assert (room.purgatory.completed, room.purgatory.expired, room.purgatory.watched) == (0, 0, 0)


def test_an_operation_outside_any_purgatory_expires_on_the_timer(room: PurgatoryRoom) -> None:
    operation = Operation(delay_ms=5)
    room.timer.add(operation)
    room.clock.advance(5)
    room.timer.advance_clock()
    assert operation.events == ["complete", "expired"]


def test_an_operation_must_be_subclassed() -> None:
    with pytest.raises(NotImplementedError):
        DelayedOperation(0).try_complete()
    with pytest.raises(NotImplementedError):
        DelayedOperation(0).force_complete()
