"""Producer ids, transactions and their descriptions."""

from __future__ import annotations

from typing import Any

from odradek.protocol.api_keys import ApiKey
from tests.beside_kafka.documents import Document
from tests.broker.authorization.acl_states import Names
from tests.broker.authorization.case import Cases
from tests.broker.authorization.data_requests import THREE
from tests.broker.authorization.stage import Stage

CASES = Cases()

CASES.add(
    "no transactional id",
    ApiKey.INIT_PRODUCER_ID,
    (0, 2, 3, 5),
    "IDEMPOTENT_WRITE CLUSTER",
    lambda names, stage: {"transactional_id": None, "transaction_timeout_ms": 60_000},
    (
        "+WRITE TOPIC anything",
        "+WRITE TOPIC any~",
        "+WRITE TOPIC *",
        "+ALL TOPIC anything",
        "+READ TOPIC anything",
        "+DESCRIBE TOPIC *",
        "+WRITE TOPIC anything by=User:bob",
        "+WRITE TOPIC anything by=User:*",
        "+WRITE TOPIC anything from=10.9.8.7",
        "+WRITE TOPIC anything; -WRITE TOPIC anything",
        "+WRITE TOPIC anything; -ALL TOPIC anything",
        "+WRITE TOPIC anything; -WRITE TOPIC an~",
        "+WRITE TOPIC anything; -WRITE TOPIC *",
        "+WRITE TOPIC anything; -WRITE TOPIC * by=User:*",
        "+WRITE TOPIC anything; -WRITE TOPIC * by=User:bob",
        "+WRITE TOPIC anything; -WRITE TOPIC * from=10.9.8.7",
        "+WRITE TOPIC anything; -WRITE TOPIC anywhere",
        "+WRITE TOPIC anything; -READ TOPIC *",
        "+WRITE TOPIC any~; -WRITE TOPIC anything",
        "+WRITE TOPIC any~; -WRITE TOPIC an~",
        "+WRITE TOPIC an~; -WRITE TOPIC any~",
        "+WRITE TOPIC any~; -WRITE TOPIC any~",
        "+WRITE TOPIC any~; -WRITE TOPIC any",
        "+WRITE TOPIC *; -WRITE TOPIC anything",
        "+WRITE TOPIC *; -WRITE TOPIC any~",
        "+WRITE TOPIC *; -WRITE TOPIC *",
        "+WRITE TOPIC a~; +WRITE TOPIC b; -WRITE TOPIC a~",
        "-IDEMPOTENT_WRITE CLUSTER; +WRITE TOPIC anything",
        "+WRITE TRANSACTIONAL_ID tx",
    ),
)


def init(names: Names, stage: Stage) -> Document:
    return {"transactional_id": names("tx"), "transaction_timeout_ms": 60_000}


CASES.add(
    "a transactional id",
    ApiKey.INIT_PRODUCER_ID,
    (0, 2, 3, 5),
    "WRITE TRANSACTIONAL_ID tx",
    init,
    ("+IDEMPOTENT_WRITE CLUSTER", "+WRITE TOPIC *", "+WRITE TRANSACTIONAL_ID tx; -IDEMPOTENT_WRITE CLUSTER"),
    is_fresh=True,
)
CASES.add(
    "an empty transactional id",
    ApiKey.INIT_PRODUCER_ID,
    (0, 5),
    "",
    lambda names, stage: {"transactional_id": "", "transaction_timeout_ms": 60_000},
    ("+WRITE TRANSACTIONAL_ID *", "+IDEMPOTENT_WRITE CLUSTER"),
)


async def with_producer(names: Names, stage: Stage) -> None:
    await stage.init_producer(names("tx"))


async def with_transaction(names: Names, stage: Stage) -> None:
    await stage.create_topic(names("sums"))
    await stage.init_producer(names("tx"))
    await stage.add_to_transaction(names("tx"), names("sums"))


def add_partitions(names: Names, stage: Stage, *topics: str, **more: Any) -> Document:
    own = {"transactional_id": names("tx"), **stage.producers[names("tx")]}
    asked = [{"name": topic, "partitions": [0, 1]} for topic in topics]
    return {
        "transactions": [{**own, "verify_only": False, "topics": asked, **more}],
        **{f"v3_and_below_{key}": value for key, value in own.items()},
        "v3_and_below_topics": asked,
    }


