"""The table of metrics in `/metrics`: name, kind, documentation, labels, and reader of each.

Names and labels are those that the Prometheus JMX exporter's sample configuration for Kafka derives from Kafka's beans,
so that dashboards for Kafka work with this broker. Values are read on request; nothing is maintained in between.

A reader yields rows of (label values, value). It iterates over snapshots, because the event loop runs other tasks
between the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from odradek.broker.coordinator.group.classic.group import CLASSIC
from odradek.broker.coordinator.group.classic.state import GroupState
from odradek.broker.coordinator.group.consumer.group import CONSUMER
from odradek.broker.coordinator.group.consumer.state import ConsumerGroupState
from odradek.broker.coordinator.transaction.transaction_state import TransactionState
from odradek.broker.metadata_store.session_metrics import STATES, SessionMetrics
from odradek.broker.replica.partition.topic_stats import TopicStats
from odradek.broker.requests.request_metrics import error_name
from odradek.broker.security.authentication_counts import AuthenticationCounts

if TYPE_CHECKING:
    from odradek.broker.cleaning.log_cleaner import LogCleaner
    from odradek.broker.metrics.sources import MetricSources
    from odradek.broker.replica.partition.partition import Partition
    from odradek.broker.telemetry.client_telemetry import ClientTelemetry
    from odradek.purgatory import DelayedOperationPurgatory
    from odradek.storage.log.log import Log

COUNTER, GAUGE, SUMMARY = "counter", "gauge", "summary"
Row = tuple[Sequence[str], float]
Sample = tuple[str, dict[str, str], float]
"""A line of the text: its name, its labels, its value."""
Reader = Callable[["MetricSources"], Iterable[Row]]

TOTAL = "kafka_network_requestmetrics_totaltimems"
STORE_LATENCY = "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms"
"""The two families with more than one number per row: summaries. See `exposition.RecentTimes`."""
LATE_TRANSACTION_BUFFER_MS = 300_000


class Family(NamedTuple):
    """One metric. A counter's name omits the suffix `_total`."""

    name: str
    kind: str
    documentation: str
    labels: tuple[str, ...]
    read: Reader


def single(value: Callable[[MetricSources], float]) -> Reader:
    """Returns a reader of one row without labels."""
    return lambda sources: [((), value(sources))]


def by_topic(count: Callable[[TopicStats], int]) -> Reader:
    """Returns a reader of one row per topic, and one with an empty name for the total, including deleted topics."""

    def read(sources: MetricSources) -> list[Row]:
        stats = sources.replica_manager.topic_stats
        rows: list[Row] = [((name,), count(topic)) for name, topic in stats.by_topic.items()]
        return [(("",), count(stats.forgotten) + sum(value for _, value in rows)), *rows]

    return read


def by_partition(value: Callable[[Partition], float]) -> Reader:
    def read(sources: MetricSources) -> Iterable[Row]:
        for partition in sources.replica_manager.partitions:
            yield (partition.topic_partition.topic, str(partition.topic_partition.partition)), value(partition)

    return read


def by_purgatory(value: Callable[[DelayedOperationPurgatory], int]) -> Reader:
    def read(sources: MetricSources) -> list[Row]:
        manager, waits = sources.replica_manager, sources.group_coordinator.waits
        of_partitions = (manager.produce_purgatory, manager.fetch_purgatory, manager.delete_records_purgatory)
        purgatories = (*of_partitions, sources.topic_purgatory, sources.election_purgatory, *waits)
        return [((purgatory.name,), value(purgatory)) for purgatory in purgatories]

    return read


def requests(sources: MetricSources) -> list[Row]:
    return [((row.api, str(row.version)), row.requests) for row in list(sources.requests.requests.values())]


def request_errors(sources: MetricSources) -> list[Row]:
    found: Counter[tuple[str, str]] = Counter()
    for row in list(sources.requests.requests.values()):
        for code, count in list(row.errors.items()):
            found[(row.api, error_name(code))] += count
    return list(found.items())


def produce_expirations(sources: MetricSources) -> list[Row]:
    counted = sources.replica_manager.appends.expirations
    rows: list[Row] = [((key.topic, str(key.partition)), count) for key, count in counted.by_partition.items()]
    return [(("", ""), counted.total), *rows]


