"""Reassignments over several events, on several brokers and on one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest

from odradek.broker.metadata.new_topic import NewPartitions, NewTopic
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import Create
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.replica_control import LeaderAndIsrRequest
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.controller.fleet import Fleet, codes
from tests.broker.controller.harness import BROKER_ID, ControllerHarness

KEY = TopicPartition("t", 0)


class Row(NamedTuple):
    """What the store has: replicas, those being added and removed, the leader, and those in sync."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    leader: int
    isr: tuple[int, ...]


async def row(fleet: Fleet) -> Row:
    state = await fleet.state(KEY)
    return Row(state.replicas, state.adding, state.removing, state.leader, state.isr)


async def reassign(fleet: Fleet, target: list[int] | None) -> ErrorCode:
    active = fleet.active()
    outcomes = await fleet.as_node(active.broker_id, active.controller.replicas.reassign({KEY: target}))
    return codes(outcomes.values())[0]


def test_replicas_move_as_in_kafkas_table() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [1, 2, 3]})
        assert await row(fleet) == Row((1, 2, 3), (), (), 1, (1, 2, 3))
        assert await reassign(fleet, [4, 5, 6]) is ErrorCode.NONE
        begun = Row((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3), 1, (1, 2, 3))
        assert await row(fleet) == begun
        await fleet.quiet()
        assert {broker for broker, disk in fleet.disks.items() if KEY in disk} == {1, 2, 3, 4, 5, 6}
        (lead,) = [each for each in fleet.nodes[5].broker.requests if isinstance(each, LeaderAndIsrRequest)][-1:]
        (role,) = lead.topic_states[0].partition_states
        assert (role.is_new, role.adding_replicas, role.removing_replicas) == (True, [4, 5, 6], [1, 2, 3])
        assert list(fleet.active().controller.replicas.reassignments(None)) == [KEY]
        await fleet.set_isr(KEY, [1, 2, 3, 4, 5])
        assert await row(fleet) == begun._replace(isr=(1, 2, 3, 4, 5))
        fleet.unreachable.add(3)
        await fleet.set_isr(KEY, [1, 2, 3, 4, 5, 6])
        await fleet.quiet()
        assert await row(fleet) == begun._replace(leader=4, isr=(4, 5, 6))
        (listed,) = fleet.active().controller.replicas.reassignments(None).values()
        assert (listed.replicas, listed.adding, listed.removing) == begun[:3]
        fleet.unreachable.clear()
        await fleet.quiet()
        assert await row(fleet) == Row((4, 5, 6), (), (), 4, (4, 5, 6))
        assert fleet.active().controller.replicas.reassignments(None) == {}
        await fleet.check_agreement()

    Fleet(range(1, 7)).run(scene)


def test_a_cancellation_that_comes_too_late_does_not_end_the_wait_for_removed_replicas() -> None:
    """Otherwise the next controller would not know of the replica that may still be there."""

    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [1, 2]})
        fleet.unreachable.add(2)
        assert await reassign(fleet, [1, 3]) is ErrorCode.NONE
        await fleet.quiet()
        await fleet.set_isr(KEY, [1, 2, 3])
        assert await reassign(fleet, None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        assert (await row(fleet)).removing == (2,)
        fleet.unreachable.clear()
        await fleet.quiet()
        assert await row(fleet) == Row((1, 3), (), (), 1, (1, 3))

    Fleet([1, 2, 3]).run(scene)


def test_a_cancelled_reassignment_deletes_the_added_replicas() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [1, 2]})
        await reassign(fleet, [3, 4])
        await fleet.set_isr(KEY, [1, 2, 3])
        assert await reassign(fleet, None) is ErrorCode.NONE
        assert await row(fleet) == Row((1, 2), (), (), 1, (1, 2))
        assert await reassign(fleet, None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        await fleet.quiet()
        await fleet.check_agreement()

    Fleet(range(1, 5)).run(scene)


def test_a_reassignment_replaces_another_and_drops_what_only_that_one_has_added() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [1, 2]})
        await reassign(fleet, [3, 4])
        await reassign(fleet, [4, 2])
        assert await row(fleet) == Row((4, 2, 1), (4,), (1,), 1, (1, 2))
        await fleet.set_isr(KEY, [1, 2, 4])
        await fleet.quiet()
        assert await row(fleet) == Row((4, 2), (), (), 4, (2, 4))
        await fleet.check_agreement()

    Fleet(range(1, 5)).run(scene)


def test_a_replica_that_is_being_removed_may_be_wanted_back() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [1, 2]})
        fleet.unreachable.add(2)
        assert await reassign(fleet, [1]) is ErrorCode.NONE
        assert await row(fleet) == Row((1, 2), (), (2,), 1, (1,))
        assert await reassign(fleet, [1, 2]) is ErrorCode.NONE
        fleet.unreachable.clear()
        await fleet.quiet()
        assert await row(fleet) == Row((1, 2), (2,), (), 1, (1,))
        await fleet.set_isr(KEY, [1, 2])
        await fleet.quiet()
        assert await row(fleet) == Row((1, 2), (), (), 1, (1, 2))
        await fleet.check_agreement()

    Fleet([1, 2]).run(scene)