ADD_NEEDS = "WRITE TRANSACTIONAL_ID tx; WRITE TOPIC there; WRITE TOPIC none"
CASES.add(
    "two topics",
    ApiKey.ADD_PARTITIONS_TO_TXN,
    (0, 2, 3),
    ADD_NEEDS,
    lambda names, stage: add_partitions(names, stage, "there", "none"),
    ("+WRITE TRANSACTIONAL_ID tx; +READ TOPIC there; +CLUSTER_ACTION CLUSTER",),
    prepare=with_producer,
    is_fresh=True,
)
CASES.add(
    "one topic",
    ApiKey.ADD_PARTITIONS_TO_TXN,
    (0, 3),
    "WRITE TRANSACTIONAL_ID tx; WRITE TOPIC there",
    lambda names, stage: add_partitions(names, stage, "there"),
    prepare=with_producer,
    is_fresh=True,
)
CASES.add(
    "a batch of a broker",
    ApiKey.ADD_PARTITIONS_TO_TXN,
    (4, 5),
    "CLUSTER_ACTION CLUSTER",
    lambda names, stage: add_partitions(names, stage, "there", "none"),
    (
        "+WRITE TRANSACTIONAL_ID tx; +WRITE TOPIC there; +WRITE TOPIC none",
        "+CLUSTER_ACTION CLUSTER; +WRITE TRANSACTIONAL_ID tx",
        "+CLUSTER_ACTION CLUSTER; +WRITE TRANSACTIONAL_ID tx; +WRITE TOPIC there",
        "+CLUSTER_ACTION CLUSTER; +WRITE TRANSACTIONAL_ID tx; +WRITE TOPIC there; +WRITE TOPIC none",
        "+CLUSTER_ACTION CLUSTER; +WRITE TOPIC there; +WRITE TOPIC none",
    ),
    prepare=with_producer,
    is_fresh=True,
)
CASES.add(
    "a verification",
    ApiKey.ADD_PARTITIONS_TO_TXN,
    (4, 5),
    "CLUSTER_ACTION CLUSTER",
    lambda names, stage: add_partitions(names, stage, names("sums"), "there", verify_only=True),
    (
        "+CLUSTER_ACTION CLUSTER; +WRITE TRANSACTIONAL_ID tx",
        "+CLUSTER_ACTION CLUSTER; +WRITE TRANSACTIONAL_ID tx; +WRITE TOPIC sums",
        "+CLUSTER_ACTION CLUSTER; +WRITE TRANSACTIONAL_ID tx; +WRITE TOPIC sums; +WRITE TOPIC there",
    ),
    prepare=with_transaction,
    is_fresh=True,
)
CASES.add(
    "a group",
    ApiKey.ADD_OFFSETS_TO_TXN,
    (0, 3, 4),
    "WRITE TRANSACTIONAL_ID tx; READ GROUP newgroup",
    lambda names, stage: {
        "transactional_id": names("tx"),
        **stage.producers[names("tx")],
        "group_id": names("newgroup"),
    },
    ("+WRITE TRANSACTIONAL_ID tx; +DESCRIBE GROUP newgroup", "+DESCRIBE TRANSACTIONAL_ID tx; +READ GROUP newgroup"),
    prepare=with_producer,
    is_fresh=True,
)
CASES.add(
    "a transaction",
    ApiKey.END_TXN,
    (0, 3, 4),
    "WRITE TRANSACTIONAL_ID tx",
    lambda names, stage: {"transactional_id": names("tx"), **stage.producers[names("tx")], "committed": True},
    prepare=with_transaction,
    is_fresh=True,
)


def send_offsets(names: Names, stage: Stage, *topics: str) -> Document:
    partitions = [{"partition_index": 0, "committed_offset": 5}, {"partition_index": 1, "committed_offset": 5}]
    return {
        "transactional_id": names("tx"),
        "group_id": names("newgroup"),
        **stage.producers[names("tx")],
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": topic, "partitions": partitions} for topic in topics],
    }


async def with_offsets(names: Names, stage: Stage) -> None:
    await stage.init_producer(names("tx"))
    asked = {"transactional_id": names("tx"), **stage.producers[names("tx")], "group_id": names("newgroup")}
    await stage.prepared(ApiKey.ADD_OFFSETS_TO_TXN, 1, asked)


CASES.add(
    "three topics",
    ApiKey.TXN_OFFSET_COMMIT,
    (0, 2, 3, 4),
    "WRITE TRANSACTIONAL_ID tx; READ GROUP newgroup; READ TOPIC there; READ TOPIC none",
    lambda names, stage: send_offsets(names, stage, *THREE),
    (
        "+WRITE TRANSACTIONAL_ID tx; +READ GROUP newgroup; +READ TOPIC other",
        "+DESCRIBE TRANSACTIONAL_ID tx; +READ GROUP newgroup; +READ TOPIC there",
        "+WRITE TRANSACTIONAL_ID tx; +DESCRIBE GROUP newgroup; +READ TOPIC there",
    ),
    prepare=with_offsets,
    is_fresh=True,
)


def markers(names: Names, stage: Stage) -> Document:
    topics = [{"name": topic, "partition_indexes": [0]} for topic in ("there", "none")]
    producer = {"producer_id": 77_777, "producer_epoch": 0}
    return {"markers": [{**producer, "transaction_result": False, "topics": topics, "coordinator_epoch": 0}]}


CASES.add(
    "a marker for two topics",
    ApiKey.WRITE_TXN_MARKERS,
    (0, 1),
    "CLUSTER_ACTION CLUSTER",
    markers,
    ("+ALTER CLUSTER; -CLUSTER_ACTION CLUSTER", "+CLUSTER_ACTION CLUSTER; -ALTER CLUSTER", "+WRITE TOPIC there"),
)
CASES.add(
    "three transactional ids",
    ApiKey.DESCRIBE_TRANSACTIONS,
    (0,),
    "DESCRIBE TRANSACTIONAL_ID tx; DESCRIBE TRANSACTIONAL_ID notx",
    lambda names, stage: {"transactional_ids": ["tx", "othertx", "notx"]},
)
CASES.add(
    "a transaction with a topic",
    ApiKey.DESCRIBE_TRANSACTIONS,
    (0,),
    "DESCRIBE TRANSACTIONAL_ID tx; DESCRIBE TOPIC sums",
    lambda names, stage: {"transactional_ids": [names("tx")]},
    ("+DESCRIBE TRANSACTIONAL_ID tx; +WRITE TOPIC sums", "+WRITE TRANSACTIONAL_ID tx; +READ TOPIC sums"),
    prepare=with_transaction,
    is_fresh=True,
)
CASES.add(
    "all transactions",
    ApiKey.LIST_TRANSACTIONS,
    (0, 1),
    "DESCRIBE TRANSACTIONAL_ID tx; DESCRIBE TRANSACTIONAL_ID othertx",
    lambda names, stage: {"duration_filter": -1},
    ("+DESCRIBE CLUSTER", "+WRITE TRANSACTIONAL_ID tx"),
    lists=True,
)
