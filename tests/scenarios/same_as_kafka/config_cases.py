"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs."""

from __future__ import annotations

import time
from typing import Any

from odradek.protocol.api_keys import ApiKey
from tests.scenarios.same_as_kafka.case import Cases
from tests.scenarios.same_as_kafka.peer import Peer

CASES = Cases()
DESCRIBE, REPLACE, CHANGE = range(5), range(3), range(2)
TOPIC, BROKER, LOGGER = 2, 4, 8
SET, REMOVE, APPEND, SUBTRACT = range(4)
OURS = "odradek."


def resource(kind: int, name: str, *keys: str) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys) or None}


def describe(b: Peer, *resources: dict[str, Any], version: int | None = None, **more: Any) -> None:
    """Describes settings, without those that only one of the brokers has."""
    answer = b.ask(ApiKey.DESCRIBE_CONFIGS, {"resources": list(resources), **more}, version, is_noted=False)
    for result in answer.get("Results", ()):
        result["Configs"] = [config for config in result["Configs"] if not config["Name"].startswith(OURS)]
    b.note("DESCRIBE_CONFIGS", answer)


def replace(
    b: Peer, kind: int, name: str, *configs: tuple[str, str | None], validate_only: bool = False, about: str = ""
) -> None:
    items = [{"name": key, "value": value} for key, value in configs]
    entry = {"resource_type": kind, "resource_name": name, "configs": items}
    b.ask(ApiKey.ALTER_CONFIGS, {"resources": [entry], "validate_only": validate_only}, about=about)


def changed(kind: int, name: str, *configs: tuple[str, int, str | None]) -> dict[str, Any]:
    items = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in configs]
    return {"resource_type": kind, "resource_name": name, "configs": items}


def change(b: Peer, *resources: dict[str, Any], validate_only: bool = False, about: str = "") -> None:
    document = {"resources": list(resources), "validate_only": validate_only}
    b.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, document, about=about)


@CASES.of(DESCRIBE)
def settings_of_a_topic(b: Peer) -> None:
    topic = b.create("t", 1, retention_ms="5", cleanup_policy="compact")
    for synonyms, documentation in ((False, False), (True, True)):
        describe(b, resource(TOPIC, topic), include_synonyms=synonyms, include_documentation=documentation)
    describe(b, resource(TOPIC, topic, "retention.ms", "no.such", "retention.ms"), include_synonyms=True)
    b.ask(
        ApiKey.DESCRIBE_CONFIGS, {"resources": [{"resource_type": 2, "resource_name": topic, "configuration_keys": []}]}
    )


@CASES.of(DESCRIBE)
def settings_of_unknown_resources(b: Peer) -> None:
    for kind, name in (
        (TOPIC, b.name("none")),
        (TOPIC, ""),
        (TOPIC, "a/b"),
        (BROKER, "1"),
        (BROKER, "x"),
        (BROKER, "-1"),
        (LOGGER, "1"),
        (LOGGER, ""),
        (LOGGER, "x"),
        (0, "x"),
        (1, "x"),
        (3, "x"),
        (64, "x"),
        (-1, "x"),
    ):
        describe(b, resource(kind, name))
    describe(b)


@CASES.of(DESCRIBE)
def a_resource_that_is_described_twice(b: Peer) -> None:
    topic = b.create()
    describe(b, resource(TOPIC, topic, "retention.ms"), resource(TOPIC, topic, "retention.bytes"))


@CASES.of(DESCRIBE)
def some_settings_of_the_broker(b: Peer) -> None:
    names = (
        "log.retention.ms",
        "log.retention.hours",
        "log.retention.minutes",
        "log.segment.bytes",
        "num.partitions",
        "broker.id",
        "message.max.bytes",
        "log.cleaner.threads",
        "min.insync.replicas",
        "log.roll.hours",
        "log.roll.ms",
        "no.such",
        "auto.create.topics.enable",
        "compression.type",
        "log.message.timestamp.type",
        "num.io.threads",
        "ssl.key.password",
        "sasl.jaas.config",
        "background.threads",
        "advertised.listeners.x",
        "max.connections",
        "log.cleanup.policy",
    )
    for synonyms in (False, True):
        describe(b, resource(BROKER, "0", *names), include_synonyms=synonyms)
        describe(b, resource(BROKER, "", *names), include_synonyms=synonyms)


@CASES.of([4])
def all_settings_of_the_broker(b: Peer) -> None:
    describe(b, resource(BROKER, "0"), include_synonyms=True, include_documentation=True)
    describe(b, resource(BROKER, ""))


