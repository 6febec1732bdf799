"""Requests that only Kafka 4 knows: new APIs, and the new versions of others."""

from __future__ import annotations

import time
from typing import Any

from odradek.protocol.api_keys import ApiKey
from tests.beside_kafka.documents import batch
from tests.scenarios.same_as_kafka.case import Cases
from tests.scenarios.same_as_kafka.config_cases import APPEND, REMOVE, SET, change, changed, describe, replace, resource
from tests.scenarios.same_as_kafka.peer import Peer

CASES = Cases()
METRICS, GROUP = 16, 32
SESSION, HEARTBEAT, INTERVAL = (
    f"consumer.{name}.ms" for name in ("session.timeout", "heartbeat.interval", "assignment.interval")
)


# --- topics ---------------------------------------------------------------------------------------------------------


@CASES.of([0])
def pages_of_topics(b: Peer) -> None:
    names = [b.create(suffix, count) for suffix, count in (("a", 3), ("b", 1), ("c", 2))]
    topics = [{"name": name} for name in names]
    for limit in (2000, 1, 2, 3, 4, 5, 0, -1):
        b.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, {"topics": topics, "response_partition_limit": limit, "cursor": None})
    for name, partition in ((names[0], 1), (names[0], 9), (names[1], 0), (names[2], 2), (names[2], -1)):
        cursor = {"topic_name": name, "partition_index": partition}
        b.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, {"topics": topics, "response_partition_limit": 2, "cursor": cursor})
    b.ask(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        {"topics": topics[1:], "cursor": {"topic_name": names[0], "partition_index": 0}},
    )


@CASES.of([0])
def topics_that_do_not_exist(b: Peer) -> None:
    topic = b.create("b", 2)
    for names in ((b.name("none"),), ("bad/name",), (b.name("a"), topic, b.name("c")), (topic, topic)):
        asked = [{"name": name} for name in names]
        for limit in (1, 2, 3):
            b.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, {"topics": asked, "response_partition_limit": limit})


@CASES.of([10, 11])
def the_earliest_offset_that_waits_for_tiered_storage(b: Peer) -> None:
    topic = b.create()
    b.produce(topic, batch(b"x", b"y"))
    for timestamp in (-6, -5, -4, -1, -7):
        asked = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}
        topics = [{"name": topic, "partitions": [asked]}]
        b.ask(ApiKey.LIST_OFFSETS, {"replica_id": -1, "topics": topics, "timeout_ms": 1000}, about=str(timestamp))


@CASES.of([13])
def metadata_with_an_error_of_the_whole(b: Peer) -> None:
    topic = b.create("t", 2)
    b.ask(ApiKey.METADATA, {"topics": [{"name": topic}, {"name": b.name("none")}], "allow_auto_topic_creation": False})
    b.ask(ApiKey.METADATA, {"topics": [{"topic_id": b.topic_id(topic), "name": None}]})
    b.ask(ApiKey.METADATA, {"topics": []})


@CASES.of([18])
def a_fetch_with_the_followers_high_watermark(b: Peer) -> None:
    topic = b.create()
    b.produce(topic, batch(b"x"))
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    topics = [{"topic_id": b.topic_id(topic), "partitions": [partition]}]
    b.ask(ApiKey.FETCH, {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 10000, "session_epoch": -1, "topics": topics})


@CASES.of([1])
def reassignments_that_change_the_number_of_replicas(b: Peer) -> None:
    topic, node = b.create(), node_of(b)
    for replicas in ([node], [node, node + 1], [], None):
        partition = {"partition_index": 0, "replicas": replicas}
        for allowed in (True, False):
            b.ask(
                ApiKey.ALTER_PARTITION_REASSIGNMENTS,
                {
                    "allow_replication_factor_change": allowed,
                    "topics": [{"name": topic, "partitions": [partition]}],
                },
            )


def node_of(b: Peer) -> int:
    answer = b.ask(ApiKey.DESCRIBE_CLUSTER, {}, 0, is_noted=False)
    return int(answer["Brokers"][0]["BrokerId"])


# --- the cluster, groups, transactions ------------------------------------------------------------------------------


@CASES.of([2])
def fenced_brokers(b: Peer) -> None:
    for fenced in (False, True):
        b.ask(ApiKey.DESCRIBE_CLUSTER, {"include_fenced_brokers": fenced, "endpoint_type": 1})


