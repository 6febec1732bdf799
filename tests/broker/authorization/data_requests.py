"""Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords and DescribeProducers."""

from __future__ import annotations

from typing import Any

from odradek.protocol.api_keys import ApiKey
from tests.beside_kafka.documents import Document, batch
from tests.broker.authorization.acl_states import Names
from tests.broker.authorization.case import Cases
from tests.broker.authorization.stage import IDENTIFIED, Stage

CASES = Cases()
FOLLOWER = "+CLUSTER_ACTION CLUSTER"
OF_A_PRODUCER = batch(b"v", base_sequence=3, producer_id=5, producer_epoch=0)
THREE = ("there", "other", "none")
TWO_NEEDS = "{0} TOPIC there; {0} TOPIC none"


def both_and_none(operation: str) -> str:
    """That operation on the topic that exists and on the one that does not."""
    return TWO_NEEDS.format(operation)


def produce(records: bytes, *topics: str, **more: Any) -> Document:
    data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]} for topic in topics]
    return {"acks": -1, "timeout_ms": 30_000, "topic_data": data, **more}


CASES.add(
    "three topics",
    ApiKey.PRODUCE,
    (3, 7, 8, 9, 10, 11),
    both_and_none("WRITE"),
    lambda names, stage: produce(batch(b"v"), *THREE),
    ("+WRITE TOPIC there; +WRITE TOPIC other; +WRITE TOPIC none", "+WRITE TOPIC there; +CREATE CLUSTER"),
)
CASES.add(
    "a transactional id that has a transaction",
    ApiKey.PRODUCE,
    (3, 9, 11),
    "WRITE TRANSACTIONAL_ID tx; WRITE TOPIC sums",
    lambda names, stage: produce(
        batch(b"v", is_transactional=True, base_sequence=0, **stage.producers[names("tx")]),
        names("sums"),
        transactional_id=names("tx"),
    ),
    prepare=lambda names, stage: begin_transaction(names, stage),
    is_fresh=True,
)


async def begin_transaction(names: Names, stage: Stage) -> None:
    await stage.create_topic(names("sums"))
    await stage.init_producer(names("tx"))
    await stage.add_to_transaction(names("tx"), names("sums"))


CASES.add(
    "a transactional id without transactional records",
    ApiKey.PRODUCE,
    (3, 11),
    "WRITE TOPIC there",
    lambda names, stage: produce(batch(b"v"), "there", transactional_id="tx"),
    ("+WRITE TOPIC there; +WRITE TRANSACTIONAL_ID tx",),
)
CASES.add(
    "transactional records without a transactional id",
    ApiKey.PRODUCE,
    (3, 11),
    "WRITE TOPIC there",
    lambda names, stage: produce(batch(b"v", is_transactional=True, base_sequence=0, **stage.producers["tx"]), "there"),
    ("+WRITE TOPIC there; +WRITE TRANSACTIONAL_ID tx", "+WRITE TOPIC there; +WRITE TRANSACTIONAL_ID *"),
)
CASES.add(
    "a producer id",
    ApiKey.PRODUCE,
    (3, 9, 11),
    "WRITE TOPIC there",
    lambda names, stage: produce(OF_A_PRODUCER, "there"),
    ("+WRITE TOPIC there; -IDEMPOTENT_WRITE CLUSTER", "+IDEMPOTENT_WRITE CLUSTER"),
)
CASES.add(
    "a partition that does not exist",
    ApiKey.PRODUCE,
    (9,),
    "WRITE TOPIC there",
    lambda names, stage: {
        **produce(b""),
        "topic_data": [
            {"name": "there", "partition_data": [{"index": number, "records": batch(b"v")} for number in (0, 7)]}
        ],
    },
)


def fetch(stage: Stage, *topics: str, **more: Any) -> Document:
    asked = [
        {
            "topic": topic,
            "topic_id": stage.ids.get(topic, IDENTIFIED),
            "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}],
        }
        for topic in topics
    ]
    return {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "session_epoch": -1,
        "topics": asked,
        **more,
    }


