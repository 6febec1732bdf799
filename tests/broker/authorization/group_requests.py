"""Consumer groups: members, committed offsets, descriptions, and their coordinators."""

from __future__ import annotations

from typing import Any

from odradek.protocol.api_keys import ApiKey
from tests.beside_kafka.documents import Document
from tests.broker.authorization.case import Cases
from tests.broker.authorization.data_requests import THREE

CASES = Cases()
GROUP_AND_TOPICS = "{0} GROUP group; {1} TOPIC there; {1} TOPIC none"
RANGE = {"name": "range", "metadata": b"m"}

CASES.add(
    "a new group",
    ApiKey.JOIN_GROUP,
    (0, 2, 4, 5, 7, 9),
    "READ GROUP new",
    lambda names, stage: {
        "group_id": names("new"),
        "session_timeout_ms": 6000,
        "rebalance_timeout_ms": 6000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [RANGE],
    },
    is_fresh=True,
)
CASES.add(
    "an empty group id",
    ApiKey.JOIN_GROUP,
    (9,),
    "",
    lambda names, stage: {
        "group_id": "",
        "session_timeout_ms": 6000,
        "rebalance_timeout_ms": 6000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [RANGE],
    },
    ("+READ GROUP *",),
)
CASES.add(
    "a member that is not known",
    ApiKey.SYNC_GROUP,
    (0, 1, 3, 4, 5),
    "READ GROUP group",
    lambda names, stage: {
        "group_id": "group",
        "generation_id": 1,
        "member_id": "member",
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [],
    },
)
CASES.add(
    "a member that is not known",
    ApiKey.HEARTBEAT,
    (0, 3, 4),
    "READ GROUP group",
    lambda names, stage: {"group_id": "group", "generation_id": 1, "member_id": "member"},
)
CASES.add(
    "members that are not known",
    ApiKey.LEAVE_GROUP,
    (0, 2, 3, 4, 5),
    "READ GROUP group",
    lambda names, stage: {
        "group_id": "group",
        "member_id": "member",
        "members": [{"member_id": "member"}, {"member_id": "another", "group_instance_id": "instance"}],
    },
)


def commit(group: str) -> Document:
    partitions = [{"partition_index": 0, "committed_offset": 5}, {"partition_index": 1, "committed_offset": 5}]
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": topic, "partitions": partitions} for topic in THREE],
    }


CASES.add(
    "three topics",
    ApiKey.OFFSET_COMMIT,
    (0, 1, 2, 5, 7, 8, 9),
    GROUP_AND_TOPICS.format("READ", "READ"),
    lambda names, stage: commit("group"),
    ("+READ GROUP group; +READ TOPIC other",),
)
CASES.add(
    "no topic",
    ApiKey.OFFSET_COMMIT,
    (2, 9),
    "READ GROUP group",
    lambda names, stage: {**commit("group"), "topics": []},
)


def offsets(group: str, topics: tuple[str, ...] | None, **more: Any) -> Document:
    asked = None if topics is None else [{"name": topic, "partition_indexes": [0, 7]} for topic in topics]
    return {"group_id": group, "topics": asked, "groups": [{"group_id": group, "topics": asked}], **more}


