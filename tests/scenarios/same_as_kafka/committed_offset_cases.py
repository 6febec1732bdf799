"""OffsetCommit, OffsetFetch, OffsetDelete, TxnOffsetCommit: for groups without members, and for one with a member."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compiler import encode_versioned
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from tests.beside_kafka.documents import Document
from tests.patience import block_until
from tests.scenarios.same_as_kafka.case import Cases
from tests.scenarios.same_as_kafka.peer import Peer

CASES = Cases()
COMMIT, FETCH, FETCH_V2, DELETE, IN_TRANSACTION = range(10), range(10), range(2, 10), range(1), range(5)
COORDINATED_COMMIT, COORDINATED_FETCH = range(1, 10), range(1, 10)
PLAIN_COMMIT_VERSION, PLAIN_FETCH_VERSION = 7, 7
LOADING = {14, 15, 16}


def coordinator(b: Peer) -> None:
    """Waits until the group's coordinator can be asked."""
    for _ in range(100):
        found = b.ask(ApiKey.FIND_COORDINATOR, {"key": "any", "key_type": 0}, 1, is_noted=False)
        if found["ErrorCode"] == 0:
            answer = b.ask(ApiKey.OFFSET_FETCH, {"group_id": "any", "topics": None}, 5, is_noted=False)
            if answer["ErrorCode"] not in LOADING:
                return
        time.sleep(0.1)
    raise AssertionError("there is no coordinator")


def commit(
    b: Peer, topic: str, offsets: dict[int, int], group: str | None = None, *, is_noted: bool = True, **more: Any
) -> Document:
    """Commits offsets by partition; arguments that begin with committed_ are fields of the partitions."""
    version = more.pop("version", None)
    partly = {key: more.pop(key) for key in list(more) if key.startswith(("committed_", "commit_"))}
    partitions = [{"partition_index": index, "committed_offset": each, **partly} for index, each in offsets.items()]
    document = {
        "group_id": b.name("group") if group is None else group,
        "topics": [{"name": topic, "partitions": partitions}],
        **more,
    }
    return b.ask(ApiKey.OFFSET_COMMIT, document, version, is_noted=is_noted)


def fetch(
    b: Peer, *topics: tuple[str, Iterable[int]], group: str | None = None, version: int | None = None, **more: Any
) -> Document:
    """Fetches the committed offsets; of all topics if none is named."""
    asked = [{"name": topic, "partition_indexes": list(indexes)} for topic, indexes in topics] or None
    name = b.name("group") if group is None else group
    document = {"group_id": name, "topics": asked, "groups": [{"group_id": name, "topics": asked}], **more}
    return b.ask(ApiKey.OFFSET_FETCH, document, version)


def until_fetched(b: Peer, *topics: tuple[str, Iterable[int]], is_expected: Callable[[list[Document]], bool]) -> None:
    """Waits until the group's committed offsets, by partition, are what the function expects."""
    asked = [{"name": topic, "partition_indexes": list(indexes)} for topic, indexes in topics] or None
    document = {"group_id": b.name("group"), "topics": asked, "require_stable": True}

    def fetched() -> bool:
        response = b.ask(ApiKey.OFFSET_FETCH, document, 7, is_noted=False)
        return is_expected([partition for topic in response["Topics"] for partition in topic["Partitions"]])

    block_until(fetched)


def joined(b: Peer, *topics: str, group: str | None = None, protocol_type: str = "consumer") -> tuple[str, int]:
    """The only member of the group, and its generation."""
    name = b.name("group") if group is None else group
    metadata = encode_versioned(ConsumerProtocolSubscription(topics=list(topics)), 0)
    asked = {
        "group_id": name,
        "session_timeout_ms": 30000,
        "rebalance_timeout_ms": 30000,
        "protocol_type": protocol_type,
        "protocols": [{"name": "range", "metadata": metadata}],
    }
    answer = b.ask(ApiKey.JOIN_GROUP, asked, 2, is_noted=False)
    assert answer["ErrorCode"] == 0, answer
    return answer["MemberId"], answer["GenerationId"]


def synced(b: Peer, member_id: str, generation_id: int, group: str | None = None) -> None:
    asked = {
        "group_id": b.name("group") if group is None else group,
        "generation_id": generation_id,
        "member_id": member_id,
        "assignments": [{"member_id": member_id, "assignment": b""}],
    }
    assert b.ask(ApiKey.SYNC_GROUP, asked, 1, is_noted=False)["ErrorCode"] == 0


