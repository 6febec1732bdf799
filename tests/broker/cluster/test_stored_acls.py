"""ACLs in the metadata store: any broker changes them, every broker decides by them. Two brokers share a store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Iterable
from typing import Any

import pytest
from structlog.testing import capture_logs

from odradek.broker.cluster import stored_acls
from odradek.broker.cluster.store_follower import EXPIRATION_MS
from odradek.broker.cluster.stored_acls import Altered, StoredAcls
from odradek.broker.handlers.acls import AclHandlers
from odradek.broker.metadata_store import acl_znodes
from odradek.broker.metadata_store.acl_znodes import acl_path, encode_acls, parse_acls
from odradek.broker.metadata_store.interface import LONGEST_ENTRY, Delete, MetadataStore, StoreDamaged
from odradek.broker.metadata_store.shared.shared_store import SharedStore
from odradek.broker.requests.endpoint import Endpoint
from odradek.broker.requests.request_context import ConnectionInfo, RequestContext
from odradek.broker.security.authorizer.acl import AccessControlEntry, ResourcePattern
from odradek.broker.security.authorizer.acl_authorizer import AclAuthorizer
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.acls import DeleteAclsRequest
from odradek.protocol.wire_codes import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from odradek.timer import ManualClock
from tests.broker.cluster.configs_harness import SingleNode, acls_into
from tests.simulation.loop import run_in_virtual_time

T = ResourcePattern(AclResourceType.TOPIC, AclPatternType.LITERAL, "t")
PREFIX = ResourcePattern(AclResourceType.TRANSACTIONAL_ID, AclPatternType.PREFIXED, 'pre:"é')
LITERAL_CHANGES, PREFIXED_CHANGES = acl_znodes.CHANGES.values()


def acl(principal: str = "User:alice", operation: AclOperation = AclOperation.READ) -> AccessControlEntry:
    return AccessControlEntry(principal, "*", operation, AclPermissionType.ALLOW)


class Node:
    """A broker, as far as its ACLs go."""

    def __init__(self, store: MetadataStore, clock: ManualClock) -> None:
        self.tasks: list[asyncio.Task[Any]] = []
        self.authorizer = AclAuthorizer()
        self.acls = StoredAcls(store, self.authorizer, acls_into(self.authorizer), clock=clock, spawn=self.spawn)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self.tasks.append(task)
        return task

    async def settle(self) -> None:
        while waiting := [task for task in self.tasks if not task.done()]:
            await asyncio.gather(*waiting)

    async def add(self, pattern: ResourcePattern, *entries: AccessControlEntry) -> Altered:
        return (await self.add_all({pattern: entries}))[pattern]

    async def add_all(
        self, acls: dict[ResourcePattern, tuple[AccessControlEntry, ...]]
    ) -> dict[ResourcePattern, Altered]:
        changes = ((pattern, lambda before, new=new: before.union(new)) for pattern, new in acls.items())
        return {pattern: altered async for pattern, altered in self.acls.alter(changes)}

    async def clear(self, patterns: Iterable[ResourcePattern]) -> None:
        changes = ((pattern, lambda before: frozenset[AccessControlEntry]()) for pattern in patterns)
        async for _, altered in self.acls.alter(changes):
            assert altered.error is None

    def may_read(self, name: str = "t", principal: str = "User:alice") -> bool:
        return self.authorizer.allows(principal, "10.0.0.1", AclOperation.READ, AclResourceType.TOPIC, name)


class TwoNodes:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.shared = SharedStore(session_timeout_ms=6000)
        self.store = self.shared.session("both")
        self.one, self.two = Node(self.store, self.clock), Node(self.store, self.clock)

    async def settle(self) -> None:
        await self.one.settle()
        await self.two.settle()


@pytest.fixture
async def nodes() -> AsyncIterator[TwoNodes]:
    both = TwoNodes()
    await both.store.open()
    await both.one.acls.load()
    await both.two.acls.load()
    yield both
    await both.settle()
    await both.store.close()


async def test_an_acl_holds_on_this_broker_at_once_and_on_the_others_by_notice(nodes: TwoNodes) -> None:
    assert await nodes.one.add(T, acl()) == Altered(frozenset(), frozenset({acl()}))
    assert nodes.one.may_read()
    await nodes.settle()
    assert nodes.two.may_read()
    await nodes.two.clear([T])
    assert not nodes.two.may_read()
    await nodes.settle()
    assert not nodes.one.may_read()
    assert await nodes.store.exists(acl_path(T)) is None


async def test_each_change_is_looked_for_once(nodes: TwoNodes) -> None:
    for number in range(6):
        for pattern in (T, PREFIX):
            await nodes.one.add(pattern, acl(f"User:{number}"))
            await nodes.settle()
    assert len(nodes.one.tasks) == len(nodes.two.tasks) == 12


async def test_entries_and_notices_are_where_kafka_keeps_them_and_as_it_writes_them(nodes: TwoNodes) -> None:
    await nodes.one.add(T, acl(operation=AclOperation.DESCRIBE_CONFIGS))
    await nodes.one.add(PREFIX, acl())
    entry = await nodes.store.get("/kafka-acl/Topic/t")
    assert entry.data == (
        b'{"acls":[{"principal":"User:alice","permissionType":"Allow","host":"*","operation":"DescribeConfigs"}],'
        b'"version":1}'
    )
    assert await nodes.store.exists('/kafka-acl-extended/prefixed/TransactionalId/pre:"é') is not None
    notice = await nodes.store.get("/kafka-acl-changes/acl_changes_0000000000")
    assert notice.data == b"TOPIC:t"
    extended = await nodes.store.get("/kafka-acl-extended-changes/acl_changes_0000000000")
    assert json.loads(extended.data or b"") == {
        "version": 1,
        "resourceType": "TRANSACTIONAL_ID",
        "name": 'pre:"é',
        "patternType": "PREFIXED",
    }


async def test_what_kafka_writes_is_read(nodes: TwoNodes) -> None:
    """As recorded from Apache Kafka 3.9.1, whose JSON is UTF-8."""
    data = (
        '{"acls":[{"principal":"User:a","permissionType":"Allow","host":"*","operation":"Read"},'
        '{"principal":"User:é\\"x","permissionType":"Deny","host":"1.2.3.4","operation":"DescribeTokens"}],"version":1}'
    )
    await nodes.store.create("/kafka-acl/Topic/t", data.encode())
    await nodes.store.create("/kafka-acl-changes/acl_changes_", b"TOPIC:t", sequential=True)
    await nodes.settle()
    denial = AccessControlEntry('User:é"x', "1.2.3.4", AclOperation.DESCRIBE_TOKENS, AclPermissionType.DENY)
    for node in (nodes.one, nodes.two):
        assert node.authorizer.acls == {T: frozenset({acl("User:a"), denial})}


async def test_changes_of_two_brokers_to_one_pattern_are_both_kept(nodes: TwoNodes) -> None:
    await asyncio.gather(*(node.add(T, acl(f"User:{name}")) for node in (nodes.one, nodes.two) for name in "abcd"))
    await nodes.settle()
    assert {entry.principal[-1] for entry in nodes.one.authorizer.acls[T]} == set("abcd")
    assert nodes.one.authorizer.acls == nodes.two.authorizer.acls


async def test_a_change_that_changes_nothing_writes_nothing(nodes: TwoNodes) -> None:
    await nodes.one.add(T, acl())
    assert await nodes.one.add(T, acl()) == Altered(frozenset({acl()}), frozenset({acl()}))
    await nodes.two.clear([PREFIX])
    assert (await nodes.store.get(acl_path(T))).version == 0
    assert len(await nodes.store.children(LITERAL_CHANGES)) == 1
    assert await nodes.store.children(PREFIXED_CHANGES) == []


CONNECTION = ConnectionInfo(Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092, "127.0.0.1", 9092))
CONTEXT = RequestContext(CONNECTION, ApiKey.DELETE_ACLS, 3, 1, None, 0)
CALL_S = 1.0
SESSION_TIMEOUT_MS = 60_000


@pytest.mark.parametrize("lost_after_s", [0.5, 1.5, 2.5, 3.5])
@pytest.mark.parametrize("healed_after_s", [1, SESSION_TIMEOUT_MS / 1000 + 1])
def test_a_change_waits_for_the_connection_and_is_made_once(lost_after_s: float, healed_after_s: float) -> None:
    """Also in another session, and whether the change or its answer was lost."""

    async def test() -> None:
        shared = SharedStore(
            session_timeout_ms=SESSION_TIMEOUT_MS, delay=lambda name: CALL_S if name == "slow" else 0.0
        )
        slow, other = shared.session("slow"), shared.session("other")
        await slow.open()
        await other.open()
        one, two = Node(slow, ManualClock()), Node(other, ManualClock())
        await one.acls.load()
        await two.acls.load()
        loop = asyncio.get_running_loop()
        loop.call_later(lost_after_s, shared.cut, "slow")
        loop.call_later(lost_after_s + healed_after_s, shared.heal, "slow")
        assert (await one.add(T, acl())).error is None
        assert one.may_read()
        await two.settle()
        assert two.may_read()
        assert (await other.get(acl_path(T))).version == 0
        assert len(await other.children(LITERAL_CHANGES)) == 1
        await one.settle()

    run_in_virtual_time(test())


def test_a_deletion_says_what_it_has_deleted_though_its_session_ends_before_the_answer() -> None:
    selected = DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=T.resource_type,
        resource_name_filter=T.name,
        pattern_type_filter=T.pattern_type,
        principal_filter=acl().principal,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=AclPermissionType.ANY,
    )

    async def test() -> None:
        shared = SharedStore(session_timeout_ms=SESSION_TIMEOUT_MS, delay=lambda name: CALL_S)
        slow = shared.session("slow")
        await slow.open()
        node = Node(slow, ManualClock())
        await node.acls.load()
        await node.add(T, acl(), acl("User:bob"))
        handlers = AclHandlers(node.acls)
        deleting = asyncio.ensure_future(handlers.delete_acls(DeleteAclsRequest(filters=[selected]), CONTEXT))
        while (entry := shared.entry(acl_path(T))) is None or entry.version == 0:
            assert not deleting.done()
            await asyncio.sleep(CALL_S / 10)
        shared.cut("slow")
        await asyncio.sleep(SESSION_TIMEOUT_MS / 1000 + 1)
        shared.heal("slow")
        (deleted,) = (await deleting).filter_results[0].matching_acls
        assert (deleted.error_code, deleted.resource_name, deleted.principal) == (ErrorCode.NONE, "t", "User:alice")
        assert node.authorizer.acls == {T: {acl("User:bob")}}
        await node.settle()

    run_in_virtual_time(test())


async def test_a_change_that_waits_ends_with_the_store(nodes: TwoNodes) -> None:
    nodes.shared.cut("both")
    change = asyncio.ensure_future(nodes.one.add(T, acl()))
    await asyncio.sleep(0.01)
    assert not change.done()
    await nodes.store.close()
    error = (await change).error
    assert error is not None
    assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not nodes.one.may_read()


def test_changes_that_a_lost_session_has_missed_are_read_again() -> None:
    """Also deletions."""

    async def test() -> None:
        shared = SharedStore(session_timeout_ms=SESSION_TIMEOUT_MS)
        lost, other = shared.session("lost"), shared.session("other")
        await lost.open()
        await other.open()
        one, two = Node(lost, ManualClock()), Node(other, ManualClock())
        await one.acls.load()
        await two.acls.load()
        await one.add(PREFIX, acl())
        await two.settle()
        shared.cut("lost")
        await asyncio.sleep(SESSION_TIMEOUT_MS / 1000 + 1)
        await two.add(T, acl())
        await two.clear([PREFIX])
        await other.multi([*await _deletions(other, LITERAL_CHANGES), *await _deletions(other, PREFIXED_CHANGES)])
        assert not one.may_read()
        shared.heal("lost")
        await lost.connected()
        await asyncio.sleep(0.1)
        await one.settle()
        assert one.authorizer.acls == {T: frozenset({acl()})}

    run_in_virtual_time(test())


async def _deletions(store: MetadataStore, path: str) -> list[Delete]:
    return [Delete(f"{path}/{name}") for name in await store.children(path)]


BAD_ACLS = [
    b"no json",
    b'{"acls":[]}',
    b'{"version":2,"acls":[]}',
    b'{"version":1,"acls":[{"principal":"alice","permissionType":"Deny","host":"*","operation":"Read"}]}',
    b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Deny","operation":"Read"}]}',
    b'{"version":1,"acls":[{"principal":"User:a","permissionType":1,"host":"*","operation":"Read"}]}',
    b'{"version":1,"acls":[["a"]]}',
]


@pytest.mark.parametrize("data", BAD_ACLS)
async def test_damaged_acls_keep_a_broker_from_starting(nodes: TwoNodes, data: bytes) -> None:
    await nodes.store.create(acl_path(T), data)
    with pytest.raises(StoreDamaged, match="/kafka-acl/Topic/t"):
        await Node(nodes.store, nodes.clock).acls.load()


@pytest.mark.parametrize("data", BAD_ACLS)
async def test_what_was_known_before_holds_if_acls_are_damaged_later(nodes: TwoNodes, data: bytes) -> None:
    await nodes.one.add(T, acl())
    await nodes.settle()
    with capture_logs() as logs:
        await nodes.store.set(acl_path(T), data)
        await nodes.store.create(f"{LITERAL_CHANGES}/{acl_znodes.CHANGE_NAME}", b"TOPIC:t", sequential=True)
        await nodes.settle()
    assert nodes.one.may_read()
    assert nodes.two.may_read()
    assert [line["event"] for line in logs] == ["stored ACLs ignored"] * 2
    error = (await nodes.one.add(T, acl("User:b"))).error
    assert error is not None
    assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (await nodes.store.get(acl_path(T))).data == data


@pytest.mark.parametrize(
    ("parent", "data"),
    [
        (LITERAL_CHANGES, None),
        (LITERAL_CHANGES, b"\xff"),
        (LITERAL_CHANGES, b"TOPIC"),
        (LITERAL_CHANGES, b"TOPIC:"),
        (LITERAL_CHANGES, b"TOPIC:a/../b"),
        (LITERAL_CHANGES, b"ANY:t"),
        (LITERAL_CHANGES, b"NOTHING:t"),
        (PREFIXED_CHANGES, b"TOPIC:t"),
        (PREFIXED_CHANGES, b'{"version":2,"resourceType":"TOPIC","name":"u","patternType":"PREFIXED"}'),
        (PREFIXED_CHANGES, b'{"version":1,"resourceType":"TOPIC","name":"u","patternType":"LITERAL"}'),
    ],
)
async def test_a_notice_that_cannot_be_read_is_logged_and_others_are_followed(
    nodes: TwoNodes, parent: str, data: bytes | None
) -> None:
    with capture_logs() as logs:
        await nodes.store.create(f"{parent}/{acl_znodes.CHANGE_NAME}", data, sequential=True)
        await nodes.two.add(T, acl())
        await nodes.settle()
    assert [line["event"] for line in logs if line["log_level"] == "error"] == ["change of ACLs ignored"] * 2
    assert nodes.one.may_read()


async def test_unknown_types_and_operations_concern_nobody_and_unknown_permissions_deny(nodes: TwoNodes) -> None:
    await nodes.store.create("/kafka-acl/FutureType")
    await nodes.store.create("/kafka-acl/FutureType/x", b"?")
    await nodes.store.create(
        acl_path(T),
        b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","host":"*","operation":"Fly"},'
        b'{"principal":"User:carol","permissionType":"Deny","host":"*","operation":"Fly"},'
        b'{"principal":"User:carol","permissionType":"Allow","host":"*","operation":"Read"},'
        b'{"principal":"User:dave","permissionType":"Shrug","host":"*","operation":"READ"},'
        b'{"principal":"User:dave","permissionType":"Allow","host":"*","operation":"Read"},'
        b'{"principal":"User:bob","permissionType":"ALLOW","host":"*","operation":"read"}]}',
    )
    third = Node(nodes.store, nodes.clock)
    with capture_logs() as logs:
        await third.acls.load()
    assert [line["path"] for line in logs if line["event"] == "ACLs ignored"] == ["/kafka-acl/FutureType"]
    names = ("alice", "bob", "carol", "dave")
    assert [name for name in names if third.may_read(principal=f"User:{name}")] == ["bob", "carol"]


async def test_acls_that_are_too_much_for_one_entry_are_refused_by_name(nodes: TwoNodes) -> None:
    long = [acl(f"User:{number}".ljust(1000, "x")) for number in range(900)]
    refused = (await nodes.one.add(T, *long)).error
    assert refused is not None
    assert refused.code is ErrorCode.POLICY_VIOLATION
    assert "TOPIC:LITERAL:t" in (refused.error_message or "")
    assert str(LONGEST_ENTRY) in (refused.error_message or "")
    assert nodes.one.authorizer.acls == {}
    assert (await nodes.one.add(T, *long[:800])).error is None
    assert len(nodes.one.authorizer.acls[T]) == 800


async def test_a_change_gives_up_when_others_are_always_faster(
    nodes: TwoNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent of the entry is gone, so that no try can succeed."""
    await nodes.store.delete("/kafka-acl/Topic")
    error = (await nodes.one.add(T, acl())).error
    assert error is not None
    assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not nodes.one.may_read()


