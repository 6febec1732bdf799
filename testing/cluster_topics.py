"""Topics of a cluster within the process, and who leads them, by the requests that an operator's tools would send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random, SystemRandom

from odradek.broker.coordinator.runtime.runtime import partition_for
from odradek.broker.metadata.metadata_cache import GROUP_TOPIC, TRANSACTION_TOPIC
from odradek.broker.metadata.new_topic import NewTopic
from odradek.clients.admin.client import AdminClient, check
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.reassignments import ElectLeadersRequest, ElectLeadersResponse
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import CoordinatorType, ElectionType
from odradek.testing.cluster_view import BrokerStatus
from odradek.testing.cluster_waits import SETTLED_WITHIN_S, ClusterWaits
from odradek.testing.conditions import why_no_leader
from odradek.testing.security import Security
from odradek.testing.setting_texts import topic_setting_texts


class ClusterTopics(ClusterWaits):
    """`security` is how brokers and clients connect. `random` is for connections; None is the system's."""

    security: Security
    random: Random | None

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int | None = None,
        assignments: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, object] | None = None,
        within: float = SETTLED_WITHIN_S,
    ) -> None:
        """Creates a topic and waits until all partitions have leaders. Without `replication_factor` the cluster's
        default applies; `assignments` gives the replicas of each partition instead. Raises ProtocolError, NotReached.
        """
        is_assigned = assignments is not None
        topic = NewTopic(
            name,
            -1 if is_assigned else partitions,
            -1 if is_assigned or replication_factor is None else replication_factor,
            {partition: tuple(brokers) for partition, brokers in (assignments or {}).items()},
            topic_setting_texts(configs or {}),
        )
        async with self._admin(within) as admin:
            await admin.create_topic(topic)
        numbers = range(partitions) if assignments is None else assignments
        await self.reach(
            lambda: next(filter(None, (why_no_leader(self, name, number) for number in numbers)), ""),
            f"leaders of the new topic {name}",
            within=within,
        )

    async def move_leader(self, topic: str, partition: int, to: int, *, within: float = SETTLED_WITHIN_S) -> None:
        """Makes a running broker the leader of a partition: its first replica (AlterPartitionReassignments), which is
        then elected (ElectLeaders). A broker without a replica replaces the last one, and gets the records before.
        Returns when all brokers know. Raises ValueError, ProtocolError, NotReached.
        """
        self._expect(to, BrokerStatus.RUNNING)
        known = self._known(topic, partition)
        key = TopicPartition(topic, partition)
        async with self._admin(within) as admin:
            if known is not None and known.replicas[0] != to:
                others = [replica for replica in known.replicas if replica != to]
                replicas = (to, *others[: len(known.replicas) - 1])
                for error in (await admin.alter_reassignments({key: replicas})).values():
                    raise error
                await self.reach(lambda: self._why_not_replicas(key, replicas), f"replicas of {key}", within=within)
            await self.reach(
                lambda: "" if to in self.isr(topic, partition) else f"broker {to} is not in sync",
                f"broker {to} in the ISR of {key}",
                within=within,
            )
            await _elect_preferred(admin, key, round(1000 * within))
        await self.wait_for_leader(topic, partition, to, within=within)

    async def move_coordinator(
        self,
        to: int,
        *,
        group: str | None = None,
        transactional_id: str | None = None,
        within: float = SETTLED_WITHIN_S,
    ) -> None:
        """Makes a running broker the coordinator of a group or of a transactional id, and of all whose ids are in the
        same partition of the internal topic, which it leads then. Raises ValueError, ProtocolError, NotReached.

        A consumer of librdkafka may lose its session by committing right after a move: docs/testing/faults.md.
        """
        if group is not None and transactional_id is None:
            kind, key, topic = CoordinatorType.GROUP, group, GROUP_TOPIC
        elif transactional_id is not None and group is None:
            kind, key, topic = CoordinatorType.TRANSACTION, transactional_id, TRANSACTION_TOPIC
        else:
            raise ValueError("name a group or a transactional_id")
        self._expect(to, BrokerStatus.RUNNING)
        async with self._admin(within) as admin:
            await admin.coordinator(kind, key)  # creates the topic
        assignment = self._assignment(topic)
        assert assignment is not None
        await self.move_leader(topic, partition_for(key, len(assignment.replicas)), to, within=within)

    def _admin(self, within: float) -> AdminClient:
        running = ",".join(map(self.bootstrap_of, self.running))
        connect = self.security.of_brokers().connect(self.random or SystemRandom())
        return AdminClient(running, timeout_ms=round(1000 * within), connect=connect)

    def _why_not_replicas(self, key: TopicPartition, replicas: Sequence[int]) -> str:
        state = self.partition(*key)
        there = None if state is None else tuple(state.replicas)
        return f"they are {there}" if there != replicas or self.is_reassigned(key.topic) else ""


async def _elect_preferred(admin: AdminClient, key: TopicPartition, timeout_ms: int) -> None:
    """Makes the first replica the leader. Raises ProtocolError."""
    request = ElectLeadersRequest(
        election_type=ElectionType.PREFERRED,
        topic_partitions=[ElectLeadersRequest.TopicPartitions(topic=key.topic, partitions=[key.partition])],
        timeout_ms=timeout_ms,
    )
    response: ElectLeadersResponse = await admin.ask_controller(request)
    check(response.error_code)
    for topic in response.replica_election_results:
        for result in topic.partition_result:
            if result.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                check(result.error_code, result.error_message)