@CASES.of(REPLACE)
def settings_of_a_topic_are_replaced(b: Peer) -> None:
    topic = b.create("t", 1, retention_ms="5")
    replace(b, TOPIC, topic, ("retention.bytes", "7"))
    describe(b, resource(TOPIC, topic), version=1)
    replace(b, TOPIC, topic, ("retention.bytes", "8"), validate_only=True)
    for configs in (
        [("no.such", "1")],
        [("retention.ms", "x")],
        [("retention.ms", None)],
        [("retention.ms", "")],
        [("retention.ms", "1"), ("retention.ms", "2")],
        [("retention.ms", "1"), ("segment.bytes", "x")],
        [("", "x")],
        [("min.compaction.lag.ms", "9"), ("max.compaction.lag.ms", "3")],
        [("remote.storage.enable", "true")],
        [("remote.log.copy.disable", "true")],
    ):
        replace(b, TOPIC, topic, *configs)
    describe(b, resource(TOPIC, topic), version=1)
    replace(b, TOPIC, topic)
    describe(b, resource(TOPIC, topic), version=1)


@CASES.of(REPLACE)
def replaced_settings_of_unknown_resources(b: Peer) -> None:
    for kind, name in (
        (TOPIC, b.name("none")),
        (TOPIC, ""),
        (TOPIC, "a/b"),
        (BROKER, "1"),
        (BROKER, "x"),
        (LOGGER, "0"),
        (LOGGER, ""),
        (0, "x"),
        (3, "x"),
        (-1, "x"),
    ):
        replace(b, kind, name, ("retention.ms", "1"), validate_only=True)
        replace(b, kind, name)
    b.ask(ApiKey.ALTER_CONFIGS, {})


@CASES.of([2])  # Kafka never answers, so the case waits for the timeout
def a_resource_that_is_replaced_twice(b: Peer) -> None:
    entries = [
        {"resource_type": TOPIC, "resource_name": b.create(suffix), "configs": [{"name": "retention.ms", "value": "1"}]}
        for suffix in ("a", "b")
    ]
    b.ask(ApiKey.ALTER_CONFIGS, {"resources": [*entries, entries[0]]})
    describe(b, resource(TOPIC, b.name("a"), "retention.ms"), resource(TOPIC, b.name("b"), "retention.ms"), version=1)


BROKER_SETTINGS: list[tuple[str, str | None]] = [
    ("log.retention.ms", "1000"),
    ("log.retention.ms", "x"),
    ("log.retention.ms", "-2"),
    ("log.retention.ms", None),
    ("log.retention.ms", ""),
    ("log.retention.hours", "5"),
    ("num.partitions", "3"),
    ("broker.id", "3"),
    ("no.such", "1"),
    ("retention.ms", "1"),
    ("log.cleaner.threads", "2"),
    ("log.cleaner.threads", "0"),
    ("num.io.threads", "9"),
    ("num.io.threads", "100"),
    ("message.max.bytes", "-1"),
    ("log.segment.bytes", "1"),
    ("compression.type", "zip"),
    ("log.cleanup.policy", "compact,shred"),
    ("log.cleanup.policy", "compact,delete"),
    ("max.connections", "5000"),
    ("max.connections.per.ip.overrides", "127.0.0.1:7"),
    ("max.connections.per.ip.overrides", "x"),
    ("listener.name.plaintext.max.connections", "5000"),
    ("listener.name.plaintext.num.partitions", "5"),
    ("ssl.keystore.type", "JKS"),
    ("ssl.key.password", "secret"),
    ("metric.reporters", ""),
    ("unclean.leader.election.enable", "TRUE"),
    ("advertised.listeners", "PLAINTEXT://elsewhere:1"),
    ("auto.create.topics.enable", "false"),
    ("log.message.timestamp.type", "LogAppendTime"),
    ("log.roll.ms", "100"),
    ("min.insync.replicas", "0"),
    ("leader.replication.throttled.rate", "5"),
    ("leader.replication.throttled.rate", "-5"),
    ("follower.replication.throttled.rate", "x"),
    ("replica.alter.log.dirs.io.max.bytes.per.second", "1.5"),
    ("replica.alter.log.dirs.io.max.bytes.per.second", "5"),
    ("follower.replication.throttled.replicas", "*"),
    ("producer.id.expiration.ms", "1000"),
    ("transaction.partition.verification.enable", "false"),
    ("remote.log.storage.system.enable", "true"),
    ("log.retention.bytes", "-1"),
    ("log.preallocate", "maybe"),
    ("sasl.jaas.config", "x"),
    ("listener.name.plaintext.sasl.jaas.config", "x"),
    ("inter.broker.protocol.version", "3.0"),
    ("log.cleaner.io.max.bytes.per.second", "5"),
    ("log.cleaner.backoff.ms", "-5"),
    ("log.index.interval.bytes", "-5"),
    ("", "x"),
]


@CASES.of(REPLACE)
def replaced_broker_settings_are_validated(b: Peer) -> None:
    for name, value in BROKER_SETTINGS:
        for broker in ("0", ""):
            about = f"of {name}={value} for '{broker}'"
            replace(b, BROKER, broker, (name, value), validate_only=True, about=about)


@CASES.of(CHANGE)
def changed_broker_settings_are_validated(b: Peer) -> None:
    for name, value in BROKER_SETTINGS:
        for broker in ("0", ""):
            about = f"of {name}={value} for '{broker}'"
            change(b, changed(BROKER, broker, (name, SET, value)), validate_only=True, about=about)
            change(b, changed(BROKER, broker, (name, REMOVE, None)), validate_only=True, about=f"without {name}")


