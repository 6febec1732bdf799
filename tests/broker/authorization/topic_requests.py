"""Metadata, CreateTopics, DeleteTopics, CreatePartitions, elections, reassignments and log directories."""

from __future__ import annotations

from typing import Any

from odradek.clients.recording.comparison import ZERO_ID
from odradek.protocol.api_keys import ApiKey
from tests.beside_kafka.documents import Document
from tests.broker.authorization.acl_states import Names
from tests.broker.authorization.case import Cases, always
from tests.broker.authorization.data_requests import THREE, both_and_none
from tests.broker.authorization.stage import IDENTIFIED, Stage

CASES = Cases()
WITH_CREATION = "+DESCRIBE TOPIC none; +CREATE TOPIC none"


def metadata(topics: tuple[str, ...] | None, **more: Any) -> Document:
    named = None if topics is None else [{"name": topic} for topic in topics]
    return {"topics": named, "allow_auto_topic_creation": False, **more}


CASES.add(
    "three topics that are not created",
    ApiKey.METADATA,
    (4, 7, 8, 9, 10, 12),
    both_and_none("DESCRIBE"),
    lambda names, stage: metadata(THREE),
    (WITH_CREATION, "+DESCRIBE TOPIC there; +CREATE TOPIC none", "+DESCRIBE TOPIC other"),
)
CASES.add(
    "all topics",
    ApiKey.METADATA,
    (1, 4, 8, 12),
    "DESCRIBE TOPIC there; DESCRIBE TOPIC other",
    lambda names, stage: metadata(None),
    lists=True,
)
CASES.add(
    "all topics by an empty list",
    ApiKey.METADATA,
    (0,),
    "DESCRIBE TOPIC there; DESCRIBE TOPIC other",
    lambda names, stage: metadata(()),
    lists=True,
)
CASES.add(
    "no topic",
    ApiKey.METADATA,
    (1, 12),
    "DESCRIBE TOPIC there",
    lambda names, stage: metadata(()),
)
CASES.add(
    "authorized operations",
    ApiKey.METADATA,
    (8, 10, 12),
    "DESCRIBE TOPIC there; DESCRIBE TOPIC other; DESCRIBE CLUSTER",
    lambda names, stage: metadata(
        THREE, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
    ),
    (
        "+ALL TOPIC *; -WRITE TOPIC there; -READ TOPIC ot~",
        "+ALL TOPIC *; -DESCRIBE TOPIC there",
        "+ALTER TOPIC there; +ALTER_CONFIGS TOPIC other",
        "+ALL CLUSTER; +ALL TOPIC *; -ALL TOPIC there",
        "+ALTER CLUSTER; +DESCRIBE TOPIC there",
        "+ALL CLUSTER; -DESCRIBE CLUSTER",
    ),
)
CASES.add(
    "authorized operations of all topics",
    ApiKey.METADATA,
    (12,),
    "DESCRIBE TOPIC there; DESCRIBE TOPIC other",
    lambda names, stage: metadata(None, include_topic_authorized_operations=True),
    ("+ALL TOPIC *; -WRITE TOPIC there", "+READ TOPIC there; +WRITE TOPIC other"),
    lists=True,
)
CASES.add(
    "a topic that is created",
    ApiKey.METADATA,
    (1, 4, 9, 12),
    "DESCRIBE TOPIC new; CREATE TOPIC new",
    lambda names, stage: metadata((names("new"), "there"), allow_auto_topic_creation=True),
    (
        "+DESCRIBE TOPIC new; +CREATE CLUSTER",
        "+CREATE CLUSTER",
        "+DESCRIBE TOPIC new; +CREATE CLUSTER; -CREATE TOPIC new",
        "+DESCRIBE TOPIC new; -CREATE CLUSTER; +CREATE TOPIC new",
        "+DESCRIBE TOPIC new; +CREATE TOPIC new; +DESCRIBE TOPIC there",
    ),
    is_fresh=True,
)
CASES.add(
    "topics by their ids",
    ApiKey.METADATA,
    (12,),
    "DESCRIBE TOPIC there",
    lambda names, stage: {
        "topics": [{"topic_id": stage.ids["there"]}, {"topic_id": stage.ids["other"]}, {"topic_id": IDENTIFIED}],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
    },
)


def create(names: Names, *topics: str, **more: Any) -> Document:
    wanted = [
        {
            "name": names(topic) if topic.startswith("new") else topic,
            "num_partitions": 1,
            "replication_factor": 1,
            "configs": [{"name": "cleanup.policy", "value": "compact"}],
        }
        for topic in topics
    ]
    return {"topics": wanted, "timeout_ms": 30_000, **more}


CONFIGS_OF_NEW = (
    "+CREATE CLUSTER; +DESCRIBE_CONFIGS TOPIC new",
    "+CREATE TOPIC new; +ALTER_CONFIGS TOPIC new",
    "+CREATE CLUSTER; -CREATE TOPIC new",
    "+CREATE TOPIC new; -CREATE CLUSTER",
    "+CREATE CLUSTER; +DESCRIBE TOPIC there",
    "+CREATE CLUSTER; -DESCRIBE_CONFIGS TOPIC new",
    "+CREATE CLUSTER; +DESCRIBE_CONFIGS CLUSTER",
)
CASES.add(
    "new topics and one that exists",
    ApiKey.CREATE_TOPICS,
    (0, 2, 4, 5, 7),
    "CREATE TOPIC new; DESCRIBE_CONFIGS TOPIC new",
    lambda names, stage: create(names, "new", "newer", "there"),
    CONFIGS_OF_NEW,
    is_fresh=True,
)
CASES.add(
    "a validation",
    ApiKey.CREATE_TOPICS,
    (1, 5, 7),
    "CREATE TOPIC new; DESCRIBE_CONFIGS TOPIC new",
    lambda names, stage: create(names, "new", "newer", "there", validate_only=True),
    CONFIGS_OF_NEW,
    is_fresh=True,
)
CASES.add(
    "a topic twice and a bad name",
    ApiKey.CREATE_TOPICS,
    (4, 7),
    "CREATE TOPIC none",
    lambda names, stage: create(names, "none", "none", "bad/name", "", validate_only=True),
    ("+CREATE CLUSTER",),
)


