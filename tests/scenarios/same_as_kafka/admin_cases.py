"""ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments, AlterReplicaLogDirs, passwords, quotas and the
ACLs.
"""

from __future__ import annotations

import time
from typing import Any

from odradek.protocol.api_keys import ApiKey
from tests.beside_kafka.documents import Document, batch
from tests.scenarios.same_as_kafka.case import Cases
from tests.scenarios.same_as_kafka.peer import Peer

CASES = Cases()


def elect(b: Peer, named: Any, **more: Any) -> None:
    partitions = None if named is None else [{"topic": topic, "partitions": numbers} for topic, numbers in named]
    b.ask(ApiKey.ELECT_LEADERS, {"topic_partitions": partitions, **more})


@CASES.of(range(3))
def elections_that_are_not_needed(b: Peer) -> None:
    topic = b.create("t", 2)
    elect(b, [(topic, [0, 1])])
    elect(b, [(topic, [0, 0, 1]), (topic, [0])])
    elect(b, [(topic, [0])], timeout_ms=0)
    elect(b, [(topic, [0])], timeout_ms=-1)
    elect(b, [(topic, [])])
    elect(b, [])
    elect(b, None)


@CASES.of(range(3))
def elections_for_unknown_partitions(b: Peer) -> None:
    topic = b.create("t")
    elect(b, [(topic, [0, 7, -1]), (b.name("none"), [0, 1]), ("", [0]), ("bad name", [0])])


@CASES.of([1, 2])
def election_types(b: Peer) -> None:
    topic = b.create("t")
    for election_type in (0, 1, 2, -1):
        for named in ([(topic, [0, 7])], [], None):
            elect(b, named, election_type=election_type)


def reassign(b: Peer, named: list[tuple[str, list[tuple[int, list[int] | None]]]], **more: Any) -> None:
    topics = [
        {"name": topic, "partitions": [{"partition_index": number, "replicas": replicas} for number, replicas in those]}
        for topic, those in named
    ]
    b.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, {"topics": topics, **more})


@CASES.of([0])
def reassignments_to_the_current_replicas(b: Peer) -> None:
    topic = b.create("t", 3)
    reassign(b, [(topic, [(0, [0])])])
    reassign(b, [(topic, [(0, [0]), (1, [0])])])
    reassign(b, [(topic, [(0, [0])]), (topic, [(1, [0])])], timeout_ms=0)
    b.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, {"topics": None})
    note_leader_epochs(b, topic, [3, 2, 0])
    b.produce(topic, batch(b"afterwards"), is_noted=True)


def note_leader_epochs(b: Peer, topic: str, expected: list[int]) -> None:
    """Waits until they are final: Kafka's brokers learn them a little later."""
    for _ in range(100):
        answer = b.ask(ApiKey.METADATA, {"topics": [{"name": topic}]}, 9, is_noted=False)
        partitions = sorted(answer["Topics"][0]["Partitions"], key=lambda one: int(one["PartitionIndex"]))
        epochs = [one["LeaderEpoch"] for one in partitions]
        if epochs == expected:
            break
        time.sleep(0.1)
    b.note("leader epochs", epochs)
    b.note("replicas", [(one["ReplicaNodes"], one["IsrNodes"], one["LeaderId"]) for one in partitions])


@CASES.of([0])
def invalid_reassignments(b: Peer) -> None:
    topic, none = b.create("t", 2), b.name("none")
    for replicas in ([1], [0, 1], [1, 0], [], [-1], [0, -1], [0, 0], [7, 7], [2**31 - 1], None):
        reassign(b, [(topic, [(0, replicas)])])
    reassign(b, [(topic, [(7, [0]), (8, None), (9, [5]), (-1, [0]), (-2, None)])])
    reassign(b, [(none, [(0, [0]), (1, None), (2, [7])]), ("", [(0, [0])])])
    b.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, {"topics": None})


@CASES.of([0])
def a_partition_that_is_reassigned_twice(b: Peer) -> None:
    topic = b.create("t", 2)
    reassign(b, [(topic, [(0, [0]), (0, [1])])])
    reassign(b, [(topic, [(0, [1]), (0, [0])])])
    reassign(b, [(topic, [(0, [0])]), (topic, [(0, None), (1, None)])])


@CASES.of([0])
def reassignments_of_no_partitions(b: Peer) -> None:
    topic = b.create("t")
    reassign(b, [])
    reassign(b, [(topic, [])])


@CASES.of([0])
def reassignments_are_listed(b: Peer) -> None:
    topic = b.create("t", 2)
    asked: list[list[tuple[str, list[int]]]] = [[(topic, [0, 1, 7, -1])], [(b.name("none"), [0])], [(topic, [])], []]
    for named in asked:
        topics = [{"name": name, "partition_indexes": numbers} for name, numbers in named]
        b.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, {"topics": topics, "timeout_ms": 0})
    b.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, {"topics": None})


def own_log_dir(b: Peer) -> str:
    """The first log directory of the broker."""
    answer = b.ask(ApiKey.DESCRIBE_LOG_DIRS, {"topics": []}, 1, is_noted=False)
    return str(min(result["LogDir"] for result in answer["Results"]))


def move(b: Peer, *dirs: tuple[str, list[tuple[str, list[int]]]], about: str = "") -> None:
    asked = [
        {"path": path, "topics": [{"name": topic, "partitions": numbers} for topic, numbers in those]}
        for path, those in dirs
    ]
    b.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, {"dirs": asked}, about=about)


