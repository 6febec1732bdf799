"""Checks of settings against each other, beyond the rule of each setting. Source: Kafka's `KafkaConfig` and
`LogConfig`.
"""

from __future__ import annotations

from odradek.broker.settings import BrokerSettings, ConfigError, TopicSettings
from odradek.broker.settings.zookeeper_checks import check_zookeeper
from odradek.protocol.batch_header import Compression

CODECS = tuple(int(codec) for codec in Compression)


def check_broker_values(values: BrokerSettings, topic_defaults: TopicSettings) -> None:
    """Raises ConfigError for broker settings that contradict each other. `topic_defaults`: the resulting defaults of
    topics.
    """
    for check in (
        _check_identity,
        _check_roles,
        check_zookeeper,
        _check_connections,
        _check_replication,
        _check_offsets_topic,
    ):
        check(values)
    if not values.log_dirs:
        raise ConfigError("log.dirs", "log.dirs and log.dir contain no directory")
    _check_durations(topic_defaults)
    check_topic_values(topic_defaults)


def check_topic_values(values: TopicSettings) -> None:
    """Raises ConfigError for topic settings that contradict each other."""
    least, most = values.min_compaction_lag_ms, values.max_compaction_lag_ms
    if least > most:
        raise ConfigError(
            "min.compaction.lag.ms", f"min.compaction.lag.ms={least} is above max.compaction.lag.ms={most}"
        )


def _check_identity(values: BrokerSettings) -> None:
    broker_id, node_id, highest = values.broker_id, values.node_id, values.reserved_broker_max_id
    if node_id != broker_id:
        raise ConfigError("node.id", f"node.id={node_id} and broker.id={broker_id} must be the same")
    if values.process_roles:
        _require(broker_id >= 0, "node.id", "node.id must be set if process.roles is set")
    elif values.broker_id_generation_enable:
        _require(
            -1 <= broker_id <= highest,
            "broker.id",
            f"broker.id={broker_id} is not between -1 and reserved.broker.max.id={highest}",
        )
    else:
        _require(broker_id >= 0, "broker.id", f"broker.id={broker_id} is below 0 and broker.id.generation.enable=false")


def _check_roles(values: BrokerSettings) -> None:
    roles = values.process_roles
    _require(
        not roles or "broker" in roles,
        "process.roles",
        "process.roles=controller: Odradek has no controller without a broker; remove the setting or add broker",
    )
    _require(len(set(roles)) == len(roles), "process.roles", "process.roles contains a role twice")
    _require(
        bool(roles) or not values.controller_listener_names,
        "controller.listener.names",
        "controller.listener.names can be set only together with process.roles",
    )


def _check_connections(values: BrokerSettings) -> None:
    queued, largest = values.queued_max_request_bytes, values.socket_request_max_bytes
    _require(
        queued <= 0 or queued >= largest,
        "queued.max.request.bytes",
        f"queued.max.request.bytes={queued} is below socket.request.max.bytes={largest}",
    )
    _require(
        values.max_connections_per_ip != 0 or bool(values.max_connections_per_ip_overrides),
        "max.connections.per.ip",
        "max.connections.per.ip=0 requires max.connections.per.ip.overrides",
    )
    overrides = "max.connections.per.ip.overrides"
    for entry in filter(None, (part.strip() for part in values.max_connections_per_ip_overrides.split(","))):
        address, _, count = entry.rpartition(":")
        _require(bool(address) and count.isdecimal(), overrides, f"{overrides}: {entry} is not ADDRESS:COUNT")
    idle, delay = values.connections_max_idle_ms, values.connection_failed_authentication_delay_ms
    _require(
        idle < 0 or delay < idle,
        "connections.max.idle.ms",
        f"connections.max.idle.ms={idle} is not above connection.failed.authentication.delay.ms={delay}",
    )


def _check_replication(values: BrokerSettings) -> None:
    wait = values.replica_fetch_wait_max_ms
    for setting in (BrokerSettings.replica_socket_timeout_ms, BrokerSettings.replica_lag_time_max_ms):
        longest = setting.of(values)
        _require(wait <= longest, setting.name, f"{setting.name}={longest} is below replica.fetch.wait.max.ms={wait}")
    memory, threads = values.log_cleaner_dedupe_buffer_size, values.log_cleaner_threads
    _require(
        threads == 0 or memory // threads > 1024 * 1024,
        "log.cleaner.dedupe.buffer.size",
        f"log.cleaner.dedupe.buffer.size={memory} is not above 1 MiB for each of {threads} cleaner threads",
    )


def _check_offsets_topic(values: BrokerSettings) -> None:
    acks, replicas = values.offsets_commit_required_acks, values.offsets_topic_replication_factor
    _require(
        -1 <= acks <= replicas,
        "offsets.commit.required.acks",
        f"offsets.commit.required.acks={acks} is not between -1 and offsets.topic.replication.factor={replicas}",
    )
    codec = values.offsets_topic_compression_codec
    _require(
        codec in CODECS,
        "offsets.topic.compression.codec",
        f"offsets.topic.compression.codec={codec} is not one of {', '.join(map(str, CODECS))}",
    )


def _check_durations(topic_defaults: TopicSettings) -> None:
    roll, jitter, retention = topic_defaults.segment_ms, topic_defaults.segment_jitter_ms, topic_defaults.retention_ms
    for name, ms, is_fine, wanted in (
        ("log.roll.ms", roll, roll >= 1, "at least 1"),
        ("log.roll.jitter.ms", jitter, jitter >= 0, "at least 0"),
        ("log.retention.ms", retention, retention >= 1 or retention == -1, "-1 or at least 1"),
    ):
        _require(is_fine, name, f"{name} (or one of its synonyms) is {ms} ms, which is not {wanted}")


def _require(holds: bool, name: str, message: str) -> None:
    if not holds:
        raise ConfigError(name, message)
