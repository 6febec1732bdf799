"""CreateTopics, DeleteTopics, CreatePartitions, Metadata."""

from __future__ import annotations

import time
from typing import Any

from odradek.clients.recording.comparison import ZERO_ID
from odradek.protocol.api_keys import ApiKey
from tests.scenarios.same_as_kafka.case import Cases
from tests.scenarios.same_as_kafka.peer import Peer

CASES = Cases()
UNKNOWN_ID = "11111111-2222-3333-4444-555555555555"
CREATE, DELETE, GROW, METADATA = range(8), range(7), range(4), range(12)


def topic(name: str, partitions: int = 1, factor: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": factor, **more}


def assigned(*replicas: tuple[int, ...], first: int = 0) -> list[dict[str, Any]]:
    return [{"partition_index": first + index, "broker_ids": list(brokers)} for index, brokers in enumerate(replicas)]


def settings(**configs: str | None) -> list[dict[str, Any]]:
    return [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()]


def create(b: Peer, *topics: dict[str, Any], timeout_ms: int = 30000, validate_only: bool = False) -> None:
    b.ask(ApiKey.CREATE_TOPICS, {"topics": list(topics), "timeout_ms": timeout_ms, "validate_only": validate_only})


def metadata(b: Peer, *names: str, version: int | None = None, **more: Any) -> None:
    document: dict[str, Any] = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}
    b.ask(ApiKey.METADATA, document | more, version)


# CreateTopics


@CASES.of(CREATE)
def a_topic_is_created_with_counts_and_settings(b: Peer) -> None:
    create(b, topic(b.name(), 3, configs=settings(retention_ms="1000", cleanup_policy="compact,delete")))
    metadata(b, b.name(), version=7)


@CASES.of(range(1, 8))
def validate_only_creates_nothing(b: Peer) -> None:
    create(b, topic(b.name(), 2), topic(b.name("bad"), 0), validate_only=True)
    metadata(b, b.name(), version=7)


@CASES.of(CREATE)
def invalid_topic_names(b: Peer) -> None:
    for name in (
        "",
        ".",
        "..",
        "a/b",
        "a b",
        "x" * 249,
        "x" * 250,
        "ü",
        "a\x00",
        "a:b",
        "__consumer_offsets_x-" + b.prefix,
    ):
        create(b, topic(name), validate_only=True)


@CASES.of(CREATE)
def colliding_topic_names(b: Peer) -> None:
    create(b, topic(b.name("a.b")))
    create(b, topic(b.name("a_b")))


@CASES.of(CREATE)
def a_topic_that_exists(b: Peer) -> None:
    b.create()
    create(b, topic(b.name()))
    create(b, topic(b.name(), 0, 7))
    create(b, topic(b.name()), validate_only=True)


@CASES.of(CREATE)
def replication_factors_and_partition_counts(b: Peer) -> None:
    for partitions, factor in (
        (1, 0),
        (1, -1),
        (1, -2),
        (1, 2),
        (1, 32767),
        (0, 1),
        (-1, 1),
        (-2, 1),
        (-1, -1),
        (0, 0),
    ):
        create(b, topic(b.name(f"{partitions}x{factor}"), partitions, factor))


@CASES.of(CREATE)
def manual_assignments(b: Peer) -> None:
    create(b, topic(b.name("good"), -1, -1, assignments=assigned((0,), (0,))))
    create(b, topic(b.name("gap"), -1, -1, assignments=[*assigned((0,)), *assigned((0,), first=2)]))
    create(b, topic(b.name("from-one"), -1, -1, assignments=assigned((0,), first=1)))
    create(b, topic(b.name("twice"), -1, -1, assignments=assigned((0, 0))))
    create(b, topic(b.name("uneven"), -1, -1, assignments=assigned((0,), (0, 1))))
    create(b, topic(b.name("repeated"), -1, -1, assignments=[*assigned((0,)), *assigned((0,))]))
    create(b, topic(b.name("negative-index"), -1, -1, assignments=assigned((0,), first=-1)))
    create(b, topic(b.name("both"), 1, 1, assignments=assigned((0,))))
    create(b, topic(b.name("both-partitions"), 1, -1, assignments=assigned((0,))))
    create(b, topic(b.name("both-factor"), -1, 1, assignments=assigned((0,))))


@CASES.of(range(1, 8))
def assignments_to_unknown_brokers(b: Peer) -> None:
    for name, brokers in (("unknown", (5,)), ("negative", (-1,)), ("none", ()), ("one-of-two", (0, 5))):
        create(b, topic(b.name(name), -1, -1, assignments=assigned(brokers)), validate_only=True)


