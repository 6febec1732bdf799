"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups, ListGroups, DeleteGroups.

A case runs in each version of JoinGroup, or of the API that it is about; the other requests follow, each up to its own
newest version. Members that wait for each other have separate connections (`MemberClient`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from odradek.protocol.api_keys import ApiKey
from tests.beside_kafka.documents import Document
from tests.scenarios.same_as_kafka.case import Cases
from tests.scenarios.same_as_kafka.committed_offset_cases import commit, coordinator
from tests.scenarios.same_as_kafka.peer import Peer

CASES = Cases()
JOIN, STATIC = range(10), range(5, 10)
NEWEST = {
    ApiKey.JOIN_GROUP: 9,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 5,
    ApiKey.DESCRIBE_GROUPS: 5,
    ApiKey.LIST_GROUPS: 5,
    ApiKey.DELETE_GROUPS: 2,
}
MEMBER_ID_REQUIRED = 79
CONSUMER = {"protocol_type": "consumer", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 30_000}
RANGE = {"name": "range", "metadata": b"said"}


class MemberClient:
    """A group member with its own connection."""

    def __init__(self, b: Peer, who: str, group: str = "group", instance: str | None = None) -> None:
        self.peer = Peer(b.bootstrap, b.prefix, b.version)
        self.peer.transcript, self.peer.asked = b.transcript, b.asked
        self.who, self.group, self.instance = who, b.name(group), instance
        self.member_id, self.generation_id = "", -1

    def _ask(self, api: ApiKey, document: Document, **more: Any) -> Document:
        version = min(self.peer.version, NEWEST[api])
        named = {"group_id": self.group, **document}
        return self.peer.ask(api, named, version, about=f"of {self.who}", **more)

    def _me(self, api: ApiKey, since: int) -> Document:
        has_instance = min(self.peer.version, NEWEST[api]) >= since
        return {"member_id": self.member_id, **({"group_instance_id": self.instance} if has_instance else {})}

    def _joining(self, document: Document) -> Document:
        return {**CONSUMER, "protocols": [RANGE], **self._me(ApiKey.JOIN_GROUP, 5), **document}

    def join(self, **document: Any) -> Document:
        """Joins; first gets a member id if the version requires one."""
        answer = self._ask(ApiKey.JOIN_GROUP, self._joining(document))
        if answer.get("ErrorCode") == MEMBER_ID_REQUIRED:
            self.member_id = str(answer["MemberId"])
            answer = self._ask(ApiKey.JOIN_GROUP, self._joining(document))
        return self._joined(answer)

    def get_member_id(self) -> None:
        """Gets a member id to join with, if the version requires one."""
        if self.peer.version >= 4 and self.instance is None:
            self.member_id = str(self._ask(ApiKey.JOIN_GROUP, self._joining({}))["MemberId"])

    def begin(self, api: ApiKey, document: Document) -> None:
        """Sends the request; `end` receives the response."""
        self.peer.begin(api, {"group_id": self.group, **document}, min(self.peer.version, NEWEST[api]))

    def begin_join(self, **document: Any) -> None:
        self.begin(ApiKey.JOIN_GROUP, self._joining(document))

    def begin_sync(self, **document: Any) -> None:
        self.begin(ApiKey.SYNC_GROUP, self._syncing(document))

    def end(self, api: ApiKey) -> Document:
        answer = self.peer.finish(api, min(self.peer.version, NEWEST[api]), about=f"of {self.who}, later")
        return self._joined(answer) if api is ApiKey.JOIN_GROUP else answer

    def _joined(self, answer: Document) -> Document:
        if answer.get("ErrorCode") == 0:
            self.member_id, self.generation_id = str(answer["MemberId"]), int(answer["GenerationId"])
            self.peer.note(f"{self.who} leads", answer["Leader"] == answer["MemberId"])
        return answer

    def _syncing(self, document: Document) -> Document:
        protocol = {"protocol_type": "consumer", "protocol_name": "range"} if self.peer.version >= 5 else {}
        me = {"generation_id": self.generation_id, **self._me(ApiKey.SYNC_GROUP, 3), **protocol}
        return {**me, "assignments": [{"member_id": self.member_id, "assignment": b"mine"}], **document}

    def sync(self, **document: Any) -> Document:
        return self._ask(ApiKey.SYNC_GROUP, self._syncing(document))

    def heartbeat(self, **document: Any) -> Document:
        me = {"generation_id": self.generation_id, **self._me(ApiKey.HEARTBEAT, 3)}
        return self._ask(ApiKey.HEARTBEAT, {**me, **document})

    def leave(self, **document: Any) -> Document:
        if min(self.peer.version, NEWEST[ApiKey.LEAVE_GROUP]) < 3:
            return self._ask(ApiKey.LEAVE_GROUP, {"member_id": self.member_id, **document})
        member = {"member_id": self.member_id, "group_instance_id": self.instance, **document}
        return self._ask(ApiKey.LEAVE_GROUP, {"members": [member]})

    def describe(self, *groups: str) -> Document:
        return described(self.peer, self.group, *groups)


@contextmanager
def member_clients(b: Peer, *names: str, instances: bool = False) -> Iterator[list[MemberClient]]:
    coordinator(b)
    found = [MemberClient(b, name, instance=b.name(name) if instances else None) for name in names]
    try:
        yield found
    finally:
        for member in found:
            member.peer.close()


def described(b: Peer, *groups: str, **more: Any) -> Document:
    version = min(b.version, NEWEST[ApiKey.DESCRIBE_GROUPS])
    return b.ask(ApiKey.DESCRIBE_GROUPS, {"groups": list(groups), **more}, version)


def join_both(one: MemberClient, two: MemberClient) -> None:
    """The first has a generation; the second joins, and the first rejoins."""
    one.join()
    one.sync()
    two.get_member_id()
    two.begin_join()
    until_rebalancing(one)
    one.join()
    two.end(ApiKey.JOIN_GROUP)


def until_rebalancing(member: MemberClient) -> None:
    """Sends heartbeats until the other's JoinGroup has arrived; only the last response is compared."""
    for _ in range(100):
        document = {"group_id": member.group, "generation_id": member.generation_id, "member_id": member.member_id}
        if member.peer.ask(ApiKey.HEARTBEAT, document, 0, is_noted=False)["ErrorCode"] == 27:
            break
        time.sleep(0.02)
    member.heartbeat()


@CASES.of(JOIN)
def a_group_with_one_member(b: Peer) -> None:
    with member_clients(b, "one") as (one,):
        one.describe()
        one.join()
        one.describe()
        one.heartbeat()
        one.sync()
        one.describe()
        one.heartbeat()
        one.sync()
        one.join()  # the leader: another generation
        one.sync()
        one.leave()
        one.describe()
        one.heartbeat()
        one.sync()
        one.leave()
        one.join()


@CASES.of(JOIN)
def a_group_with_two_members(b: Peer) -> None:
    with member_clients(b, "one", "two") as (one, two):
        join_both(one, two)
        one.describe()
        two.begin_sync()
        mine = [{"member_id": one.member_id, "assignment": b"a"}, {"member_id": two.member_id, "assignment": b"b"}]
        one.sync(assignments=mine)
        two.end(ApiKey.SYNC_GROUP)
        one.describe()
        two.join()  # nothing new
        two.sync(assignments=[])
        two.leave()
        until_rebalancing(one)
        one.sync()
        one.join()
        one.sync()
        one.describe()


@CASES.of(JOIN)
def the_leader_leaves(b: Peer) -> None:
    with member_clients(b, "one", "two") as (one, two):
        join_both(one, two)
        two.begin_sync()
        one.leave()
        two.end(ApiKey.SYNC_GROUP)
        two.join()
        two.sync()
        two.describe()


@CASES.of(JOIN)
def a_member_changes_its_protocols(b: Peer) -> None:
    with member_clients(b, "one", "two") as (one, two):
        join_both(one, two)
        one.sync()
        two.sync()
        two.begin_join(protocols=[{"name": "sticky", "metadata": b"new"}, {"name": "range", "metadata": b""}])
        until_rebalancing(one)
        one.describe()
        one.join(protocols=[{"name": "sticky", "metadata": b"s"}, {"name": "range", "metadata": b"r"}])
        two.end(ApiKey.JOIN_GROUP)


@CASES.of(JOIN)
def protocol_votes_of_two_members(b: Peer) -> None:
    names = ("sticky", "range", "roundrobin")
    with member_clients(b, "one", "two") as (one, two):
        one.join(protocols=[{"name": name, "metadata": b"1"} for name in names])
        two.get_member_id()
        two.begin_join(protocols=[{"name": name, "metadata": b"2"} for name in ("roundrobin", "range")])
        until_rebalancing(one)
        one.join(protocols=[{"name": name, "metadata": b"3"} for name in ("roundrobin", *names[:2])])
        two.end(ApiKey.JOIN_GROUP)


@CASES.of(JOIN)
def refused_joins(b: Peer) -> None:
    with member_clients(b, "one", "two") as (one, two):
        for session_ms in (-1, 0, 999, 1_800_001, 2**31 - 1):
            two.join(session_timeout_ms=session_ms)
        two.join(group_id="")
        two.join(member_id="nobody")
        two.join(protocols=[])
        two.join(protocol_type="")
        one.join()
        one.sync()
        two.join(protocol_type="connect")
        two.join(protocols=[{"name": "sticky", "metadata": b""}])
        two.join(protocols=[])
        two.join(member_id="nobody")
        one.join(protocol_type="connect")
        one.join(protocols=[{"name": "sticky", "metadata": b""}, {"name": "cooperative", "metadata": b""}])


@CASES.of(JOIN)
def an_empty_group_after_a_refused_join(b: Peer) -> None:
    with member_clients(b, "one") as (one,):
        one.join(protocols=[])
        one.describe()


@CASES.of(JOIN)
def session_timeout_bounds(b: Peer) -> None:
    with member_clients(b, "one") as (one,):
        for session_ms in (1_000, 1_800_000):
            one.join(session_timeout_ms=session_ms)


@CASES.of(JOIN)
def long_and_unusual_group_ids(b: Peer) -> None:
    with member_clients(b, "one") as (one,):
        for group in ("x" * 32_000, " ", 'ü/\\:*?"<>|🚀', "a\nb", "\x00"):
            one.member_id, one.group = "", f"{b.prefix}{group}"
            one.join()
            one.sync()
            one.describe()
            one.leave()


@CASES.of(JOIN)
def unusual_rebalance_timeouts(b: Peer) -> None:
    with member_clients(b, "one") as (one,):
        for rebalance_ms in (0, -1, -(2**31), 2**31 - 1):
            one.member_id, one.group = "", b.name(str(rebalance_ms))
            one.join(rebalance_timeout_ms=rebalance_ms)


@CASES.of(range(6))
def refused_syncs(b: Peer) -> None:
    with member_clients(b, "one") as (one,):
        one.sync(member_id="nobody")
        one.join()
        one.sync(group_id="")
        one.sync(member_id="nobody")
        one.sync(member_id="")
        for generation_id in (-1, 0, 2, 2**31 - 1):
            one.sync(generation_id=generation_id)
        if b.version >= 5:
            one.sync(protocol_type="connect")
            one.sync(protocol_name="sticky")
            one.sync(protocol_type=None)
            one.sync(protocol_name=None)
            one.sync(protocol_type="", protocol_name="")
        if b.version >= 3:
            one.sync(group_instance_id="no-such-instance")
        one.sync(assignments=[{"member_id": "nobody", "assignment": b"x"}])
        one.sync()
        one.describe()


@CASES.of(range(5))
def refused_heartbeats(b: Peer) -> None:
    with member_clients(b, "one") as (one,):
        one.heartbeat(member_id="nobody")
        one.join()
        one.heartbeat(group_id="")
        one.heartbeat(member_id="nobody")
        one.heartbeat(member_id="")
        for generation_id in (-1, 0, 2):
            one.heartbeat(generation_id=generation_id)
        if b.version >= 3:
            one.heartbeat(group_instance_id="no-such-instance")


@CASES.of(range(6))
def refused_leaves(b: Peer) -> None:
    with member_clients(b, "one") as (one,):
        one.leave(member_id="nobody")
        one.join()
        one.leave(member_id="nobody")
        one.leave(member_id="")
        empty: Document = {"member_id": one.member_id} if b.version < 3 else {"members": []}
        b.ask(ApiKey.LEAVE_GROUP, {"group_id": "", **empty})
        b.ask(ApiKey.LEAVE_GROUP, {"group_id": b.name("none"), **empty})
        if b.version >= 3:
            one.leave(group_instance_id="no-such-instance")
            one.leave(member_id="", group_instance_id="no-such-instance")
            b.ask(ApiKey.LEAVE_GROUP, {"group_id": one.group, "members": []})
            twice = [{"member_id": one.member_id}, {"member_id": "nobody"}, {"member_id": one.member_id}]
            b.ask(ApiKey.LEAVE_GROUP, {"group_id": one.group, "members": twice})
        one.describe()


@CASES.of(range(4, 10))
def a_pending_member_leaves(b: Peer) -> None:
    with member_clients(b, "one") as (one,):
        one.get_member_id()
        one.describe()
        one.heartbeat()
        one.sync()
        one.leave()
        one.leave()
        one.join()


@CASES.of(STATIC)
def static_members_return(b: Peer) -> None:
    with member_clients(b, "one", "two", instances=True) as (one, two):
        join_both(one, two)
        one.sync()
        two.sync()
        for member in (two, one):
            old_id, member.member_id = member.member_id, ""
            member.join()
            member.heartbeat()
            member.heartbeat(member_id=old_id)
            member.sync(member_id=old_id)
            member.join(member_id=old_id)
            member.leave(member_id=old_id)
            member.heartbeat(group_instance_id="no-such-instance")
            member.heartbeat(group_instance_id=None)
            member.describe()
        one.leave(member_id="")
        until_rebalancing(two)
        two.join()


@CASES.of(STATIC)
def a_static_member_returns_with_another_protocol(b: Peer) -> None:
    with member_clients(b, "one", instances=True) as (one,):
        one.join(protocols=[RANGE, {"name": "sticky", "metadata": b"s"}])
        one.sync()
        one.member_id = ""
        one.join(protocols=[{"name": "sticky", "metadata": b"s"}])
        one.describe()


@CASES.of(STATIC)
def a_static_member_returns_during_a_rebalance(b: Peer) -> None:
    with member_clients(b, "one", "two", instances=True) as (one, two):
        join_both(one, two)
        old_id, two.member_id = two.member_id, ""
        two.begin_join()
        until_rebalancing(one)
        one.describe()
        one.join()
        two.end(ApiKey.JOIN_GROUP)
        two.heartbeat(member_id=old_id)


@CASES.of(range(6))
def groups_are_described(b: Peer) -> None:
    topic = b.create()
    with member_clients(b, "one") as (one,):
        commit(b, topic, {0: 1}, group=b.name("commits"), version=7, is_noted=False)
        one.join()
        one.sync()
        described(b, one.group, b.name("commits"), b.name("none"), "")
        described(b)
        if b.version >= 3:
            described(b, one.group, b.name("none"), include_authorized_operations=True)


@CASES.of(range(6))
def a_group_that_is_described_twice(b: Peer) -> None:
    coordinator(b)
    described(b, b.name("none"), b.name("none"))


@CASES.of(range(6))
def groups_are_listed(b: Peer) -> None:
    topic = b.create()
    with member_clients(b, "one") as (one,):
        commit(b, topic, {0: 1}, group=b.name("commits"), version=7, is_noted=False)
        one.join()
        one.sync()
        for states in ([], ["Stable"], ["EMPTY", "stable"], ["Dead"], ["nonsense"], [""]):
            document = {"states_filter": states} if b.version >= 4 else {}
            answer = b.ask(ApiKey.LIST_GROUPS, document, is_noted=False)
            own = [group for group in answer["Groups"] if group["GroupId"].startswith(b.prefix + "-")]
            b.note(f"LIST_GROUPS {states}", {**answer, "Groups": own})


@CASES.of([5])
def groups_are_listed_by_type(b: Peer) -> None:
    topic = b.create()
    with member_clients(b, "one") as (one,):
        commit(b, topic, {0: 1}, group=b.name("commits"), version=7, is_noted=False)
        one.join()
        one.sync()
        for types in ([], ["classic"], ["x", "CLASSIC"], ["consumer"], ["share", "unknown"], [""]):
            for states in ([], ["Empty"]):
                answer = b.ask(ApiKey.LIST_GROUPS, {"states_filter": states, "types_filter": types}, is_noted=False)
                own = [group for group in answer["Groups"] if group["GroupId"].startswith(b.prefix + "-")]
                b.note(f"LIST_GROUPS {types} {states}", {**answer, "Groups": own})


@CASES.of(range(3))
def groups_are_deleted(b: Peer) -> None:
    topic = b.create()
    with member_clients(b, "one") as (one,):
        commit(b, topic, {0: 1}, group=b.name("commits"), version=7, is_noted=False)
        one.join()
        one.sync()
        names = [one.group, b.name("commits"), b.name("none"), b.name("commits"), ""]
        b.ask(ApiKey.DELETE_GROUPS, {"groups_names": names})
        b.ask(ApiKey.DELETE_GROUPS, {"groups_names": names[:2]})
        b.ask(ApiKey.DELETE_GROUPS, {"groups_names": []})
        one.leave()
        b.ask(ApiKey.DELETE_GROUPS, {"groups_names": [one.group]})
        one.describe()
        one.leave()