def fetch_expirations(sources: MetricSources) -> list[Row]:
    counted = sources.replica_manager.fetches.expirations
    return [(("consumer",), counted.consumer), (("follower",), counted.follower)]


def connections(sources: MetricSources) -> list[Row]:
    found = Counter({endpoint.name: 0 for endpoint in sources.endpoints})
    found.update(connection.info.listener.name for connection in list(sources.socket_server.connections))
    return [((name,), count) for name, count in found.items()]


def authentications(count: Callable[[AuthenticationCounts], int]) -> Reader:
    """Returns a reader of one row per listener."""
    return lambda sources: [((name,), count(counts)) for name, counts in sources.authentications.items()]


def expiry_times(sources: MetricSources) -> list[Row]:
    """Returns when the first certificate of each store of each listener expires, in seconds."""
    first: dict[tuple[str, str], int] = {}
    for each in sources.certificates.in_use() if sources.certificates is not None else ():
        labels, not_after_ms = (each.listener, each.store), each.certificate.not_after_ms
        first[labels] = min(first.get(labels, not_after_ms), not_after_ms)
    return [(labels, not_after_ms // 1000) for labels, not_after_ms in first.items()]


def leaders(sources: MetricSources) -> float:
    return sum(partition.is_leader for partition in sources.replica_manager.partitions)


def late_transactions(sources: MetricSources) -> float:
    """Counts led partitions with a transaction open for longer than `transaction.max.timeout.ms` plus five minutes for
    its marker.
    """
    before_ms = sources.late_transactions_before_ms() - LATE_TRANSACTION_BUFFER_MS
    return sum(
        partition.is_leader and partition.log.producers.state.has_late_transaction(before_ms)
        for partition in sources.replica_manager.partitions
    )


def groups_in(state: GroupState) -> Reader:
    """Counts the classic groups in this state."""
    return single(lambda sources: sources.group_coordinator.groups_by_state()[CLASSIC, state.label])


def groups_by_type(sources: MetricSources) -> list[Row]:
    found = Counter({CLASSIC: 0, CONSUMER: 0})
    for (group_type, _), count in sources.group_coordinator.groups_by_state().items():
        found[group_type] += count
    return [((group_type,), count) for group_type, count in found.items()]


def consumer_groups(sources: MetricSources) -> list[Row]:
    counts = sources.group_coordinator.groups_by_state()
    return [((state.label,), counts[CONSUMER, state.label]) for state in ConsumerGroupState]


def under_replicated(sources: MetricSources) -> float:
    return sum(partition.is_under_replicated for partition in sources.replica_manager.partitions)


def under_min_isr(sources: MetricSources) -> float:
    return sum(partition.is_under_min_isr for partition in sources.replica_manager.partitions)


def cleaning(value: Callable[[LogCleaner], float]) -> Reader:
    """Returns a reader of one row, which is 0 if the log cleaner is disabled."""
    return lambda sources: [((), value(sources.log_cleaner) if sources.log_cleaner is not None else 0)]


def uncleanable(value: Callable[[LogCleaner, Sequence[Log]], float]) -> Reader:
    """Returns a reader of one row per log directory."""

    def read(sources: MetricSources) -> list[Row]:
        cleaner = sources.log_cleaner
        if cleaner is None:
            return []
        return [((path,), value(cleaner, logs)) for path, logs in cleaner.manager.uncleanable().items()]

    return read


def store_session(value: Callable[[SessionMetrics], float]) -> Reader:
    """Returns a reader of one row; of none if the metadata store is within this process."""
    return lambda sources: [] if sources.store_session is None else [((), value(sources.store_session))]


def store_session_states(sources: MetricSources) -> list[Row]:
    session = sources.store_session
    return [] if session is None else [((state,), state == session.state) for state in STATES]


def of_telemetry(value: Callable[[ClientTelemetry], float]) -> Reader:
    """Returns a reader of one row; of none if clients push no metrics."""
    return lambda sources: [] if sources.telemetry is None else [((), value(sources.telemetry))]


def transactional_ids(sources: MetricSources) -> list[Row]:
    found = Counter(dict.fromkeys(TransactionState, 0))
    for shard in sources.transaction_coordinator.shards():
        found.update(transaction.state for transaction in list(shard.transactions.values()))
    return [((state.label,), count) for state, count in found.items()]


_TOPIC, _TOPIC_PARTITION, _NONE = ("topic",), ("topic", "partition"), ()

# fmt: off
FAMILIES = (
    Family("kafka_server_brokertopicmetrics_messagesin", COUNTER,
           "Records appended.",
           _TOPIC, by_topic(lambda t: t.messages_in)),
    Family("kafka_server_brokertopicmetrics_bytesin", COUNTER,
           "Bytes of record batches appended.",
           _TOPIC, by_topic(lambda t: t.bytes_in)),
    Family("kafka_server_brokertopicmetrics_bytesout", COUNTER,
           "Bytes of record batches sent to consumers.",
           _TOPIC, by_topic(lambda t: t.bytes_out)),
    Family("kafka_server_brokertopicmetrics_totalproducerequests", COUNTER,
           "Partitions written to, by request.",
           _TOPIC, by_topic(lambda t: t.produce_requests)),
    Family("kafka_server_brokertopicmetrics_totalfetchrequests", COUNTER,
           "Partitions read from, by request.",
           _TOPIC, by_topic(lambda t: t.fetch_requests)),
    Family("kafka_server_brokertopicmetrics_failedproducerequests", COUNTER,
           "Partitions whose append failed.",
           _TOPIC, by_topic(lambda t: t.failed_produce_requests)),
    Family("kafka_server_brokertopicmetrics_failedfetchrequests", COUNTER,
           "Partitions whose read failed.",
           _TOPIC, by_topic(lambda t: t.failed_fetch_requests)),
    Family("kafka_network_requestmetrics_requests", COUNTER,
           "Requests completed.",
           ("request", "version"), requests),
    Family("kafka_network_requestmetrics_errors", COUNTER,
           "Error codes in responses, item by item; NONE counts responses without errors.",
           ("request", "error"), request_errors),
    Family(TOTAL, SUMMARY,
           "Milliseconds from a request's arrival to its response; quantiles over the last one to two minutes.",
           ("request",), requests),
    Family("kafka_server_delayedoperationpurgatory_purgatorysize", GAUGE,
           "Entries in watcher lists, one per key, including completed ones that are not purged yet.",
           ("delayedOperation",), by_purgatory(lambda p: p.watched)),
    Family("kafka_server_delayedoperationpurgatory_numdelayedoperations", GAUGE,
           "Parked requests.",
           ("delayedOperation",), by_purgatory(lambda p: p.delayed)),
    Family("odradek_purgatory_completed", COUNTER,
           "Parked requests completed by an event.",
           ("delayedOperation",), by_purgatory(lambda p: p.completed)),
    Family("odradek_purgatory_expired", COUNTER,
           "Parked requests that timed out.",
           ("delayedOperation",), by_purgatory(lambda p: p.expired)),
    Family("kafka_server_delayedproducemetrics_expires", COUNTER,
           "Partitions of produce requests that timed out.",
           _TOPIC_PARTITION, produce_expirations),
    Family("kafka_server_delayedfetchmetrics_expires", COUNTER,
           "Fetch requests that timed out.",
           ("fetcherType",), fetch_expirations),
    Family("kafka_server_delayeddeleterecordsmetrics_expires", COUNTER,
           "Partitions of DeleteRecords requests that timed out.",
           _NONE, single(lambda s: s.replica_manager.deletions.expirations.total)),
    Family("kafka_log_log_size", GAUGE,
           "Bytes in the partition's segments.",
           _TOPIC_PARTITION, by_partition(lambda p: p.log.segments.size_in_bytes)),
    Family("kafka_log_log_numlogsegments", GAUGE,
           "Number of segments of the partition.",
           _TOPIC_PARTITION, by_partition(lambda p: len(p.log.segments))),
    Family("kafka_log_log_logstartoffset", GAUGE,
           "Log start offset.",
           _TOPIC_PARTITION, by_partition(lambda p: p.log.state.log_start_offset)),
    Family("kafka_log_log_logendoffset", GAUGE,
           "Log end offset: the offset of the next record.",
           _TOPIC_PARTITION, by_partition(lambda p: p.log.state.log_end_offset)),
    Family("kafka_log_logcleaner_cleaner_recopy_percent", GAUGE,
           "Bytes written by the last cleans, in percent of the bytes read.",
           _NONE, cleaning(lambda c: c.recopy_percent)),
    Family("kafka_log_logcleaner_max_buffer_utilization_percent", GAUGE,
           "Highest utilization of a key table in the cleaners' last cleans, in percent.",
           _NONE, cleaning(lambda c: c.max_buffer_utilization_percent)),
    Family("kafka_log_logcleaner_max_clean_time_secs", GAUGE,
           "Duration of the longest of the cleaners' last cleans, in seconds.",
           _NONE, cleaning(lambda c: c.max_clean_time_secs)),
    Family("kafka_log_logcleaner_max_compaction_delay_secs", GAUGE,
           "Longest time for which a log has been overdue by max.compaction.lag.ms, in seconds.",
           _NONE, cleaning(lambda c: c.manager.max_delay_ms // 1000)),
    Family("kafka_log_logcleaner_deadthreadcount", GAUGE,
           "Cleaners that have ended unexpectedly.",
           _NONE, cleaning(lambda c: c.dead)),
    Family("kafka_log_logcleanermanager_max_dirty_percent", GAUGE,
           "Dirty ratio of the dirtiest log, in percent.",
           _NONE, cleaning(lambda c: int(100 * c.manager.dirtiest_ratio))),
    Family("kafka_log_logcleanermanager_time_since_last_run_ms", GAUGE,
           "Milliseconds since a cleaner last looked for a log to clean.",
           _NONE, cleaning(lambda c: c.manager.ms_since_last_run)),
    Family("kafka_log_logcleanermanager_uncleanable_partitions_count", GAUGE,
           "Partitions whose log could not be cleaned.",
           ("logDirectory",), uncleanable(lambda c, logs: len(logs))),
    Family("kafka_log_logcleanermanager_uncleanable_bytes", GAUGE,
           "Bytes to clean in uncleanable partitions.",
           ("logDirectory",), uncleanable(lambda c, logs: sum(map(c.manager.uncleanable_bytes, logs)))),
    Family("kafka_server_replicamanager_partitioncount", GAUGE,
           "Partitions on this broker.",
           _NONE, single(lambda s: len(s.replica_manager.partitions))),
    Family("kafka_server_replicamanager_leadercount", GAUGE,
           "Partitions that this broker leads.",
           _NONE, single(leaders)),
    Family("kafka_server_replicamanager_underreplicatedpartitions", GAUGE,
           "Partitions led by this broker with replicas out of sync.",
           _NONE, single(under_replicated)),
    Family("kafka_server_replicamanager_underminisrpartitioncount", GAUGE,
           "Partitions led by this broker with fewer replicas in sync than min.insync.replicas.",
           _NONE, single(under_min_isr)),
    Family("kafka_server_replicamanager_isrshrinks", COUNTER,
           "Removals of lagging replicas from an ISR.",
           _NONE, single(lambda s: s.replica_manager.isr_stats.shrinks)),
    Family("kafka_server_replicamanager_isrexpands", COUNTER,
           "Additions of a replica to an ISR.",
           _NONE, single(lambda s: s.replica_manager.isr_stats.expands)),
    Family("kafka_server_replicamanager_failedisrupdates", COUNTER,
           "Changes of an ISR that the controller refused.",
           _NONE, single(lambda s: s.replica_manager.isr_stats.failed_updates)),
    Family("kafka_server_leaderreplication_byte_rate", GAUGE,
           "Bytes per second sent to followers of throttled leaders, over the last seconds; 0 without a limit.",
           _NONE, single(lambda s: s.replica_manager.leader_quota.byte_rate)),
    Family("kafka_server_followerreplication_byte_rate", GAUGE,
           "Bytes per second received by throttled followers, over the last seconds; 0 without a limit.",
           _NONE, single(lambda s: s.replica_manager.follower_quota.byte_rate)),
    Family("kafka_server_replicamanager_offlinereplicacount", GAUGE,
           "Partitions on this broker whose disk has failed.",
           _NONE, single(lambda s: len(s.replica_manager.partitions.offline))),
    Family("kafka_server_replicamanager_partitionswithlatetransactionscount", GAUGE,
           "Partitions led by this broker with a transaction open for longer than allowed: a hanging one (KIP-664).",
           _NONE, single(late_transactions)),
    Family("kafka_server_addpartitionstotxnmanager_verificationfailurerate", COUNTER,
           "Batches refused because they belonged to no open transaction (KIP-890).",
           _NONE, single(lambda s: s.replica_manager.verification.failures)),
    Family("kafka_server_fetchsessioncache_numincrementalfetchsessions", GAUGE,
           "Fetch sessions (KIP-227).",
           _NONE, single(lambda s: len(s.fetch_sessions))),
    Family("kafka_server_fetchsessioncache_numincrementalfetchpartitionscached", GAUGE,
           "Partitions in fetch sessions.",
           _NONE, single(lambda s: s.fetch_sessions.partitions)),
    Family("kafka_server_fetchsessioncache_incrementalfetchsessionevictions", COUNTER,
           "Fetch sessions evicted.",
           _NONE, single(lambda s: s.fetch_sessions.evictions)),
    Family("kafka_coordinator_group_groupmetadatamanager_numgroups", GAUGE,
           "Groups that this broker coordinates.",
           _NONE, single(lambda s: s.group_coordinator.groups_by_state().total())),
    Family("kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance", GAUGE,
           "Groups that wait for their members to rejoin.",
           _NONE, groups_in(GroupState.PREPARING_REBALANCE)),
    Family("kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance", GAUGE,
           "Groups that wait for their leader's assignment.",
           _NONE, groups_in(GroupState.COMPLETING_REBALANCE)),
    Family("kafka_coordinator_group_groupmetadatamanager_numgroupsstable", GAUGE,
           "Groups whose members have their assignments.",
           _NONE, groups_in(GroupState.STABLE)),
    Family("kafka_coordinator_group_groupmetadatamanager_numgroupsdead", GAUGE,
           "Groups in state Dead.",
           _NONE, groups_in(GroupState.DEAD)),
    Family("kafka_coordinator_group_groupmetadatamanager_numgroupsempty", GAUGE,
           "Groups without members.",
           _NONE, groups_in(GroupState.EMPTY)),
    Family("kafka_server_group_coordinator_metrics_group_count", GAUGE,
           "Groups that this broker coordinates, by the protocol of their type.",
           ("protocol",), groups_by_type),
    Family("kafka_server_group_coordinator_metrics_consumer_group_count", GAUGE,
           "Groups whose assignments the broker makes (KIP-848), by state.",
           ("state",), consumer_groups),
    Family("kafka_server_group_coordinator_metrics_consumer_group_rebalance", COUNTER,
           "Rebalances of groups whose assignments the broker makes: how often the epoch of such a group grew.",
           _NONE, single(lambda s: s.group_coordinator.consumer_metrics.rebalances)),
    Family("odradek_consumer_group_assignments", COUNTER,
           "Target assignments that were computed. Many rebalances within an interval need one.",
           _NONE, single(lambda s: s.group_coordinator.consumer_metrics.assignments)),
    Family("odradek_consumer_group_regex_resolutions", COUNTER,
           "Runs that resolved the regular expressions of a group.",
           _NONE, single(lambda s: s.group_coordinator.consumer_metrics.resolutions)),
    Family("kafka_server_group_coordinator_metrics_group_completed_rebalance", COUNTER,
           "Rebalances in which the leader sent an assignment.",
           _NONE, single(lambda s: s.group_coordinator.completed_rebalances)),
    Family("kafka_coordinator_group_groupmetadatamanager_numoffsets", GAUGE,
           "Offsets that groups have committed.",
           _NONE, single(lambda s: s.group_coordinator.offset_count)),
    Family("kafka_server_group_coordinator_metrics_offset_commit", COUNTER,
           "Offsets committed.",
           _NONE, single(lambda s: s.group_coordinator.offset_metrics.commits)),
    Family("kafka_server_group_coordinator_metrics_offset_expiration", COUNTER,
           "Committed offsets that have expired.",
           _NONE, single(lambda s: s.group_coordinator.offset_metrics.expirations)),
    Family("kafka_server_group_coordinator_metrics_offset_deletion", COUNTER,
           "Committed offsets deleted on request.",
           _NONE, single(lambda s: s.group_coordinator.offset_metrics.deletions)),
    Family("kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize", GAUGE,
           "Transaction markers for partitions without a reachable leader.",
           _NONE, single(lambda s: s.transaction_coordinator.markers.of_unknown_destination)),
    Family("kafka_coordinator_transaction_transactionmarkerchannelmanager_logappendretryqueuesize", GAUGE,
           "Transactions whose completion is to be appended again.",
           _NONE, single(lambda s: s.transaction_coordinator.completions_to_retry)),
    Family("odradek_transactions_being_completed", GAUGE,
           "Transactions whose markers are being written.",
           _NONE, single(lambda s: s.transaction_coordinator.markers.pending)),
    Family("odradek_transactional_ids", GAUGE,
           "Transactional ids that this broker coordinates.",
           ("state",), transactional_ids),
    Family("kafka_controller_kafkacontroller_activecontrollercount", GAUGE,
           "1 on the controller, 0 on the other brokers. The following numbers of the controller are 0 elsewhere.",
           _NONE, single(lambda s: s.controller.terms.numbers().active)),
    Family("kafka_controller_kafkacontroller_offlinepartitionscount", GAUGE,
           "Partitions without a leader.",
           _NONE, single(lambda s: s.controller.terms.numbers().offline_partitions)),
    Family("kafka_controller_kafkacontroller_preferredreplicaimbalancecount", GAUGE,
           "Partitions whose leader is not the preferred replica.",
           _NONE, single(lambda s: s.controller.terms.numbers().preferred_replica_imbalance)),
    Family("kafka_controller_kafkacontroller_globaltopiccount", GAUGE,
           "Topics.",
           _NONE, single(lambda s: s.controller.terms.numbers().topics)),
    Family("kafka_controller_kafkacontroller_globalpartitioncount", GAUGE,
           "Partitions.",
           _NONE, single(lambda s: s.controller.terms.numbers().partitions)),
    Family("kafka_controller_kafkacontroller_topicstodeletecount", GAUGE,
           "Topics whose deletion is not complete.",
           _NONE, single(lambda s: s.controller.terms.numbers().topics_to_delete)),
    Family("kafka_controller_kafkacontroller_activebrokercount", GAUGE,
           "Live brokers.",
           _NONE, single(lambda s: s.controller.terms.numbers().active_brokers)),
    Family("kafka_server_sessionexpirelistener_sessionstate", GAUGE,
           "1 for the state of the session with ZooKeeper, 0 for the other states.",
           ("state",), store_session_states),
    Family("kafka_server_sessionexpirelistener_zookeepersyncconnects", COUNTER,
           "Connections to ZooKeeper that began or continued a session.",
           _NONE, store_session(lambda s: s.connects)),
    Family("kafka_server_sessionexpirelistener_zookeeperdisconnects", COUNTER,
           "Connections to ZooKeeper that were lost.",
           _NONE, store_session(lambda s: s.disconnects)),
    Family("kafka_server_sessionexpirelistener_zookeeperexpires", COUNTER,
           "Sessions that ZooKeeper has ended.",
           _NONE, store_session(lambda s: s.expirations)),
    Family("kafka_server_sessionexpirelistener_zookeepersaslauthentications", COUNTER,
           "Logins to ZooKeeper that succeeded.",
           _NONE, store_session(lambda s: s.logins)),
    Family("kafka_server_sessionexpirelistener_zookeeperauthfailures", COUNTER,
           "Logins to ZooKeeper that failed.",
           _NONE, store_session(lambda s: s.failed_logins)),
    Family(STORE_LATENCY, SUMMARY,
           "Milliseconds from a request to ZooKeeper to its answer; quantiles over the last one to two minutes.",
           _NONE, store_session(lambda s: sum(s.times))),
    Family("kafka_server_socket_server_metrics_connection_count", GAUGE,
           "Open connections.",
           ("listener",), connections),
    Family("kafka_server_socket_server_metrics_connection_creation", COUNTER,
           "Connections accepted.",
           _NONE, single(lambda s: s.socket_server.counters.accepted)),
    Family("kafka_server_socket_server_metrics_connection_close", COUNTER,
           "Connections closed.",
           _NONE, single(lambda s: s.socket_server.counters.closed)),
    Family("kafka_server_socket_server_metrics_expired_connections_killed_count", GAUGE,
           "Connections closed after connections.max.idle.ms.",
           _NONE, single(lambda s: s.socket_server.counters.expired)),
    Family("kafka_server_socket_server_metrics_successful_authentication", COUNTER,
           "Connections that have authenticated: by a TLS handshake, or by SASL.",
           ("listener",), authentications(lambda c: c.successful)),
    Family("kafka_server_socket_server_metrics_failed_authentication", COUNTER,
           "Connections whose TLS handshake or login by SASL has failed.",
           ("listener",), authentications(lambda c: c.failed)),
    Family("kafka_server_socket_server_metrics_successful_reauthentication", COUNTER,
           "Logins by SASL that were renewed.",
           ("listener",), authentications(lambda c: c.successful_again)),
    Family("kafka_server_socket_server_metrics_failed_reauthentication", COUNTER,
           "Logins by SASL that were to be renewed, and have failed.",
           ("listener",), authentications(lambda c: c.failed_again)),
    Family("odradek_certificate_not_after_seconds", GAUGE,
           "When the first certificate of a store expires, as a Unix time.",
           ("listener", "store"), expiry_times),
    Family("kafka_server_socket_server_metrics_incoming_byte", COUNTER,
           "Bytes received from clients.",
           _NONE, single(lambda s: s.socket_server.counters.bytes_in)),
    Family("kafka_server_socket_server_metrics_outgoing_byte", COUNTER,
           "Bytes sent to clients.",
           _NONE, single(lambda s: s.socket_server.counters.bytes_out)),
    Family("kafka_server_client_metrics_instance_count", GAUGE,
           "Clients that may push metrics of their own.",
           _NONE, of_telemetry(lambda t: len(t.instances))),
    Family("kafka_server_client_metrics_plugin_export", COUNTER,
           "Pushes of clients' own metrics that were taken over.",
           _NONE, of_telemetry(lambda t: t.counts.exports)),
    Family("kafka_server_client_metrics_plugin_error", COUNTER,
           "Pushes of clients' own metrics that could not be decoded.",
           _NONE, of_telemetry(lambda t: t.counts.failed_exports)),
    Family("kafka_server_client_metrics_throttle", COUNTER,
           "Requests for and with clients' own metrics that came too early.",
           _NONE, of_telemetry(lambda t: t.counts.throttled)),
    Family("kafka_server_client_metrics_unknown_subscription_request", COUNTER,
           "Pushes of clients' own metrics for a subscription that has changed.",
           _NONE, of_telemetry(lambda t: t.counts.unknown_subscriptions)),
    Family("odradek_client_series", GAUGE,
           "Series of clients' own metrics.",
           _NONE, of_telemetry(lambda t: t.series.size)),
    Family("odradek_client_series_dropped", COUNTER,
           "Values that clients have pushed beyond the bounds, or of no use.",
           _NONE, of_telemetry(lambda t: t.series.dropped)),
    Family("odradek_connections_refused", COUNTER,
           "Connections closed on arrival: above max.connections or max.connections.per.ip.",
           _NONE, single(lambda s: s.socket_server.counters.refused)),
    Family("odradek_timer_tasks", GAUGE,
           "Tasks in the timing wheel.",
           _NONE, single(lambda s: s.timer.size)),
    Family("odradek_timer_wakeups", COUNTER,
           "Wake-ups of the timing wheel's reaper.",
           _NONE, single(lambda s: s.reaper.wakeups)),
)
# fmt: on