def test_a_removed_replica_on_a_dead_broker_does_not_hold_up_the_end() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [1, 2]})
        fleet.unreachable.add(2)
        await reassign(fleet, [1, 3])
        await fleet.set_isr(KEY, [1, 2, 3])
        await fleet.quiet()
        assert (await row(fleet)).removing == (2,)
        fleet.kill(2)
        await fleet.quiet()
        assert await row(fleet) == Row((1, 3), (), (), 1, (1, 3))
        await fleet.check_agreement()

    Fleet([1, 2, 3]).run(scene)


def test_a_reassignment_goes_on_when_a_broker_of_its_target_starts_again() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [1, 2]})
        await reassign(fleet, [3, 2])
        fleet.kill(3)
        await fleet.quiet()
        await fleet.start(3)
        await fleet.quiet()
        (lead,) = [each for each in fleet.nodes[3].broker.requests if isinstance(each, LeaderAndIsrRequest)]
        assert lead.topic_states[0].partition_states[0].is_new
        await fleet.set_isr(KEY, [1, 2, 3])
        await fleet.quiet()
        assert await row(fleet) == Row((3, 2), (), (), 3, (2, 3))
        await fleet.check_agreement()

    Fleet([1, 2, 3]).run(scene)


def test_a_reassignment_waits_until_one_of_its_target_may_lead() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3]})
        await reassign(fleet, [4])
        fleet.kill(2)
        fleet.kill(3)
        await fleet.quiet()
        assert (await row(fleet)).isr in ((2,), (3,), (2, 3))
        fleet.kill(4)
        await fleet.start(2)
        await fleet.start(3)
        await fleet.quiet()
        state = await fleet.state(KEY)
        await fleet.set_isr(KEY, [state.leader])
        assert (await row(fleet)).adding == (4,)
        await fleet.start(4)
        await fleet.set_isr(KEY, [state.leader, 4])
        await fleet.quiet()
        assert await row(fleet) == Row((4,), (), (), 4, (4,))
        await fleet.check_agreement()

    Fleet([1, 2, 3, 4]).run(scene)


def test_a_topic_does_not_grow_during_a_reassignment() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [1, 2]})
        await reassign(fleet, [1, 3])
        fleet.unreachable.add(2)
        await fleet.set_isr(KEY, [1, 2, 3])
        await fleet.quiet()

        async def grow() -> list[ErrorCode]:
            more = fleet.active().controller.topics.add_partitions([NewPartitions("t", 2, [[1, 3]])], timeout_ms=1000)
            return codes(await fleet.as_node(1, more))

        assert await grow() == [ErrorCode.REASSIGNMENT_IN_PROGRESS]
        assert (await row(fleet))[:3] == ((1, 3, 2), (3,), (2,))
        fleet.unreachable.clear()
        await fleet.quiet()
        assert (await row(fleet))[:3] == ((1, 3), (), ())
        assert await grow() == [ErrorCode.NONE]
        await fleet.check_agreement()

    Fleet([1, 2, 3]).run(scene)


# ---- on a single node


@pytest.fixture
async def harness() -> AsyncIterator[ControllerHarness]:
    harness = await ControllerHarness().start()
    await harness.controller.topics.create([NewTopic("t", 2)], timeout_ms=1000)
    yield harness
    await harness.stop()


def code_of(error: ProtocolError | None) -> ErrorCode:
    return ErrorCode.NONE if error is None else error.code


async def test_a_reassignment_to_itself_is_complete_at_once_and_raises_the_leader_epoch(
    harness: ControllerHarness,
) -> None:
    for expected in (1, 2):
        assert await harness.controller.replicas.reassign({KEY: [BROKER_ID]}) == {KEY: None}
        assert harness.broker.roles[KEY].leader_epoch == expected
    assert harness.controller.replicas.reassignments(None) == {}
    again = await harness.again()
    role = again.broker.roles[KEY]
    assert (role.leader, role.leader_epoch, role.replicas) == (BROKER_ID, 2, [BROKER_ID])
    assert await again.controller.replicas.reassign({KEY: [BROKER_ID]}) == {KEY: None}
    await again.stop()


async def test_an_invalid_reassignment_changes_nothing(harness: ControllerHarness) -> None:
    unknown = TopicPartition("none", 0)
    before = harness.files.contents()
    wishes: dict[TopicPartition, list[int] | None] = {
        KEY: [BROKER_ID, 9],
        TopicPartition("t", 1): None,
        TopicPartition("t", 7): [BROKER_ID],
        unknown: None,
    }
    assert [code_of(error) for error in (await harness.controller.replicas.reassign(wishes)).values()] == [
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    ]
    assert harness.files.contents() == before


