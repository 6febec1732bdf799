"""Deletions of topics whose replicas are on several brokers."""

from __future__ import annotations

import asyncio
from typing import Any

from odradek.broker.controller.control_requests import deleted_partitions
from odradek.broker.metadata.metadata_cache import PartitionState
from odradek.broker.metadata.new_topic import NewTopic
from odradek.broker.metadata_store import znodes
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.replica_control import StopReplicaRequest, UpdateMetadataRequest
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import EPOCH_DURING_DELETE, LEADER_DURING_DELETE
from tests.broker.controller.fleet import Fleet, codes, shut_down

KEY = TopicPartition("t", 0)


async def delete(fleet: Fleet, name: str = "t", timeout_ms: int = 5000) -> ErrorCode:
    active = fleet.active()
    return codes(await fleet.as_node(active.broker_id, active.controller.topics.delete([name], timeout_ms=timeout_ms)))[
        0
    ]


def test_a_deleted_topic_is_gone_everywhere_and_its_name_is_free() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3], 1: [3, 1]})
        await fleet.quiet()
        requests = len(fleet.nodes[2].broker.requests)
        assert await delete(fleet) is ErrorCode.NONE
        update, stop = fleet.nodes[2].broker.requests[requests:]
        assert isinstance(update, UpdateMetadataRequest)
        assert {state.leader for topic in update.topic_states for state in topic.partition_states} == {
            LEADER_DURING_DELETE
        }
        assert isinstance(stop, StopReplicaRequest)
        (state,) = stop.topic_states[0].partition_states
        assert (state.delete_partition, state.leader_epoch) == (True, EPOCH_DURING_DELETE)
        await fleet.create("t", {0: [1, 2]})
        await fleet.quiet()
        await fleet.check_agreement()

    Fleet([1, 2, 3]).run(scene)


def test_a_deletion_waits_for_a_dead_broker_but_its_client_does_not() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3], 1: [3, 1]})
        fleet.kill(3)
        await fleet.quiet()
        assert await delete(fleet) is ErrorCode.NONE
        assert not fleet.nodes[2].broker.metadata
        assert (fleet.nodes[1].disk, fleet.nodes[2].disk) == ({}, {})
        assert await fleet.observer.children(znodes.DELETE_TOPICS) == ["t"]
        numbers = fleet.active().controller.terms.numbers()
        assert (numbers.topics_to_delete, numbers.topics_ineligible_to_delete) == (1, 1)
        assert (numbers.replicas_to_delete, numbers.replicas_ineligible_to_delete) == (2, 2)
        (refused,) = await fleet.active().controller.topics.create([NewTopic("t", 1, 1)], timeout_ms=100)
        assert codes([refused]) == [ErrorCode.TOPIC_ALREADY_EXISTS]
        await fleet.start(3)
        await fleet.quiet()
        assert await fleet.observer.children(znodes.TOPICS) == []
        assert fleet.nodes[3].disk == {}
        assert fleet.active().controller.terms.numbers().topics_to_delete == 0

    Fleet([1, 2, 3]).run(scene)


def test_a_broker_that_dies_while_it_deletes_halts_the_deletion() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3]})
        fleet.unreachable.add(3)
        deleting = asyncio.ensure_future(delete(fleet))
        await fleet.quiet()
        assert not deleting.done()
        fleet.kill(3)
        assert await deleting is ErrorCode.NONE
        fleet.unreachable.clear()
        await fleet.start(3)
        await fleet.quiet()
        assert await fleet.observer.children(znodes.TOPICS) == []
        await fleet.check_agreement()

    Fleet([1, 2, 3]).run(scene)


def test_a_broker_without_a_replica_hears_of_a_deletion_even_if_the_controller_dies_meanwhile() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3]})
        await fleet.quiet()
        fleet.unreachable.add(4)
        deleting = asyncio.ensure_future(delete(fleet))
        await fleet.quiet()
        assert (fleet.nodes[2].disk, fleet.nodes[3].disk) == ({}, {})
        assert await fleet.observer.children(znodes.TOPICS) == ["t"]
        fleet.kill(1)
        await fleet.quiet()
        fleet.unreachable.clear()
        await fleet.quiet()
        assert await fleet.observer.children(znodes.TOPICS) == []
        await fleet.check_agreement()
        deleting.cancel()

    Fleet([1, 2, 3, 4]).run(scene)


