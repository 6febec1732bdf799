"""Elections and reassignments: the decisions for several brokers, and their execution on a single node."""

import json
from dataclasses import dataclass

import pytest

from odradek.broker.controller import znodes
from odradek.broker.controller.metadata_store import Create
from odradek.broker.controller.reassignment import (
    ElectionType,
    begun,
    cancelled,
    check_target,
    completed,
    elected,
    is_being_reassigned,
    is_complete,
    origin_of,
    target_of,
)
from odradek.broker.controller.state import NewPartitions, NewTopic
from odradek.broker.metadata.metadata_cache import NO_LEADER, BrokerInfo, PartitionState
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.controller.rooms import BROKER_ID, ControllerRoom

LIVE = {1, 2, 3, 4}
KEY = TopicPartition("t", 0)


def state(replicas: tuple[int, ...], isr: tuple[int, ...] | None = None, leader: int | None = None) -> PartitionState:
    isr = replicas if isr is None else isr
    return PartitionState(0, replicas[0] if leader is None else leader, 5, replicas, isr, 1)


def code_of(error: ProtocolError | None) -> ErrorCode:
    return ErrorCode.NONE if error is None else error.code


# ---- decisions


@dataclass
class Step:
    before: tuple[int, ...]
    target: tuple[int, ...]
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@pytest.mark.parametrize(
    "step",
    [
        Step((1, 2, 3), (1, 2, 3), (1, 2, 3), (), ()),
        Step((1, 2, 3), (3, 2, 1), (3, 2, 1), (), ()),
        Step((1, 2, 3), (4, 2, 1), (4, 2, 1, 3), (4,), (3,)),
        Step((1, 2), (3, 4), (3, 4, 1, 2), (3, 4), (1, 2)),
        Step((1,), (1, 2), (1, 2), (2,), ()),
        Step((1, 2), (2,), (2, 1), (), (1,)),
    ],
    ids=lambda step: f"{step.before}-to-{step.target}",
)
def test_a_reassignment_begins_with_the_union_of_origin_and_target(step: Step) -> None:
    after = begun(state(step.before), step.target, 9)
    assert (after.replicas, after.adding, after.removing) == (step.replicas, step.adding, step.removing)
    assert (target_of(after), set(origin_of(after))) == (step.target, set(step.before))
    assert is_being_reassigned(after) == bool(step.adding or step.removing)
    assert (after.leader_epoch, after.controller_epoch) == (6, 9)


def test_a_reassignment_that_replaces_another_starts_from_the_same_origin() -> None:
    first = begun(state((1, 2)), (3, 4), 1)
    second = begun(first, (2, 4), 1)
    assert (second.replicas, second.adding, second.removing) == ((2, 4, 1), (4,), (1,))


def test_a_reassignment_is_complete_when_its_target_is_in_sync() -> None:
    under_way = begun(state((1, 2)), (3, 2), 1)
    assert not is_complete(under_way)
    in_sync = under_way._replace(isr=(1, 2, 3))
    assert is_complete(in_sync)
    after = completed(in_sync, LIVE)
    assert (after.replicas, after.adding, after.removing, after.isr) == ((3, 2), (), (), (2, 3))
    assert after.leader == 3  # the old leader is not alive


def test_a_leader_that_is_in_the_target_stays_leader() -> None:
    after = completed(begun(state((1, 2)), (2, 1), 1), LIVE)
    assert (after.leader, after.replicas, after.leader_epoch) == (1, (2, 1), 6)


def test_the_next_leader_must_be_alive() -> None:
    in_sync = begun(state((1, 2)), (3, 4), 1)._replace(isr=(1, 2, 3, 4))
    assert completed(in_sync, {1, 2, 4}).leader == 4
    assert completed(in_sync, {1, 2}).leader == NO_LEADER