@CASES.of(COMMIT)
def offsets_are_committed_without_a_member(b: Peer) -> None:
    coordinator(b)
    topic = b.create("t", 3)
    commit(b, topic, {0: 5, 2: 2**62})
    commit(b, topic, {0: 6}, committed_metadata="bis hier")
    commit(b, topic, {1: -7}, committed_metadata=None)
    fetch(b, (topic, range(4)), version=5)
    fetch(b, (topic, range(4)), version=0)


@CASES.of(FETCH)
def offsets_are_fetched(b: Peer) -> None:
    coordinator(b)
    topic = b.create("t", 3)
    commit(b, topic, {0: 5}, version=7, committed_leader_epoch=0, committed_metadata="x\u00e9\u4f60")
    commit(b, topic, {1: 6}, version=0)
    fetch(b, (topic, range(3)), (b.name("none"), [0]))
    fetch(b, (topic, [0, 0, 0]), (topic, [0]))
    fetch(b, (topic, []), (topic, [-1, 7]))
    fetch(b, (topic, range(3)), group=b.name("unknown"))
    fetch(b, (topic, range(3)), group="")


@CASES.of(FETCH_V2)
def all_offsets_of_a_group_are_fetched(b: Peer) -> None:
    coordinator(b)
    one, other = b.create("a", 3), b.create("b", 1)
    commit(b, one, {0: 5, 2: 6}, version=7)
    commit(b, other, {0: 7}, version=7)
    fetch(b)
    fetch(b, group=b.name("unknown"))
    fetch(b, require_stable=True)


@CASES.of([8, 9])
def offsets_of_several_groups_are_fetched(b: Peer) -> None:
    coordinator(b)
    topic = b.create("t", 2)
    commit(b, topic, {0: 5}, b.name("a"), version=7)
    commit(b, topic, {1: 6}, b.name("b"), version=7)
    asked = [{"name": topic, "partition_indexes": [0, 1]}]
    groups = [{"group_id": b.name(each), "topics": asked} for each in ("a", "b", "c", "a")]
    b.ask(ApiKey.OFFSET_FETCH, {"groups": groups})
    b.ask(ApiKey.OFFSET_FETCH, {"groups": [{"group_id": b.name("a"), "topics": None}]})
    b.ask(ApiKey.OFFSET_FETCH, {"groups": []})
    b.ask(ApiKey.OFFSET_FETCH, {"groups": [{"group_id": b.name("a"), "topics": []}]})
    for member, epoch in (("m", 0), ("m", 7), ("", -2)):
        group = {"group_id": b.name("a"), "member_id": member, "member_epoch": epoch, "topics": asked}
        b.ask(ApiKey.OFFSET_FETCH, {"groups": [group]})


@CASES.of(COMMIT)
def committed_offsets_of_unknown_partitions(b: Peer) -> None:
    coordinator(b)
    topic = b.create("t", 1)
    commit(b, topic, {0: 5, 1: 6, -1: 7})
    commit(b, b.name("none"), {0: 5})
    commit(b, "a/b", {0: 5})
    commit(b, topic, {})
    b.ask(ApiKey.OFFSET_COMMIT, {"group_id": b.name("group"), "topics": []})
    fetch(b, (topic, range(2)), version=5)


@CASES.of(COMMIT)
def commit_metadata_up_to_and_above_the_limit(b: Peer) -> None:
    coordinator(b)
    topic = b.create("t", 2)
    for text in ("x" * 4096, "x" * 4097, "\u4f60" * 4096, "\U0001f600" * 2048, "\U0001f600" * 2049):
        commit(b, topic, {0: 5}, committed_metadata=text)
    partitions = [
        {"partition_index": 0, "committed_offset": 8, "committed_metadata": "x" * 5000},
        {"partition_index": 1, "committed_offset": 9, "committed_metadata": "x"},
    ]
    b.ask(ApiKey.OFFSET_COMMIT, {"group_id": b.name("group"), "topics": [{"name": topic, "partitions": partitions}]})
    fetch(b, (topic, range(2)), version=5)


@CASES.of(COORDINATED_COMMIT)
def commits_to_a_group_without_members(b: Peer) -> None:
    coordinator(b)
    topic = b.create("t", 1)
    for generation, member in ((0, ""), (1, "m"), (-1, "m"), (-1, ""), (-2, ""), (0, ""), (0, "m"), (5, "")):
        commit(b, topic, {0: 5}, generation_id_or_member_epoch=generation, member_id=member)
    commit(b, topic, {0: 6}, "")
    fetch(b, (topic, [0]), group="", version=5)