CASES.add(
    "three topics",
    ApiKey.OFFSET_FETCH,
    (0, 1, 2, 5, 6, 7, 8, 9),
    GROUP_AND_TOPICS.format("DESCRIBE", "DESCRIBE"),
    lambda names, stage: offsets("group", THREE),
    ("+DESCRIBE GROUP group; +DESCRIBE TOPIC other",),
)
CASES.add(
    "all topics",
    ApiKey.OFFSET_FETCH,
    (2, 7, 8, 9),
    "DESCRIBE GROUP group; DESCRIBE TOPIC there; DESCRIBE TOPIC other",
    lambda names, stage: offsets("group", None),
)
CASES.add(
    "offsets that are stable",
    ApiKey.OFFSET_FETCH,
    (7, 9),
    "DESCRIBE GROUP group; DESCRIBE TOPIC there",
    lambda names, stage: offsets("group", ("there",), require_stable=True),
)
CASES.add(
    "several groups",
    ApiKey.OFFSET_FETCH,
    (8, 9),
    "DESCRIBE GROUP group; DESCRIBE GROUP othergroup; DESCRIBE GROUP nogroup; DESCRIBE TOPIC there",
    lambda names, stage: {
        "groups": [
            {"group_id": "group", "topics": [{"name": topic, "partition_indexes": [0]} for topic in THREE]},
            {"group_id": "othergroup", "topics": None},
            {"group_id": "nogroup", "topics": [{"name": "there", "partition_indexes": [0]}]},
        ]
    },
)
CASES.add(
    "several groups",
    ApiKey.DESCRIBE_GROUPS,
    (0, 2, 3, 4, 5),
    "DESCRIBE GROUP group; DESCRIBE GROUP nogroup",
    lambda names, stage: {"groups": ["group", "othergroup", "nogroup"]},
)
CASES.add(
    "authorized operations",
    ApiKey.DESCRIBE_GROUPS,
    (3, 5),
    "DESCRIBE GROUP group; DESCRIBE GROUP nogroup",
    lambda names, stage: {"groups": ["group", "othergroup", "nogroup"], "include_authorized_operations": True},
    ("+ALL GROUP *; -DELETE GROUP group", "+ALL GROUP *; -DESCRIBE GROUP group", "+DELETE GROUP group"),
)
CASES.add(
    "all groups",
    ApiKey.LIST_GROUPS,
    (0, 2, 3, 4, 5),
    "DESCRIBE GROUP group; DESCRIBE CLUSTER",
    lambda names, stage: {},
    (
        "+DESCRIBE CLUSTER; -DESCRIBE GROUP group",
        "+DESCRIBE GROUP *; -DESCRIBE GROUP group",
        "-DESCRIBE CLUSTER; +DESCRIBE GROUP othergroup",
        "+READ GROUP group; +DELETE GROUP othergroup",
    ),
    lists=True,
)
CASES.add(
    "three groups",
    ApiKey.DELETE_GROUPS,
    (0, 1, 2),
    "DELETE GROUP new; DELETE GROUP nogroup",
    lambda names, stage: {"groups_names": [names("new"), "group", "nogroup"]},
    ("+DESCRIBE GROUP group; +READ GROUP new",),
    prepare=lambda names, stage: stage.commit(names("new"), ("there",)),
    is_fresh=True,
)
CASES.add(
    "three topics",
    ApiKey.OFFSET_DELETE,
    (0,),
    "DELETE GROUP new; READ TOPIC there; READ TOPIC none",
    lambda names, stage: {
        "group_id": names("new"),
        "topics": [
            {"name": topic, "partitions": [{"partition_index": number} for number in (0, 7)]} for topic in THREE
        ],
    },
    ("+DELETE GROUP new; +READ TOPIC other",),
    prepare=lambda names, stage: stage.commit(names("new"), ("there", "other")),
    is_fresh=True,
)
CASES.add(
    "a group that does not exist",
    ApiKey.OFFSET_DELETE,
    (0,),
    "DELETE GROUP nogroup; READ TOPIC there",
    lambda names, stage: {"group_id": "nogroup", "topics": [{"name": "there", "partitions": [{"partition_index": 0}]}]},
)
CASES.add(
    "a group",
    ApiKey.FIND_COORDINATOR,
    (0, 1, 2, 3),
    "DESCRIBE GROUP group",
    lambda names, stage: {"key": "group", "key_type": 0},
    ("+READ GROUP group; +DESCRIBE CLUSTER",),
)
CASES.add(
    "three groups",
    ApiKey.FIND_COORDINATOR,
    (4, 5, 6),
    "DESCRIBE GROUP group; DESCRIBE GROUP nogroup",
    lambda names, stage: {"coordinator_keys": ["group", "othergroup", "nogroup"], "key_type": 0},
)
CASES.add(
    "a transactional id",
    ApiKey.FIND_COORDINATOR,
    (1, 3),
    "DESCRIBE TRANSACTIONAL_ID tx",
    lambda names, stage: {"key": "tx", "key_type": 1},
)
CASES.add(
    "three transactional ids",
    ApiKey.FIND_COORDINATOR,
    (4, 6),
    "DESCRIBE TRANSACTIONAL_ID tx; DESCRIBE TRANSACTIONAL_ID notx",
    lambda names, stage: {"coordinator_keys": ["tx", "othertx", "notx"], "key_type": 1},
)
CASES.add(
    "a type that does not exist",
    ApiKey.FIND_COORDINATOR,
    (1, 6),
    "",
    lambda names, stage: {"coordinator_keys": ["x"], "key": "x", "key_type": 7},
    ("+DESCRIBE GROUP x; +DESCRIBE TRANSACTIONAL_ID x",),
)
