"""The invariants of each step of reassignments and deletions: each finds a history that breaks it, and accepts the
nearest one that does not."""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek.broker.metadata.metadata_cache import PartitionState
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import Entry
from odradek.broker.metadata_store.znodes import TopicAssignment
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.deletion_invariants import Remains, wrong_in_deletions
from tests.simulation.final_state import Folder
from tests.simulation.history import History, Kind, Outcome, Reassignment, TopicChange
from tests.simulation.reassignment_invariants import LONGEST_END_US, Moves
from tests.simulation.scenes import Scene
from tests.simulation.stored_changes import Assignment, StoredChanges, changes_between
from tests.simulation.topic_invariants import LATE_US

T, ID = "parcels", UUID(int=5)
P = TopicPartition(T, 0)
LATER = 10 * LATE_US
RESTING = Assignment((1, 2))
MOVING = Assignment((3, 1, 2), (3,), (2,))
MOVED = Assignment((3, 1))


class MovingScene(Scene):
    def __init__(self) -> None:
        super().__init__()
        self.states: dict[TopicPartition, PartitionState] = {}
        self.moves = Moves(self.history, self.states)
        self.assignment = RESTING
        self.in_sync(1, 2)

    def ask(self, *replicas: int, outcome: Outcome = Outcome.OK) -> None:
        self.add(Reassignment(process="admin", partition=P, replicas=replicas or None), outcome)

    def in_sync(self, *brokers: int) -> list[str]:
        self.states[P] = PartitionState(0, brokers[0], 1, (), brokers)
        return self._judge(StoredChanges({P: (None, self.states[P])}, {}, {}))

    def store(self, assignment: Assignment | None) -> list[str]:
        before, self.assignment = self.assignment, assignment or RESTING
        after = None if assignment is None else _topic(assignment)
        return self._judge(StoredChanges({}, {T: (_topic(before), after)}, {}))

    def _judge(self, changes: StoredChanges) -> list[str]:
        return [finding.text for finding in self.moves.judge(changes, self.now_us)]


def _topic(assignment: Assignment) -> TopicAssignment:
    return TopicAssignment(ID, {0: assignment.replicas}, {0: assignment.adding}, {0: assignment.removing})


@pytest.fixture
def scene() -> MovingScene:
    return MovingScene()


def test_an_old_replica_stays_until_the_new_ones_are_in_sync(scene: MovingScene) -> None:
    scene.ask(3, 1)
    assert scene.store(MOVING) == []
    assert scene.in_sync(1, 2, 3) == []
    assert scene.in_sync(1) == []
    assert scene.store(MOVED) == []


def test_an_old_replica_that_leaves_early_is_found(scene: MovingScene) -> None:
    scene.ask(3, 1)
    scene.store(MOVING)
    assert "[2] have left" in scene.store(MOVED)[0]


def test_a_partition_without_any_leader_before_moves_at_once(scene: MovingScene) -> None:
    scene.ask(3, 1)
    del scene.states[P]
    assert scene.store(MOVING) == []
    assert scene.in_sync(3) == []
    assert scene.store(MOVED) == []


def test_what_was_in_sync_in_an_earlier_reassignment_does_not_count(scene: MovingScene) -> None:
    scene.ask(3, 1)
    scene.store(MOVING)
    scene.in_sync(1, 2, 3)
    scene.in_sync(1, 2)
    scene.ask()
    assert scene.store(RESTING) == []
    scene.ask(3, 1)
    scene.store(MOVING)
    assert "[2] have left" in scene.store(MOVED)[0]


def test_an_addition_that_ends_early_is_found(scene: MovingScene) -> None:
    scene.ask(1, 2, 3)
    assert scene.store(Assignment((1, 2, 3), (3,))) == []
    assert "ends, and in sync are" in scene.store(Assignment((1, 2, 3)))[0]