def test_a_cancellation_restores_the_origin() -> None:
    under_way = begun(state((1, 2)), (3, 2), 1)
    after = completed(cancelled(under_way, 1), LIVE)
    assert (set(after.replicas), after.adding, after.removing, after.leader) == ({1, 2}, (), (), 1)
    with pytest.raises(ProtocolError) as caught:
        cancelled(after, 1)
    assert caught.value.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_thousands_of_replicas_are_refused_with_a_short_message() -> None:
    for target in (range(100_000), [1] * 100_000):
        with pytest.raises(ProtocolError) as caught:
            check_target(target, LIVE)
        assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert len(str(caught.value)) < 200


@pytest.mark.parametrize("target", [(), (-1,), (1, -1), (1, 1), (9,), (1, 9)])
def test_invalid_target_replicas_are_refused(target: tuple[int, ...]) -> None:
    with pytest.raises(ProtocolError) as caught:
        check_target(target, LIVE)
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize(
    ("election", "before", "live", "outcome"),
    [
        (ElectionType.PREFERRED, state((1, 2)), {1, 2}, ErrorCode.ELECTION_NOT_NEEDED),
        (ElectionType.PREFERRED, state((1, 2), leader=2), {1, 2}, (1, (1, 2))),
        (ElectionType.PREFERRED, state((1, 2), leader=2), {2}, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (ElectionType.PREFERRED, state((1, 2), (2,), 2), {1, 2}, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (ElectionType.UNCLEAN, state((1, 2)), {1, 2}, ErrorCode.ELECTION_NOT_NEEDED),
        (ElectionType.UNCLEAN, state((1, 2), leader=2), {1, 2}, ErrorCode.ELECTION_NOT_NEEDED),
        (ElectionType.UNCLEAN, state((1, 2), (1, 2), 1), {2}, (2, (2,))),
        (ElectionType.UNCLEAN, state((1, 2), (1,), NO_LEADER), {2}, (2, (2,))),
        (ElectionType.UNCLEAN, state((1, 2), (1,), NO_LEADER), {3}, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
def test_an_election_chooses_as_kafka_does(
    election: ElectionType, before: PartitionState, live: set[int], outcome: object
) -> None:
    if isinstance(outcome, ErrorCode):
        with pytest.raises(ProtocolError) as caught:
            elected(before, election, live, 9)
        assert caught.value.code is outcome
        return
    after = elected(before, election, live, 9)
    assert (after.leader, after.isr) == outcome
    assert (after.leader_epoch, after.controller_epoch) == (6, 9)


# ---- on a single node


@pytest.fixture
async def room() -> ControllerRoom:
    room = await ControllerRoom().start()
    await room.controller.create_topics([NewTopic("t", 2)], timeout_ms=1000)
    return room


async def test_a_reassignment_to_itself_is_complete_at_once_and_raises_the_leader_epoch(room: ControllerRoom) -> None:
    changes = room.controller.replica_changes
    for expected in (1, 2):
        assert await changes.reassign({KEY: [BROKER_ID]}) == {KEY: None}
        assert room.partitions.epochs[KEY] == expected
    assert changes.in_progress(None) == {}
    again = await room.again()
    found = again.cache.partition(*KEY)
    assert found is not None
    assert (found.leader, found.leader_epoch, found.replicas) == (BROKER_ID, 2, (BROKER_ID,))
    assert await again.controller.replica_changes.reassign({KEY: [BROKER_ID]}) == {KEY: None}


async def test_an_invalid_reassignment_changes_nothing(room: ControllerRoom) -> None:
    unknown = TopicPartition("none", 0)
    changes = room.controller.replica_changes
    before = room.cache.topic("t")
    wishes: dict[TopicPartition, list[int] | None] = {
        KEY: [BROKER_ID, 9],
        TopicPartition("t", 1): None,
        TopicPartition("t", 7): [BROKER_ID],
        unknown: None,
    }
    assert [code_of(error) for error in (await changes.reassign(wishes)).values()] == [
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    ]
    assert room.cache.topic("t") == before


async def test_no_election_is_held_while_the_leader_is_alive(room: ControllerRoom) -> None:
    for election in ElectionType:
        outcomes = await room.controller.replica_changes.elect(election, [KEY, TopicPartition("none", 0)])
        assert [code_of(error) for error in outcomes.values()] == [
            ErrorCode.ELECTION_NOT_NEEDED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]


async def test_an_election_gives_a_leaderless_partition_a_leader(room: ControllerRoom) -> None:
    found = room.cache.partition(*KEY)
    assert found is not None
    room.cache.put_partition("t", found._replace(leader=NO_LEADER))
    assert await room.controller.replica_changes.elect(ElectionType.UNCLEAN, [KEY]) == {KEY: None}
    assert room.partitions.epochs[KEY] == 1
    assert (await room.again()).partitions.epochs[KEY] == 1


async def test_an_ongoing_reassignment_is_stored_as_in_kafka_listed_and_cancelled(room: ControllerRoom) -> None:
    room.cache.put_broker(BrokerInfo(8, {}))
    changes = room.controller.replica_changes
    assert await changes.reassign({KEY: [8]}) == {KEY: None}
    entry = json.loads((await room.store.get(znodes.topic_path("t"))).data or b"")
    assert entry["partitions"] == {"0": [8, BROKER_ID], "1": [BROKER_ID]}
    assert (entry["adding_replicas"], entry["removing_replicas"]) == ({"0": [8]}, {"0": [BROKER_ID]})
    (under_way,) = changes.in_progress(None).values()
    assert (under_way.replicas, under_way.adding, under_way.removing) == ((8, BROKER_ID), (8,), (BROKER_ID,))
    assert changes.in_progress([TopicPartition("t", 1)]) == {}
    await room.controller.create_partitions([NewPartitions("t", 3)], timeout_ms=1000)
    assert changes.in_progress(None) == {KEY: under_way}
    assert await changes.reassign({KEY: None}) == {KEY: None}
    assert changes.in_progress(None) == {}
    found = room.cache.partition(*KEY)
    assert found is not None
    assert (found.replicas, found.leader) == ((BROKER_ID,), BROKER_ID)


async def test_an_ongoing_reassignment_survives_a_crash(room: ControllerRoom) -> None:
    room.cache.put_broker(BrokerInfo(8, {}))
    await room.controller.replica_changes.reassign({KEY: [8, BROKER_ID]})
    again = await room.again()
    # The other broker is not alive, so the reassignment cannot be requested again. It is still listed and cancellable.
    (under_way,) = again.controller.replica_changes.in_progress(None).values()
    assert (under_way.replicas, under_way.adding) == ((8, BROKER_ID), (8,))
    assert await again.controller.replica_changes.reassign({KEY: None}) == {KEY: None}
    assert again.controller.replica_changes.in_progress(None) == {}


async def test_reassignments_requested_in_the_store_begin_at_the_start(room: ControllerRoom) -> None:
    wishes = {KEY: (BROKER_ID,), TopicPartition("t", 1): (99,), TopicPartition("none", 0): (BROKER_ID,)}
    data = znodes.encode_reassignments(wishes)
    assert znodes.parse_reassignments(data) == wishes
    await room.store.multi([Create(znodes.REASSIGN_PARTITIONS, data)])
    again = await room.again()
    assert await again.store.exists(znodes.REASSIGN_PARTITIONS) is None
    assert (again.partitions.epochs[KEY], again.partitions.epochs[TopicPartition("t", 1)]) == (1, 0)


async def test_a_reassignment_that_the_store_refuses_changes_nothing(room: ControllerRoom) -> None:
    room.files.room = 0
    before = room.cache.topic("t")
    outcomes = await room.controller.replica_changes.reassign({KEY: [BROKER_ID]})
    assert code_of(outcomes[KEY]) is ErrorCode.KAFKA_STORAGE_ERROR
    assert room.cache.topic("t") == before
    room.files.room = None
    assert await room.controller.replica_changes.reassign({KEY: [BROKER_ID]}) == {KEY: None}