@CASES.of(CHANGE)
def broker_settings_by_broker_by_default_and_from_the_file(b: Peer) -> None:
    keys = ("log.retention.ms", "log.cleaner.threads", "max.connections")
    topic = b.create()

    def alter(broker: str, *configs: tuple[str, int, str | None]) -> None:
        change(b, changed(BROKER, broker, *configs))
        time.sleep(0.5)  # Kafka's brokers learn it later
        for resources in ((BROKER, ""), (BROKER, "0")):
            describe(b, resource(*resources, *keys), version=4, include_synonyms=True)
        describe(b, resource(TOPIC, topic, "retention.ms"), version=4, include_synonyms=True)

    alter("", ("log.retention.ms", SET, "5000000"), ("max.connections", SET, "4000"))
    alter("0", ("log.retention.ms", SET, "6000000"))
    alter("", ("log.retention.ms", SET, "7000000"))
    alter("0", ("log.retention.ms", REMOVE, None))
    alter("", ("log.retention.ms", REMOVE, None), ("max.connections", REMOVE, None))


@CASES.of(CHANGE)
def single_settings_of_a_topic_change(b: Peer) -> None:
    topic = b.create("t", 1, cleanup_policy="compact", retention_ms="5")
    for items in (
        [("cleanup.policy", APPEND, "delete")],
        [("cleanup.policy", APPEND, "delete")],
        [("cleanup.policy", SUBTRACT, "compact")],
        [("cleanup.policy", SUBTRACT, "none")],
        [("cleanup.policy", SUBTRACT, "delete")],
        [("cleanup.policy", APPEND, "shred")],
        [("cleanup.policy", SET, "compact,delete")],
        [("cleanup.policy", SUBTRACT, "compact,delete")],
        [("cleanup.policy", REMOVE, None)],
        [("cleanup.policy", APPEND, "compact")],
        [("cleanup.policy", APPEND, None)],
        [("retention.ms", APPEND, "5")],
        [("retention.ms", SUBTRACT, "5")],
        [("retention.ms", SET, None)],
        [("retention.ms", SET, "x")],
        [("retention.ms", SET, "")],
        [("retention.ms", REMOVE, "anything")],
        [("retention.ms", REMOVE, None)],
        [("no.such", REMOVE, None)],
        [("no.such", SET, "1")],
        [("no.such", APPEND, "1")],
        [("retention.ms", 9, "1")],
        [("retention.ms", -1, "1")],
        [("", SET, "1")],
        [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
        [("retention.ms", SET, "1"), ("retention.ms", REMOVE, None)],
        [("retention.ms", SET, "1"), ("segment.bytes", SET, "x")],
        [("leader.replication.throttled.replicas", APPEND, "0:0")],
        [("leader.replication.throttled.replicas", APPEND, "1:0,0:0")],
        [("leader.replication.throttled.replicas", SUBTRACT, "0:0")],
        [("leader.replication.throttled.replicas", APPEND, "x")],
        [],
    ):
        change(b, changed(TOPIC, topic, *items))
        describe(
            b,
            resource(
                TOPIC, topic, "cleanup.policy", "retention.ms", "segment.bytes", "leader.replication.throttled.replicas"
            ),
            version=1,
        )
    change(b, changed(TOPIC, topic, ("retention.ms", SET, "77")), validate_only=True)
    describe(b, resource(TOPIC, topic, "retention.ms"), version=1)


@CASES.of(CHANGE)
def changed_settings_of_unknown_resources(b: Peer) -> None:
    for kind, name in (
        (TOPIC, b.name("none")),
        (TOPIC, ""),
        (TOPIC, "a/b"),
        (BROKER, "1"),
        (BROKER, "x"),
        (LOGGER, "1"),
        (LOGGER, ""),
        (LOGGER, "x"),
        (0, "x"),
        (3, "x"),
        (-1, "x"),
    ):
        change(b, changed(kind, name, ("retention.ms", SET, "1")), validate_only=True)
        change(b, changed(kind, name))
    change(b)


@CASES.of(CHANGE)
def a_resource_that_is_changed_twice(b: Peer) -> None:
    one, other = b.create("a"), b.create("b")
    item = ("retention.ms", SET, "1")
    change(b, changed(TOPIC, one, item), changed(TOPIC, other, item), changed(TOPIC, one, item))
    describe(b, resource(TOPIC, one, "retention.ms"), resource(TOPIC, other, "retention.ms"), version=1)


@CASES.of(CHANGE)
def valid_and_invalid_logger_levels(b: Peer) -> None:
    for items in (
        [("no.such.logger", SET, "INFO")],
        [("no.such.logger", REMOVE, None)],
        [("root", SET, "LOUD")],
        [("root", REMOVE, None)],
        [("root", APPEND, "INFO")],
        [("root", SUBTRACT, "INFO")],
        [("root", SET, None)],
        [("root", SET, "info")],
        [("root", SET, "WARN"), ("root", SET, "WARN")],
        [("root", SET, "WARN")],
    ):
        change(b, changed(LOGGER, "0", *items), validate_only=True)
