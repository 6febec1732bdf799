"""The handlers of a broker, each with the components that it uses. The API table selects them by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.broker.background.background import Background
from odradek.broker.cluster.links import ClusterLinks
from odradek.broker.cluster.member import ClusterMember
from odradek.broker.cluster.stored_quotas import StoredQuotas
from odradek.broker.coordinator.coordinators import Coordinators
from odradek.broker.coordinator.group.offsets.zookeeper import ZooKeeperOffsets
from odradek.broker.features.finalized import FinalizedFeatures
from odradek.broker.handlers.access import DecidedAccess, access_by
from odradek.broker.handlers.add_partitions import AddPartitionsHandler
from odradek.broker.handlers.api_versions import ApiVersionsHandler, ServedApi
from odradek.broker.handlers.audit_log import AuditLog
from odradek.broker.handlers.client_quotas import DescribeClientQuotasHandler
from odradek.broker.handlers.cluster import DescribeClusterHandler
from odradek.broker.handlers.cluster_changes import ClusterChangeHandlers
from odradek.broker.handlers.config_listing import ListConfigResourcesHandler
from odradek.broker.handlers.configs import AlterConfigsHandlers
from odradek.broker.handlers.consumer_groups import ConsumerGroupHandlers
from odradek.broker.handlers.coordinators import FindCoordinatorHandler
from odradek.broker.handlers.create_topics import CreateTopicsHandler
from odradek.broker.handlers.current_leaders import CurrentLeaders
from odradek.broker.handlers.delete_records import DeleteRecordsHandler
from odradek.broker.handlers.describe_configs import DescribeConfigsHandler
from odradek.broker.handlers.elections import ElectLeadersHandler
from odradek.broker.handlers.features import UpdateFeaturesHandler
from odradek.broker.handlers.fetch import FetchHandler
from odradek.broker.handlers.group_admin import GroupAdminHandlers
from odradek.broker.handlers.groups import GroupHandlers
from odradek.broker.handlers.list_offsets import ListOffsetsHandler, OffsetForLeaderEpochHandler
from odradek.broker.handlers.log_dirs import LogDirHandlers
from odradek.broker.handlers.metadata import MetadataHandler
from odradek.broker.handlers.offset_fetch import OffsetFetchHandler
from odradek.broker.handlers.offsets import OffsetHandlers
from odradek.broker.handlers.produce import ProduceHandler, older_produce_codes
from odradek.broker.handlers.producers import DescribeProducersHandler
from odradek.broker.handlers.reassignments import ReassignmentHandlers
from odradek.broker.handlers.scram import ScramHandlers
from odradek.broker.handlers.topic_partitions import DescribeTopicPartitionsHandler
from odradek.broker.handlers.topics import TopicHandlers
from odradek.broker.handlers.transaction_outcomes import Retries
from odradek.broker.handlers.transactions import TransactionHandlers
from odradek.broker.handlers.unprotected import NoAclHandlers, NoSaslHandlers
from odradek.broker.metadata.administration import Administration
from odradek.broker.metadata.metadata_cache import MetadataCache
from odradek.broker.replica.fetch.fetch_session_cache import FetchSessionCache
from odradek.broker.replica.replica_manager import ReplicaManager
from odradek.broker.requests.request_bound import RequestBound
from odradek.broker.security.authorizer.authorizer import Authorizer
from odradek.broker.settings.config import BrokerConfig
from odradek.broker.settings.config_changes import ReloadedCertificates
from odradek.broker.settings.odradek import is_before
from odradek.timer import Clock, SystemTimer

if TYPE_CHECKING:
    from odradek.broker.cluster.stored_acls import StoredAcls
    from odradek.broker.handlers.acls import AclHandlers
    from odradek.broker.handlers.authorized_fetch import AuthorizedFetchHandler
    from odradek.broker.handlers.authorized_produce import AuthorizedProduceHandler
    from odradek.broker.handlers.telemetry import TelemetryHandlers
    from odradek.broker.telemetry.client_telemetry import ClientTelemetry


class Handlers:
    """Created once per broker. `apis` is what ApiVersions lists; `broker_listeners`: see `Dispatcher`.
    `authorizer`: None if every client may do everything. `telemetry`: None if clients push no metrics.
    """

    telemetry: TelemetryHandlers
    """Only if the table has its APIs."""

    def __init__(
        self,
        apis: Sequence[ServedApi],
        *,
        config: BrokerConfig,
        clock: Clock,
        timer: SystemTimer,
        background: Background,
        metadata: MetadataCache,
        links: ClusterLinks,
        cluster: ClusterMember,
        features: FinalizedFeatures,
        replica_manager: ReplicaManager,
        fetch_sessions: FetchSessionCache,
        coordinators: Coordinators,
        certificates: ReloadedCertificates,
        broker_listeners: frozenset[str],
        bound: RequestBound,
        authorizer: Authorizer | None,
        telemetry: ClientTelemetry | None,
    ) -> None:
        groups, internal_topics = coordinators.groups, coordinators.internal_topics
        spawn, turns = background.spawn, background.turns
        max_response_bytes = config.odradek_max_response_bytes
        zookeeper_offsets = ZooKeeperOffsets(links.store)
        verification, partitions = replica_manager.verification, replica_manager.partitions

        self.topic_name = metadata.topic_name
        release = config.odradek_as_version

        access = self.access = access_by(authorizer, AuditLog(clock))

        leaders = CurrentLeaders(partitions, metadata)
        appends, large_appends = replica_manager.appends, replica_manager.large_appends
        retries = Retries(
            clock,
            timer.call_later,
            config.add_partitions_to_txn_retry_backoff_ms,
            min(config.add_partitions_to_txn_retry_backoff_max_ms, config.request_timeout_ms),
        )
        produce = ProduceHandler(
            appends, large_appends, verification, metadata, leaders, spawn, retries, older_produce_codes(release)
        )
        fetch = FetchHandler(replica_manager.fetches, fetch_sessions, leaders, bound, config.fetch_max_bytes)
        self.produce: ProduceHandler | AuthorizedProduceHandler = produce
        self.fetch: FetchHandler | AuthorizedFetchHandler = fetch
        if isinstance(access, DecidedAccess):
            from odradek.broker.handlers.authorized_fetch import AuthorizedFetchHandler
            from odradek.broker.handlers.authorized_produce import AuthorizedProduceHandler

            self.produce = AuthorizedProduceHandler(produce, access, background)
            self.fetch = AuthorizedFetchHandler(fetch, metadata, access, background)
        self.list_offsets = ListOffsetsHandler(partitions, clock, max_response_bytes)
        self.offset_for_leader_epoch = OffsetForLeaderEpochHandler(partitions)
        self.delete_records = DeleteRecordsHandler(replica_manager.deletions)
        self.producers = DescribeProducersHandler(partitions, access, max_response_bytes)
        self.log_dirs = LogDirHandlers(replica_manager.log_dirs, replica_manager.log_dir_moves)

        self.api_versions = ApiVersionsHandler(
            apis, broker_listeners, metadata, features, has_features=not is_before(release, "2.7")
        )
        self.metadata = MetadataHandler(
            metadata, config, links.active_controller, internal_topics, access, spawn, turns
        )
        self.cluster = DescribeClusterHandler(metadata, access)
        administration: Administration = links.controller
        self.administration = administration
        self.topics = TopicHandlers(administration.topics, metadata, config, access, turns)
        self.create_topics = CreateTopicsHandler(
            administration, access, turns, has_default_counts=not is_before(release, "2.4")
        )
        self.elections = ElectLeadersHandler(administration.replicas, metadata)
        self.reassignments = ReassignmentHandlers(administration.replicas)
        self.features = UpdateFeaturesHandler(administration.features)
        self.cluster_changes = ClusterChangeHandlers(cluster.changes, administration)
        self.topic_partitions = DescribeTopicPartitionsHandler(metadata, config, access)
        self.describe_configs = DescribeConfigsHandler(config, metadata)
        self.config_listing = ListConfigResourcesHandler(metadata)
        self.alter_configs = AlterConfigsHandlers(
            cluster.configs, config, certificates, metadata.broker_id, access, turns
        )
        if telemetry is not None:
            from odradek.broker.handlers.telemetry import TelemetryHandlers

            self.telemetry = TelemetryHandlers(telemetry, turns)
        self.sasl = _sasl_handlers(config)
        self.scram = ScramHandlers(cluster.configs)
        self.acls = _acl_handlers(cluster.acls)
        self.client_quotas = DescribeClientQuotasHandler(StoredQuotas(links.store), max_response_bytes)

        self.coordinators = FindCoordinatorHandler(
            internal_topics,
            {runtime.settings.topic: runtime for runtime in coordinators.runtimes},
            metadata,
            partitions,
            access,
            has_texts=not is_before(release, "2.3"),
        )
        self.groups = GroupHandlers(groups, access)
        self.consumer_groups = ConsumerGroupHandlers(groups, access, config, max_response_bytes)
        self.group_admin = GroupAdminHandlers(groups, access, max_response_bytes)
        self.offsets = OffsetHandlers(groups, metadata, config, clock, verification, zookeeper_offsets, spawn)
        self.offset_fetch = OffsetFetchHandler(groups, metadata, zookeeper_offsets, spawn, access, max_response_bytes)
        self.add_partitions = AddPartitionsHandler(coordinators.transactions, metadata, access)
        self.transactions = TransactionHandlers(
            coordinators.transactions, groups.runtime, coordinators.new_producer_id, access, max_response_bytes
        )


def _acl_handlers(stored: StoredAcls | None) -> AclHandlers | NoAclHandlers:
    if stored is None:
        return NoAclHandlers()
    from odradek.broker.handlers.acls import AclHandlers

    return AclHandlers(stored)


def _sasl_handlers(config: BrokerConfig) -> NoSaslHandlers:
    if not config.sasl_listeners():
        return NoSaslHandlers()
    from odradek.broker.handlers.authenticating import SaslHandlers

    return SaslHandlers()
