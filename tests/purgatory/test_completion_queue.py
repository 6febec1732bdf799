"""Completion comes after the running handler, a bounded piece at a time."""

import gc
import time
from collections.abc import Callable

import pytest

from odradek.purgatory import CompletionQueue
from tests.purgatory.rooms import Operation, PurgatoryRoom


def test_nothing_completes_within_the_handler_that_made_it_possible(room: PurgatoryRoom) -> None:
    operation = room.park("key")
    operation.ready = True
    room.completions.add(room.purgatory, "key")
    assert not operation.is_completed
    room.completions.drain()
    assert operation.is_completed


def test_the_loop_drains_the_queue_if_no_handler_does(room: PurgatoryRoom) -> None:
    operation = room.park("key")
    operation.ready = True
    room.completions.add(room.purgatory, "key")
    assert room.loop.turn() == 1
    assert operation.is_completed
    assert room.completions.is_empty


def test_a_key_noted_many_times_is_tried_once(room: PurgatoryRoom) -> None:
    operation = room.park("key")
    for _ in range(10):
        room.completions.add(room.purgatory, "key")
    assert room.loop.until_idle() == 1
    assert operation.tried == 2


def test_a_key_without_watchers_schedules_nothing(room: PurgatoryRoom) -> None:
    room.completions.add(room.purgatory, "key")
    assert room.completions.is_empty
    assert room.loop.scheduled == []


def test_operations_enabled_by_a_completion_complete_in_the_same_drain(room: PurgatoryRoom) -> None:
    first, second = room.park("a"), room.park("b")
    first.ready = second.ready = True
    first.when_complete = lambda: room.completions.add(room.purgatory, "b")
    room.completions.add(room.purgatory, "a")
    room.completions.drain()
    assert second.is_completed


def test_a_nested_drain_has_no_effect(room: PurgatoryRoom) -> None:
    seen: list[bool] = []
    first, second = room.park("a"), room.park("a")
    first.ready = second.ready = True

    def look() -> None:
        room.completions.drain()
        seen.append(second.is_completed)

    first.when_complete = look
    room.happened("a")
    assert seen == [False]
    assert second.is_completed


def test_operations_beyond_the_budget_are_tried_in_pieces(
    make_room: Callable[..., PurgatoryRoom],
) -> None:
    room = make_room(budget=100)
    operations = [room.park("key") for _ in range(1_000)]
    room.completions.add(room.purgatory, "key")
    tried = []
    while room.loop.turn():
        tried.append(sum(operation.tried - 1 for operation in operations))
    assert tried == list(range(100, 1_001, 100))
    assert all(operation.tried == 2 for operation in operations)


def test_an_event_between_pieces_restarts_the_pass(make_room: Callable[..., PurgatoryRoom]) -> None:
    room = make_room(budget=10)
    operations = [room.park("key") for _ in range(25)]
    room.completions.add(room.purgatory, "key")
    room.loop.turn()
    operations[0].ready = True
    room.completions.add(room.purgatory, "key")
    room.loop.until_idle()
    assert operations[0].is_completed
    assert all(operation.tried == 3 for operation in operations)


def test_an_event_within_the_last_piece_restarts_the_pass(make_room: Callable[..., PurgatoryRoom]) -> None:
    room = make_room(budget=10)
    operations = [room.park("key", name=str(number)) for number in range(15)]

    def let_the_first_go() -> None:
        operations[0].ready = True
        room.completions.add(room.purgatory, "key")

    operations[14].ready = True
    operations[14].when_complete = let_the_first_go
    room.happened("key")
    assert operations[0].is_completed


def test_an_operation_parked_between_pieces_is_tried_after_them(make_room: Callable[..., PurgatoryRoom]) -> None:
    room = make_room(budget=10)
    operations = [room.park("key") for _ in range(25)]
    operations[3].ready = True
    room.completions.add(room.purgatory, "key")
    room.loop.turn()
    late = room.park("key")
    room.loop.until_idle()
    assert late.tried == 1
    assert operations[3].is_completed
    assert [operation.tried for operation in operations] == [2] * 25
    assert room.purgatory.cancel_for_key("key") == [*operations[:3], *operations[4:], late]


