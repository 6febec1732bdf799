"""Completions run after the current handler, in bounded pieces."""

import gc
import time
from collections.abc import Callable

import pytest

from odradek.purgatory import CompletionQueue
from tests.purgatory.harness import Operation, PurgatoryHarness


def test_nothing_completes_within_the_handler_that_made_it_possible(harness: PurgatoryHarness) -> None:
    operation = harness.park("key")
    operation.ready = True
    harness.completions.add(harness.purgatory, "key")
    assert not operation.is_completed
    harness.completions.drain()
    assert operation.is_completed


def test_the_loop_drains_the_queue_if_no_handler_does(harness: PurgatoryHarness) -> None:
    operation = harness.park("key")
    operation.ready = True
    harness.completions.add(harness.purgatory, "key")
    assert harness.loop.turn() == 1
    assert operation.is_completed
    assert harness.completions.is_empty


def test_a_key_noted_many_times_is_tried_once(harness: PurgatoryHarness) -> None:
    operation = harness.park("key")
    for _ in range(10):
        harness.completions.add(harness.purgatory, "key")
    assert harness.loop.until_idle() == 1
    assert operation.tried == 2


def test_a_key_without_watchers_schedules_nothing(harness: PurgatoryHarness) -> None:
    harness.completions.add(harness.purgatory, "key")
    assert harness.completions.is_empty
    assert harness.loop.scheduled == []


def test_operations_enabled_by_a_completion_complete_in_the_same_drain(harness: PurgatoryHarness) -> None:
    first, second = harness.park("a"), harness.park("b")
    first.ready = second.ready = True
    first.when_complete = lambda: harness.completions.add(harness.purgatory, "b")
    harness.completions.add(harness.purgatory, "a")
    harness.completions.drain()
    assert second.is_completed


def test_a_nested_drain_has_no_effect(harness: PurgatoryHarness) -> None:
    seen: list[bool] = []
    first, second = harness.park("a"), harness.park("a")
    first.ready = second.ready = True

    def look() -> None:
        harness.completions.drain()
        seen.append(second.is_completed)

    first.when_complete = look
    harness.happened("a")
    assert seen == [False]
    assert second.is_completed


def test_operations_beyond_the_budget_are_tried_in_pieces(
    new_harness: Callable[..., PurgatoryHarness],
) -> None:
    harness = new_harness(budget=100)
    operations = [harness.park("key") for _ in range(1_000)]
    harness.completions.add(harness.purgatory, "key")
    tried = []
    while harness.loop.turn():
        tried.append(sum(operation.tried - 1 for operation in operations))
    assert tried == list(range(100, 1_001, 100))
    assert all(operation.tried == 2 for operation in operations)


def test_a_pass_goes_on_after_a_piece_in_which_all_operations_have_completed(
    new_harness: Callable[..., PurgatoryHarness],
) -> None:
    harness = new_harness(budget=10)
    operations = [harness.park("key") for _ in range(35)]
    for operation in operations:
        operation.ready = True
    harness.happened("key")
    assert all(operation.is_completed for operation in operations)
    assert all(operation.tried == 2 for operation in operations)


def test_an_event_within_the_first_piece_restarts_the_pass(new_harness: Callable[..., PurgatoryHarness]) -> None:
    harness = new_harness(budget=10)
    operations = [harness.park("key", name=str(number)) for number in range(15)]

    def let_the_first_go() -> None:
        operations[0].ready = True
        harness.completions.add(harness.purgatory, "key")

    operations[5].ready = True
    operations[5].when_complete = let_the_first_go
    harness.happened("key")
    assert operations[0].is_completed


def test_an_event_between_pieces_restarts_the_pass(new_harness: Callable[..., PurgatoryHarness]) -> None:
    harness = new_harness(budget=10)
    operations = [harness.park("key") for _ in range(25)]
    harness.completions.add(harness.purgatory, "key")
    harness.loop.turn()
    operations[0].ready = True
    harness.completions.add(harness.purgatory, "key")
    harness.loop.until_idle()
    assert operations[0].is_completed
    assert all(operation.tried == 3 for operation in operations)


def test_an_event_within_the_last_piece_restarts_the_pass(new_harness: Callable[..., PurgatoryHarness]) -> None:
    harness = new_harness(budget=10)
    operations = [harness.park("key", name=str(number)) for number in range(15)]

    def let_the_first_go() -> None:
        operations[0].ready = True
        harness.completions.add(harness.purgatory, "key")

    operations[14].ready = True
    operations[14].when_complete = let_the_first_go
    harness.happened("key")
    assert operations[0].is_completed