CASES.add(
    "three topics",
    ApiKey.FETCH,
    (4, 7, 11, 12, 13, 15, 17),
    both_and_none("READ"),
    lambda names, stage: fetch(stage, *THREE),
    (FOLLOWER, "+READ TOPIC other"),
)
CASES.add(
    "a new session",
    ApiKey.FETCH,
    (7, 12, 13, 17),
    both_and_none("READ"),
    lambda names, stage: fetch(stage, *THREE, session_epoch=0),
    (FOLLOWER,),
)
CASES.add(
    "a session that does not exist",
    ApiKey.FETCH,
    (7, 13),
    "READ TOPIC there",
    lambda names, stage: fetch(stage, "there", session_id=5, session_epoch=3),
)
CASES.add(
    "a follower",
    ApiKey.FETCH,
    (4, 11, 12, 13),
    "CLUSTER_ACTION CLUSTER",
    lambda names, stage: fetch(stage, *THREE, replica_id=9),
    ("+READ TOPIC there; +READ TOPIC other; +READ TOPIC none",),
)
CASES.add(
    "a follower with its epoch",
    ApiKey.FETCH,
    (15, 17),
    "CLUSTER_ACTION CLUSTER",
    lambda names, stage: fetch(stage, *THREE, replica_state={"replica_id": 9, "replica_epoch": 1}),
    ("+READ TOPIC there; +READ TOPIC other; +READ TOPIC none",),
)
CASES.add(
    "a new session of a follower",
    ApiKey.FETCH,
    (11, 13),
    "CLUSTER_ACTION CLUSTER",
    lambda names, stage: fetch(stage, *THREE, replica_id=9, session_epoch=0),
    ("+READ TOPIC there",),
)
CASES.add(
    "a consumer that debugs",
    ApiKey.FETCH,
    (11, 13),
    "READ TOPIC there",
    lambda names, stage: fetch(stage, "there", replica_id=-2),
    (FOLLOWER,),
)
CASES.add(
    "no topic",
    ApiKey.FETCH,
    (11, 13),
    "READ TOPIC there",
    lambda names, stage: fetch(stage),
)
CASES.add(
    "three topics",
    ApiKey.LIST_OFFSETS,
    (0, 1, 2, 4, 6, 7, 9),
    both_and_none("DESCRIBE"),
    lambda names, stage: list_offsets(-1),
    (FOLLOWER,),
)
CASES.add(
    "a follower",
    ApiKey.LIST_OFFSETS,
    (1, 9),
    "DESCRIBE TOPIC there",
    lambda names, stage: list_offsets(9),
    (FOLLOWER,),
)


def list_offsets(replica_id: int) -> Document:
    partition = {"partition_index": 0, "timestamp": -2, "max_num_offsets": 1}
    return {"replica_id": replica_id, "topics": [{"name": topic, "partitions": [partition]} for topic in THREE]}


def epochs(replica_id: int) -> Document:
    partition = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    return {"replica_id": replica_id, "topics": [{"topic": topic, "partitions": [partition]} for topic in THREE]}


CASES.add(
    "a consumer",
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    (0, 2, 3, 4),
    both_and_none("DESCRIBE"),
    lambda names, stage: epochs(-1),
    (FOLLOWER, "+CLUSTER_ACTION CLUSTER; -DESCRIBE TOPIC there"),
)
CASES.add(
    "a follower",
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    (3, 4),
    "CLUSTER_ACTION CLUSTER",
    lambda names, stage: epochs(9),
    ("+DESCRIBE TOPIC there", "+CLUSTER_ACTION CLUSTER; -DESCRIBE TOPIC there", "+READ TOPIC there"),
)
CASES.add(
    "three topics",
    ApiKey.DELETE_RECORDS,
    (0, 2),
    both_and_none("DELETE"),
    lambda names, stage: {
        "timeout_ms": 30_000,
        "topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": 0}]} for topic in THREE],
    },
    ("+DELETE TOPIC there; +DESCRIBE TOPIC none", "+DESCRIBE TOPIC none", "+DELETE TOPIC there; +ALL TOPIC none"),
)


async def with_a_producer(names: Names, stage: Stage) -> None:
    await stage.prepared(ApiKey.PRODUCE, 7, produce(OF_A_PRODUCER, "there"))


CASES.add(
    "three topics",
    ApiKey.DESCRIBE_PRODUCERS,
    (0,),
    both_and_none("READ"),
    lambda names, stage: {"topics": [{"name": topic, "partition_indexes": [0, 7]} for topic in THREE]},
    ("+READ TOPIC other", "+READ TOPIC there; +DESCRIBE TOPIC none"),
    prepare=with_a_producer,
)
