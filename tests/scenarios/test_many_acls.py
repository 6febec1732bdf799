"""Very many ACLs are created, described, loaded and deleted without a long turn, and memory stays in proportion."""

from __future__ import annotations

import asyncio

import pytest

from odradek.broker.cluster.stored_acls import StoredAcls
from odradek.broker.metadata_store.shared.shared_store import SharedStore
from odradek.broker.security.authorizer.acl import AccessControlEntry, ResourcePattern
from odradek.broker.security.authorizer.acl_authorizer import AclAuthorizer
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.acls import (
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from odradek.protocol.schema import Message
from odradek.protocol.wire_codes import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from odradek.timer import ManualClock
from tests.beside_kafka.documents import Document, message_of
from tests.broker.authorization.acl_scripts import acl_filter, binding
from tests.broker.cluster.configs_harness import acls_into
from tests.scenarios.test_hostile_admin_requests import BYTES_PER_BYTE
from tests.scenarios.turns_of_a_loop import LongestTurn, collector_as_when_served
from tests.scenarios.watched_broker import Memory, decoded, watched_broker
from tests.soak import rounds
from tests.zookeeper.stores import spawn

VERSION = 3
PER_REQUEST = rounds(2500, in_soak=5000)
REQUESTS = rounds(1, in_soak=20)
ACLS = PER_REQUEST * REQUESTS
LOADED = rounds(5000, in_soak=100_000)
ENTRIES = 5000
"""Those of one resource: nearly what an entry of the metadata store can hold."""
EXEMPT_BYTES = 8 << 20
"""See docs/security.md."""


SETTINGS = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:ANONYMOUS"}
ALL = message_of(DescribeAclsRequest, acl_filter())


def create(*acls: Document) -> Message:
    return message_of(CreateAclsRequest, {"creations": list(acls)})


def in_proportion(memory: Memory) -> bool:
    return memory.beyond_frame_and_answer <= EXEMPT_BYTES + BYTES_PER_BYTE * memory.request


@pytest.mark.long
@pytest.mark.soak("100,000 ACLs", minutes=1)
@pytest.mark.timeout(300)
def test_no_turn_is_long_while_acls_are_created_described_and_deleted() -> None:
    with watched_broker(SETTINGS) as broker:
        for number in range(REQUESTS):
            names = (f"topic-{each}" for each in range(number * PER_REQUEST, (number + 1) * PER_REQUEST))
            request = create(
                *(binding(resource_name=name, resource_pattern_type=AclPatternType.PREFIXED) for name in names)
            )
            answer = broker.ask(request, VERSION)
            assert {each.error_code for each in decoded(request, VERSION, answer).results} == {ErrorCode.NONE}
            assert answer.turns.are_short()
        many = create(*(binding(resource_name="one", principal=f"User:{number}") for number in range(ENTRIES)))
        assert broker.ask(many, VERSION).turns.are_short()
        described = broker.ask(ALL, VERSION)
        assert described.turns.are_short()
        response: DescribeAclsResponse = decoded(ALL, VERSION, described)
        assert sum(len(resource.acls) for resource in response.resources) == ACLS + ENTRIES
        assert in_proportion(broker.memory_of(ALL, VERSION))
        deletion = message_of(DeleteAclsRequest, {"filters": [acl_filter(operation=AclOperation.READ)]})
        deleted = broker.ask(deletion, VERSION)
        assert deleted.turns.are_short()
        (result,) = decoded(deletion, VERSION, deleted).filter_results
        assert len(result.matching_acls) == ACLS + ENTRIES
        assert broker.response(ALL, VERSION).resources == []


def test_refused_acls_take_memory_in_proportion() -> None:
    with watched_broker(SETTINGS) as broker:
        refused = create(*(binding(resource_name=f"{number}", principal="nobody") for number in range(10_000)))
        answer = broker.ask(refused, VERSION)
        assert answer.turns.are_short()
        assert in_proportion(broker.memory_of(refused, VERSION))
        too_many = create(*(binding(resource_name=f"{number}") for number in range(10_001)))
        assert {each.error_code for each in broker.response(too_many, VERSION).results} == {ErrorCode.POLICY_VIOLATION}


@pytest.mark.soak("100,000 ACLs are loaded", minutes=1)
async def test_no_turn_is_long_while_a_broker_loads_acls() -> None:
    store = SharedStore(session_timeout_ms=60_000).session("one")
    await store.open()
    entry = AccessControlEntry("User:a", "*", AclOperation.READ, AclPermissionType.ALLOW)

    def stored_acls() -> StoredAcls:
        authorizer = AclAuthorizer()
        return StoredAcls(store, authorizer, acls_into(authorizer), clock=ManualClock(), spawn=spawn)

    first = stored_acls()
    await first.load()
    patterns = [
        ResourcePattern(AclResourceType.GROUP, AclPatternType.LITERAL, f"g{number}") for number in range(LOADED)
    ]
    async for _, altered in first.alter((pattern, lambda before: before | {entry}) for pattern in patterns):
        assert altered.error is None
    second = stored_acls()
    turn = LongestTurn()
    with collector_as_when_served():
        await turn.begin()
        await second.load()
        await turn.ended()
    assert len(second.authorizer.acls) == LOADED
    assert turn.are_short()
    await asyncio.sleep(0)
    await store.close()
