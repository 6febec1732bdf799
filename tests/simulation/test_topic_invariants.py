"""The invariants of what administrators change: each finds a history that breaks it, and accepts the nearest one that
does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import pytest

from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.checker import check
from tests.simulation.final_state import (
    BrokerView,
    FinalState,
    Folder,
    Leadership,
    ReplicaLog,
    StoredMetadata,
    StoredTopic,
)
from tests.simulation.history import Elected, Kind, Outcome, Reassignment, Registered, TopicChange
from tests.simulation.scenes import Scene
from tests.simulation.topic_invariants import LATE_US, LONGEST_CUT_US

OK, FAILED, UNKNOWN = Outcome.OK, Outcome.FAILED, Outcome.UNKNOWN
CREATE, EXTEND, DELETE = Kind.CREATE, Kind.EXTEND, Kind.DELETE
P = TopicPartition("brief", 0)
ID, OTHER_ID = UUID(int=1), UUID(int=2)
BROKERS = (1, 2)


class TopicScene(Scene):
    """What an administrator does."""

    def change(self, kind: Kind, partitions: int = 0, outcome: Outcome = OK) -> None:
        self.add(TopicChange(process="admin", kind=kind, topic=P.topic, partitions=partitions), outcome)

    def reassign(self, *replicas: int, outcome: Outcome = OK, is_seen: bool = False) -> None:
        """No replicas: a cancellation. `is_seen`: the reassignment has ended after that."""
        operation = Reassignment(process="admin", partition=P, replicas=replicas or None)
        self.add(operation, outcome)
        self.now_us += 1
        if is_seen:
            operation.seen_to_end_us = self.now_us

    def registered(self, broker_id: int, *, is_there: bool) -> None:
        self.now_us += 1
        self.history.note(Registered(process="store", broker_id=broker_id, is_there=is_there))

    def violated(self, final: FinalState) -> list[str]:
        """The names of the invariants that are broken."""
        return list(dict.fromkeys(violation.invariant for violation in check(self.history, final)))


@pytest.fixture
def scene() -> TopicScene:
    return TopicScene()


def final(
    stored: Mapping[int, tuple[int, ...]],
    *,
    known: Mapping[int, tuple[int, ...]] | None = None,
    reassigning: Sequence[int] = (),
    configs: Sequence[str] = (),
    deletions: Sequence[str] = (),
    folders: Sequence[Folder] = (),
    replicas: Sequence[ReplicaLog] = (),
) -> FinalState:
    """A cluster of two brokers whose store has these replicas of the topic's partitions, and which knows these."""
    known = stored if known is None else known
    leaderships = {
        TopicPartition(P.topic, n): Leadership(brokers[0], 0, brokers, brokers) for n, brokers in known.items()
    }
    views = [
        BrokerView(
            broker_id=broker,
            controller_id=1,
            live_brokers=BROKERS,
            partitions=leaderships,
            led={key: 0 for key, state in leaderships.items() if state.leader_id == broker},
        )
        for broker in (1, 2, 3)
    ]
    topics = {P.topic: StoredTopic(ID, stored, reassigning)} if stored else {}
    return FinalState(
        views=views, metadata=StoredMetadata(topics, configs, deletions), folders=folders, replicas=replicas
    )


NOTHING = final({})
ONE, TWO, THREE = (final(dict.fromkeys(range(size), (1,))) for size in (1, 2, 3))


# --- topics


def test_a_created_topic_that_is_not_there_is_found(scene: TopicScene) -> None:
    scene.change(CREATE, 1)
    assert scene.violated(ONE) == []
    assert scene.violated(NOTHING) == ["topics"]


def test_a_created_topic_that_a_broker_does_not_know_is_found(scene: TopicScene) -> None:
    scene.change(CREATE, 1)
    assert "topics" in scene.violated(final({0: (1,)}, known={}))


def test_a_partition_that_was_added_and_is_not_there_is_found(scene: TopicScene) -> None:
    scene.change(CREATE, 1)
    scene.change(EXTEND, 2)
    assert scene.violated(TWO) == []
    assert scene.violated(ONE) == ["topics"]


def test_a_partition_that_nobody_asked_for_is_found(scene: TopicScene) -> None:
    scene.change(CREATE, 1)
    scene.change(EXTEND, 2, UNKNOWN)
    scene.change(EXTEND, 3, FAILED)
    assert scene.violated(ONE) == scene.violated(TWO) == []
    assert scene.violated(THREE) == ["topics"]


def test_a_deleted_topic_that_is_still_there_is_found(scene: TopicScene) -> None:
    scene.change(CREATE, 1)
    scene.change(DELETE)
    assert scene.violated(NOTHING) == []
    assert scene.violated(ONE) == ["topics"]


def test_a_topic_that_was_created_without_an_answer_and_then_deleted_is_found(scene: TopicScene) -> None:
    scene.change(CREATE, 1, UNKNOWN)
    assert scene.violated(NOTHING) == scene.violated(ONE) == []
    scene.change(DELETE)
    assert scene.violated(ONE) == ["topics"]