@CASES.of([5])
def cordoned_log_directories(b: Peer) -> None:
    topic = b.create()
    answer = b.ask(ApiKey.DESCRIBE_LOG_DIRS, {"topics": [{"topic": topic, "partitions": [0]}]}, is_noted=False)
    b.note("is cordoned", [result["IsCordoned"] for result in answer["Results"]])


def wait_for_coordinators(b: Peer) -> None:
    """Kafka creates the coordinators' topics on the first request."""
    for api, asked in (
        (ApiKey.DESCRIBE_GROUPS, {"groups": ["x"]}),
        (ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": ["x"]}),
    ):
        for key_type in (0, 1):
            b.ask(ApiKey.FIND_COORDINATOR, {"key": "x", "key_type": key_type}, 1, is_noted=False)
        for _ in range(100):
            answer = b.ask(api, asked, 0, is_noted=False)
            (result,) = answer.get("Groups") or answer["TransactionStates"]
            if result["ErrorCode"] in (0, 105):
                break
            time.sleep(0.1)


@CASES.of([5, 6])
def groups_that_do_not_exist(b: Peer) -> None:
    wait_for_coordinators(b)
    for operations in (False, True):
        b.ask(
            ApiKey.DESCRIBE_GROUPS,
            {"groups": [b.name("none"), ""], "include_authorized_operations": operations},
        )


@CASES.of([2, 3])
def deletions_of_groups_that_do_not_exist(b: Peer) -> None:
    wait_for_coordinators(b)
    b.ask(ApiKey.DELETE_GROUPS, {"groups_names": [b.name("none")]})


@CASES.of([2])
def transactions_by_patterns(b: Peer) -> None:
    wait_for_coordinators(b)
    for suffix in ("1", "12"):
        for _ in range(100):
            asked = {"transactional_id": b.name(suffix), "transaction_timeout_ms": 60000}
            if b.ask(ApiKey.INIT_PRODUCER_ID, asked, 4, is_noted=False)["ErrorCode"] == 0:
                break
            time.sleep(0.1)
    for pattern in (b.name("1"), b.name("1.*"), b.name(""), "(", "(?=a)", "[a"):
        b.ask(ApiKey.LIST_TRANSACTIONS, {"transactional_id_pattern": pattern}, about=pattern.removeprefix(b.prefix))


# --- settings -------------------------------------------------------------------------------------------------------


@CASES.of([0, 1])
def everything_with_settings(b: Peer) -> None:
    group, metrics, topic = b.name("group"), b.name("metrics"), b.create()
    for kind, name, setting, value in ((GROUP, group, SESSION, "46000"), (METRICS, metrics, "metrics", "a")):
        asked = {"resources": [changed(kind, name, (setting, SET, value))]}
        b.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, asked, 1, is_noted=False)
    time.sleep(0.5)
    for types in ([], [2], [16, 32], [32, 32], [4, 8], [2, 3], [0], [1], [-1]):
        answer = b.ask(ApiKey.LIST_CONFIG_RESOURCES, {"resource_types": types}, is_noted=False)
        found = answer["ConfigResources"]
        mine = [each for each in found if each["ResourceName"] in (group, metrics, topic, str(node_of(b)))]
        b.note(f"LIST_CONFIG_RESOURCES of {types}", [answer["ErrorCode"], *map(shown, mine)])


def shown(listed: dict[str, Any]) -> list[Any]:
    """A node's name is its id, which differs."""
    kind = listed.get("ResourceType")
    return [kind, "node" if kind in (4, 8) else listed["ResourceName"]]


@CASES.of([4])
def settings_of_a_group(b: Peer) -> None:
    group = b.name("g")
    for synonyms, documentation in ((False, False), (True, True)):
        describe(b, resource(GROUP, group), include_synonyms=synonyms, include_documentation=documentation)
    set_now(b, GROUP, group, (SESSION, SET, "46000"), ("share.isolation.level", SET, "read_committed"))
    describe(b, resource(GROUP, group), include_synonyms=True)
    describe(b, resource(GROUP, group, SESSION, "none"), include_synonyms=True)
    describe(b, resource(GROUP, ""))


