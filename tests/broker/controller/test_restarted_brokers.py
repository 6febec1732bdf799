"""Brokers that are killed and start again so soon that no controller sees them gone, or not in the order in which it
happened. What such a broker has lost must not be taken for what it has.
"""

from __future__ import annotations

import pytest

from odradek.broker.controller.partition_states import after_restarts
from odradek.broker.metadata.metadata_cache import NO_LEADER, PartitionState
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.controller.fleet import Fleet, shut_down

T0, T1, T2 = (TopicPartition("t", partition) for partition in range(3))


async def restart_within_the_session_time_out(fleet: Fleet, broker_id: int) -> None:
    """Returns when the broker is registered again, as soon as the session of the process before has ended."""
    fleet.kill(broker_id, at_once=False)
    fleet.shared.heal(str(broker_id))
    await fleet.start(broker_id)


def test_a_leader_that_restarts_together_with_the_controller_does_not_lead_on() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [1, 2, 3]})
        assert fleet.active().broker_id == 1
        await restart_within_the_session_time_out(fleet, 1)
        await fleet.quiet()
        assert fleet.active().broker_id != 1
        state = await fleet.state(T0)
        assert (state.leader, state.leader_epoch, state.isr) == (2, 1, (2, 3))
        await fleet.check_agreement()

    Fleet([1, 2, 3]).run(scene)


def test_a_follower_that_restarts_together_with_the_controller_is_not_in_sync() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 1]})
        await restart_within_the_session_time_out(fleet, 1)
        await fleet.quiet()
        state = await fleet.state(T0)
        assert (state.leader, state.leader_epoch, state.isr) == (2, 1, (2,))
        await fleet.check_agreement()

    Fleet([1, 2]).run(scene)


def test_the_last_replica_in_sync_leads_on_in_another_epoch_after_it_has_restarted_with_the_controller() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [1, 2]})
        await fleet.create("alone", {0: [1]})
        await fleet.set_isr(T0, [1])
        await restart_within_the_session_time_out(fleet, 1)
        await fleet.quiet()
        state = await fleet.state(T0)
        assert (state.leader, state.leader_epoch, state.isr) == (1, 1, (1,))
        alone = await fleet.state(TopicPartition("alone", 0))
        assert (alone.leader, alone.leader_epoch, alone.isr) == (1, 0, (1,))
        await fleet.check_agreement()

    Fleet([1, 2]).run(scene)


def test_a_controller_that_takes_over_changes_nothing_where_no_broker_has_restarted() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3], 1: [1, 2], 2: [3, 2]})
        await restart_within_the_session_time_out(fleet, 1)
        await fleet.quiet()
        assert [(await fleet.state(key)).leader_epoch for key in (T0, T1, T2)] == [0, 1, 0]

    Fleet([1, 2, 3]).run(scene)


def test_a_replica_on_a_dead_broker_stays_in_sync_rather_than_one_that_has_restarted() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [1, 2]})
        assert fleet.active().broker_id == 3
        fleet.shared.cut("3")
        fleet.kill(1)
        fleet.kill(2)
        fleet.shared.heal("2")
        await fleet.start(2)
        fleet.shared.heal("3")
        await fleet.quiet()
        state = await fleet.state(T0)
        assert (state.leader, state.isr) == (NO_LEADER, (1,))
        fleet.shared.heal("1")
        await fleet.start(1)
        await fleet.quiet()
        state = await fleet.state(T0)
        assert (state.leader, state.isr) == (1, (1,))

    Fleet([3, 1, 2]).run(scene)


def test_after_restarts_those_that_have_not_restarted_stay_in_sync_even_if_they_are_dead() -> None:
    state = PartitionState(0, 1, 5, (1, 2, 3), (1, 2), 7, 4)
    after = after_restarts(state, restarted=[1], electable=[1, 3], controller_epoch=8)
    assert after == state._replace(leader=NO_LEADER, leader_epoch=6, isr=(2,), controller_epoch=8)


@pytest.mark.parametrize("restarted", [[1, 2], [1, 2, 3]])
def test_if_all_in_sync_have_restarted_all_stay_in_sync(restarted: list[int]) -> None:
    state = PartitionState(0, 1, 5, (1, 2, 3), (1, 2), 7, 4)
    after = after_restarts(state, restarted, electable=[1, 2, 3], controller_epoch=8)
    assert after == state._replace(leader_epoch=6, controller_epoch=8)


def test_what_a_replica_that_is_not_in_sync_sent_before_its_restart_is_of_an_older_epoch() -> None:
    state = PartitionState(0, 1, 5, (1, 2, 3), (1, 2), 7, 4)
    after = after_restarts(state, restarted=[3], electable=[1, 2, 3], controller_epoch=8)
    assert after == state._replace(leader_epoch=6, controller_epoch=8)


def test_a_proposal_to_add_a_replica_does_not_survive_the_crash_of_its_broker() -> None:
    """The leader has seen that the follower has everything, and proposes it; but the proposal arrives only when the
    follower's broker has crashed and is back, and has lost what it had. (KIP-903)
    """

    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [1, 2]})
        await fleet.set_isr(T0, [1])
        proposal = await fleet.proposal(T0, [1, 2])
        fleet.kill(2)
        fleet.shared.heal("2")
        await fleet.start(2)
        await fleet.quiet()
        response = await fleet.active().controller.answer(proposal)
        assert response.topics[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (await fleet.state(T0)).isr == (1,)
        await fleet.check_agreement()

    Fleet([1, 2]).run(scene)


def test_the_end_of_a_broker_that_has_shut_down_changes_nothing_more() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [1, 2]})
        controller = fleet.active().controller
        assert await shut_down(controller, 2, fleet.nodes[2].broker.broker_epoch) == []
        before = await fleet.state(T0)
        assert before.isr == (1,)
        fleet.kill(2)
        await fleet.quiet()
        assert await fleet.state(T0) == before

    Fleet([1, 2]).run(scene)


def test_a_broker_that_has_lost_its_last_replica_while_it_was_away_is_told() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [3, 2]})
        broker = fleet.nodes[3].broker
        fleet.unreachable.add(3)
        fleet.shared.cut("3")
        fleet.shared.expire("3")
        await fleet.quiet()
        assert await fleet.active().controller.replicas.reassign({T0: [2]}) == {T0: None}
        await fleet.quiet()
        assert (await fleet.state(T0)).replicas == (2,)
        assert broker.roles[T0].leader == 3, "it believes that it leads"
        fleet.unreachable.clear()
        fleet.shared.heal("3")
        await fleet.quiet()
        assert broker.roles == {}

    Fleet([1, 2, 3]).run(scene)