def test_a_topic_whose_deletion_has_no_answer_may_be_there_or_not(scene: TopicScene) -> None:
    scene.change(CREATE, 1)
    scene.change(DELETE, outcome=UNKNOWN)
    assert scene.violated(NOTHING) == scene.violated(ONE) == []


def test_a_late_deletion_may_hit_the_next_topic_of_the_name(scene: TopicScene) -> None:
    scene.change(CREATE, 1)
    scene.change(DELETE, outcome=UNKNOWN)
    scene.change(CREATE, 1)
    assert scene.violated(NOTHING) == []
    scene.now_us += LATE_US
    scene.change(CREATE, 1)
    assert scene.violated(NOTHING) == ["topics"]


def test_a_deletion_may_hit_a_topic_that_is_created_before_its_answer(scene: TopicScene) -> None:
    scene.change(CREATE, 1)
    deletion = scene.begin(TopicChange(process="admin", kind=DELETE, topic=P.topic))
    scene.change(CREATE, 1)
    scene.end(deletion)
    assert scene.violated(NOTHING) == scene.violated(ONE) == []


def test_a_topic_that_was_created_again_is_expected(scene: TopicScene) -> None:
    scene.change(CREATE, 1)
    scene.change(DELETE)
    scene.change(CREATE, 2)
    assert scene.violated(TWO) == []
    assert scene.violated(NOTHING) == ["topics"]


def test_a_refused_deletion_has_no_effect(scene: TopicScene) -> None:
    scene.change(CREATE, 1)
    scene.change(DELETE, outcome=FAILED)
    assert scene.violated(ONE) == []
    assert scene.violated(NOTHING) == ["topics"]


@pytest.mark.parametrize(
    "left",
    [
        final({}, configs=["brief"]),
        final({}, deletions=["brief"]),
        final({}, folders=[Folder(1, P, ID)]),
        final({0: (1,)}, folders=[Folder(1, P, OTHER_ID)]),
    ],
    ids=["settings", "a mark of deletion", "a folder", "a folder of another topic of the name"],
)
def test_what_is_left_of_a_topic_is_found(scene: TopicScene, left: FinalState) -> None:
    assert scene.violated(final({0: (1,)}, configs=["brief"], folders=[Folder(1, P, ID)])) == []
    assert scene.violated(left) == ["topics"]


# --- reassignments


def test_a_reassignment_that_does_not_end_is_found(scene: TopicScene) -> None:
    assert scene.violated(final({0: (1, 2)}, reassigning=[0])) == ["reassignments"]


def test_brokers_that_know_other_replicas_than_the_store_are_found(scene: TopicScene) -> None:
    assert scene.violated(final({0: (1, 2)}, known={0: (1,)})) == ["reassignments"]


def replicas_found(scene: TopicScene) -> set[tuple[int, ...]]:
    """The replicas that the partition may have in the end."""
    candidates = [(1, 2), (1, 3), (2, 3)]
    return {replicas for replicas in candidates if scene.violated(final({0: replicas})) == []}


def test_the_replicas_are_those_of_the_last_confirmed_reassignment(scene: TopicScene) -> None:
    assert replicas_found(scene) == {(1, 2), (1, 3), (2, 3)}
    scene.reassign(1, 2)
    scene.reassign(2, 3)
    scene.reassign(1, 3, outcome=FAILED)
    assert replicas_found(scene) == {(2, 3)}


def test_a_reassignment_without_an_answer_may_count_or_not(scene: TopicScene) -> None:
    scene.reassign(1, 2, is_seen=True)
    scene.reassign(2, 3, outcome=UNKNOWN)
    assert replicas_found(scene) == {(1, 2), (2, 3)}


def test_a_reassignment_without_an_answer_may_count_later(scene: TopicScene) -> None:
    scene.reassign(2, 3, outcome=UNKNOWN)
    scene.reassign(1, 2, is_seen=True)
    assert replicas_found(scene) == {(1, 2), (2, 3)}
    scene.now_us += LATE_US
    scene.reassign(1, 3)
    assert replicas_found(scene) == {(1, 3)}


def test_a_cancellation_restores_the_replicas_of_before(scene: TopicScene) -> None:
    scene.reassign(1, 2, is_seen=True)
    scene.reassign(2, 3)
    scene.reassign()
    assert replicas_found(scene) == {(1, 2)}


def test_a_cancellation_without_an_answer_may_count_or_not(scene: TopicScene) -> None:
    scene.reassign(1, 2, is_seen=True)
    scene.reassign(2, 3)
    scene.reassign(outcome=UNKNOWN)
    assert replicas_found(scene) == {(1, 2), (2, 3)}


def test_a_cancellation_may_restore_what_was_not_seen_to_end(scene: TopicScene) -> None:
    scene.reassign(1, 2, is_seen=True)
    scene.reassign(1, 3)
    scene.reassign(2, 3)
    scene.reassign()
    assert replicas_found(scene) == {(1, 2), (1, 3)}


