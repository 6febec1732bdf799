"""Requests that tools put into the metadata store. They are read when a controller is elected, and when they change.

    /admin/delete_topics/T              deletes a topic, as DeleteTopics does
    /admin/reassign_partitions          reassigns partitions; deleted when all is complete or refused
    /admin/preferred_replica_election   elects the preferred leaders of the partitions that it has; deleted then

The controller writes the first two itself, and finds nothing new in them then. Topics and partitions that tools create
are found by `stored_topics.py`.

Source: Kafka's `KafkaController` (`processTopicDeletion`, `processZkPartitionReassignment`,
`processZkPreferredReplicaElection`).
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from odradek.broker.controller.controller_context import ControllerContext
from odradek.broker.controller.elections import Elections
from odradek.broker.controller.fenced_store import FencedStore
from odradek.broker.controller.loading import load_deletions
from odradek.broker.controller.reassignments import Reassignments
from odradek.broker.controller.topic_deletions import TopicDeletions
from odradek.broker.controller.watches import Watches
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import Delete, MetadataStoreError, StoreDamaged, has_lost_connection
from odradek.broker.settings.config import BrokerConfig
from odradek.protocol.wire_codes import ElectionType

log = structlog.get_logger("controller")


class StoredRequests:
    """`on_change` is called when there may be other requests: then call `changed`."""

    def __init__(
        self,
        store: FencedStore,
        context: ControllerContext,
        config: BrokerConfig,
        deletions: TopicDeletions,
        reassignments: Reassignments,
        elections: Elections,
        on_change: Callable[[], object],
    ) -> None:
        self._store = store
        self._context = context
        self._config = config
        self._deletions = deletions
        self._reassignments = reassignments
        self._elections = elections
        self._watches = Watches(on_change)

    async def topics_to_delete(self) -> list[str]:
        """Returns the topics that are marked for deletion."""
        is_enabled = self._config.delete_topic_enable
        watch = self._watches.of(znodes.DELETE_TOPICS)
        return await load_deletions(self._store, self._context, is_enabled=is_enabled, watch=watch)

    async def begin(self) -> None:
        """Begins the reassignments and elections."""
        await self._reassignments.start_requested(self._watches.of(znodes.REASSIGN_PARTITIONS))
        await self._elect()

    async def changed(self) -> None:
        """Begins what is new."""
        marked = [name for name in await self.topics_to_delete() if name not in self._context.deletions]
        if marked:
            await self._deletions.mark(marked)
        await self.begin()

    async def _elect(self) -> None:
        path = znodes.PREFERRED_ELECTION
        entry = await self._store.exists(path, self._watches.of(path))
        if entry is None:
            return
        try:
            await self._elections.elect(ElectionType.PREFERRED, znodes.parse_preferred_election(entry.data))
        except StoreDamaged as error:
            log.error("requested elections ignored", reason=str(error))
        try:
            await self._store.multi([Delete(path)])
        except MetadataStoreError as error:
            line = log.info if has_lost_connection(error) else log.error
            line("requested elections not deleted", reason=str(error))