@CASES.of(COORDINATED_COMMIT)
def commits_to_a_group_with_members(b: Peer) -> None:
    coordinator(b)
    topic = b.create("t", 1)
    member, generation = joined(b, topic)
    asked: list[Document] = [
        {"generation_id_or_member_epoch": number, "member_id": who}
        for number in (generation, generation - 1, generation + 1, -1)
        for who in (member, "", "somebody")
    ]
    for each in asked:
        commit(b, topic, {0: 5}, **each)
    synced(b, member, generation)
    for each in asked:
        commit(b, topic, {0: 5}, **each)
    if b.version >= 7:
        commit(b, topic, {0: 5}, **asked[0], group_instance_id="instance")
        commit(b, topic, {0: 5}, group_instance_id="instance")
    fetch(b, version=5)


@CASES.of(range(1, 5))
def offsets_with_retention_times_and_commit_timestamps(b: Peer) -> None:
    coordinator(b)
    topic = b.create("t", 1)
    times: list[dict[str, Any]] = [{"retention_time_ms": 0}, {"retention_time_ms": 86400000}, {"commit_timestamp": 0}]
    for more in times:
        commit(b, topic, {0: 5}, **more)
        fetch(b, (topic, [0]), version=5)


@CASES.of(DELETE)
def offsets_are_deleted(b: Peer) -> None:
    coordinator(b)
    topic = b.create("t", 3)
    commit(b, topic, {0: 5, 1: 6}, version=7)

    def delete(*indexes: int, group: str | None = None, name: str = topic) -> None:
        partitions = [{"partition_index": index} for index in indexes]
        named = b.name("group") if group is None else group
        b.ask(ApiKey.OFFSET_DELETE, {"group_id": named, "topics": [{"name": name, "partitions": partitions}]})

    delete(0, 2, 7)
    fetch(b, version=5)
    delete(0, group=b.name("unknown"))
    delete(0, group="")
    delete(0, name=b.name("none"))
    delete()
    b.ask(ApiKey.OFFSET_DELETE, {"group_id": b.name("group"), "topics": []})
    delete(1)
    fetch(b, version=5)
    b.ask(ApiKey.DESCRIBE_GROUPS, {"groups": [b.name("group")]}, 3)
    delete(1)


@CASES.of(DELETE)
def offsets_of_subscribed_topics_are_deleted(b: Peer) -> None:
    coordinator(b)
    topic, other = b.create("t", 2), b.create("o", 2)

    def delete(group: str) -> None:
        topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in (topic, other)]
        b.ask(ApiKey.OFFSET_DELETE, {"group_id": group, "topics": topics})

    for protocol_type in ("consumer", "connect"):
        group = b.name(protocol_type)
        commit(b, topic, {0: 5}, group, version=7)
        commit(b, other, {0: 5}, group, version=7)
        member, generation = joined(b, topic, group=group, protocol_type=protocol_type)
        delete(group)
        synced(b, member, generation, group)
        delete(group)
        fetch(b, group=group, version=5)
        b.ask(ApiKey.LEAVE_GROUP, {"group_id": group, "member_id": member}, 1)
        delete(group)
        fetch(b, group=group, version=5)
        b.ask(ApiKey.DESCRIBE_GROUPS, {"groups": [group]}, 3)


@CASES.of([0])
def offsets_of_a_deleted_topic(b: Peer) -> None:
    coordinator(b)
    topic, other = b.create("t", 2), b.create("o", 1)
    commit(b, topic, {0: 5, 1: 6}, version=7)
    commit(b, other, {0: 7}, version=7)
    b.ask(ApiKey.DELETE_TOPICS, {"topic_names": [topic], "timeout_ms": 30000}, 3)
    until_fetched(b, is_expected=lambda partitions: len(partitions) == 1)
    fetch(b, version=5)