def test_a_replica_on_another_broker_is_found(scene: TopicScene) -> None:
    def of(broker_id: int) -> FinalState:
        return final({0: (1, 2)}, replicas=[ReplicaLog(partition=P, broker_id=broker_id, high_watermark=0)])

    assert scene.violated(of(2)) == []
    assert scene.violated(of(3)) == ["reassignments"]


STRAY = final({0: (1, 2)}, folders=[Folder(broker, P, ID) for broker in (1, 2, 3)])


def test_a_folder_on_another_broker_is_found(scene: TopicScene) -> None:
    scene.reassign(2, 3, is_seen=True)
    scene.reassign(1, 2, is_seen=True)
    assert scene.violated(final({0: (1, 2)}, folders=[Folder(1, P, ID), Folder(2, P, ID)])) == []
    assert scene.violated(STRAY) == ["reassignments"]


@pytest.mark.parametrize("is_reassigned", [True, False])
def test_a_folder_may_stay_that_could_not_be_renamed_when_its_replica_was_removed(
    scene: TopicScene, is_reassigned: bool
) -> None:
    if is_reassigned:
        scene.reassign(1, 2, is_seen=True)
    stuck = Folder(3, P, ID, is_stuck=True)
    assert scene.violated(final({0: (1, 2)}, folders=[stuck])) == ([] if is_reassigned else ["reassignments"])
    assert scene.violated(final({}, folders=[stuck])) == ([] if is_reassigned else ["topics"])


def test_a_folder_may_stay_on_a_broker_that_was_away(scene: TopicScene) -> None:
    scene.registered(3, is_there=True)
    scene.reassign(2, 3, is_seen=True)
    scene.registered(3, is_there=False)
    scene.reassign(1, 2, is_seen=True)
    scene.registered(3, is_there=True)
    assert scene.violated(STRAY) == []


def test_a_folder_must_not_stay_on_a_broker_that_was_away_before_or_after(scene: TopicScene) -> None:
    scene.registered(3, is_there=False)
    scene.reassign(2, 3, is_seen=True)
    scene.registered(3, is_there=True)
    scene.reassign(1, 2, is_seen=True)
    scene.now_us += LONGEST_CUT_US
    scene.registered(3, is_there=False)
    scene.registered(3, is_there=True)
    assert scene.violated(STRAY) == ["reassignments"]


def test_a_folder_may_stay_if_the_controller_was_lost_when_a_reassignment_was_cancelled(scene: TopicScene) -> None:
    scene.reassign(1, 2, is_seen=True)
    scene.reassign(1, 3)
    scene.reassign(is_seen=True)
    assert scene.violated(STRAY) == ["reassignments"]
    scene.history.operations.pop()
    scene.reassign(outcome=UNKNOWN)
    scene.history.note(Elected(process="store", broker_id=1))
    assert scene.violated(STRAY) == []


@pytest.mark.parametrize(("later_us", "found"), [(LONGEST_CUT_US, []), (LONGEST_CUT_US + 1, ["reassignments"])])
def test_a_folder_may_stay_if_the_controller_was_lost_while_it_could_not_reach_the_broker(
    scene: TopicScene, later_us: int, found: list[str]
) -> None:
    scene.reassign(1, 2, is_seen=True)
    scene.reassign(1, 3)
    scene.reassign(is_seen=True)
    scene.now_us += later_us
    scene.history.note(Elected(process="store", broker_id=1))
    assert scene.violated(STRAY) == found


def test_a_folder_must_not_stay_if_the_controller_was_lost_after_a_reassignment(scene: TopicScene) -> None:
    scene.reassign(1, 3, is_seen=True)
    scene.reassign(1, 2)
    scene.history.note(Elected(process="store", broker_id=1))
    assert scene.violated(STRAY) == ["reassignments"]


def test_a_folder_may_stay_if_the_controller_was_lost_when_a_reassignment_was_replaced(scene: TopicScene) -> None:
    scene.reassign(1, 3, is_seen=True)
    scene.reassign(1, 2)
    scene.reassign(2, 1)
    scene.history.note(Elected(process="store", broker_id=1))
    assert scene.violated(STRAY) == []


def test_a_deleted_topic_must_not_leave_the_folder_of_a_broker_that_was_away(scene: TopicScene) -> None:
    scene.change(CREATE, 1)
    scene.reassign(1, 2)
    scene.change(DELETE)
    scene.registered(1, is_there=False)
    scene.registered(1, is_there=True)
    assert scene.violated(final({}, folders=[Folder(1, P, ID)])) == ["topics"]


def test_a_folder_may_stay_on_a_broker_that_was_away_when_it_lost_what_a_cancellation_had_given_back(
    scene: TopicScene,
) -> None:
    scene.registered(3, is_there=True)
    scene.reassign(2, 3, is_seen=True)
    first = len(scene.history.operations)
    scene.reassign(1, 2)
    scene.reassign(is_seen=True)
    scene.history.operations[first].seen_to_end_us = scene.now_us  # type: ignore[attr-defined]
    scene.reassign(1, 2)
    scene.registered(3, is_there=False)
    scene.registered(3, is_there=True)
    assert scene.violated(STRAY) == []
