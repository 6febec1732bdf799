"""AlterPartition: which in-sync replicas a leader may have, and producer ids for brokers."""

from __future__ import annotations

import pytest

from odradek.broker.controller.isr_changes import altered
from odradek.broker.metadata.metadata_cache import PartitionState
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import Set
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.producers import AllocateProducerIdsRequest
from odradek.protocol.messages.replica_control import AlterPartitionRequest, LeaderAndIsrRequest, UpdateMetadataRequest
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.controller.fleet import Fleet

KEY = TopicPartition("t", 0)
STATE = PartitionState(0, 1, 5, (1, 2, 3), (1, 2), 8, 7)
Proposal = AlterPartitionRequest.PartitionData


def proposal(isr: list[int], leader_epoch: int = 5, partition_epoch: int = 7) -> Proposal:
    return Proposal(partition_index=0, leader_epoch=leader_epoch, new_isr=isr, partition_epoch=partition_epoch)


@pytest.mark.parametrize(
    ("wanted", "broker", "electable", "outcome"),
    [
        (proposal([1]), 1, [1, 2, 3], (1,)),
        (proposal([1, 3, 2]), 1, [1, 2, 3], (1, 3, 2)),
        (proposal([2, 1]), 1, [1, 2, 3], None),
        (proposal([2, 1], partition_epoch=3), 1, [1, 2, 3], None),  # the answer was lost
        (proposal([1], partition_epoch=8), 1, [1, 2, 3], ErrorCode.NOT_CONTROLLER),
        (proposal([1], leader_epoch=6), 1, [1, 2, 3], ErrorCode.NOT_CONTROLLER),
        (proposal([1], leader_epoch=4), 1, [1, 2, 3], ErrorCode.FENCED_LEADER_EPOCH),
        (proposal([1, 2], leader_epoch=4), 1, [1, 2, 3], ErrorCode.FENCED_LEADER_EPOCH),
        (proposal([1], partition_epoch=6), 1, [1, 2, 3], ErrorCode.INVALID_UPDATE_VERSION),
        (proposal([2]), 2, [1, 2, 3], ErrorCode.INVALID_REQUEST),
        (proposal([2]), 1, [1, 2, 3], ErrorCode.INVALID_REQUEST),
        (proposal([1, 4]), 1, [1, 2, 3, 4], ErrorCode.INVALID_REQUEST),
        (proposal([1, 2, 3]), 1, [1, 2], ErrorCode.OPERATION_NOT_ATTEMPTED),
        (proposal([1]), 1, [2], (1,)),  # the leader itself is shutting down
    ],
)
def test_a_proposal_is_accepted_or_refused_as_in_the_table(
    wanted: Proposal, broker: int, electable: list[int], outcome: object
) -> None:
    if isinstance(outcome, ErrorCode):
        with pytest.raises(ProtocolError) as caught:
            altered(STATE, wanted, broker, electable, 9)
        assert caught.value.code is outcome
        return
    after = altered(STATE, wanted, broker, electable, 9)
    if outcome is None:
        assert after is None
    else:
        assert after is not None
        assert (after.isr, after._replace(isr=STATE.isr)) == (outcome, STATE._replace(controller_epoch=9))


def test_a_change_is_stored_answered_with_the_new_partition_epoch_and_published() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3]})
        response = await fleet.set_isr(KEY, [2])
        (answer,) = response.topics[0].partitions
        assert (answer.error_code, answer.leader_id, answer.leader_epoch) == (0, 2, 0)
        assert (answer.isr, answer.partition_epoch) == ([2], 1)
        state = await fleet.state(KEY)
        assert (state.isr, state.partition_epoch, state.leader_epoch) == ((2,), 1, 0)
        await fleet.quiet()
        last = fleet.nodes[3].broker.requests[-1]
        assert isinstance(last, UpdateMetadataRequest)
        assert fleet.nodes[3].broker.metadata[KEY].isr == [2]

    Fleet([1, 2, 3]).run(scene)


@pytest.mark.parametrize(("broker", "offset"), [(9, 0), (2, 1), (2, -1)])
def test_a_broker_of_another_epoch_is_refused(broker: int, offset: int) -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3]})
        request = AlterPartitionRequest(
            broker_id=broker,
            broker_epoch=fleet.nodes[2].broker.broker_epoch + offset,
            topics=[AlterPartitionRequest.TopicData(topic_name="t", partitions=[proposal([2], 0, 0)])],
        )
        response = await fleet.active().controller.answer(request)
        assert (response.error_code, response.topics) == (ErrorCode.STALE_BROKER_EPOCH, [])
        refused = await fleet.nodes[2].controller.answer(request)
        assert refused.error_code == ErrorCode.NOT_CONTROLLER

    Fleet([1, 2, 3]).run(scene)


