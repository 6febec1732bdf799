"""Requests that change which broker leads a partition, and which brokers have replicas of it.

They are answered when this broker knows the change, as in `topic_requests.py` (C). Source: Kafka's `KafkaController`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from odradek.broker.background.stepwise import others_between
from odradek.broker.controller.request_waits import RequestWaits
from odradek.broker.controller.term import Term
from odradek.broker.controller.terms import Terms
from odradek.broker.metadata.administration import Outcomes
from odradek.broker.metadata.metadata_cache import PartitionState
from odradek.broker.settings.config import BrokerConfig
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import ElectionType


class ReplicaRequests:
    """The requests to the controller with this `terms`."""

    def __init__(self, terms: Terms, waits: RequestWaits, config: BrokerConfig) -> None:
        self._terms = terms
        self._waits = waits
        self._config = config

    async def elect(
        self, election: ElectionType, partitions: Collection[TopicPartition], *, timeout_ms: int
    ) -> Outcomes:
        """Elects leaders, and waits until this broker knows them. Returns, per partition, None if it has a new leader,
        otherwise the codes of `Elections.elect`, REQUEST_TIMED_OUT, NOT_CONTROLLER.
        """
        try:
            elected = await self._terms.ask(
                "election of leaders", lambda term: term.elections.elect(election, partitions)
            )
        except ProtocolError as error:
            return dict.fromkeys(partitions, error)
        outcomes: Outcomes = {
            key: outcome if isinstance(outcome, ProtocolError) else None
            async for key, outcome in others_between(elected.items())
        }
        leaders = {
            key: outcome.leader
            async for key, outcome in others_between(elected.items())
            if isinstance(outcome, PartitionState)
        }
        if leaders and self._terms.term is not None:
            announced = self._terms.term.channels.own_answered()
            for late in await self._waits.leaders_known(leaders, announced, timeout_ms):
                outcomes[late] = ProtocolError(ErrorCode.REQUEST_TIMED_OUT)
        return outcomes

    async def balance_leaders(self) -> None:
        """Elects preferred leaders where brokers lead too few partitions; does nothing if this is not the controller,
        or auto.leader.rebalance.enable is false.
        """
        if self._terms.term is not None and self._config.auto_leader_rebalance_enable:
            percentage = self._config.leader_imbalance_per_broker_percentage
            await self._terms.ask("balance of leaders", lambda term: term.elections.balance(percentage))

    async def reassign(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, may_resize: bool = True
    ) -> Outcomes:
        """Starts or cancels reassignments; see `Reassignments.reassign`. Raises NOT_CONTROLLER."""

        async def reassign(term: Term) -> Outcomes:
            outcomes = await term.reassignments.reassign(targets, may_resize=may_resize)
            await term.brokers.lead_new([key for key, error in outcomes.items() if error is None])
            return outcomes

        outcomes = await self._terms.ask("reassignment", reassign)
        await self._terms.own_answered()
        return outcomes

    def reassignments(self, wanted: Collection[TopicPartition] | None) -> dict[TopicPartition, PartitionState]:
        """The partitions being reassigned, restricted to `wanted` unless it is None. Raises NOT_CONTROLLER."""
        found = self._terms.current().context.reassigning()
        return {key: state for key, state in found.items() if wanted is None or key in wanted}
