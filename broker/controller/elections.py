"""Elections of leaders that were requested, by a client (KIP-183, KIP-460) or by the balance of leaders.

A client may elect the preferred leader, or any leader (unclean) for a partition that has none. The balance elects the
preferred leaders of a broker when it leads too few of the partitions that it should lead.

Source: Kafka's `KafkaController.processReplicaLeaderElection`, `checkAndTriggerAutoLeaderRebalance`.
"""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from odradek.broker.background.stepwise import others_between
from odradek.broker.controller.control_requests import ControlRequests
from odradek.broker.controller.controller_context import ControllerContext
from odradek.broker.controller.partition_changes import Outcome, PartitionChanges
from odradek.broker.controller.partition_states import is_new, offline_election, preferred_election
from odradek.broker.metadata.metadata_cache import PartitionState
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import ElectionType

COST = 5
"""The cost of carrying out an election, in items of a step."""

log = structlog.get_logger("controller")


class Elections:
    """Elects leaders of the partitions in `context`."""

    def __init__(self, context: ControllerContext, changes: PartitionChanges, requests: ControlRequests) -> None:
        self._context = context
        self._changes = changes
        self._requests = requests

    async def elect(self, election: ElectionType, keys: Iterable[TopicPartition]) -> dict[TopicPartition, Outcome]:
        """Elects leaders. Returns, per partition, its new state, or ELECTION_NOT_NEEDED,
        PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE, INVALID_TOPIC_EXCEPTION (being deleted),
        UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR.
        """
        decide = self._preferred if election is ElectionType.PREFERRED else self._unclean
        outcomes = await self._changes.change(keys, decide)
        async for key, outcome in others_between(outcomes.items(), COST):
            if isinstance(outcome, PartitionState):
                self._context.update_phases(key, outcome)
                self._requests.lead(self._context.present(key, outcome), key)
                self._requests.publish(key)
                log.debug("leader elected", partition=str(key), leader=outcome.leader)
        elected = sum(isinstance(outcome, PartitionState) for outcome in outcomes.values())
        log.info("leaders elected", election=election.name.lower(), partitions=elected, of=len(outcomes))
        return outcomes

    async def balance(self, percentage: int) -> None:
        """Elects the preferred leaders of brokers that lead too few partitions. Does nothing during reassignments."""
        if self._context.reassigning():
            return
        totals: dict[int, int] = {}
        elsewhere: dict[int, list[TopicPartition]] = {}
        async for key, state in others_between(self._context.partitions()):
            preferred = state.replicas[0]
            totals[preferred] = totals.get(preferred, 0) + 1
            if not is_new(state) and state.leader != preferred:
                elsewhere.setdefault(preferred, []).append(key)
        for broker, keys in sorted(elsewhere.items()):
            if 100 * len(keys) > percentage * totals[broker]:
                await self.elect(ElectionType.PREFERRED, [key for key in keys if self._is_possible(key)])

    def _is_possible(self, key: TopicPartition) -> bool:
        state = self._context.state(key)
        if state is None:
            return False
        return preferred_election(state, self._context.electable(key, state), self._context.epoch) is not None

    def _check(self, key: TopicPartition) -> None:
        if key.topic in self._context.deletions:
            raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{key.topic}' is being deleted")

    def _preferred(self, key: TopicPartition, state: PartitionState) -> PartitionState:
        self._check(key)
        if state.leader == state.replicas[0]:
            raise ProtocolError(ErrorCode.ELECTION_NOT_NEEDED)
        after = preferred_election(state, self._context.electable(key, state), self._context.epoch)
        if is_new(state) or after is None:
            message = f"Broker {state.replicas[0]} is not available or not in sync"
            raise ProtocolError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, message)
        return after

    def _unclean(self, key: TopicPartition, state: PartitionState) -> PartitionState:
        self._check(key)
        electable = self._context.electable(key, state)
        if state.leader in self._context.present(key, state):
            raise ProtocolError(ErrorCode.ELECTION_NOT_NEEDED)
        after = offline_election(state, electable, True, self._context.epoch)
        if is_new(state) or after is None:
            raise ProtocolError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "None of the replicas is available")
        return after