async def two_new_topics(names: Names, stage: Stage) -> None:
    for name in ("new", "second"):
        await stage.create_topic(names(name))


CASES.add(
    "topics by their names",
    ApiKey.DELETE_TOPICS,
    (0, 3, 4, 5, 6),
    "DELETE TOPIC new; DESCRIBE TOPIC none",
    lambda names, stage: {
        "topic_names": [names("new"), names("second"), "none"],
        "topics": [{"name": name, "topic_id": ZERO_ID} for name in (names("new"), names("second"), "none")],
        "timeout_ms": 30_000,
    },
    (
        "+DELETE TOPIC none",
        "+DESCRIBE TOPIC second",
        "+DELETE TOPIC new; +DESCRIBE TOPIC second; +DELETE TOPIC none",
        "+ALTER TOPIC second; +ALTER TOPIC none",
    ),
    prepare=two_new_topics,
    is_fresh=True,
)
CASES.add(
    "topics by their ids",
    ApiKey.DELETE_TOPICS,
    (6,),
    "DELETE TOPIC new; DESCRIBE TOPIC second",
    lambda names, stage: {
        "topics": [
            {"name": None, "topic_id": stage.ids[names("new")]},
            {"name": None, "topic_id": stage.ids[names("second")]},
            {"name": None, "topic_id": IDENTIFIED},
        ],
        "timeout_ms": 30_000,
    },
    ("+DELETE TOPIC new; -DESCRIBE TOPIC new", "+DESCRIBE TOPIC new"),
    prepare=two_new_topics,
    is_fresh=True,
)
CASES.add(
    "three topics",
    ApiKey.CREATE_PARTITIONS,
    (0, 2, 3),
    "ALTER TOPIC there; ALTER TOPIC other",
    lambda names, stage: {
        "topics": [{"name": topic, "count": 4, "assignments": None} for topic in ("there", "other")],
        "timeout_ms": 30_000,
        "validate_only": True,
    },
    ("+DESCRIBE TOPIC there", "+ALTER TOPIC there; +DESCRIBE TOPIC other", "+ALTER CLUSTER"),
)
CASES.add(
    "a topic that does not exist",
    ApiKey.CREATE_PARTITIONS,
    (3,),
    "ALTER TOPIC there; DESCRIBE TOPIC none",
    lambda names, stage: {
        "topics": [{"name": topic, "count": 4, "assignments": None} for topic in ("there", "none")],
        "timeout_ms": 30_000,
        "validate_only": True,
    },
)
CASES.add(
    "a topic twice",
    ApiKey.CREATE_PARTITIONS,
    (3,),
    "ALTER TOPIC there",
    lambda names, stage: {
        "topics": [{"name": topic, "count": 4, "assignments": None} for topic in ("there", "there", "other")],
        "timeout_ms": 30_000,
        "validate_only": True,
    },
)
for _name, _named in (
    ("two partitions", [{"topic": "there", "partitions": [0, 7]}, {"topic": "none", "partitions": [0]}]),
    ("no partition", []),
):
    CASES.add(
        _name,
        ApiKey.ELECT_LEADERS,
        (0, 1, 2),
        "ALTER CLUSTER",
        always({"topic_partitions": _named, "timeout_ms": 30_000}),
        ("+ALTER TOPIC there", "+ALL TOPIC *"),
    )
CASES.add(
    "all partitions",
    ApiKey.ELECT_LEADERS,
    (2,),
    "ALTER CLUSTER",
    lambda names, stage: {"topic_partitions": None, "timeout_ms": 0, "election_type": 1},
)
CASES.add(
    "two topics",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    (0,),
    "ALTER CLUSTER",
    lambda names, stage: {
        "timeout_ms": 30_000,
        "topics": [
            {"name": topic, "partitions": [{"partition_index": 0, "replicas": None}]} for topic in ("there", "none")
        ],
    },
    ("+ALTER TOPIC there", "+ALL TOPIC *"),
)
CASES.add(
    "no topic",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    (0,),
    "ALTER CLUSTER",
    lambda names, stage: {"timeout_ms": 30_000, "topics": []},
)
for _name, _topics in (
    ("two topics", [{"name": n, "partition_indexes": [0]} for n in ("there", "none")]),
    ("all", None),
):
    CASES.add(
        _name,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        (0,),
        "DESCRIBE CLUSTER",
        always({"timeout_ms": 30_000, "topics": _topics}),
        ("+DESCRIBE TOPIC there", "+ALTER CLUSTER"),
    )
CASES.add(
    "a directory that does not exist",
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    (0, 1, 2),
    "ALTER CLUSTER",
    lambda names, stage: {
        "dirs": [{"path": "/nowhere", "topics": [{"name": topic, "partitions": [0]} for topic in ("there", "other")]}]
    },
    ("+ALTER TOPIC there",),
)
CASES.add(
    "two topics",
    ApiKey.DESCRIBE_LOG_DIRS,
    (0, 1, 2, 3, 4),
    "DESCRIBE CLUSTER",
    lambda names, stage: {"topics": [{"topic": topic, "partitions": [0]} for topic in ("there", "none")]},
    ("+DESCRIBE TOPIC there", "+ALL TOPIC *"),
)
