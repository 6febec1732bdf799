from collections.abc import Hashable
from typing import Any

from odradek.purgatory import CompletionQueue, DelayedElectLeader, DelayedOperationPurgatory
from odradek.timer import ManualClock, SystemTimer


class Electing:
    """A purgatory, and a broker that learns about leaders."""

    def __init__(self) -> None:
        clock = ManualClock()
        self.clock = clock
        self.timer = SystemTimer(clock)
        completions = CompletionQueue(lambda drain: drain())
        self.purgatory = DelayedOperationPurgatory("ElectLeader", self.timer, clock, completions)
        self.known: dict[Any, int] = {}
        self.late: list[list[Any]] = []

    def park(self, expected: dict[Hashable, int], timeout_ms: int = 1000) -> None:
        operation = DelayedElectLeader(timeout_ms, expected, self.known.get, self.late.append)
        self.purgatory.try_complete_else_watch(operation, list(expected))

    def learn(self, partition: str, leader: int) -> None:
        self.known[partition] = leader
        self.purgatory.check_and_complete(partition)


def test_an_election_is_answered_when_every_leader_is_known() -> None:
    electing = Electing()
    electing.park({"t-0": 1, "t-1": 2})
    electing.learn("t-0", 1)
    electing.learn("t-1", 3)  # the leader of before
    assert electing.late == []
    electing.learn("t-1", 2)
    assert electing.late == [[]]
    assert electing.purgatory.delayed == 0


def test_an_election_whose_leaders_are_known_does_not_wait() -> None:
    electing = Electing()
    electing.known["t-0"] = 1
    electing.park({"t-0": 1})
    assert electing.late == [[]]


def test_a_leader_that_was_known_once_is_not_waited_for_again() -> None:
    electing = Electing()
    electing.park({"t-0": 1, "t-1": 2})
    electing.learn("t-0", 1)
    electing.learn("t-0", 5)
    electing.learn("t-1", 2)
    assert electing.late == [[]]


def test_at_the_timeout_the_partitions_are_named_whose_leader_is_not_known() -> None:
    electing = Electing()
    electing.park({"t-0": 1, "t-1": 2}, timeout_ms=50)
    electing.learn("t-0", 1)
    electing.clock.advance(51)
    electing.timer.advance_clock()
    assert electing.late == [["t-1"]]