def set_now(b: Peer, kind: int, name: str, *configs: tuple[str, int, str | None]) -> None:
    answer = b.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [changed(kind, name, *configs)]}, 1, is_noted=False)
    b.note("set", answer["Responses"][0]["ErrorCode"])
    time.sleep(0.5)


@CASES.of([1])
def changes_of_a_groups_settings(b: Peer) -> None:
    group = b.name("g")
    for name, value in (
        (SESSION, "45000"),
        (SESSION, "44999"),
        (SESSION, "60000"),
        (SESSION, "60001"),
        (SESSION, "soon"),
        (SESSION, None),
        (HEARTBEAT, "5000"),
        (HEARTBEAT, "4999"),
        (HEARTBEAT, "15001"),
        (INTERVAL, "0"),
        (INTERVAL, "-1"),
        (INTERVAL, "15001"),
        ("consumer.assignor.offload.enable", "false"),
        ("share.session.timeout.ms", "44999"),
        ("share.heartbeat.interval.ms", "15001"),
        ("share.record.lock.duration.ms", "14999"),
        ("share.delivery.count.limit", "10"),
        ("share.delivery.count.limit", "11"),
        ("share.partition.max.record.locks", "4001"),
        ("share.auto.offset.reset", "by_duration:PT1H"),
        ("share.auto.offset.reset", "EARLIEST"),
        ("share.auto.offset.reset", "by_duration:-PT1H"),
        ("share.auto.offset.reset", "by_duration:1h"),
        ("share.isolation.level", "READ_COMMITTED"),
        ("streams.num.standby.replicas", "2"),
        ("streams.num.standby.replicas", "3"),
        ("streams.task.offset.interval.ms", "14999"),
        ("streams.num.warmup.replicas", "21"),
        ("streams.assignor.name", "sticky"),
        ("streams.assignor.name", "none"),
        ("streams.rack.aware.assignment.tags", "a,b"),
        ("errors.deadletterqueue.topic.name", "dlq"),
        ("errors.deadletterqueue.topic.name", "__dlq"),
        ("no.such", "1"),
        ("retention.ms", "1"),
    ):
        change(b, changed(GROUP, group, (name, SET, value)), validate_only=True, about=f"{name}={value}")
    change(b, changed(GROUP, "", (SESSION, SET, "46000")))
    change(b, changed(GROUP, group, (SESSION, SET, "46000"), (SESSION, REMOVE, None)))
    change(b, changed(GROUP, group, (SESSION, APPEND, "1")))
    change(b, changed(GROUP, group, (SESSION, REMOVE, None)))


@CASES.of([2])
def replaced_settings_of_groups_and_client_metrics(b: Peer) -> None:
    group = b.name("g")
    replace(b, GROUP, group, (SESSION, "46000"), (HEARTBEAT, "6000"))
    replace(b, GROUP, group, (SESSION, "1"))
    replace(b, GROUP, group)
    replace(b, METRICS, group, ("metrics", "a"))
    replace(b, METRICS, group, ("none", "a"))
    replace(b, METRICS, group)


@CASES.of([1])
def changes_of_client_metrics(b: Peer) -> None:
    name = b.name("m")
    for setting, value in (
        ("interval.ms", "100"),
        ("interval.ms", "99"),
        ("interval.ms", "3600001"),
        ("interval.ms", "x"),
        ("metrics", ""),
        ("metrics", "*"),
        ("match", "client_id=a.*"),
        ("match", "client_id"),
        ("match", "client_id="),
        ("match", "client_id=a=b"),
        ("match", "client=a"),
        ("match", "client_id=["),
        ("none", "1"),
    ):
        change(b, changed(METRICS, name, (setting, SET, value)), validate_only=True, about=f"{setting}={value}")
    change(b, changed(METRICS, "", ("metrics", SET, "a")))


@CASES.of([4])
def client_metrics_are_described(b: Peer) -> None:
    name = b.name("m")
    describe(b, resource(METRICS, name))
    describe(b, resource(METRICS, ""))
    set_now(b, METRICS, name, ("metrics", SET, "a,b"), ("interval.ms", SET, "1000"))
    describe(b, resource(METRICS, name), include_synonyms=True, include_documentation=True)
    describe(b, resource(METRICS, name, "metrics"), include_synonyms=True)
