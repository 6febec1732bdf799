"""Who becomes the controller, and when it resigns."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from odradek.broker.metadata.new_topic import NewTopic
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import Create, Delete, Set
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.replica_control import UpdateMetadataRequest
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.controller.fleet import SESSION_TIMEOUT_MS, Fleet, codes, shut_down

KEY = TopicPartition("t", 0)


async def controller_epoch(fleet: Fleet) -> int:
    return znodes.parse_epoch("", (await fleet.observer.get(znodes.CONTROLLER_EPOCH)).data)


def test_the_first_broker_is_the_controller_and_all_others_know_it() -> None:
    async def scene(fleet: Fleet) -> None:
        assert fleet.active().broker_id == 1
        assert [node.active_controller for node in fleet.running()] == [1, 1, 1]
        (refused,) = await fleet.nodes[2].controller.topics.create([NewTopic("t")], timeout_ms=1000)
        assert codes([refused]) == [ErrorCode.NOT_CONTROLLER]
        with pytest.raises(ProtocolError) as caught:
            await fleet.nodes[3].controller.replicas.reassign({KEY: [1]})
        assert caught.value.code is ErrorCode.NOT_CONTROLLER

    Fleet([1, 2, 3]).run(scene)


def test_brokers_that_start_at_the_same_time_elect_one_controller() -> None:
    async def scene(fleet: Fleet) -> None:
        await asyncio.gather(*(fleet.start(broker) for broker in range(1, 6)))
        await fleet.quiet()
        active = fleet.active().broker_id
        assert {node.active_controller for node in fleet.running()} == {active}
        assert await controller_epoch(fleet) == 1
        await fleet.check_agreement()

    Fleet([]).run(scene)


def test_another_broker_is_elected_when_the_controller_dies() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [1, 2, 3]})
        fleet.kill(1, at_once=False)
        await fleet.quiet(SESSION_TIMEOUT_MS / 1000 - 1)
        assert fleet.nodes[2].active_controller == 1
        await fleet.quiet(2)
        active = fleet.active().broker_id
        assert active != 1
        assert {node.active_controller for node in fleet.running()} == {active}
        assert (await fleet.state(KEY)).leader == 2
        assert await controller_epoch(fleet) == 2
        await fleet.check_agreement()

    Fleet([1, 2, 3]).run(scene)


def test_a_controller_whose_session_ends_resigns_and_its_broker_registers_again() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [1, 2, 3]})
        epoch = fleet.nodes[1].broker.broker_epoch
        fleet.shared.expire("1")
        await fleet.quiet()
        assert not fleet.nodes[1].controller.terms.is_active
        assert fleet.nodes[1].broker.broker_epoch > epoch
        assert fleet.nodes[1].active_controller == fleet.active().broker_id
        await fleet.check_agreement()

    Fleet([1, 2, 3]).run(scene)


def test_what_an_old_controller_sends_after_the_next_election_is_refused() -> None:
    async def scene(fleet: Fleet) -> None:
        old = UpdateMetadataRequest(controller_id=1, controller_epoch=1, broker_epoch=-1, topic_states=[])
        fleet.kill(1)
        await fleet.quiet()
        response = await fleet.nodes[2].broker.send(old)
        assert response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH

    Fleet([1, 2, 3]).run(scene)


def test_a_controller_that_is_cut_off_cannot_write_after_the_next_election() -> None:
    async def scene(fleet: Fleet) -> None:
        fleet.shared.cut("1")
        changes = asyncio.gather(
            fleet.as_node(1, fleet.nodes[1].controller.topics.create([NewTopic("t", 1, 1)], timeout_ms=60_000)),
            fleet.as_node(1, fleet.nodes[1].controller.topics.create([NewTopic("u", 1, 1)], timeout_ms=60_000)),
        )
        await fleet.quiet(2 * SESSION_TIMEOUT_MS / 1000)
        assert fleet.active().broker_id != 1
        fleet.shared.heal("1")
        results = await changes
        assert [codes(result) for result in results] == [[ErrorCode.NOT_CONTROLLER]] * 2
        assert await fleet.observer.children(znodes.TOPICS) == []
        await fleet.quiet()
        await fleet.check_agreement()

    Fleet([1, 2, 3]).run(scene)


def test_a_change_whose_answer_is_lost_is_recognized_as_ones_own() -> None:
    async def scene(fleet: Fleet) -> None:
        for number in range(20):
            name = f"t{number}"
            fleet.shared.cut("1", lost_answers=random.Random(number))
            creating = asyncio.ensure_future(
                fleet.as_node(1, fleet.nodes[1].controller.topics.create([NewTopic(name, 2, 2)], timeout_ms=60_000))
            )
            await fleet.quiet(0.2)
            fleet.shared.heal("1")
            assert codes(await creating) == [ErrorCode.NONE]
        assert fleet.active().broker_id == 1
        await fleet.quiet()
        await fleet.check_agreement()

    Fleet([1, 2]).run(scene)


def test_an_election_whose_answer_is_lost_is_recognized_as_won() -> None:
    def around(node: Any, session: Any) -> Any:
        return CutInElection(node.fleet, session) if node.broker_id == 2 else session

    class CutInElection:
        """The connection breaks during the first election."""

        def __init__(self, fleet: Fleet, session: Any) -> None:
            self.fleet, self.session, self.is_done = fleet, session, False

        def __getattr__(self, name: str) -> Any:
            return getattr(self.session, name)

        async def pipeline(self, groups: Any) -> Any:
            groups = [list(group) for group in groups]
            if not self.is_done and any(each.path == znodes.CONTROLLER for group in groups for each in group):
                self.is_done = True
                answer = asyncio.ensure_future(self.session.pipeline(groups))
                self.fleet.loop.call_later(0, self.fleet.shared.cut, "2", context=self.fleet.context)
                self.fleet.loop.call_later(0.5, self.fleet.shared.heal, "2", context=self.fleet.context)
                return await answer
            return await self.session.pipeline(groups)

    async def scene(fleet: Fleet) -> None:
        fleet.kill(1)
        await fleet.quiet(2)
        assert fleet.active().broker_id == 2
        assert await controller_epoch(fleet) == 2
        await fleet.check_agreement()

    fleet = Fleet([1, 2])
    fleet.around_store = around
    fleet.run(scene)


def test_a_damaged_entry_of_the_controller_is_taken_over() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.observer.multi([Delete(znodes.CONTROLLER), Create(znodes.CONTROLLER, b"nobody", ephemeral=True)])
        await fleet.quiet()
        active = fleet.active().broker_id
        assert {node.active_controller for node in fleet.running()} == {active}
        await fleet.check_agreement()

    Fleet([1, 2]).run(scene)


def test_an_entry_of_the_same_broker_from_before_its_restart_is_waited_out() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [1]})
        fleet.kill(1, at_once=False)
        starting = asyncio.ensure_future(fleet.start(1))
        await fleet.quiet(2)
        assert not starting.done()
        await starting
        assert fleet.nodes[1].controller.terms.is_active
        assert await controller_epoch(fleet) == 2
        assert (await fleet.state(KEY)).leader_epoch == 0
        await fleet.check_agreement()

    Fleet([1]).run(scene)


def test_a_controller_resigns_when_its_entry_is_deleted_or_its_epoch_has_grown() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.observer.delete(znodes.CONTROLLER)
        await fleet.quiet()
        assert await controller_epoch(fleet) == 2
        await fleet.observer.multi([Set(znodes.CONTROLLER_EPOCH, b"7")])
        active = fleet.active()
        created = await active.controller.topics.create([NewTopic("t", 1, 1)], timeout_ms=5000)
        assert codes(created) == [ErrorCode.NOT_CONTROLLER]
        await fleet.quiet()
        assert await controller_epoch(fleet) == 8
        await fleet.check_agreement()

    Fleet([1, 2, 3]).run(scene)


def test_a_controller_that_fails_unexpectedly_starts_over_from_what_is_stored() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [1, 2]})
        controller = fleet.nodes[1].controller
        context: Any = controller.terms.term and controller.terms.term.context
        context.move_partition = None
        with pytest.raises(ProtocolError) as caught:
            await fleet.as_node(1, shut_down(controller, 2, -1))
        assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        await fleet.quiet(3)
        assert await controller_epoch(fleet) == 2
        await fleet.check_agreement()

    Fleet([1, 2]).run(scene)