async def test_notices_are_removed_after_a_quarter_of_an_hour(nodes: TwoNodes) -> None:
    await nodes.one.add(T, acl())
    await nodes.settle()
    nodes.clock.advance(EXPIRATION_MS)
    await nodes.two.add(T, acl("User:b"))
    await nodes.settle()
    assert await nodes.store.children(LITERAL_CHANGES) == ["acl_changes_0000000001"]


async def test_a_lone_broker_leaves_no_notices_and_knows_its_acls_after_a_restart() -> None:
    single = await SingleNode().start()
    node = Node(single.store, ManualClock())
    await node.acls.load()
    await node.add_all({T: (acl(),), PREFIX: (acl(),)})
    await node.settle()
    assert await single.store.children(LITERAL_CHANGES) == []
    again = Node(single.store, ManualClock())
    await again.acls.load()
    assert again.authorizer.acls == node.authorizer.acls == {T: frozenset({acl()}), PREFIX: frozenset({acl()})}


async def test_many_acls_are_changed_many_at_a_time_and_reach_the_others(nodes: TwoNodes) -> None:
    patterns: dict[ResourcePattern, tuple[AccessControlEntry, ...]] = {
        T._replace(name=f"t{number}"): (acl(),) for number in range(stored_acls.PATTERNS_AT_ONCE * 3 + 1)
    }
    altered = await nodes.one.add_all(patterns)
    assert altered.keys() == patterns.keys()
    await nodes.settle()
    assert nodes.two.authorizer.acls.keys() == patterns.keys()
    await nodes.two.clear(patterns)
    await nodes.settle()
    assert nodes.one.authorizer.acls == nodes.two.authorizer.acls == {}


def test_names_are_refused_that_zookeeper_does_not_take() -> None:
    """As recorded from Apache Kafka 3.9.1."""
    refused = [".", "..", "a\0b", "a\x01b", "a\x7f", "a\x9f", "a\uf8ffb", "a\ufffdb", "é😀", "a/b"]
    assert [name for name in refused if acl_znodes.name_fault(name) is None] == []
    taken = ["a b$%", "*", "...", "\ud7ffx", "\uf900", "pre:fix", 'u"é', "y" * 32_000]
    assert [name for name in taken if acl_znodes.name_fault(name) is not None] == []


def test_encoded_acls_are_parsed_again() -> None:
    every = frozenset(
        AccessControlEntry(f"User:{operation.name}", "::1", operation, permission)
        for operation in AclOperation
        for permission in AclPermissionType
    )
    assert parse_acls("/", encode_acls(every)) == every
    assert parse_acls("/", None) == parse_acls("/", b"") == frozenset()
