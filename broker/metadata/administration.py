"""What handlers ask of the controller: an interface, which does not know how the cluster elects its controller and
where it stores its metadata.

A broker that is not the active controller refuses everything with NOT_CONTROLLER. Rows of the API table for which this
comes before the access check of each item say so (`not_controller`); otherwise it comes from here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from odradek.broker.features.updates import FeatureUpdate
from odradek.broker.metadata.metadata_cache import PartitionState
from odradek.broker.metadata.new_topic import NewPartitions
from odradek.protocol.errors import ProtocolError
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import ElectionType

Outcomes = dict[TopicPartition, ProtocolError | None]


class TopicAdministration(Protocol):
    """Changes topics. A change whose timeout passes continues."""

    async def delete(self, names: Sequence[str], *, timeout_ms: int) -> list[ProtocolError | None]:
        """Deletes topics. Returns, per name in order, None or the error."""

    async def add_partitions(
        self, additions: Sequence[NewPartitions], *, timeout_ms: int, validate_only: bool = False
    ) -> list[ProtocolError | None]:
        """Adds partitions. Returns, per topic in order, None, or the reason why no partitions were added."""


class ReplicaAdministration(Protocol):
    """Changes leaders and replicas of partitions."""

    async def elect(
        self, election: ElectionType, partitions: Collection[TopicPartition], *, timeout_ms: int
    ) -> Outcomes:
        """Elects leaders. Returns, per partition, None if it has a new leader, otherwise the error."""

    async def reassign(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, may_resize: bool = True
    ) -> Outcomes:
        """Starts, replaces or cancels (None) reassignments. `may_resize`: the number of replicas may change. Raises
        ProtocolError if it is refused as a whole.
        """

    def reassignments(self, wanted: Collection[TopicPartition] | None) -> dict[TopicPartition, PartitionState]:
        """The partitions being reassigned, restricted to `wanted` unless it is None. Raises NOT_CONTROLLER."""


class FeatureAdministration(Protocol):
    """Changes the levels of features."""

    async def update(self, updates: Collection[FeatureUpdate], *, validate_only: bool) -> None:
        """Carries out all updates, or none; then this broker has the new levels. Raises INVALID_UPDATE_VERSION,
        KAFKA_STORAGE_ERROR, NOT_CONTROLLER.
        """


class Administration(Protocol):
    """The administration of the cluster, as far as this broker carries it out."""

    @property
    def is_active(self) -> bool:
        """Whether this broker is the active controller."""

    @property
    def topics(self) -> TopicAdministration: ...

    @property
    def replicas(self) -> ReplicaAdministration: ...

    @property
    def features(self) -> FeatureAdministration: ...

    async def answer(self, request: Message) -> Any:
        """Answers CreateTopics, and what brokers ask of the controller. Raises ProtocolError if the request is refused
        as a whole and its response has no place for the reason.
        """