@CASES.of(range(3))
def replicas_that_stay_in_their_directory(b: Peer) -> None:
    topic, here = b.create("t", 2), own_log_dir(b)
    b.produce(topic, batch(b"x" * 100))
    move(b, (here, [(topic, [0, 1])]))
    move(b, (here, [(topic, [0, 0]), (topic, [0])]))
    move(b, (here, [(topic, [])]))
    move(b, (here, []))
    move(b)
    b.ask(ApiKey.DESCRIBE_LOG_DIRS, {"topics": [{"topic": topic, "partitions": [0, 1]}]}, 2)


@CASES.of(range(3))
def replicas_that_cannot_move(b: Peer) -> None:
    topic, here = b.create("t"), own_log_dir(b)
    for path in ("/nowhere", "relative", "", here + "/", here + "/../" + here.rpartition("/")[2]):
        move(b, (path, [(topic, [0, 7])]), about=path.replace(here, "HERE").rpartition("/")[0])
    move(b, (here, [(topic, [7, -1]), (b.name("none"), [0])]))
    move(b, ("/nowhere", [(b.name("none"), [0]), (topic, [7])]))
    move(b, (here, [("x" * 213, [0]), ("y" * 214, [0]), ("z" * 249, [0]), ("", [0])]), ("/nowhere", [("u" * 249, [0])]))
    move(b, ("/nowhere", [(topic, [0])]), (here, [(topic, [0])]))
    move(b, (here, [(topic, [0])]), ("/nowhere", [(topic, [0])]))


def password(name: str, **fields: Any) -> Document:
    made = {"name": name, "mechanism": 1, "iterations": 4096, "salt": b"salt" * 4, "salted_password": b"x" * 32}
    return {**made, **fields}


@CASES.of([0])
def passwords_of_users(b: Peer) -> None:
    alice, bob, none = b.name("alice"), b.name("bob"), b.name("none")

    def alter(*upsertions: Document, deletions: list[Document] | None = None, about: str) -> None:
        asked = {"deletions": deletions or [], "upsertions": list(upsertions)}
        b.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, asked, about=about)
        b.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": [{"name": alice}, {"name": bob}]}, about=about)

    alter(password(alice), password(bob, mechanism=2, iterations=16384, salted_password=b"y" * 64), about="set")
    alter(password(alice, mechanism=2, iterations=8192, salted_password=b"z" * 64), about="one more")
    alter(password(alice, iterations=4095), password(bob, iterations=16385), about="iterations")
    alter(password(alice, mechanism=3), about="mechanism")
    alter(password(""), password(alice), about="empty name")
    alter(password(alice), password(alice), about="twice")
    alter(deletions=[{"name": none, "mechanism": 1}, {"name": alice, "mechanism": 1}], about="deletion")
    alter(deletions=[{"name": bob, "mechanism": 1}, {"name": alice, "mechanism": 9}], about="no such mechanism")
    b.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": [{"name": none}, {"name": bob}, {"name": bob}]})


@CASES.of([0, 1])
def quotas_that_nobody_has(b: Peer) -> None:
    exact, default, anything = 0, 1, 2

    def describe(*components: tuple[str, int, str | None], strict: bool = False) -> None:
        named = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
        b.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, {"components": named, "strict": strict})

    user = b.name("alice")
    describe(("user", exact, user))
    describe(("user", exact, user), ("client-id", default, None), strict=True)
    describe(("user", exact, user), ("client-id", anything, None))
    describe(("user", exact, user), ("user", exact, user))
    describe(("user", exact, user), ("ip", exact, "127.0.0.1"))
    describe(("group", exact, user))
    describe(("", anything, None))
    describe(("user", 7, user))
    describe(("user", exact, None))


def acl_filter(**fields: Any) -> Document:
    asked = {"resource_type_filter": 1, "resource_name_filter": None, "principal_filter": None, "host_filter": None}
    return {**asked, "operation": 1, "permission_type": 1, **fields}


def acl(**fields: Any) -> Document:
    binding = {"resource_type": 2, "resource_name": "t", "principal": "User:a", "host": "*", "operation": 3}
    return {**binding, "permission_type": 3, **fields}


@CASES.of(range(4))
def acls_without_an_authorizer(b: Peer) -> None:
    b.ask(ApiKey.DESCRIBE_ACLS, acl_filter())
    b.ask(ApiKey.DESCRIBE_ACLS, acl_filter(resource_type_filter=2, resource_name_filter="t", principal_filter="User:a"))
    b.ask(ApiKey.CREATE_ACLS, {"creations": [acl()]})
    b.ask(ApiKey.CREATE_ACLS, {"creations": [acl(), acl(principal="nobody"), acl()]})
    b.ask(ApiKey.CREATE_ACLS, {"creations": []})
    b.ask(ApiKey.DELETE_ACLS, {"filters": [acl_filter(), acl_filter()]})
    b.ask(ApiKey.DELETE_ACLS, {"filters": []})


@CASES.of([2, 3])
def acls_of_every_resource_type(b: Peer) -> None:
    for kind in (1, 2, 3, 4, 5, 6, 7, 8):
        b.ask(ApiKey.DESCRIBE_ACLS, acl_filter(resource_type_filter=kind), about=str(kind))
        b.ask(ApiKey.CREATE_ACLS, {"creations": [acl(resource_type=kind)]}, about=str(kind))
        b.ask(ApiKey.DELETE_ACLS, {"filters": [acl_filter(resource_type_filter=kind)]}, about=str(kind))


@CASES.of(range(4))
def acls_with_unknown_operations_or_permissions(b: Peer) -> None:
    for fields in ({"operation": 0}, {"permission_type": 0}, {"operation": 99}, {"permission_type": -1}):
        b.ask(ApiKey.DESCRIBE_ACLS, acl_filter(**fields), about=str(fields))
        b.ask(ApiKey.CREATE_ACLS, {"creations": [acl(**fields)]}, about=str(fields))
        b.ask(ApiKey.DELETE_ACLS, {"filters": [acl_filter(**fields)]}, about=str(fields))
