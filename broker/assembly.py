"""The parts of a broker, and how each is made from those before it.

Some parts need nothing but the settings (`begin_with`), others the broker's id and the id of its cluster (`assemble`).
Nothing is global: the `Broker` of server.py owns all parts, starts them and stops them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from random import Random
from typing import TYPE_CHECKING

from odradek.broker.background.background import Background
from odradek.broker.broker_security import BrokerSecurity
from odradek.broker.cluster.links import ClusterLinks
from odradek.broker.cluster.member import ClusterMember
from odradek.broker.controller.controller import Controller
from odradek.broker.coordinator.coordinators import Coordinators
from odradek.broker.features.features import first_levels, of_release
from odradek.broker.features.finalized import FinalizedFeatures
from odradek.broker.handlers.access import brokers_by
from odradek.broker.handlers.api_row import ApiTable
from odradek.broker.handlers.api_table import api_table
from odradek.broker.handlers.dispatcher import Dispatcher
from odradek.broker.handlers.handlers import Handlers
from odradek.broker.logging.client_warnings import ClientWarnings
from odradek.broker.metadata.metadata_cache import MetadataCache
from odradek.broker.metadata_store.interface import MetadataStore
from odradek.broker.network.connection_limits import ConnectionLimits
from odradek.broker.network.rounds import Dispatch
from odradek.broker.network.socket_server import SocketServer
from odradek.broker.periodic_work import PeriodicWork
from odradek.broker.replica.fetch.fetch_session_cache import FetchSessionCache
from odradek.broker.replica.replica_manager import LiveSettings, ReplicaManager, ReplicaSettings
from odradek.broker.requests.endpoint import Endpoint
from odradek.broker.requests.request_bound import RequestBound
from odradek.broker.requests.request_metrics import BrokerMetrics
from odradek.broker.security.authentication_counts import AuthenticationCounts
from odradek.broker.settings.config import BrokerConfig
from odradek.broker.settings.config_changes import NoCertificates
from odradek.broker.settings.odradek import is_before
from odradek.broker.start_error import StartError
from odradek.purgatory import CompletionQueue
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.files import Files
from odradek.timer import Clock, ExpirationReaper, SystemTimer

if TYPE_CHECKING:
    from odradek.broker.cleaning.log_cleaner import LogCleaner
    from odradek.broker.metrics.routes import MetricsRoutes
    from odradek.broker.metrics.sources import BrokerStatus, MetricSources
    from odradek.broker.telemetry.client_telemetry import ClientTelemetry
    from odradek.clients.network_client import Connect

FIRST_RELEASE_WITH_TELEMETRY = "4.0"


class Assembly:
    """Parts without a value here are made when the broker starts."""

    log_manager: LogManager
    metadata: MetadataCache
    metadata_store: MetadataStore
    broker_security: BrokerSecurity
    links: ClusterLinks
    cluster: ClusterMember
    features: FinalizedFeatures
    replica_manager: ReplicaManager
    controller: Controller
    coordinators: Coordinators
    periodic_work: PeriodicWork
    fetch_sessions: FetchSessionCache
    socket_server: SocketServer
    completions: CompletionQueue

    def __init__(self, clock: Clock, random: Random, files: Files, connect: Connect | None, open_files: int) -> None:
        """See `Broker`."""
        self.clock = clock
        self.random = random
        self.files = files
        self.connect = connect
        self.open_files = open_files

    def begin_with(self, config: BrokerConfig) -> None:
        """Makes the parts of one start that need nothing but its settings. Raises ConfigError."""
        self.config = config
        self.broker_id = config.broker_id
        self.api_table = _apis_of(config.odradek_as_version)
        if config.odradek_client_metrics_enable:
            self.api_table = _apis_with_telemetry(config.odradek_as_version)
        self.first_features = first_levels(config.odradek_as_version, config.odradek_initial_features)
        self.background = Background()
        self.timer: SystemTimer = SystemTimer(self.clock, config.odradek_timer_tick_ms, config.odradek_timer_wheel_size)
        self.client_warnings = ClientWarnings(self.clock)
        self.metrics = BrokerMetrics()
        self.endpoints: list[Endpoint] = []
        self.authentications = {listener.name: AuthenticationCounts() for listener in config.listeners}
        self.log_cleaner: LogCleaner | None = None
        self.reaper: ExpirationReaper = ExpirationReaper(self.timer)

    def new_broker_security(self) -> BrokerSecurity:
        """Raises ConfigError."""
        return BrokerSecurity(self.config, self.files, self.random, self.connect, self.authentications)

    def new_metrics_routes(self, status: Callable[[], BrokerStatus]) -> MetricsRoutes:
        """Returns what the metrics port serves: the metrics, and the console if it is enabled."""
        from odradek.broker.metrics.exposition import Exposition
        from odradek.broker.metrics.routes import MetricsRoutes

        config = self.config
        pages = None
        if config.odradek_console_enable:
            from odradek.broker.console.console import Console

            pages = Console(status, config, self.background.turns).answer
        allowed = (config.odradek_metrics_host, *config.odradek_metrics_allowed_hosts)
        return MetricsRoutes(status, Exposition(self.clock, self.metrics), pages, allowed)

    def new_log_manager(self) -> LogManager:
        """Returns the manager of the log directories, which are not locked yet."""
        config = self.config
        return LogManager(
            config.log_dirs,
            self.files,
            self.clock,
            random_source=self.random,
            default_config=config.log_config(),
            producer_id_expiration_ms=config.producer_id_expiration_ms,
            max_decompressed_bytes=config.odradek_max_decompressed_batch_bytes,
            max_tail_bytes=config.odradek_log_tail_bytes,
        )

    def assemble(self, cluster_id: str, wrapped: Callable[[Dispatch], Dispatch]) -> None:
        """Each part is made whole from those before it. The ways to the cluster come first, then the partitions, the
        coordinators over them, and what the controller asks of this broker. `wrapped` returns what is called in place
        of the dispatch.
        """
        self.completions = CompletionQueue(asyncio.get_running_loop().call_soon)
        self.metadata = MetadataCache(cluster_id, self.broker_id)
        self.features = FinalizedFeatures(of_release(self.config.odradek_as_version))
        self.links = self._new_links()
        self.controller = self.links.controller
        self.replica_manager = self._new_replica_manager()
        self.coordinators = self._new_coordinators()
        self.cluster = ClusterMember(
            self.config,
            self.links,
            metadata=self.metadata,
            replica_manager=self.replica_manager,
            clock=self.clock,
            background=self.background,
            listener=self.coordinators.groups,
            features=self.features,
            authorizer=self.broker_security.authorizer,
        )
        self.fetch_sessions = FetchSessionCache(
            self.config.max_incremental_fetch_session_cache_slots, self.clock, self.random
        )
        self.telemetry = self._new_telemetry()
        self.socket_server = self._new_socket_server(wrapped)
        self.periodic_work = self._new_periodic_work()

    def _new_links(self) -> ClusterLinks:
        return ClusterLinks(
            self.config,
            self.metadata_store,
            metadata=self.metadata,
            features=self.features,
            first_features=self.first_features,
            clock=self.clock,
            timer=self.timer,
            random=self.random,
            completions=self.completions,
            background=self.background,
            connect=self.broker_security.connect_to_brokers() if self.metadata_store.is_shared else self.connect,
        )

    def _new_replica_manager(self) -> ReplicaManager:
        config = self.config
        return ReplicaManager(
            ReplicaSettings.from_config(config)._replace(broker_id=self.broker_id),
            log_manager=self.log_manager,
            clock=self.clock,
            timer=self.timer,
            completions=self.completions,
            background=self.background,
            cluster=self.links.for_replicas(),
            live=LiveSettings(
                verifies_transactions=lambda: config.transaction_partition_verification_enable,
                move_bytes_per_second=lambda: config.dynamic_only.replica_alter_log_dirs_io_max_bytes_per_second,
            ),
        )

    def _new_coordinators(self) -> Coordinators:
        replicas = self.replica_manager
        return Coordinators(
            self.config,
            clock=self.clock,
            timer=self.timer,
            random=self.random,
            completions=self.completions,
            background=self.background,
            soon=asyncio.get_running_loop().call_soon,
            metadata=self.metadata,
            active_controller=self.links.active_controller,
            partitions=replicas.partitions,
            appends=replicas.appends,
            markers=replicas.markers,
            leaderships=replicas.leaderships,
            verification=replicas.verification,
            peers=self.links.peers,
            levels=self.features.levels,
        )

    def _new_telemetry(self) -> ClientTelemetry | None:
        """Returns the clients' own metrics, None if they are disabled. Raises StartError without their package."""
        config = self.config
        if not config.odradek_client_metrics_enable:
            return None
        try:
            from odradek.broker.telemetry.client_telemetry import ClientTelemetry
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("google", "opentelemetry"):
                raise
            raise StartError(
                "odradek.client.metrics.enable needs a package that is missing: pip install 'odradek[telemetry]'"
            ) from error
        return ClientTelemetry(
            self.metadata,
            self.timer,
            self.random,
            self.background.turns,
            most_bytes=config.telemetry_max_bytes,
            most_series=config.odradek_client_metrics_max_series,
        )

    def _new_socket_server(self, wrapped: Callable[[Dispatch], Dispatch]) -> SocketServer:
        dispatch = wrapped(self._dispatcher().dispatch)
        return SocketServer(
            clock=self.clock,
            dispatch=dispatch,
            drain_completions=self.completions.drain,
            run_in_thread=self.background.run_in_thread,
            limits=ConnectionLimits.from_config(self.config, self.open_files),
            client_warnings=self.client_warnings,
            tls={} if self.broker_security.certificates is None else self.broker_security.certificates.listeners,
            admit=self.broker_security.authentication(self.cluster.configs.users.by_user, dispatch),
            ended=None if self.telemetry is None else self.telemetry.disconnected,
        )

    def _new_periodic_work(self) -> PeriodicWork:
        return PeriodicWork(
            self.config,
            self.clock,
            self.background,
            self.socket_server,
            self.log_manager,
            self.replica_manager,
            self.coordinators,
            self.cluster,
            self.controller,
            self.broker_security.certificates,
        )

    def _dispatcher(self) -> Dispatcher:
        """If the metadata store is not shared, there are no other brokers, and nobody may send what they would."""
        broker_listeners = self.config.broker_listeners if self.metadata_store.is_shared else frozenset()
        is_broker = brokers_by(self.broker_security.authorizer, broker_listeners)
        bound = RequestBound(is_broker, self.replica_manager.partitions.__len__)
        handlers = Handlers(
            self.api_table.rows(),
            config=self.config,
            clock=self.clock,
            timer=self.timer,
            background=self.background,
            metadata=self.metadata,
            links=self.links,
            cluster=self.cluster,
            features=self.features,
            replica_manager=self.replica_manager,
            fetch_sessions=self.fetch_sessions,
            coordinators=self.coordinators,
            certificates=self.broker_security.certificates or NoCertificates(),
            broker_listeners=broker_listeners,
            bound=bound,
            authorizer=self.broker_security.authorizer,
            telemetry=self.telemetry,
        )
        return Dispatcher(
            self.api_table,
            handlers,
            clock=self.clock,
            background=self.background,
            metrics=self.metrics,
            client_warnings=self.client_warnings,
            max_response_bytes=self.config.odradek_max_response_bytes,
            broker_listeners=broker_listeners,
            bound=bound,
        )

    def metric_sources(self) -> MetricSources:
        """Returns the sources of the metrics, once the broker has started."""
        from odradek.broker.metrics.sources import MetricSources

        return MetricSources(
            requests=self.metrics,
            authentications=self.authentications,
            certificates=self.broker_security.certificates,
            endpoints=self.endpoints,
            socket_server=self.socket_server,
            metadata=self.metadata,
            replica_manager=self.replica_manager,
            fetch_sessions=self.fetch_sessions,
            group_coordinator=self.coordinators.groups,
            transaction_coordinator=self.coordinators.transactions,
            topic_purgatory=self.links.waits.topics,
            election_purgatory=self.links.waits.elections,
            controller=self.controller,
            store_session=self.metadata_store.session_metrics,
            fetchers=self.cluster.fetchers,
            timer=self.timer,
            reaper=self.reaper,
            log_cleaner=self.log_cleaner,
            telemetry=self.telemetry,
            late_transactions_before_ms=lambda: self.clock.wall_ms() - self.coordinators.longest_transaction_ms(),
        )


@cache
def _apis_of(release: str | None) -> ApiTable:
    """All brokers of a process share the tables: they are not changed, and depend on the release alone."""
    if release is None:
        return api_table()
    from odradek.broker.handlers.releases import table_of

    return table_of(release, api_table())


@cache
def _apis_with_telemetry(release: str | None) -> ApiTable:
    """Returns the table with the APIs by which clients push their metrics, if the release has them."""
    table = _apis_of(release)
    if is_before(release, FIRST_RELEASE_WITH_TELEMETRY):
        return table
    from odradek.broker.handlers.telemetry_apis import with_telemetry

    return with_telemetry(table)
