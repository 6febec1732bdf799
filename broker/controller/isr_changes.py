"""AlterPartition: the leader of a partition proposes its in-sync replicas (KIP-497).

The controller stores what the leader of the current epoch proposes, if the proposal is based on the current state:

    condition                                                           answer if it is not met
    -----------------------------------------------------------------   ---------------------------------------------
    the broker is registered with the request's broker epoch            STALE_BROKER_EPOCH, for the whole request
    the partition exists and is not being deleted                       UNKNOWN_TOPIC_OR_PARTITION
    neither epoch is newer than those that the controller knows         NOT_CONTROLLER: another one must be elected
    the leader epoch is the current one                                 FENCED_LEADER_EPOCH
    the broker leads; the set has the leader and only replicas          INVALID_REQUEST
    the partition epoch is the current one                              INVALID_UPDATE_VERSION
    every broker of the set may be in sync: alive, not shutting down    OPERATION_NOT_ATTEMPTED (KIP-841)

A leader whose partition epoch is an old one waits for the newer state, which somebody else may have caused: it is sent
to the leader again.

A proposal that is stored already is answered with the current state, whatever its partition epoch: the leader asks
again when the answer was lost.

Source: Kafka's `KafkaController.tryProcessAlterPartition`; the check of the leader and of the replicas is that of its
KRaft controller.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek.broker.background.stepwise import others_between
from odradek.broker.controller.control_requests import ControlRequests
from odradek.broker.controller.controller_context import ControllerContext
from odradek.broker.controller.partition_changes import Outcome, PartitionChanges
from odradek.broker.metadata.metadata_cache import PartitionState
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.replica_control import AlterPartitionRequest, AlterPartitionResponse
from odradek.protocol.topic_partition import TopicPartition

Proposal = AlterPartitionRequest.PartitionData


class IsrChanges:
    """Answers AlterPartition 0."""

    def __init__(self, context: ControllerContext, changes: PartitionChanges, requests: ControlRequests) -> None:
        self._context = context
        self._changes = changes
        self._requests = requests

    async def alter(self, request: AlterPartitionRequest) -> tuple[AlterPartitionResponse, list[TopicPartition]]:
        """Returns the response, and the partitions whose in-sync replicas have changed."""
        broker = self._context.brokers.get(request.broker_id)
        if broker is None or broker.epoch != request.broker_epoch:
            return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH), []
        proposals = {key: proposal async for key, proposal in others_between(_proposals(request))}

        def decide(key: TopicPartition, state: PartitionState) -> PartitionState | None:
            if key.topic in self._context.deletions:
                raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            electable = self._context.electable(key, state)
            return altered(state, proposals[key], request.broker_id, electable, self._context.epoch)

        outcomes = await self._changes.change(proposals, decide)
        changed = []
        async for key, outcome in others_between(outcomes.items()):
            self._requests.publish(key)
            if isinstance(outcome, PartitionState):
                self._context.update_phases(key, outcome)
                changed.append(key)
            elif isinstance(outcome, ProtocolError) and outcome.code is ErrorCode.INVALID_UPDATE_VERSION:
                self._requests.lead([request.broker_id], key)
        return await self._response(outcomes), changed

    async def _response(self, outcomes: dict[TopicPartition, Outcome]) -> AlterPartitionResponse:
        topics: dict[str, AlterPartitionResponse.TopicData] = {}
        async for key, outcome in others_between(outcomes.items()):
            if key.topic not in topics:
                topics[key.topic] = AlterPartitionResponse.TopicData(topic_name=key.topic, partitions=[])
            state = self._context.state(key)
            if isinstance(outcome, ProtocolError) or state is None:
                code = outcome.code if isinstance(outcome, ProtocolError) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                found = AlterPartitionResponse.PartitionData(partition_index=key.partition, error_code=code)
            else:
                found = AlterPartitionResponse.PartitionData(
                    partition_index=key.partition,
                    leader_id=state.leader,
                    leader_epoch=state.leader_epoch,
                    isr=list(state.isr),
                    partition_epoch=state.partition_epoch,
                )
            topics[key.topic].partitions.append(found)
        return AlterPartitionResponse(topics=list(topics.values()))


def altered(
    state: PartitionState, proposal: Proposal, broker_id: int, electable: list[int], controller_epoch: int
) -> PartitionState | None:
    """Returns the state with the proposed in-sync replicas, or None if they are the current ones. Raises ProtocolError;
    see the head of this file.
    """
    if proposal.leader_epoch > state.leader_epoch or proposal.partition_epoch > state.partition_epoch:
        raise ProtocolError(ErrorCode.NOT_CONTROLLER)
    if proposal.leader_epoch < state.leader_epoch:
        raise ProtocolError(ErrorCode.FENCED_LEADER_EPOCH)
    if broker_id != state.leader or broker_id not in proposal.new_isr or not set(proposal.new_isr) <= {*state.replicas}:
        raise ProtocolError(ErrorCode.INVALID_REQUEST)
    if sorted(proposal.new_isr) == sorted(state.isr):
        return None
    if proposal.partition_epoch < state.partition_epoch:
        raise ProtocolError(ErrorCode.INVALID_UPDATE_VERSION)
    if not set(proposal.new_isr) <= {*electable, broker_id}:
        raise ProtocolError(ErrorCode.OPERATION_NOT_ATTEMPTED)
    return state._replace(isr=tuple(dict.fromkeys(proposal.new_isr)), controller_epoch=controller_epoch)


def _proposals(request: AlterPartitionRequest) -> Iterator[tuple[TopicPartition, Proposal]]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield TopicPartition(topic.topic_name, partition.partition_index), partition
