"""Denials that Apache Kafka's recorded answers do not decide: where tests/broker/authorization/known.py lists a
difference, the texts for people, and versions that are recorded of no Kafka.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from odradek.broker.security.authorizer.authorizer import CLUSTER_NAME
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.registry import request_class
from odradek.protocol.wire_codes import AclOperation as Op
from odradek.protocol.wire_codes import AclResourceType as On
from tests.beside_kafka.documents import Document, message_of
from tests.broker.handlers.scripted_authorizer import Question, Rule, ScriptedAuthorizer, api_with, but, everything
from tests.patience import until
from tests.wire.api import Api

TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
OPEN, CLOSED = "open", "closed"
TOPIC, BROKER, LOGGER = 2, 4, 8
WHO = "User:ANONYMOUS from host 127.0.0.1 needs"


class Asked:
    """`await asked(api, version, document, rule)` returns the response, decided by the rule."""

    def __init__(self, api: Api, authorizer: ScriptedAuthorizer) -> None:
        self.broker_id = str(api.broker.broker_id)
        self._api = api
        self._authorizer = authorizer

    async def __call__(self, api: ApiKey, version: int, document: Document, rule: Rule = everything) -> Any:
        self._authorizer.change(rule)
        return await self._api(message_of(request_class(api), document), version)


@pytest.fixture
async def asked() -> AsyncIterator[Asked]:
    authorizer = ScriptedAuthorizer()
    async with api_with(authorizer, {"offsets.topic.num.partitions": "1"}) as api:
        asked = Asked(api, authorizer)
        topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in (OPEN, CLOSED)]
        await asked(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout_ms": 9000})
        yield asked


def cluster(operation: Op) -> Question:
    return Question(operation, On.CLUSTER, CLUSTER_NAME)


def topic(operation: Op, name: str) -> Question:
    return Question(operation, On.TOPIC, name)


def resources(*kinds: tuple[int, str], **more: Any) -> list[Document]:
    return [{"resource_type": kind, "resource_name": name, **more} for kind, name in kinds]


async def test_a_fetch_of_an_old_version_is_denied_before_it_is_unsupported(asked: Asked) -> None:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    topics = [{"topic": name, "partitions": [partition]} for name in (OPEN, CLOSED)]
    document = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "topics": topics}
    response = await asked(ApiKey.FETCH, 3, document, but(topic(Op.READ, CLOSED)))
    found = {each.topic: each.partitions[0].error_code for each in response.responses}
    assert found == {OPEN: ErrorCode.UNSUPPORTED_VERSION, CLOSED: TOPIC_DENIED}


async def test_metadata_creates_a_topic_for_who_may_create_it(asked: Asked) -> None:
    denied = [cluster(Op.CREATE), topic(Op.CREATE, "wanted")]

    async def code(*rules: Question, creates: bool = True) -> int:
        document = {"topics": [{"name": "wanted"}], "allow_auto_topic_creation": creates}
        return int((await asked(ApiKey.METADATA, 9, document, but(*rules))).topics[0].error_code)

    assert await code(*denied) == TOPIC_DENIED
    assert await code(creates=False) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await code(denied[0]) in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE)

    async def is_there() -> bool:
        return await code(creates=False) == ErrorCode.NONE

    await until(is_there)


@pytest.mark.parametrize("version", [0, 1])
async def test_an_old_offset_fetch_of_a_denied_group_answers_each_partition(asked: Asked, version: int) -> None:
    topics = [{"name": name, "partition_indexes": [0]} for name in (OPEN, CLOSED)]
    rule = but(Question(Op.DESCRIBE, On.GROUP, "g"))
    response = await asked(ApiKey.OFFSET_FETCH, version, {"group_id": "g", "topics": topics}, rule)
    found = {each.name: each.partitions[0].error_code for each in response.topics}
    assert found == dict.fromkeys((OPEN, CLOSED), GROUP_DENIED)


async def test_clients_may_not_add_internal_topics_to_transactions(asked: Asked) -> None:
    document = {
        "v3_and_below_transactional_id": "t",
        "v3_and_below_producer_id": 1,
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [{"name": "__consumer_offsets", "partitions": [0]}],
    }
    response = await asked(ApiKey.ADD_PARTITIONS_TO_TXN, 3, document)
    (found,) = response.results_by_topic_v3_and_below[0].results_by_partition
    assert found.partition_error_code == TOPIC_DENIED


async def test_the_coordinators_of_share_groups_belong_to_the_cluster(asked: Asked) -> None:
    rule = but(cluster(Op.CLUSTER_ACTION))
    response = await asked(ApiKey.FIND_COORDINATOR, 6, {"key_type": 2, "coordinator_keys": ["k", "l"]}, rule)
    found = [(each.key, each.error_code, each.node_id) for each in response.coordinators]
    assert found == [("k", CLUSTER_DENIED, -1), ("l", CLUSTER_DENIED, -1)]


async def test_a_request_that_is_wrong_is_refused_before_it_is_denied(asked: Asked) -> None:
    document: Document = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    synced = await asked(ApiKey.SYNC_GROUP, 5, document, but(Question(Op.READ, On.GROUP, "g")))
    assert synced.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    document = {"topics": [{"name": name, "partition_indexes": [0]} for name in ("not a name", CLOSED)]}
    described = await asked(ApiKey.DESCRIBE_PRODUCERS, 0, document, but(topic(Op.READ, CLOSED)))
    found = {each.name: each.partitions[0].error_code for each in described.topics}
    assert found == {"not a name": ErrorCode.INVALID_TOPIC_EXCEPTION, CLOSED: TOPIC_DENIED}


async def test_log_levels_belong_to_the_cluster(asked: Asked) -> None:
    loggers = [(LOGGER, asked.broker_id), (LOGGER, "77")]
    document: Document = {"resources": resources(*loggers, configs=[])}
    response = await asked(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, document, but(cluster(Op.ALTER_CONFIGS)))
    assert [(each.error_code, each.error_message) for each in response.responses] == [(CLUSTER_DENIED, None)] * 2
    document = {"resources": resources(loggers[0], configuration_keys=None)}
    (found,) = (await asked(ApiKey.DESCRIBE_CONFIGS, 4, document, but(cluster(Op.DESCRIBE_CONFIGS)))).results
    assert (found.error_code, found.configs) == (CLUSTER_DENIED, [])


@pytest.mark.parametrize("api", [ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS])
async def test_altering_configs_finds_wrong_resources_before_it_denies(asked: Asked, api: ApiKey) -> None:
    kinds = [(TOPIC, CLOSED), (BROKER, asked.broker_id), (BROKER, "77"), (TOPIC, "twice"), (TOPIC, "twice")]
    denied = [topic(Op.ALTER_CONFIGS, name) for name in (CLOSED, "twice")]
    rule = but(*denied, cluster(Op.ALTER_CONFIGS))
    response = await asked(api, 1, {"resources": resources(*kinds, configs=[])}, rule)
    found = [each.error_code for each in response.responses]
    assert found == [TOPIC_DENIED, CLUSTER_DENIED, *[ErrorCode.INVALID_REQUEST] * 3]


async def test_all_users_are_denied_at_once(asked: Asked) -> None:
    rule = but(cluster(Op.DESCRIBE))
    response = await asked(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None}, rule)
    assert (response.error_code, response.error_message) == (CLUSTER_DENIED, CLUSTER_DENIED.message)


ANY_ACL = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
AN_ACL = {
    "resource_type": 2,
    "resource_name": OPEN,
    "resource_pattern_type": 3,
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


async def test_the_text_of_a_denial_names_who_is_denied_and_what_is_needed(asked: Asked) -> None:
    rule = but(cluster(Op.DESCRIBE), cluster(Op.ALTER))
    described = await asked(ApiKey.DESCRIBE_ACLS, 3, ANY_ACL, rule)
    (created,) = (await asked(ApiKey.CREATE_ACLS, 3, {"creations": [AN_ACL]}, rule)).results
    (deleted,) = (await asked(ApiKey.DELETE_ACLS, 3, {"filters": [ANY_ACL]}, rule)).filter_results
    reassigned = await asked(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"topics": [], "timeout_ms": 9000}, rule)
    listed = await asked(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"topics": None}, rule)
    for found, needed in (
        (described, "DESCRIBE for DESCRIBE_ACLS"),
        (created, "ALTER for CREATE_ACLS"),
        (deleted, "ALTER for DELETE_ACLS"),
        (reassigned, "ALTER"),
        (listed, "DESCRIBE"),
    ):
        assert found.error_code == CLUSTER_DENIED
        assert f"{WHO} {needed}" in found.error_message
