"""Brokers that start, stop, move, or lose log directories, and the leaders that change because of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odradek.broker.metadata.metadata_cache import NO_LEADER
from odradek.broker.metadata_store import znodes
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.replica_control import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import LeaderAndIsrType
from tests.broker.controller.fleet import Fleet, shut_down

KEY = TopicPartition("t", 0)
Place = tuple[int, int, tuple[int, ...]]


async def place(fleet: Fleet, key: TopicPartition = KEY) -> Place:
    """The leader, the leader epoch and the in-sync replicas in the store."""
    state = await fleet.state(key)
    return state.leader, state.leader_epoch, state.isr


def test_the_first_replica_in_sync_leads_when_the_leader_dies() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3, 1], 1: [3, 1, 2]})
        fleet.kill(2)
        await fleet.quiet()
        assert await place(fleet) == (3, 1, (3, 1))
        assert await place(fleet, TopicPartition("t", 1)) == (3, 1, (3, 1))
        await fleet.check_agreement()
        assert fleet.nodes[3].broker.metadata[KEY].offline_replicas == [2]

    Fleet([1, 2, 3]).run(scene)


def test_a_broker_that_starts_gets_everything_and_is_announced_to_the_others() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3], 1: [3, 1], 2: [1, 3]})
        fleet.kill(2)
        await fleet.quiet()
        requests = {broker: len(fleet.nodes[broker].broker.requests) for broker in (1, 3)}
        await fleet.start(2)
        await fleet.quiet()
        update, lead = fleet.nodes[2].broker.requests
        assert isinstance(update, UpdateMetadataRequest)  # the addresses of leaders, first
        assert isinstance(lead, LeaderAndIsrRequest)
        assert lead.type == LeaderAndIsrType.FULL
        assert sum(len(topic.partition_states) for topic in lead.topic_states) == 1
        assert sum(len(topic.partition_states) for topic in update.topic_states) == 3
        for broker, count in requests.items():
            (announced,) = fleet.nodes[broker].broker.requests[count:]
            assert [each.id for each in announced.live_brokers] == [1, 2, 3]
            assert sum(len(topic.partition_states) for topic in announced.topic_states) == 1
        await fleet.check_agreement()

    Fleet([1, 2, 3]).run(scene)


def test_a_broker_that_restarts_between_two_looks_has_died_and_started() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3]})
        await fleet.create("alone", {0: [2]})
        fleet.active().broker.before = lambda _request: asyncio.sleep(0.05)
        fleet.kill(2)
        await fleet.start(2)
        await fleet.quiet()
        assert await place(fleet) == (3, 1, (3,))  # broker 2 may have lost records
        assert await place(fleet, TopicPartition("alone", 0)) == (2, 2, (2,))
        await fleet.check_agreement()

    Fleet([1, 2, 3]).run(scene)


def test_one_broker_restarts_and_another_one_dies_between_two_looks() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3, 1], 1: [3, 2, 1]})
        terms = fleet.active().controller.terms
        epoch = terms.epoch
        busy = asyncio.ensure_future(terms.ask("a long event", lambda _term: asyncio.sleep(20.0)))
        fleet.kill(2)
        await fleet.start(2)
        fleet.kill(3)
        await busy
        await fleet.quiet()
        assert (await place(fleet))[0] == 1
        assert (await place(fleet, TopicPartition("t", 1)))[0] == 1
        assert terms.epoch == epoch, "the controller has not given up"
        await fleet.check_agreement()

    Fleet([1, 2, 3]).run(scene)


def test_the_last_replica_in_sync_must_come_back_unless_the_topic_allows_unclean_elections() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3]})
        await fleet.create("unclean", {0: [2, 3]}, **{"unclean.leader.election.enable": "true"})
        for key in (KEY, TopicPartition("unclean", 0)):
            await fleet.set_isr(key, [2])
        fleet.kill(2)
        await fleet.quiet()
        assert await place(fleet) == (NO_LEADER, 1, (2,))
        assert await place(fleet, TopicPartition("unclean", 0)) == (3, 1, (3,))
        assert fleet.active().controller.terms.numbers().offline_partitions == 1
        await fleet.start(2)
        await fleet.quiet()
        assert await place(fleet) == (2, 2, (2,))
        assert fleet.active().controller.terms.numbers().offline_partitions == 0
        await fleet.check_agreement()

    Fleet([1, 2, 3]).run(scene)


def test_a_topic_that_allows_unclean_elections_later_is_led_then() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3]})
        await fleet.set_isr(KEY, [2])
        fleet.kill(2)
        await fleet.quiet()
        config = znodes.encode_config({"unclean.leader.election.enable": "true"})
        await fleet.observer.set(znodes.topic_config_path("t"), config)
        fleet.active().controller.terms.current().elect_again()
        await fleet.quiet()
        assert await place(fleet) == (3, 2, (3,))

    Fleet([1, 2, 3]).run(scene)


def test_a_cluster_may_allow_unclean_elections_by_default() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3]})
        await fleet.create("clean", {0: [2, 3]}, **{"unclean.leader.election.enable": "false"})
        for key in (KEY, TopicPartition("clean", 0)):
            await fleet.set_isr(key, [2])
        fleet.kill(2)
        await fleet.quiet()
        assert (await place(fleet))[0] == 3
        assert (await place(fleet, TopicPartition("clean", 0)))[0] == NO_LEADER

    Fleet([1, 2, 3], {"unclean.leader.election.enable": "true"}).run(scene)


def test_a_topic_created_while_its_brokers_are_dead_is_led_when_one_of_them_starts() -> None:
    async def scene(fleet: Fleet) -> None:
        controller = fleet.active().controller
        await fleet.as_node(1, shut_down(controller, 2, -1))
        await fleet.as_node(1, shut_down(controller, 3, -1))
        await fleet.create("t", {0: [2, 3], 1: [1, 2]})
        assert await fleet.observer.exists(znodes.state_path("t", 0)) is None
        fleet.kill(2)
        fleet.kill(3)
        await fleet.quiet()
        await fleet.start(3)
        await fleet.quiet()
        assert await place(fleet) == (3, 0, (3,))
        assert fleet.nodes[3].broker.roles[KEY].is_new
        await fleet.start(2)
        await fleet.quiet()
        await fleet.check_agreement()

    Fleet([1, 2, 3]).run(scene)


def test_a_partition_whose_first_state_was_never_written_gets_it_from_the_next_controller() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3], 1: [3, 2]})
        await fleet.observer.delete(znodes.state_path("t", 0))
        await fleet.observer.delete(znodes.state_path("t", 1))
        await fleet.observer.delete(znodes.partition_path("t", 1))
        fleet.kill(1)
        await fleet.quiet()
        assert await place(fleet) == (2, 0, (2, 3))
        assert await place(fleet, TopicPartition("t", 1)) == (3, 0, (3, 2))

    Fleet([1, 2, 3]).run(scene)


def test_a_new_address_reaches_all_brokers() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.as_node(2, fleet.nodes[2].register(port=9999))
        await fleet.quiet()
        for node in fleet.running():
            last = node.broker.requests[-1]
            assert isinstance(last, UpdateMetadataRequest)
            assert {each.id: each.endpoints[0].port for each in last.live_brokers} == {1: 9092, 2: 9999, 3: 9092}

    Fleet([1, 2, 3]).run(scene)


def test_a_broker_that_cannot_be_reached_gets_its_requests_later_and_in_order() -> None:
    async def scene(fleet: Fleet) -> None:
        fleet.unreachable.add(2)
        await fleet.create("t", {0: [2, 3]})
        await fleet.create("u", {0: [3, 2]})
        await fleet.quiet()
        assert not fleet.nodes[2].broker.roles
        fleet.unreachable.clear()
        await fleet.quiet()
        await fleet.check_agreement()
        kinds = [type(request) for request in fleet.nodes[2].broker.requests[-4:]]
        assert kinds == [LeaderAndIsrRequest, UpdateMetadataRequest] * 2

    Fleet([1, 2, 3]).run(scene)


def test_a_failed_log_directory_takes_only_its_replicas_offline() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3], 1: [2, 3], 2: [3, 2]})
        lost = [KEY, TopicPartition("t", 2)]
        fleet.nodes[2].broker.offline.update(dict.fromkeys(lost))
        await fleet.observer.create(znodes.LOG_DIR_EVENT, znodes.encode_log_dir_event(2), sequential=True)
        await fleet.quiet()
        assert await place(fleet) == (3, 1, (3,))
        assert await place(fleet, TopicPartition("t", 1)) == (2, 0, (2, 3))
        assert await place(fleet, TopicPartition("t", 2)) == (3, 1, (3,))
        assert await fleet.observer.children(znodes.LOG_DIR_EVENTS) == []
        assert fleet.nodes[1].broker.metadata[KEY].offline_replicas == [2]
        stopped = [each for each in fleet.nodes[2].broker.requests if isinstance(each, StopReplicaRequest)]
        assert [len(topic.partition_states) for each in stopped for topic in each.topic_states] == [2]
        fleet.nodes[2].broker.offline.clear()
        fleet.kill(2)
        await fleet.start(2)
        await fleet.quiet()
        assert fleet.nodes[1].broker.metadata[KEY].offline_replicas == []
        await fleet.check_agreement()

    Fleet([1, 2, 3]).run(scene)


def test_a_replica_that_reports_its_log_offline_when_it_is_told_to_lead_is_replaced() -> None:
    async def scene(fleet: Fleet) -> None:
        fleet.nodes[2].broker.offline[KEY] = None
        await fleet.create("t", {0: [2, 3]})
        await fleet.quiet()
        assert await place(fleet) == (3, 1, (3,))

    Fleet([1, 2, 3]).run(scene)


# ---- controlled shutdown


def test_a_controlled_shutdown_moves_leaders_and_takes_followers_out_of_sync() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3], 1: [3, 2]})
        await fleet.create("alone", {0: [2]})
        epoch = fleet.nodes[2].broker.broker_epoch
        left = await fleet.as_node(1, shut_down(fleet.nodes[1].controller, 2, epoch))
        assert left == []
        await fleet.quiet()
        assert await place(fleet) == (3, 1, (3,))
        assert await place(fleet, TopicPartition("t", 1)) == (3, 1, (3,))
        assert await place(fleet, TopicPartition("alone", 0)) == (2, 0, (2,))
        assert TopicPartition("t", 1) not in fleet.nodes[2].broker.roles
        fleet.kill(2)
        await fleet.start(2)
        await fleet.quiet()
        await fleet.check_agreement()

    Fleet([1, 2, 3]).run(scene)


def test_a_broker_that_shuts_down_leads_on_where_nobody_else_can() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3]})
        await fleet.set_isr(KEY, [2])
        left = await fleet.as_node(1, shut_down(fleet.nodes[1].controller, 2, -1))
        assert left == [KEY]
        fleet.kill(1)
        await fleet.quiet()
        assert await place(fleet) == (2, 0, (2,))

    Fleet([1, 2, 3]).run(scene)


@pytest.mark.parametrize(
    ("broker", "epoch", "code"), [(9, -1, ErrorCode.BROKER_NOT_AVAILABLE), (2, 0, ErrorCode.STALE_BROKER_EPOCH)]
)
def test_a_shutdown_of_a_broker_that_has_died_or_restarted_is_refused(broker: int, epoch: int, code: ErrorCode) -> None:
    async def scene(fleet: Fleet) -> None:
        with pytest.raises(ProtocolError) as caught:
            await fleet.as_node(1, shut_down(fleet.nodes[1].controller, broker, epoch))
        assert caught.value.code is code

    Fleet([1, 2]).run(scene)


# ---- many partitions


class CountedPipelines:
    """A session that counts the pipelines with states of partitions."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.states: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    async def pipeline(self, groups: Any) -> Any:
        groups = [list(group) for group in groups]
        count = sum(any(each.path.endswith("/state") for each in group) for group in groups)
        if count:
            self.states.append(count)
        return await self.session.pipeline(groups)


def test_a_thousand_leaders_are_elected_in_one_pipeline_and_one_request_of_each_kind() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {number: [2, 3, 1] for number in range(1000)})
        await fleet.quiet()
        fleet.nodes[1].store.states.clear()
        requests = {broker: len(fleet.nodes[broker].broker.requests) for broker in (1, 3)}
        fleet.kill(2)
        await fleet.quiet()
        assert fleet.nodes[1].store.states == [1000]
        for broker, count in requests.items():
            kinds = [type(request) for request in fleet.nodes[broker].broker.requests[count:]]
            assert kinds == [UpdateMetadataRequest, LeaderAndIsrRequest]
        await fleet.check_agreement()

    fleet = Fleet([1, 2, 3])
    fleet.around_store = lambda _node, session: CountedPipelines(session)
    fleet.run(scene)