def open_transaction(b: Peer, *groups: str) -> tuple[int, int]:
    """A producer with a transaction to which the groups were added; its id and epoch."""
    asked = {"transactional_id": b.name("producer"), "transaction_timeout_ms": 60000}
    for _ in range(100):
        answer = b.ask(ApiKey.INIT_PRODUCER_ID, asked, 1, is_noted=False)
        if answer["ErrorCode"] == 0:
            break
        b.ask(ApiKey.FIND_COORDINATOR, {"key": b.name("producer"), "key_type": 1}, 1, is_noted=False)
        time.sleep(0.1)
    assert answer["ErrorCode"] == 0, answer
    producer = {"producer_id": answer["ProducerId"], "producer_epoch": answer["ProducerEpoch"]}
    for group in groups:
        added = {"transactional_id": b.name("producer"), "group_id": group, **producer}
        assert b.ask(ApiKey.ADD_OFFSETS_TO_TXN, added, 0, is_noted=False)["ErrorCode"] == 0
    return answer["ProducerId"], answer["ProducerEpoch"]


def commit_in(
    b: Peer, producer: tuple[int, int], topic: str, offsets: dict[int, int], group: str | None = None, **more: Any
) -> None:
    partitions = [
        {"partition_index": index, "committed_offset": each, "committed_metadata": "m"}
        for index, each in offsets.items()
    ]
    document = {
        "transactional_id": b.name("producer"),
        "group_id": b.name("group") if group is None else group,
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "topics": [{"name": topic, "partitions": partitions}],
        **more,
    }
    b.ask(ApiKey.TXN_OFFSET_COMMIT, document)


def end(b: Peer, producer: tuple[int, int], *, committed: bool) -> None:
    document = {
        "transactional_id": b.name("producer"),
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "committed": committed,
    }
    assert b.ask(ApiKey.END_TXN, document, 0, is_noted=False)["ErrorCode"] == 0
    topic = (b.name("t"), range(3))  # the markers
    until_fetched(b, topic, is_expected=lambda partitions: all(each["ErrorCode"] == 0 for each in partitions))


@CASES.of(IN_TRANSACTION)
def offsets_committed_in_a_transaction(b: Peer) -> None:
    coordinator(b)
    topic, group = b.create("t", 3), b.name("group")
    commit(b, topic, {0: 1, 1: 1}, version=7)
    for committed in (False, True):
        producer = open_transaction(b, group)
        commit_in(b, producer, topic, {0: 5, 2: 6, 9: 9})
        commit_in(b, producer, topic, {2: 7})
        fetch(b, (topic, range(3)), version=7)
        fetch(b, (topic, range(3)), version=7, require_stable=True)
        fetch(b, version=7, require_stable=True)
        commit(b, topic, {0: 3}, version=7)
        end(b, producer, committed=committed)
        fetch(b, version=7, require_stable=True)


@CASES.of(IN_TRANSACTION)
def refused_offset_commits_in_a_transaction(b: Peer) -> None:
    coordinator(b)
    topic, group = b.create("t", 1), b.name("group")
    stranger = open_transaction(b)
    commit_in(b, stranger, topic, {0: 5})
    producer = open_transaction(b, group)
    commit_in(b, stranger, topic, {0: 5})
    commit_in(b, producer, topic, {0: 5}, group="")
    commit_in(b, producer, topic, {0: 5}, group=b.name("other"))
    commit_in(b, producer, b.name("none"), {0: 5})
    commit_in(b, (producer[0] + 7000, 0), topic, {0: 5})
    commit_in(b, producer, topic, {0: 5}, transactional_id=b.name("nobody"))
    if b.version >= 3:
        for generation, member in ((0, ""), (0, "m"), (-1, "m"), (-1, "")):
            commit_in(b, producer, topic, {0: 5}, generation_id_or_member_epoch=generation, member_id=member)
    end(b, producer, committed=True)
    fetch(b, version=7, require_stable=True)


@CASES.of(IN_TRANSACTION)
def offset_commits_of_members_in_a_transaction(b: Peer) -> None:
    coordinator(b)
    topic, group = b.create("t", 1), b.name("group")
    member, generation = joined(b, topic)
    producer = open_transaction(b, group)
    asked: list[Document] = [
        {"generation_id_or_member_epoch": number, "member_id": who}
        for number in (generation, generation + 1, -1)
        for who in (member, "", "somebody")
    ]
    for each in asked:
        commit_in(b, producer, topic, {0: 5}, **each)
    synced(b, member, generation)
    for each in asked:
        commit_in(b, producer, topic, {0: 6}, **each)
    if b.version >= 3:
        commit_in(b, producer, topic, {0: 7}, **asked[0], group_instance_id="instance")
    end(b, producer, committed=True)
    fetch(b, version=7)
