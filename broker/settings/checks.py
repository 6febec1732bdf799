"""Checks of settings against each other, beyond the rule of each setting. Source: Kafka's `KafkaConfig` and
`LogConfig`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from odradek.broker.settings.values import ConfigError
from odradek.protocol.batch_header import Compression

Values = Mapping[str, Any]

CODECS = tuple(int(codec) for codec in Compression)


def check_broker_values(values: Values, topic_defaults: Values) -> None:
    """Raises ConfigError for broker settings that contradict each other. `topic_defaults`: the resulting defaults of
    topics.
    """
    for check in (_check_identity, _check_roles, _check_connections, _check_replication, _check_offsets_topic):
        check(values)
    if not values["log.dirs"]:
        raise ConfigError("log.dirs", "log.dirs and log.dir contain no directory")
    _check_durations(topic_defaults)
    check_topic_values(topic_defaults)


def check_topic_values(values: Values) -> None:
    """Raises ConfigError for topic settings that contradict each other."""
    least, most = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if least > most:
        raise ConfigError(
            "min.compaction.lag.ms", f"min.compaction.lag.ms={least} is above max.compaction.lag.ms={most}"
        )


def _check_identity(values: Values) -> None:
    broker_id, node_id, highest = values["broker.id"], values["node.id"], values["reserved.broker.max.id"]
    if node_id != broker_id:
        raise ConfigError("node.id", f"node.id={node_id} and broker.id={broker_id} must be the same")
    if values["process.roles"]:
        _require(broker_id >= 0, "node.id", "node.id must be set if process.roles is set")
    elif values["broker.id.generation.enable"]:
        _require(
            -1 <= broker_id <= highest,
            "broker.id",
            f"broker.id={broker_id} is not between -1 and reserved.broker.max.id={highest}",
        )
    else:
        _require(broker_id >= 0, "broker.id", f"broker.id={broker_id} is below 0 and broker.id.generation.enable=false")


def _check_roles(values: Values) -> None:
    roles = values["process.roles"]
    _require(
        not roles or "broker" in roles,
        "process.roles",
        "process.roles=controller: Odradek has no controller without a broker; remove the setting or add broker",
    )
    _require(len(set(roles)) == len(roles), "process.roles", "process.roles contains a role twice")
    _require(
        bool(roles) or not values["controller.listener.names"],
        "controller.listener.names",
        "controller.listener.names can be set only together with process.roles",
    )


def _check_connections(values: Values) -> None:
    queued, largest = values["queued.max.request.bytes"], values["socket.request.max.bytes"]
    _require(
        queued <= 0 or queued >= largest,
        "queued.max.request.bytes",
        f"queued.max.request.bytes={queued} is below socket.request.max.bytes={largest}",
    )
    _require(
        values["max.connections.per.ip"] != 0 or bool(values["max.connections.per.ip.overrides"]),
        "max.connections.per.ip",
        "max.connections.per.ip=0 requires max.connections.per.ip.overrides",
    )
    overrides = "max.connections.per.ip.overrides"
    for entry in filter(None, (part.strip() for part in values[overrides].split(","))):
        address, _, count = entry.rpartition(":")
        _require(bool(address) and count.isdecimal(), overrides, f"{overrides}: {entry} is not ADDRESS:COUNT")
    idle, delay = values["connections.max.idle.ms"], values["connection.failed.authentication.delay.ms"]
    _require(
        idle < 0 or delay < idle,
        "connections.max.idle.ms",
        f"connections.max.idle.ms={idle} is not above connection.failed.authentication.delay.ms={delay}",
    )


def _check_replication(values: Values) -> None:
    wait = values["replica.fetch.wait.max.ms"]
    for name in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):
        _require(wait <= values[name], name, f"{name}={values[name]} is below replica.fetch.wait.max.ms={wait}")
    memory, threads = values["log.cleaner.dedupe.buffer.size"], values["log.cleaner.threads"]
    _require(
        threads == 0 or memory // threads > 1024 * 1024,
        "log.cleaner.dedupe.buffer.size",
        f"log.cleaner.dedupe.buffer.size={memory} is not above 1 MiB for each of {threads} cleaner threads",
    )


def _check_offsets_topic(values: Values) -> None:
    acks, replicas = values["offsets.commit.required.acks"], values["offsets.topic.replication.factor"]
    _require(
        -1 <= acks <= replicas,
        "offsets.commit.required.acks",
        f"offsets.commit.required.acks={acks} is not between -1 and offsets.topic.replication.factor={replicas}",
    )
    codec = values["offsets.topic.compression.codec"]
    _require(
        codec in CODECS,
        "offsets.topic.compression.codec",
        f"offsets.topic.compression.codec={codec} is not one of {', '.join(map(str, CODECS))}",
    )


def _check_durations(topic_defaults: Values) -> None:
    checks: tuple[tuple[str, str, Callable[[int], bool], str], ...] = (
        ("segment.ms", "log.roll.ms", lambda ms: ms >= 1, "at least 1"),
        ("segment.jitter.ms", "log.roll.jitter.ms", lambda ms: ms >= 0, "at least 0"),
        ("retention.ms", "log.retention.ms", lambda ms: ms >= 1 or ms == -1, "-1 or at least 1"),
    )
    for topic_name, name, is_fine, wanted in checks:
        ms = topic_defaults[topic_name]
        _require(is_fine(ms), name, f"{name} (or one of its synonyms) is {ms} ms, which is not {wanted}")


def _require(holds: bool, name: str, message: str) -> None:
    if not holds:
        raise ConfigError(name, message)