async def test_partitions_of_one_topic_are_reassigned_together(harness: ControllerHarness) -> None:
    both = {KEY: [BROKER_ID], TopicPartition("t", 1): [BROKER_ID]}
    before = (await harness.store.get(znodes.topic_path("t"))).version
    assert await harness.controller.replicas.reassign(both) == dict.fromkeys(both)
    assert (await harness.store.get(znodes.topic_path("t"))).version == before + 1
    assert [role.leader_epoch for role in harness.broker.roles.values()] == [1, 1]


def test_a_client_may_forbid_that_the_number_of_replicas_changes() -> None:
    """While a reassignment is under way, the number is that of its target (KIP-860)."""

    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [1, 2, 3]})
        active = fleet.active()

        async def moved(*target: int) -> ErrorCode:
            reassigning = active.controller.replicas.reassign({KEY: list(target)}, may_resize=False)
            return codes((await fleet.as_node(active.broker_id, reassigning)).values())[0]

        assert await moved(1, 2) is ErrorCode.INVALID_REPLICATION_FACTOR
        assert await moved(1, 2, 3, 4) is ErrorCode.INVALID_REPLICATION_FACTOR
        assert await moved(1, 1) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert await moved(4, 5, 6) is ErrorCode.NONE
        assert await moved(1, 2, 3, 4, 5, 6) is ErrorCode.INVALID_REPLICATION_FACTOR
        assert await reassign(fleet, [4, 5]) is ErrorCode.NONE
        assert await moved(4, 5, 6) is ErrorCode.INVALID_REPLICATION_FACTOR
        assert await moved(5, 6) is ErrorCode.NONE

    Fleet(range(1, 7)).run(scene)


def test_an_ongoing_reassignment_is_stored_as_in_kafka_and_survives_a_crash() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [1], 1: [1]})
        assert await reassign(fleet, [2]) is ErrorCode.NONE
        entry = json.loads((await fleet.observer.get(znodes.topic_path("t"))).data or b"")
        assert entry["partitions"] == {"0": [2, 1], "1": [1]}
        assert (entry["adding_replicas"], entry["removing_replicas"]) == ({"0": [2]}, {"0": [1]})
        assert fleet.active().controller.replicas.reassignments([TopicPartition("t", 1)]) == {}
        fleet.kill(1)
        fleet.kill(2)
        await fleet.start(1)
        # The other broker is not alive, so the reassignment cannot be requested again. It is listed and cancellable.
        (under_way,) = fleet.active().controller.replicas.reassignments(None).values()
        assert (under_way.replicas, under_way.adding) == ((2, 1), (2,))
        assert await reassign(fleet, None) is ErrorCode.NONE
        assert fleet.active().controller.replicas.reassignments(None) == {}

    Fleet([1, 2]).run(scene)


async def test_reassignments_requested_in_the_store_begin_at_the_start(harness: ControllerHarness) -> None:
    wishes = {KEY: (BROKER_ID,), TopicPartition("t", 1): (99,), TopicPartition("none", 0): (BROKER_ID,)}
    data = znodes.encode_reassignments(wishes)
    assert znodes.parse_reassignments(data) == wishes
    await harness.controller.terms.stop()
    await harness.store.multi([Create(znodes.REASSIGN_PARTITIONS, data)])
    again = await harness.again()
    assert await again.store.exists(znodes.REASSIGN_PARTITIONS) is None
    assert [again.broker.roles[key].leader_epoch for key in (KEY, TopicPartition("t", 1))] == [1, 0]
    await again.stop()


def test_the_entry_of_requested_reassignments_is_deleted_when_the_last_is_complete() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [1]})
        await fleet.observer.create(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignments({KEY: (2,)}))
        await fleet.observer.delete(znodes.CONTROLLER)
        await fleet.quiet()
        assert (await row(fleet)).adding == (2,)
        assert await fleet.observer.exists(znodes.REASSIGN_PARTITIONS) is not None
        await fleet.set_isr(KEY, [1, 2])
        await fleet.quiet()
        assert await row(fleet) == Row((2,), (), (), 2, (2,))
        assert await fleet.observer.exists(znodes.REASSIGN_PARTITIONS) is None
        await fleet.check_agreement()

    Fleet([1, 2]).run(scene)


async def test_a_reassignment_that_the_store_refuses_changes_nothing(harness: ControllerHarness) -> None:
    harness.files.room = 0
    outcomes: dict[TopicPartition, Any] = await harness.controller.replicas.reassign({KEY: [BROKER_ID]})
    assert code_of(outcomes[KEY]) is ErrorCode.KAFKA_STORAGE_ERROR
    assert harness.broker.roles[KEY].leader_epoch == 0
    harness.files.room = None
    assert await harness.controller.replicas.reassign({KEY: [BROKER_ID]}) == {KEY: None}