def test_a_reassignment_that_nobody_has_asked_for_is_found(scene: MovingScene) -> None:
    scene.ask(3, 1, outcome=Outcome.FAILED)
    assert "nobody asks" in scene.store(MOVING)[0]
    scene.ask()
    assert scene.store(RESTING) == []
    scene.now_us += LATER
    scene.ask(1, 3)
    assert "nobody asks" in scene.store(MOVING)[0]


def test_a_reassignment_that_begins_anew_from_other_replicas_is_found(scene: MovingScene) -> None:
    scene.ask(3, 1)
    scene.store(MOVING)
    scene.ask(3)
    assert scene.store(Assignment((3, 1, 2), (3,), (1, 2))) == []
    assert "begins anew" in scene.store(Assignment((3, 1), (), (1,)))[0]


def test_a_reassignment_that_does_not_end_is_found(scene: MovingScene) -> None:
    scene.ask(3, 1)
    scene.store(MOVING)

    def overdue(*, is_controlled: bool = True) -> bool:
        scene.now_us += LONGEST_END_US + 1
        return bool(list(scene.moves.overdue(scene.now_us, is_controlled=is_controlled)))

    assert [overdue(), overdue()] == [False, False]
    scene.in_sync(1, 2, 3)
    assert [overdue(), overdue(is_controlled=False), overdue(), overdue()] == [False, False, False, True]


def test_a_partition_that_goes_alone_is_found(scene: MovingScene) -> None:
    gone = StoredChanges({}, {T: (_topic(RESTING), TopicAssignment(ID, {}, {}, {}))}, {})
    assert "is gone from its topic" in next(scene.moves.judge(gone, 0)).text
    assert scene.store(None) == []


def test_changes_are_read_from_the_store() -> None:
    state = PartitionState(0, 1, 2, (), (1, 2), controller_epoch=3, partition_epoch=0)
    topic = znodes.encode_topic(ID, [state._replace(replicas=(1, 2))])
    paths = [znodes.state_path(T, 0), znodes.topic_path(T), znodes.deletion_path(T)]
    after = dict(
        zip(paths, (Entry(data, 0, 0, 0, 1, 1) for data in (znodes.encode_state(state), topic, None)), strict=True)
    )
    changes = changes_between(dict.fromkeys(paths), after)
    assert changes == StoredChanges(
        {P: (None, state)}, {T: (None, _topic(RESTING)._replace(adding={}, removing={}))}, {T: True}
    )


# --- deletions


def deleted(history: History, changes: StoredChanges, remains: Remains, *folders: Folder) -> list[str]:
    now_us = max((operation.ended_us for operation in history.operations), default=LATER)
    return [finding.invariant for finding in wrong_in_deletions(history, changes, remains, folders, now_us)]


GONE: dict[str, tuple[TopicAssignment | None, TopicAssignment | None]] = {T: (_topic(RESTING), None)}


def test_a_mark_that_nobody_has_asked_for_is_found(scene: MovingScene) -> None:
    marked = StoredChanges({}, {}, {T: True})
    assert deleted(scene.history, marked, Remains([T], [T])) == ["deletions"]
    scene.add(TopicChange(process="admin", kind=Kind.DELETE, topic=T), Outcome.UNKNOWN)
    assert deleted(scene.history, marked, Remains([T], [T])) == []


def test_a_topic_goes_with_its_mark(scene: MovingScene) -> None:
    assert deleted(scene.history, StoredChanges({}, GONE, {T: False}), Remains([], [])) == []
    assert deleted(scene.history, StoredChanges({}, GONE, {}), Remains([], [T])) == []
    assert deleted(scene.history, StoredChanges({}, GONE, {}), Remains([], [])) == ["deletions"]
    assert deleted(scene.history, StoredChanges({}, {}, {T: False}), Remains([T], [])) == ["deletions"]


def test_a_topic_goes_when_no_folder_is_left(scene: MovingScene) -> None:
    changes, remains = StoredChanges({}, GONE, {T: False}), Remains([], [])
    assert deleted(scene.history, changes, remains, Folder(2, P, ID)) == ["deletions"]
    assert deleted(scene.history, changes, remains, Folder(3, P, ID), Folder(2, P, UUID(int=6))) == []