def test_partitions_of_one_request_are_answered_one_by_one() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3], 1: [2, 3]})
        wanted = [
            proposal([2], 0, 0),
            Proposal(partition_index=1, leader_epoch=0, new_isr=[2], partition_epoch=4),
            Proposal(partition_index=2, leader_epoch=0, new_isr=[2], partition_epoch=0),
        ]
        request = AlterPartitionRequest(
            broker_id=2,
            broker_epoch=fleet.nodes[2].broker.broker_epoch,
            topics=[AlterPartitionRequest.TopicData(topic_name="t", partitions=wanted)],
        )
        response = await fleet.active().controller.answer(request)
        assert [each.error_code for each in response.topics[0].partitions] == [
            ErrorCode.NONE,
            ErrorCode.NOT_CONTROLLER,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]

    Fleet([1, 2, 3]).run(scene)


def test_a_state_that_somebody_else_has_written_is_read_again() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3]})
        state = await fleet.state(KEY)
        await fleet.observer.set(znodes.state_path("t", 0), znodes.encode_state(state._replace(isr=(2,))))
        response = await fleet.set_isr(KEY, [2, 3])  # proposed from what the store has
        assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_CONTROLLER
        fleet.kill(3)
        await fleet.quiet()
        assert (await fleet.state(KEY)).isr == (2,)
        await fleet.start(3)
        await fleet.quiet()
        assert (await fleet.set_isr(KEY, [2, 3])).topics[0].partitions[0].error_code == ErrorCode.NONE
        await fleet.quiet()
        await fleet.check_agreement()

    Fleet([1, 2, 3]).run(scene)


def test_a_leader_that_proposes_on_top_of_an_old_state_is_sent_the_new_one() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3]})
        proposed = await fleet.proposal(KEY, [2])
        await fleet.observer.set(znodes.state_path("t", 0), znodes.encode_state(await fleet.state(KEY)))
        response = await fleet.active().controller.answer(proposed)
        assert response.topics[0].partitions[0].error_code == ErrorCode.INVALID_UPDATE_VERSION
        await fleet.quiet()
        requests = [each for each in fleet.nodes[2].broker.requests if isinstance(each, LeaderAndIsrRequest)]
        assert requests[-1].topic_states[0].partition_states[0].partition_epoch == 1
        assert (await fleet.set_isr(KEY, [2])).topics[0].partitions[0].error_code == ErrorCode.NONE

    Fleet([1, 2, 3]).run(scene)


def test_a_state_of_a_newer_controller_ends_the_office() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3]})
        state = await fleet.state(KEY)
        newer = znodes.encode_state(state._replace(controller_epoch=2, leader=3, leader_epoch=4))
        epoch = Set(znodes.CONTROLLER_EPOCH, znodes.encode_number(2))
        await fleet.observer.multi([epoch, Set(znodes.state_path("t", 0), newer)])
        fleet.kill(2)
        await fleet.quiet()
        assert fleet.active().controller.terms.epoch == 3
        assert (await fleet.state(KEY)).leader == 3
        await fleet.check_agreement()

    Fleet([1, 2, 3]).run(scene)


# ---- producer ids


def test_blocks_of_producer_ids_do_not_overlap_even_after_a_failover() -> None:
    async def scene(fleet: Fleet) -> None:
        blocks = []
        for _ in range(2):
            controller, active = fleet.active().controller, fleet.active().broker_id
            for broker in (2, 3):
                epoch = fleet.nodes[broker].broker.broker_epoch
                request = AllocateProducerIdsRequest(broker_id=broker, broker_epoch=epoch)
                blocks.append(await fleet.as_node(active, controller.answer(request)))
            if fleet.nodes[1].is_running:
                fleet.kill(1)
                await fleet.quiet()
        assert [block.producer_id_start for block in blocks] == [0, 1000, 2000, 3000]
        assert {block.producer_id_len for block in blocks} == {1000}

    Fleet([1, 2, 3]).run(scene)


@pytest.mark.parametrize(
    ("broker", "offset", "code"),
    [(9, 0, ErrorCode.BROKER_ID_NOT_REGISTERED), (2, -1, ErrorCode.STALE_BROKER_EPOCH)],
)
def test_a_broker_that_is_not_registered_gets_no_producer_ids(broker: int, offset: int, code: ErrorCode) -> None:
    async def scene(fleet: Fleet) -> None:
        epoch = fleet.nodes[2].broker.broker_epoch + offset
        request = AllocateProducerIdsRequest(broker_id=broker, broker_epoch=epoch)
        with pytest.raises(ProtocolError) as caught:
            await fleet.active().controller.answer(request)
        assert caught.value.code is code

    Fleet([1, 2]).run(scene)