def one_at_a_time(fleet: Fleet, broker_id: int, kind: type[Any]) -> asyncio.Semaphore:
    """Each request of this kind that names a topic waits at the broker until the semaphore is released."""
    passes = asyncio.Semaphore(0)

    async def wait(request: Any) -> None:
        if isinstance(request, kind) and request.topic_states:
            await passes.acquire()

    fleet.nodes[broker_id].broker.before = wait
    return passes


def test_the_answer_to_older_metadata_does_not_count_as_knowledge_of_a_deletion() -> None:
    async def scene(fleet: Fleet) -> None:
        passes = one_at_a_time(fleet, 4, UpdateMetadataRequest)
        await fleet.create("t", {0: [2, 3]})
        deleting = asyncio.ensure_future(delete(fleet))
        await fleet.quiet()
        passes.release()
        await fleet.quiet()
        assert fleet.nodes[4].broker.metadata.keys() == {KEY}
        assert await fleet.observer.children(znodes.TOPICS) == ["t"]
        assert not deleting.done()
        fleet.kill(1)
        fleet.nodes[4].broker.before = None
        await fleet.quiet()
        assert await fleet.observer.children(znodes.TOPICS) == []
        await fleet.check_agreement()
        deleting.cancel()

    Fleet([1, 2, 3, 4]).run(scene)


def test_the_answer_to_an_older_request_to_delete_a_replica_does_not_count_for_its_topic() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3]})
        await fleet.as_node(1, fleet.active().controller.replicas.reassign({KEY: [2, 3, 4]}))
        await fleet.quiet()
        passes = one_at_a_time(fleet, 4, StopReplicaRequest)
        for target in (None, [2, 3, 4]):
            assert await fleet.as_node(1, fleet.active().controller.replicas.reassign({KEY: target})) == {KEY: None}
        deleting = asyncio.ensure_future(delete(fleet))
        await fleet.quiet()
        passes.release()
        await fleet.quiet()
        assert fleet.nodes[4].disk.keys() == {KEY}
        assert await fleet.observer.children(znodes.TOPICS) == ["t"]
        passes.release()
        assert await deleting is ErrorCode.NONE
        assert await fleet.observer.children(znodes.TOPICS) == []
        await fleet.check_agreement()

    Fleet([1, 2, 3, 4]).run(scene)


def test_a_broker_that_registers_again_forgets_what_was_deleted_meanwhile() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3]})
        await fleet.quiet()
        fleet.shared.cut("4")
        await fleet.quiet(10)
        assert await delete(fleet) is ErrorCode.NONE
        fleet.shared.heal("4")
        await fleet.quiet()
        await fleet.check_agreement()

    Fleet([1, 2, 3, 4]).run(scene)


def test_a_broker_that_registers_again_during_a_deletion_hears_of_it() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3]})
        await fleet.quiet()
        fleet.unreachable.add(3)
        deleting = asyncio.ensure_future(delete(fleet, timeout_ms=60_000))
        await fleet.quiet()
        fleet.shared.cut("4")
        await fleet.quiet(10)
        requests = len(fleet.nodes[4].broker.requests)
        fleet.shared.heal("4")
        await fleet.quiet()
        heard = [each for each in fleet.nodes[4].broker.requests[requests:] if isinstance(each, UpdateMetadataRequest)]
        assert deleted_partitions(heard[0]) == {"t": 1}
        assert await fleet.observer.children(znodes.TOPICS) == ["t"]
        fleet.unreachable.clear()
        assert await deleting is ErrorCode.NONE
        assert await fleet.observer.children(znodes.TOPICS) == []
        await fleet.check_agreement()

    Fleet([1, 2, 3, 4]).run(scene)


def test_a_topic_whose_partitions_never_had_a_leader_is_deleted() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.as_node(1, shut_down(fleet.nodes[1].controller, 2, -1))
        await fleet.create("t", {0: [2]})
        assert await delete(fleet) is ErrorCode.NONE
        assert await fleet.observer.children(znodes.TOPICS) == []

    Fleet([1, 2]).run(scene)