def test_an_operation_parked_between_pieces_is_tried_after_them(new_harness: Callable[..., PurgatoryHarness]) -> None:
    harness = new_harness(budget=10)
    operations = [harness.park("key") for _ in range(25)]
    operations[3].ready = True
    harness.completions.add(harness.purgatory, "key")
    harness.loop.turn()
    late = harness.park("key")
    harness.loop.until_idle()
    assert late.tried == 1
    assert operations[3].is_completed
    assert [operation.tried for operation in operations] == [2] * 25
    assert harness.purgatory.cancel_for_key("key") == [*operations[:3], *operations[4:], late]


def test_an_operation_costs_one_unit_of_the_budget_per_key(new_harness: Callable[..., PurgatoryHarness]) -> None:
    harness = new_harness(budget=100)
    operations = [harness.park("key", *(f"{number}-{other}" for other in range(49))) for number in range(10)]
    harness.completions.add(harness.purgatory, "key")
    harness.loop.turn()
    assert sum(operation.tried - 1 for operation in operations) == 2
    assert harness.loop.until_idle() == 4
    assert all(operation.tried == 2 for operation in operations)


def test_a_long_watcher_list_does_not_block_another_key(new_harness: Callable[..., PurgatoryHarness]) -> None:
    harness = new_harness(budget=10)
    crowd = [harness.park("crowd") for _ in range(1_000)]
    single = harness.park("single")
    single.ready = True
    harness.completions.add(harness.purgatory, "crowd")
    harness.completions.add(harness.purgatory, "single")
    harness.loop.turn()
    harness.loop.turn()
    assert single.is_completed
    assert sum(operation.tried - 1 for operation in crowd) <= 20


def test_many_timeouts_expire_in_pieces_and_do_not_starve_an_event(
    new_harness: Callable[..., PurgatoryHarness],
) -> None:
    harness = new_harness(budget=100)
    crowd = [harness.park(f"key-{number}", delay_ms=50) for number in range(1_000)]
    waiting = harness.park("event")
    harness.clock.advance(50)
    harness.timer.advance_clock()
    assert not any(operation.is_completed for operation in crowd)
    waiting.ready = True
    harness.completions.add(harness.purgatory, "event")
    harness.loop.turn()
    assert waiting.is_completed
    assert sum(operation.is_completed for operation in crowd) == 100
    assert harness.loop.until_idle() == 9
    assert all(operation.events == ["complete", "expired"] for operation in crowd)


def test_a_key_cancelled_between_pieces_ends_the_pass(new_harness: Callable[..., PurgatoryHarness]) -> None:
    harness = new_harness(budget=10)
    operations = [harness.park("key") for _ in range(25)]
    harness.completions.add(harness.purgatory, "key")
    harness.loop.turn()
    assert len(harness.purgatory.cancel_for_key("key")) == 25
    harness.loop.until_idle()
    assert sum(operation.tried - 1 for operation in operations) == 10
    late = Operation()
    harness.purgatory.try_complete_else_watch(late, ["key"])
    late.ready = True
    harness.happened("key")
    assert late.is_completed


def test_an_immediate_check_of_a_key_finishes_its_pass(new_harness: Callable[..., PurgatoryHarness]) -> None:
    harness = new_harness(budget=10)
    operations = [harness.park("key") for _ in range(25)]
    harness.completions.add(harness.purgatory, "key")
    harness.loop.turn()
    operations[0].ready = operations[24].ready = True
    assert harness.purgatory.check_and_complete("key") == 2
    assert harness.purgatory.watched == 23
    harness.loop.until_idle()
    assert (harness.purgatory.watched, harness.purgatory.delayed) == (23, 23)


def test_a_queue_without_a_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="must be 1 or more"):
        CompletionQueue(lambda callback: None, 0)


def test_taking_a_key_takes_constant_time(new_harness: Callable[..., PurgatoryHarness]) -> None:
    """A plain dict scans all removed entries for its first key: more than a thousand times as long for fifty times as
    many. The limit is ten times of what it should be, so that no neighbour decides.
    """

    def seconds_for(count: int) -> float:
        harness = new_harness(budget=1_000_000)
        for number in range(count):
            harness.park(f"key {number}")
            harness.completions.add(harness.purgatory, f"key {number}")
        gc.collect()
        gc.disable()
        try:
            begin = time.process_time()
            harness.completions.drain()
            return time.process_time() - begin
        finally:
            gc.enable()

    few = min(seconds_for(2_000) for _ in range(5))
    assert any(seconds_for(100_000) < 500 * few for _ in range(2))