@CASES.of(CREATE)
def settings_of_new_topics(b: Peer) -> None:
    settings: list[dict[str, str | None]] = [
        {"no.such": "1"},
        {"retention.ms": "x"},
        {"retention.ms": "-2"},
        {"retention.ms": None},
        {"retention.ms": ""},
        {"cleanup.policy": "shred"},
        {"cleanup.policy": "delete,compact"},
        {"cleanup.policy": ""},
        {"min.insync.replicas": "0"},
        {"max.message.bytes": "-1"},
        {"compression.type": "zip"},
        {"segment.bytes": "13"},
        {"segment.bytes": "99999999999"},
        {"unclean.leader.election.enable": "maybe"},
        {"unclean.leader.election.enable": "TRUE"},
        {"message.timestamp.type": "Never"},
        {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
        {"follower.replication.throttled.replicas": "x"},
        {"follower.replication.throttled.replicas": "0:0,1:0"},
        {"message.format.version": "0.10.2"},
        {"min.cleanable.dirty.ratio": "1.5"},
        {"retention.ms": " 5 "},
        {"": "1"},
        {"remote.storage.enable": "true"},
        {"remote.storage.enable": "false"},
        {"remote.log.copy.disable": "true"},
        {"remote.log.delete.on.disable": "true"},
        {"local.retention.ms": "5", "retention.ms": "3"},
    ]
    for number, config in enumerate(settings):
        configs = [{"name": name, "value": value} for name, value in config.items()]
        create(b, topic(b.name(f"s{number}"), configs=configs))


@CASES.of(CREATE)
def a_topic_with_the_same_setting_twice(b: Peer) -> None:
    configs = [{"name": "retention.ms", "value": "1"}, {"name": "retention.ms", "value": "2"}]
    create(b, topic(b.name(), configs=configs))


@CASES.of(CREATE)
def a_topic_that_is_created_twice_in_a_request(b: Peer) -> None:
    create(b, topic(b.name("a")), topic(b.name("b")), topic(b.name("a"), 2))
    metadata(b, b.name("a"), b.name("b"), version=7)


@CASES.of(CREATE)
def a_request_to_create_no_topics(b: Peer) -> None:
    create(b)


@CASES.of(CREATE)
def the_name_of_the_metadata_topic(b: Peer) -> None:
    create(b, topic("__cluster_metadata"))


@CASES.of(CREATE)
def topic_creations_that_do_not_wait(b: Peer) -> None:
    create(b, topic(b.name("zero")), topic(b.name("zero-bad"), 0), timeout_ms=0)
    create(b, topic(b.name("negative")), timeout_ms=-1)
    if b.version:
        create(b, topic(b.name("only-validated")), timeout_ms=0, validate_only=True)


# DeleteTopics


def delete(b: Peer, *names: str, timeout_ms: int = 30000) -> None:
    """Deletes topics by name, in the format of the version."""
    document = {"topic_names": list(names), "topics": [{"name": name} for name in names], "timeout_ms": timeout_ms}
    b.ask(ApiKey.DELETE_TOPICS, document)


@CASES.of(DELETE)
def known_and_unknown_topics_are_deleted(b: Peer) -> None:
    b.create("a")
    b.create("b", 2)
    delete(b, b.name("a"), b.name("none"), b.name("b"))
    delete(b, b.name("a"))
    metadata(b, b.name("a"), b.name("b"), version=7)


@CASES.of(DELETE)
def invalid_names_are_deleted(b: Peer) -> None:
    delete(b, "", "a/b", "x" * 250, "..")


@CASES.of(DELETE)
def a_topic_that_is_deleted_twice_in_a_request(b: Peer) -> None:
    b.create("a")
    delete(b, b.name("a"), b.name("a"))
    delete(b, b.name("none"), b.name("none"))


@CASES.of(DELETE)
def a_request_to_delete_no_topics(b: Peer) -> None:
    delete(b)


@CASES.of([6])
def topics_are_deleted_by_id(b: Peer) -> None:
    def by(*topics: dict[str, Any]) -> None:
        b.ask(ApiKey.DELETE_TOPICS, {"topics": list(topics), "timeout_ms": 30000})

    known = b.topic_id(b.create("a"))
    other = b.topic_id(b.create("b"))
    by({"topic_id": known})
    by({"topic_id": known})
    by({"topic_id": UNKNOWN_ID})
    by({"topic_id": ZERO_ID})
    by({"topic_id": ZERO_ID}, {"topic_id": ZERO_ID})
    by({"name": b.name("b"), "topic_id": other})
    by({"topic_id": other}, {"topic_id": other})
    b.create("c")
    by({"name": b.name("c")}, {"topic_id": b.topic_id(b.name("c"))})


@CASES.of(DELETE)
def a_topic_deletion_with_a_negative_timeout(b: Peer) -> None:
    b.create("a")
    delete(b, b.name("a"), timeout_ms=-1)


# CreatePartitions


def grow(b: Peer, *topics: dict[str, Any], timeout_ms: int = 30000, validate_only: bool = False) -> None:
    document = {
        "topics": [{"assignments": None, **each} for each in topics],
        "timeout_ms": timeout_ms,
        "validate_only": validate_only,
    }
    b.ask(ApiKey.CREATE_PARTITIONS, document)


@CASES.of(GROW)
def new_partition_counts(b: Peer) -> None:
    name = b.create("t", 2)
    for count in (1, 2, 0, -1, 3):
        grow(b, {"name": name, "count": count})
    grow(b, {"name": name, "count": 5}, validate_only=True)
    metadata(b, name, version=7)


@CASES.of(GROW)
def new_partition_counts_of_unknown_topics(b: Peer) -> None:
    grow(b, {"name": b.name("none"), "count": 2}, {"name": "a/b", "count": 2}, {"name": "", "count": 2})


@CASES.of(GROW)
def assignments_of_new_partitions(b: Peer) -> None:
    name = b.create()

    def with_brokers(count: int, *replicas: tuple[int, ...]) -> None:
        assignments = [{"broker_ids": list(brokers)} for brokers in replicas]
        grow(b, {"name": name, "count": count, "assignments": assignments}, validate_only=count < 4)

    with_brokers(2)
    with_brokers(2, (0,), (0,))
    with_brokers(3, (0,))
    with_brokers(2, (0, 0))
    with_brokers(2, (5,))
    with_brokers(2, (0, 1))
    with_brokers(2, ())
    with_brokers(3, (0,), (0, 1))
    with_brokers(1, (0,))
    with_brokers(4, (0,), (0,), (0,))


@CASES.of(GROW)
def a_topic_whose_partitions_are_created_twice_in_a_request(b: Peer) -> None:
    b.create("a")
    b.create("b")
    grow(b, {"name": b.name("a"), "count": 2}, {"name": b.name("b"), "count": 2}, {"name": b.name("a"), "count": 3})


@CASES.of(GROW)
def a_request_to_create_no_partitions(b: Peer) -> None:
    grow(b)


@CASES.of(GROW)
def partition_creations_that_do_not_wait(b: Peer) -> None:
    name = b.create()
    grow(b, {"name": name, "count": 2}, timeout_ms=0)
    grow(b, {"name": name, "count": 9}, timeout_ms=-1, validate_only=True)


# Metadata


@CASES.of(METADATA)
def known_and_unknown_topics_without_creation(b: Peer) -> None:
    if b.version < 4:
        return  # has no switch
    b.create("a", 3)
    metadata(b, b.name("a"), b.name("none"), b.name("a"), b.name("none"))
    metadata(b, "a/b", "", "x" * 250, "..")
    metadata(b, "__consumer_offsets_", "__transaction_state_")


@CASES.of(METADATA)
def metadata_of_a_topic(b: Peer) -> None:
    b.create("a", 2)
    metadata(b, b.name("a"), allow_auto_topic_creation=True)


@CASES.of(METADATA)
def topics_are_created_by_metadata_requests(b: Peer) -> None:
    metadata(b, b.name("new"), "a/b", allow_auto_topic_creation=True)
    time.sleep(0.5)
    metadata(b, b.name("new"), allow_auto_topic_creation=True)


@CASES.of(METADATA)
def metadata_of_no_topics(b: Peer) -> None:
    if b.version:
        metadata(b)


@CASES.of(METADATA)
def metadata_of_all_topics(b: Peer) -> None:
    b.create("a", 2)
    b.create("b")
    answer = b.ask(ApiKey.METADATA, {"topics": None if b.version else []}, is_noted=False)
    answer["Topics"] = [topic for topic in answer["Topics"] if topic["Name"].startswith(b.name(""))]
    b.note("METADATA", answer)


@CASES.of(range(8, 13))
def authorized_operations(b: Peer) -> None:
    b.create("a")
    for cluster, topics in ((True, False), (False, True), (True, True)):
        metadata(
            b,
            b.name("a"),
            b.name("none"),
            include_cluster_authorized_operations=cluster,
            include_topic_authorized_operations=topics,
        )


@CASES.of([10, 11, 12])
def metadata_by_topic_id(b: Peer) -> None:
    known = b.topic_id(b.create("a"))
    for entry in (
        {"topic_id": known, "name": None},
        {"topic_id": UNKNOWN_ID, "name": None},
        {"topic_id": known, "name": b.name("a")},
        {"topic_id": UNKNOWN_ID, "name": b.name("a")},
    ):
        metadata(b, topics=[entry, {"name": b.name("a")}])
        metadata(b, topics=[entry, entry, {"topic_id": ZERO_ID, "name": None}])
        metadata(b, topics=[entry], include_topic_authorized_operations=True)
        metadata(b, topics=[entry], allow_auto_topic_creation=True)


@CASES.of([10, 11, 12])
def metadata_of_a_topic_with_neither_name_nor_id(b: Peer) -> None:
    b.create("a")
    nameless = {"topic_id": ZERO_ID, "name": None}
    metadata(b, topics=[nameless])
    metadata(b, topics=[nameless, {"name": b.name("a")}])
