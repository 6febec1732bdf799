"""Watchers per key: parking, waking, cancelling, counting, listing and purging."""

import itertools
import random
from collections.abc import Callable

import pytest

from odradek.purgatory import DelayedOperationPurgatory, WaitingOperation
from tests.purgatory.harness import Operation, PurgatoryHarness


def test_an_operation_is_tried_once_when_it_is_parked(harness: PurgatoryHarness) -> None:
    assert harness.park("a", "b", "c").tried == 1


def test_an_event_tries_the_operations_of_its_key_and_no_others(harness: PurgatoryHarness) -> None:
    first, second, other = harness.park("a"), harness.park("a", "b"), harness.park("b")
    harness.happened("a")
    assert (first.tried, second.tried, other.tried) == (2, 2, 1)


def test_check_and_complete_returns_the_number_of_completed_operations(harness: PurgatoryHarness) -> None:
    operations = [harness.park("key", name=str(number)) for number in range(5)]
    for operation in operations[::2]:
        operation.ready = True
    assert harness.purgatory.check_and_complete("key") == 3
    assert [operation.is_completed for operation in operations] == [True, False, True, False, True]
    assert harness.purgatory.check_and_complete("key") == 0
    assert harness.purgatory.check_and_complete("nobody watches this") == 0


def test_operations_of_a_key_are_tried_oldest_first(harness: PurgatoryHarness) -> None:
    order: list[str] = []
    for name in "abcde":
        operation = harness.park("key", name=name)
        operation.ready = True
        operation.when_complete = lambda name=name: order.append(name)
    harness.happened("key")
    assert order == list("abcde")


def test_an_operation_without_keys_is_refused(harness: PurgatoryHarness) -> None:
    with pytest.raises(ValueError, match="needs at least one key"):
        harness.purgatory.try_complete_else_watch(Operation(), [])


def test_a_completed_operation_is_not_parked(harness: PurgatoryHarness) -> None:
    operation = Operation()
    operation.force_complete()
    assert not harness.purgatory.try_complete_else_watch(operation, ["key"])
    assert (harness.purgatory.watched, harness.purgatory.delayed) == (0, 0)


def test_a_watcher_list_that_becomes_empty_is_removed(harness: PurgatoryHarness) -> None:
    operation = harness.park("a", "b")
    assert harness.purgatory.watched_keys == 2
    operation.ready = True
    harness.happened("a")
    assert harness.purgatory.watched_keys == 1
    harness.happened("b")
    assert harness.purgatory.watched_keys == 0
    assert harness.purgatory.watched == 0


def test_purgatory_size_counts_entries_and_num_delayed_operations_counts_operations(harness: PurgatoryHarness) -> None:
    first = harness.park("a", "b", "c")
    harness.park("a")
    assert (harness.purgatory.watched, harness.purgatory.delayed) == (4, 2)
    first.force_complete()
    assert (harness.purgatory.watched, harness.purgatory.delayed) == (4, 1)
    harness.happened("a", "b", "c")
    assert (harness.purgatory.watched, harness.purgatory.delayed) == (1, 1)


def test_waiting_operations_are_listed_with_keys_age_and_deadline_oldest_first(harness: PurgatoryHarness) -> None:
    harness.clock.advance(10_000)
    first = harness.park("a", "b", name="first", delay_ms=500)
    harness.clock.advance(100)
    second = harness.park("b", name="second", delay_ms=250)
    done = harness.park("b")
    done.force_complete()
    harness.clock.advance(7)
    assert harness.purgatory.waiting() == [
        WaitingOperation(first, ("a", "b"), age_ms=107, deadline_ms=10_500),
        WaitingOperation(second, ("b",), age_ms=7, deadline_ms=10_350),
    ]


def test_cancelling_a_key_removes_its_operations_without_completing_them(harness: PurgatoryHarness) -> None:
    cancelled = [harness.park("a", delay_ms=100), harness.park("a", "b", delay_ms=100)]
    kept = harness.park("b", delay_ms=100)
    done = harness.park("a")
    done.force_complete()
    assert harness.purgatory.cancel_for_key("a") == cancelled
    assert (harness.purgatory.watched, harness.purgatory.delayed, harness.timer.size) == (2, 1, 1)
    assert harness.purgatory.cancel_for_key("a") == []
    harness.pass_time(200)
    assert [operation.events for operation in cancelled] == [[], []]
    assert kept.events == ["complete", "expired"]