def test_an_operation_costs_one_unit_of_the_budget_per_key(make_room: Callable[..., PurgatoryRoom]) -> None:
    room = make_room(budget=100)
    operations = [room.park("key", *(f"{number}-{other}" for other in range(49))) for number in range(10)]
    room.completions.add(room.purgatory, "key")
    room.loop.turn()
    assert sum(operation.tried - 1 for operation in operations) == 2
    assert room.loop.until_idle() == 4
    assert all(operation.tried == 2 for operation in operations)


def test_a_long_watcher_list_does_not_block_another_key(make_room: Callable[..., PurgatoryRoom]) -> None:
    room = make_room(budget=10)
    crowd = [room.park("crowd") for _ in range(1_000)]
    single = room.park("single")
    single.ready = True
    room.completions.add(room.purgatory, "crowd")
    room.completions.add(room.purgatory, "single")
    room.loop.turn()
    room.loop.turn()
    assert single.is_completed
    assert sum(operation.tried - 1 for operation in crowd) <= 20


def test_many_timeouts_expire_in_pieces_and_do_not_starve_an_event(
    make_room: Callable[..., PurgatoryRoom],
) -> None:
    room = make_room(budget=100)
    crowd = [room.park(f"key-{number}", delay_ms=50) for number in range(1_000)]
    waiting = room.park("event")
    room.clock.advance(50)
    room.timer.advance_clock()
    assert not any(operation.is_completed for operation in crowd)
    waiting.ready = True
    room.completions.add(room.purgatory, "event")
    room.loop.turn()
    assert waiting.is_completed
    assert sum(operation.is_completed for operation in crowd) == 100
    assert room.loop.until_idle() == 9
    assert all(operation.events == ["complete", "expired"] for operation in crowd)


def test_a_key_cancelled_between_pieces_ends_the_pass(make_room: Callable[..., PurgatoryRoom]) -> None:
    room = make_room(budget=10)
    operations = [room.park("key") for _ in range(25)]
    room.completions.add(room.purgatory, "key")
    room.loop.turn()
    assert len(room.purgatory.cancel_for_key("key")) == 25
    room.loop.until_idle()
    assert sum(operation.tried - 1 for operation in operations) == 10
    late = Operation()
    room.purgatory.try_complete_else_watch(late, ["key"])
    late.ready = True
    room.happened("key")
    assert late.is_completed


def test_an_immediate_check_of_a_key_finishes_its_pass(make_room: Callable[..., PurgatoryRoom]) -> None:
    room = make_room(budget=10)
    operations = [room.park("key") for _ in range(25)]
    room.completions.add(room.purgatory, "key")
    room.loop.turn()
    operations[0].ready = operations[24].ready = True
    assert room.purgatory.check_and_complete("key") == 2
    assert room.purgatory.watched == 23
    room.loop.until_idle()
    assert (room.purgatory.watched, room.purgatory.delayed) == (23, 23)


def test_a_queue_without_a_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="must be 1 or more"):
        CompletionQueue(lambda callback: None, 0)


def test_taking_a_key_takes_constant_time(make_room: Callable[..., PurgatoryRoom]) -> None:
    """A plain dict looks for its first key among all that were taken from its front: a thousand times as long for
    fifty times as many.
    """

    def seconds_for(count: int) -> float:
        room = make_room(budget=1_000_000)
        for number in range(count):
            room.park(f"key {number}")
            room.completions.add(room.purgatory, f"key {number}")
        gc.collect()
        gc.disable()
        try:
            begin = time.process_time()
            room.completions.drain()
            return time.process_time() - begin
        finally:
            gc.enable()

    few = min(seconds_for(2_000) for _ in range(5))
    assert min(seconds_for(100_000) for _ in range(2)) < 250 * few