def test_a_client_that_waits_for_a_slow_broker_is_answered_at_its_timeout() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3]})
        fleet.unreachable.add(3)
        assert await delete(fleet, timeout_ms=500) is ErrorCode.REQUEST_TIMED_OUT
        fleet.unreachable.clear()
        await fleet.quiet()
        assert await fleet.observer.children(znodes.TOPICS) == []

    Fleet([1, 2, 3]).run(scene)


def test_a_replica_that_cannot_be_deleted_is_tried_again_when_its_broker_starts() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3]})
        fleet.nodes[3].broker.undeletable[KEY] = None
        assert await delete(fleet) is ErrorCode.NONE
        assert await fleet.observer.children(znodes.TOPICS) == ["t"]
        fleet.kill(3)
        await fleet.start(3)
        await fleet.quiet()
        assert await fleet.observer.children(znodes.TOPICS) == []

    Fleet([1, 2, 3]).run(scene)


def test_a_deletion_ends_a_reassignment_of_the_topic() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3]})
        assert await fleet.as_node(1, fleet.active().controller.replicas.reassign({KEY: [1, 4]})) == {KEY: None}
        await fleet.quiet()
        assert fleet.nodes[4].disk.keys() == {KEY}
        assert await delete(fleet) is ErrorCode.NONE
        assert await fleet.observer.children(znodes.TOPICS) == []
        await fleet.check_agreement()

    Fleet([1, 2, 3, 4]).run(scene)


def test_a_deletion_that_meets_the_end_of_a_reassignment_deletes_all_replicas() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3]})
        await fleet.as_node(1, fleet.active().controller.replicas.reassign({KEY: [1, 4]}))
        fleet.unreachable.add(3)
        await fleet.set_isr(KEY, [1, 2, 3, 4])
        await fleet.quiet()  # broker 2 has deleted its replica, broker 3 is asked to
        deleting = asyncio.ensure_future(delete(fleet))
        await fleet.quiet()
        fleet.unreachable.clear()
        assert await deleting is ErrorCode.NONE
        assert await fleet.observer.children(znodes.TOPICS) == []
        await fleet.check_agreement()

    Fleet([1, 2, 3, 4]).run(scene)


def test_topics_cannot_be_changed_while_they_are_deleted() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3]})
        fleet.unreachable.add(3)
        await delete(fleet, timeout_ms=100)
        controller = fleet.active().controller
        outcomes: dict[TopicPartition, Any] = await controller.replicas.reassign({KEY: [1]})
        assert codes(outcomes.values()) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert controller.replicas.reassignments(None) == {}
        before: PartitionState = await fleet.state(KEY)
        response = await fleet.set_isr(KEY, [2])
        assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await fleet.state(KEY) == before

    Fleet([1, 2, 3]).run(scene)


def test_a_reassignment_of_a_topic_that_is_being_deleted_cannot_be_cancelled() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3], 1: [2, 1]})
        await fleet.as_node(1, fleet.active().controller.replicas.reassign({KEY: [2, 4]}))
        fleet.kill(3)
        await fleet.quiet()
        assert await delete(fleet) is ErrorCode.NONE
        before, epoch = await fleet.state(KEY), fleet.active().controller.terms.epoch
        cancelling = fleet.active().controller.replicas.reassign({KEY: None, TopicPartition("t", 1): None})
        outcomes: dict[TopicPartition, Any] = await fleet.as_node(1, cancelling)
        assert codes(outcomes.values()) == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ]
        assert await fleet.state(KEY) == before
        assert fleet.active().controller.terms.epoch == epoch
        await fleet.start(3)
        await fleet.quiet()
        assert await fleet.observer.children(znodes.TOPICS) == []
        await fleet.check_agreement()

    Fleet([1, 2, 3, 4]).run(scene)


def test_deletions_may_be_disabled() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [1]})
        await fleet.observer.create(znodes.deletion_path("t"))
        await fleet.observer.delete(znodes.CONTROLLER)
        await fleet.quiet()
        assert await fleet.observer.children(znodes.DELETE_TOPICS) == []
        await fleet.check_agreement()

    Fleet([1], {"delete.topic.enable": "false"}).run(scene)