def test_the_lists_have_each_operation_under_each_of_its_keys(harness: PurgatoryHarness) -> None:
    first = harness.park("a", "b")
    second = harness.park("b")
    lists = harness.purgatory.lists()
    assert {watchers.key: watchers.operations for watchers in lists} == {"a": [first], "b": [first, second]}
    harness.purgatory.cancel_for_key("a")
    assert [watchers.key for watchers in lists] == ["a", "b"]  # a copy
    assert [watchers.key for watchers in harness.purgatory.lists()] == ["b"]


def test_a_requester_is_kept_for_inspection(harness: PurgatoryHarness) -> None:
    operation = harness.park("a")
    assert operation.requester is None
    operation.requester = client = object()
    assert harness.purgatory.lists()[0].operations[0].requester is client


def test_a_cancelled_operation_can_still_complete_under_its_other_key(harness: PurgatoryHarness) -> None:
    operation = harness.park("a", "b")
    assert harness.purgatory.cancel_for_key("a") == [operation]
    assert harness.purgatory.delayed == 0
    assert harness.purgatory.waiting() == []
    operation.ready = True
    harness.happened("b")
    assert operation.events == ["complete"]
    assert (harness.purgatory.delayed, harness.purgatory.watched, harness.purgatory.dead) == (0, 0, 0)


def test_an_operation_can_cancel_its_own_key_while_it_completes(harness: PurgatoryHarness) -> None:
    operations = [harness.park("key", "other", name=str(number)) for number in range(4)]
    operations[0].force_complete()
    operations[2].ready = True
    operations[2].when_complete = lambda: harness.purgatory.cancel_for_key("key")
    harness.happened("key")
    assert [operation.is_completed for operation in operations] == [True, False, True, False]
    assert [operation.tried for operation in operations] == [1, 2, 2, 1]
    assert (harness.purgatory.watched, harness.purgatory.delayed, harness.purgatory.dead) == (4, 0, 2)
    harness.happened("other")
    assert (harness.purgatory.watched, harness.purgatory.dead) == (2, 0)


def test_a_completing_operation_can_park_another_under_the_same_key(harness: PurgatoryHarness) -> None:
    later = Operation("later")
    first = harness.park("key", name="first")
    first.ready = True
    first.when_complete = lambda: harness.purgatory.try_complete_else_watch(later, ["key"])
    harness.happened("key")
    assert first.is_completed
    assert later.tried == 1
    later.ready = True
    harness.happened("key")
    assert later.is_completed
    assert harness.purgatory.watched_keys == 0


def test_checking_a_key_within_one_of_its_operations_is_queued(harness: PurgatoryHarness) -> None:
    answers: list[int] = []
    first, second = harness.park("key", name="first"), harness.park("key", name="second")

    def complete_the_second() -> None:
        second.ready = True
        answers.append(harness.purgatory.check_and_complete("key"))

    first.ready = True
    first.when_complete = complete_the_second
    harness.happened("key")
    assert answers == [0]
    assert second.is_completed


