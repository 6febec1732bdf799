"""The broker components that the metrics are read from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from odradek.broker.cleaning.log_cleaner import LogCleaner
from odradek.broker.controller.controller import Controller
from odradek.broker.coordinator.group.coordinator import GroupCoordinator
from odradek.broker.coordinator.transaction.coordinator import TransactionCoordinator
from odradek.broker.metadata.metadata_cache import MetadataCache
from odradek.broker.metadata_store.session_metrics import SessionMetrics
from odradek.broker.network.socket_server import SocketServer
from odradek.broker.replica.fetch.fetch_session_cache import FetchSessionCache
from odradek.broker.replica.follower.fetcher_manager import FetcherManager
from odradek.broker.replica.replica_manager import ReplicaManager
from odradek.broker.requests.endpoint import Endpoint
from odradek.broker.requests.request_metrics import BrokerMetrics
from odradek.broker.security.authentication_counts import AuthenticationCounts
from odradek.purgatory import DelayedOperationPurgatory
from odradek.timer import ExpirationReaper, SystemTimer

if TYPE_CHECKING:
    from odradek.broker.network.certificates import Certificates
    from odradek.broker.telemetry.client_telemetry import ClientTelemetry


class MetricSources(NamedTuple):
    """`late_transactions_before_ms()` returns the wall time before which no open transaction may have begun.

    `authentications` has those of each listener, by name. `log_cleaner` is None if log.cleaner.enable is false,
    `store_session` if the metadata store is within this process, `certificates` if no listener has TLS, `telemetry` if
    clients push no metrics.
    """

    requests: BrokerMetrics
    authentications: Mapping[str, AuthenticationCounts]
    certificates: Certificates | None
    endpoints: Sequence[Endpoint]
    socket_server: SocketServer
    metadata: MetadataCache
    replica_manager: ReplicaManager
    fetch_sessions: FetchSessionCache
    group_coordinator: GroupCoordinator
    transaction_coordinator: TransactionCoordinator
    controller: Controller
    store_session: SessionMetrics | None
    fetchers: FetcherManager
    topic_purgatory: DelayedOperationPurgatory
    election_purgatory: DelayedOperationPurgatory
    timer: SystemTimer
    reaper: ExpirationReaper
    log_cleaner: LogCleaner | None
    telemetry: ClientTelemetry | None
    late_transactions_before_ms: Callable[[], int]


class BrokerStatus(NamedTuple):
    """`state` is Kafka's broker state number. `sources` is None while the broker does not serve clients."""

    state: int
    broker_id: int
    sources: MetricSources | None