def test_an_operation_that_raises_does_not_affect_the_others(
    harness: PurgatoryHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    class Failing(Operation):
        def try_complete(self) -> bool:
            self.tried += 1
            if self.tried > 1:
                raise ValueError("no")
            return False

    failing = Failing(delay_ms=100)
    harness.purgatory.try_complete_else_watch(failing, ["key"])
    other = harness.park("key", delay_ms=100)
    other.ready = True
    harness.happened("key")
    assert other.is_completed
    assert not failing.is_completed
    assert "completion failed" in "".join(capsys.readouterr())
    harness.pass_time(100)
    assert failing.events == ["complete", "expired"]


def test_a_completion_that_raises_does_not_affect_other_timeouts(
    harness: PurgatoryHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise ValueError("no")

    failing, other = harness.park("key", delay_ms=100), harness.park("key", delay_ms=100)
    failing.when_complete = refuse
    harness.pass_time(100)
    assert other.events == ["complete", "expired"]
    assert "expiration failed" in "".join(capsys.readouterr())
    assert harness.purgatory.delayed == 0


def test_shutdown_completes_all_operations_and_parks_no_more(harness: PurgatoryHarness) -> None:
    operations = [harness.park("a", "b"), harness.park("b")]
    harness.purgatory.shutdown()
    assert [operation.events for operation in operations] == [["complete"], ["complete"]]
    assert (harness.purgatory.watched, harness.purgatory.delayed, harness.purgatory.watched_keys) == (0, 0, 0)
    late = Operation()
    assert harness.purgatory.try_complete_else_watch(late, ["a"])
    assert late.events == ["complete"]
    assert harness.timer.size == 0


def test_two_purgatories_on_one_timer_count_separately(harness: PurgatoryHarness) -> None:
    from odradek.purgatory import DelayedOperationPurgatory

    other = DelayedOperationPurgatory("Other", harness.timer, harness.clock, harness.completions)
    harness.park("key", delay_ms=100)
    operation = Operation(delay_ms=200)
    other.try_complete_else_watch(operation, ["key"])
    assert (harness.purgatory.delayed, other.delayed, harness.timer.size) == (1, 1, 2)
    operation.ready = True
    harness.happened("key")
    assert not operation.is_completed
    harness.pass_time(150)
    assert (harness.purgatory.expired, other.expired, other.delayed) == (1, 0, 1)


# Purging


def test_completed_watchers_stay_up_to_the_purge_interval(new_harness: Callable[..., PurgatoryHarness]) -> None:
    harness = new_harness(purge_interval=10)
    operations = [harness.park("busy", "quiet") for _ in range(20)]
    for operation in operations[:10]:
        operation.force_complete()
    harness.loop.until_idle()
    assert (harness.purgatory.dead, harness.purgatory.watched) == (10, 40)


def test_completed_watchers_past_the_purge_interval_are_purged(new_harness: Callable[..., PurgatoryHarness]) -> None:
    harness = new_harness(purge_interval=10)
    operations = [harness.park("busy", "quiet") for _ in range(20)]
    for operation in operations[:11]:
        operation.force_complete()
    harness.loop.until_idle()
    assert (harness.purgatory.dead, harness.purgatory.watched) == (0, 18)
    assert harness.purgatory.delayed == 9


def test_a_list_whose_operations_were_all_purged_is_removed(new_harness: Callable[..., PurgatoryHarness]) -> None:
    harness = new_harness(purge_interval=1)
    waiting = harness.park("kept")
    for number in range(5):
        harness.park(f"only-{number}", "kept").force_complete()
    harness.loop.until_idle()
    harness.park("only-5", "kept").force_complete()
    harness.park("only-6", "kept").force_complete()
    harness.loop.until_idle()
    assert harness.purgatory.watched_keys <= 2
    assert waiting in harness.purgatory.cancel_for_key("kept")


def test_operations_that_complete_under_their_only_key_never_start_a_purge(
    new_harness: Callable[..., PurgatoryHarness],
) -> None:
    harness = new_harness(purge_interval=2)
    waiting = [harness.park("other") for _ in range(50)]
    for _ in range(100):
        operation = harness.park("key")
        operation.ready = True
        harness.happened("key")
    assert harness.purgatory.dead == 0
    assert all(operation.tried == 1 for operation in waiting)
    assert harness.loop.until_idle() == 0


def test_a_purge_checks_a_bounded_number_of_entries_per_turn_of_the_loop(
    new_harness: Callable[..., PurgatoryHarness],
) -> None:
    harness = new_harness(purge_interval=100, budget=50)
    operations = [harness.park(f"key-{number % 7}", "all") for number in range(1_000)]
    for operation in operations[:101]:
        operation.force_complete()
    seen = [harness.purgatory.watched]
    while harness.loop.turn():
        seen.append(harness.purgatory.watched)
    assert seen[0] == 2_000
    assert seen[-1] == 2_000 - 202
    assert all(before - after <= 50 for before, after in itertools.pairwise(seen))
    assert 2_000 / 50 <= len(seen) - 1 <= 2_000 / 50 + 2


def test_operations_parked_and_completed_during_a_purge_are_not_lost(
    new_harness: Callable[..., PurgatoryHarness],
) -> None:
    harness = new_harness(purge_interval=20, budget=10)
    chance = random.Random(7)
    waiting: list[Operation] = []
    for step in range(3_000):
        keys = [f"key-{chance.randrange(30)}" for _ in range(chance.randrange(1, 4))]
        waiting.append(harness.park(*dict.fromkeys(keys), name=str(step), delay_ms=chance.randrange(1, 400)))
        if chance.random() < 0.5:
            waiting[chance.randrange(len(waiting))].force_complete()
        if chance.random() < 0.3:
            chosen = waiting[chance.randrange(len(waiting))]
            chosen.ready = True
            harness.completions.add(harness.purgatory, chosen.watch_keys[0])
        if chance.random() < 0.02:
            harness.purgatory.cancel_for_key(f"key-{chance.randrange(30)}")
        if chance.random() < 0.5:
            harness.clock.advance(1)
            harness.timer.advance_clock()
            harness.loop.turn()
        harness.purgatory.check()
        harness.timer.check()
    harness.pass_time(1_000)
    assert harness.purgatory.delayed == 0
    assert harness.timer.size == 0
    assert harness.purgatory.dead <= 20 + 3
    for operation in waiting:
        assert operation.events in (["complete"], ["complete", "expired"]) or operation.is_cancelled
    completed = [operation for operation in waiting if operation.is_completed]
    assert harness.purgatory.completed + harness.purgatory.expired == len(completed)
    for key in range(30):
        harness.purgatory.cancel_for_key(f"key-{key}")
    assert (harness.purgatory.watched, harness.purgatory.watched_keys, harness.purgatory.dead) == (0, 0, 0)


def test_a_large_purgatory_is_not_scanned_for_every_thousand_completions(
    new_harness: Callable[..., PurgatoryHarness],
) -> None:
    """A pass checks every entry. The next pass starts only after a sixteenth of them are completed."""
    harness = new_harness(purge_interval=10, budget=100_000)
    operations = [harness.park("a", "b") for _ in range(4_000)]
    for operation in operations[:11]:
        operation.force_complete()
    assert harness.loop.until_idle() == 1
    assert harness.purgatory.dead == 0
    for operation in operations[11:511]:
        operation.force_complete()
    assert harness.loop.until_idle() == 0
    assert harness.purgatory.dead == 500
    operations[511].force_complete()
    assert harness.loop.until_idle() == 1
    assert harness.purgatory.dead == 0


def test_a_purge_keeps_up_with_a_loop_that_parks_more_per_turn_than_its_budget(
    new_harness: Callable[..., PurgatoryHarness],
) -> None:
    harness = new_harness(purge_interval=10, budget=10)
    for _ in range(200):
        for operation in [harness.park("a", "b") for _ in range(50)]:
            operation.force_complete()
        harness.loop.turn()
    assert harness.purgatory.watched < 4 * 100


@pytest.mark.parametrize(
    "damage",
    [
        lambda purgatory, operation: setattr(purgatory, "watched", 4),
        lambda purgatory, operation: setattr(purgatory, "delayed", 3),
        lambda purgatory, operation: setattr(purgatory, "dead", 1),
        lambda purgatory, operation: setattr(operation, "watched_by", 1),
        lambda purgatory, operation: setattr(operation, "is_completed", True),
        lambda purgatory, operation: purgatory.lists()[0].operations.append(operation),
        lambda purgatory, operation: purgatory.lists()[0].operations.clear(),
        lambda purgatory, operation: setattr(purgatory.lists()[0], "index", 1),
        lambda purgatory, operation: setattr(purgatory.lists()[1], "key", "a"),
    ],
    ids=["watched", "delayed", "dead", "lists", "completed", "entries", "empty", "index", "key"],
)
def test_a_broken_invariant_is_found(
    harness: PurgatoryHarness, damage: Callable[[DelayedOperationPurgatory, Operation], object]
) -> None:
    operation = harness.park("a", "b")
    harness.park("b")
    harness.purgatory.check()
    damage(harness.purgatory, operation)
    with pytest.raises(AssertionError):
        harness.purgatory.check()
