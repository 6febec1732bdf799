"""Fetch: offsets, limits, epochs, sessions."""

from __future__ import annotations

from typing import Any
from uuid import NAMESPACE_DNS, uuid5

from odradek.clients.recording.comparison import ZERO_ID
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.records import Compression, Record, build_batch
from tests.beside_kafka.documents import Document, T, batch
from tests.scenarios.same_as_kafka.case import Cases
from tests.scenarios.same_as_kafka.peer import Peer

CASES = Cases()
FETCH = range(4, 18)
SESSIONS = range(7, 18)
BY_ID = range(13, 18)
MAX = 1 << 20


def wanted(topic: str, *partitions: tuple[int, int], **more: Any) -> dict[str, Any]:
    """(partition, offset) of a topic."""
    return {
        "topic": topic,
        "partitions": [
            {"partition": partition, "fetch_offset": offset, "partition_max_bytes": MAX, **more}
            for partition, offset in partitions
        ],
    }


def fetch(
    b: Peer,
    *topics: dict[str, Any],
    forgotten: dict[str, Any] | None = None,
    version: int | None = None,
    about: str = "",
    **more: Any,
) -> Document:
    """Topics that have no id yet get the one that the broker has for the name."""
    version = b.version if version is None else version
    dropped = [] if forgotten is None else [forgotten]
    document = {
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 10 * MAX,
        "topics": list(topics),
        "forgotten_topics_data": dropped,
    }
    if version in BY_ID:
        for topic in (*topics, *dropped):
            topic["topic_id"] = topic.get("topic_id") or id_of(b, topic["topic"])
    return b.ask(ApiKey.FETCH, document | more, version, about=about)


def id_of(b: Peer, topic: str) -> str:
    """The topic's id, or one that no topic has."""
    known = b.topic_id(topic)
    return str(uuid5(NAMESPACE_DNS, topic)) if known == ZERO_ID else known


def some_batches(b: Peer, suffix: str = "t", partitions: int = 1) -> str:
    """A topic with three batches of two records in each partition."""
    topic = b.create(suffix, partitions)
    for partition in range(partitions):
        for number in range(3):
            b.produce(topic, batch(b"x" * 100, b"%d" % number), partition=partition)
    return topic


@CASES.of(FETCH)
def offsets_within_and_outside_the_log(b: Peer) -> None:
    topic = some_batches(b)
    for offset in (0, 1, 2, 5, 6, 7, -1, -2, 2**62):
        fetch(b, wanted(topic, (0, offset)))


@CASES.of(FETCH)
def offsets_below_the_log_start_after_a_deletion(b: Peer) -> None:
    topic = some_batches(b)
    offsets = {"name": topic, "partitions": [{"partition_index": 0, "offset": 3}]}
    b.ask(ApiKey.DELETE_RECORDS, {"topics": [offsets], "timeout_ms": 5000}, 1)
    for offset in (0, 2, 3, 4):
        fetch(b, wanted(topic, (0, offset)))


@CASES.of(FETCH)
def unknown_topics_and_partitions(b: Peer) -> None:
    """Kafka reads the others first: an entry of its response has no partition of each kind."""
    topic = some_batches(b)
    fetch(b, wanted(topic, (0, 0), (1, 0), (-1, 0)))
    fetch(b, wanted(topic, (0, 0)), wanted(b.name("none"), (0, 0)), wanted("a/b", (0, 0)), wanted("", (0, 0)))


@CASES.of(FETCH)
def an_error_does_not_wait(b: Peer) -> None:
    topic = some_batches(b)
    fetch(b, wanted(b.name("none"), (0, 0)), max_wait_ms=1500, min_bytes=1)
    fetch(b, wanted(topic, (0, 99)), max_wait_ms=1500, min_bytes=1)
    fetch(b, wanted(topic, (0, 6)), max_wait_ms=1, min_bytes=1)
    fetch(b, max_wait_ms=1500, min_bytes=1)


@CASES.of(FETCH)
def byte_limits(b: Peer) -> None:
    topic = some_batches(b, "t", 3)
    everything = [(0, 0), (1, 0), (2, 0)]
    for most in (0, 1, 200, 300, 700, -1):
        fetch(b, wanted(topic, *everything), max_bytes=most, about=f"of {most} bytes")
    for most in (0, 1, 200, 300, 500, -1):
        fetch(b, wanted(topic, *everything, partition_max_bytes=most), about=f"of {most} bytes each")
    fetch(b, wanted(topic, (0, 6), (1, 0), (2, 0)), max_bytes=1)
    fetch(b, wanted(topic, (0, 1)), max_bytes=1)
    fetch(b, wanted(topic, (0, 0)), max_wait_ms=0, min_bytes=2**31 - 1)
    fetch(b, wanted(topic, (0, 0)), max_wait_ms=1, min_bytes=-1)
    fetch(b, wanted(topic, (0, 0)), max_wait_ms=-1, min_bytes=1000000)


@CASES.of(FETCH)
def isolation_levels(b: Peer) -> None:
    topic = some_batches(b)
    for level in (0, 1, 2, -1):
        fetch(b, wanted(topic, (0, 0), (1, 0)), isolation_level=level)


@CASES.of(FETCH)
def a_partition_that_is_fetched_twice(b: Peer) -> None:
    topic = some_batches(b)
    fetch(b, wanted(topic, (0, 0), (0, 4)))
    fetch(b, wanted(topic, (0, 4)), wanted(topic, (0, 0)))


@CASES.of(FETCH)
def fetches_with_replica_ids(b: Peer) -> None:
    topic = some_batches(b)
    for replica in (0, 5, -2, -3):
        state = {"replica_id": replica, "replica_epoch": -1}
        fetch(b, wanted(topic, (0, 0)), **{"replica_state": state} if b.version >= 15 else {"replica_id": replica})


@CASES.of(range(9, 18))
def current_leader_epochs(b: Peer) -> None:
    topic = some_batches(b)
    for epoch in (-1, 0, 1, 5, -2):
        fetch(b, wanted(topic, (0, 0), current_leader_epoch=epoch))


@CASES.of(range(12, 18))
def last_fetched_epochs(b: Peer) -> None:
    topic = some_batches(b)
    for epoch in (-1, 0, 1, 7, -2):
        for offset in (0, 3, 6, 9):
            fetch(b, wanted(topic, (0, offset), last_fetched_epoch=epoch))


@CASES.of(range(11, 18))
def a_fetch_with_a_rack_id(b: Peer) -> None:
    topic = some_batches(b)
    fetch(b, wanted(topic, (0, 0)), rack_id="r")


@CASES.of(SESSIONS)
def a_session_returns_only_what_has_changed(b: Peer) -> None:
    topic = some_batches(b, "t", 2)
    other = some_batches(b, "u")
    session = fetch(b, wanted(topic, (0, 0), (1, 6)), session_epoch=0)["SessionId"]
    fetch(b, session_id=session, session_epoch=1)
    fetch(b, wanted(topic, (0, 6)), session_id=session, session_epoch=2)
    fetch(b, session_id=session, session_epoch=3)
    b.produce(topic, batch(b"new"), partition=1)
    fetch(b, session_id=session, session_epoch=4)
    fetch(b, wanted(topic, (1, 7)), wanted(other, (0, 0)), session_id=session, session_epoch=5)
    fetch(b, forgotten={"topic": other, "partitions": [0]}, session_id=session, session_epoch=6)
    fetch(b, wanted(b.name("none"), (0, 0)), wanted(topic, (9, 0)), session_id=session, session_epoch=7)
    fetch(b, session_id=session, session_epoch=8)
    fetch(b, session_id=session, session_epoch=8)
    fetch(b, session_id=session, session_epoch=10)
    fetch(b, session_id=session, session_epoch=9)
    fetch(b, wanted(topic, (0, 0)), session_id=session, session_epoch=-1)
    fetch(b, session_id=session, session_epoch=10)


@CASES.of(SESSIONS)
def sessions_that_do_not_exist(b: Peer) -> None:
    topic = some_batches(b)
    fetch(b, wanted(topic, (0, 0)), session_id=12345, session_epoch=1)
    fetch(b, wanted(topic, (0, 0)), session_id=12345, session_epoch=0)
    fetch(b, wanted(topic, (0, 0)), session_id=12345, session_epoch=-1)
    fetch(b, wanted(topic, (0, 0)), session_id=0, session_epoch=1)
    fetch(b, wanted(topic, (0, 0)), session_id=0, session_epoch=-2)
    fetch(b, session_id=0, session_epoch=0)
    fetch(b, session_id=0, session_epoch=-1)


@CASES.of(SESSIONS)
def a_session_is_replaced_and_forgets_partitions(b: Peer) -> None:
    topic = some_batches(b, "t", 2)
    session = fetch(b, wanted(topic, (0, 0), (1, 0)), session_epoch=0)["SessionId"]
    again = fetch(b, wanted(topic, (0, 6)), session_id=session, session_epoch=0)["SessionId"]
    b.note("the same session", again == session)
    fetch(b, session_id=session, session_epoch=1)
    fetch(b, session_id=again, session_epoch=1)
    fetch(b, forgotten={"topic": topic, "partitions": [0]}, session_id=again, session_epoch=2)
    fetch(b, session_id=again, session_epoch=3)
    fetch(b, wanted(topic, (0, 6)), forgotten={"topic": topic, "partitions": [0]}, session_epoch=0)


@CASES.of(SESSIONS)
def a_session_returns_a_changed_log_start_offset(b: Peer) -> None:
    topic = some_batches(b)
    session = fetch(b, wanted(topic, (0, 6)), session_epoch=0)["SessionId"]
    offsets = {"name": topic, "partitions": [{"partition_index": 0, "offset": 3}]}
    b.ask(ApiKey.DELETE_RECORDS, {"topics": [offsets], "timeout_ms": 5000}, 1)
    fetch(b, session_id=session, session_epoch=1)
    fetch(b, session_id=session, session_epoch=2)
    fetch(b, wanted(topic, (0, 1)), session_id=session, session_epoch=3)
    fetch(b, session_id=session, session_epoch=4)


@CASES.of(SESSIONS)
def a_session_whose_topic_is_recreated(b: Peer) -> None:
    topic = some_batches(b)
    session = fetch(b, wanted(topic, (0, 6)), session_epoch=0)["SessionId"]
    b.ask(ApiKey.DELETE_TOPICS, {"topic_names": [topic], "timeout_ms": 30000}, 5, is_noted=False)
    fetch(b, session_id=session, session_epoch=1)
    b.create()
    fetch(b, session_id=session, session_epoch=2)
    fetch(b, wanted(topic, (0, 0)), session_id=session, session_epoch=3)
    fetch(b, session_id=session, session_epoch=4)


@CASES.of(BY_ID)
def a_session_by_id_whose_topic_is_recreated(b: Peer) -> None:
    """The new topic is another one: the session keeps both until the client forgets the old one."""
    topic = some_batches(b)
    old = b.topic_id(topic)
    session = fetch(b, wanted(topic, (0, 6)), session_epoch=0)["SessionId"]
    b.ask(ApiKey.DELETE_TOPICS, {"topic_names": [topic], "timeout_ms": 30000}, 5, is_noted=False)
    some_batches(b)
    fetch(b, session_id=session, session_epoch=1)
    fetch(b, session_id=session, session_epoch=2)
    fetch(b, wanted(topic, (0, 6)) | {"topic_id": old}, session_id=session, session_epoch=3)
    fetch(b, wanted(topic, (0, 0)), session_id=session, session_epoch=4)
    b.produce(topic, batch(b"new"))
    fetch(b, wanted(topic, (0, 6)), session_id=session, session_epoch=5)
    forgotten = {"topic": topic, "topic_id": old, "partitions": [0]}
    fetch(b, forgotten=forgotten, session_id=session, session_epoch=6)
    fetch(b, wanted(topic, (0, 7)), session_id=session, session_epoch=7)
    fetch(b, wanted(topic, (0, 0)) | {"topic_id": old}, session_epoch=-1)


@CASES.of(BY_ID)
def a_topic_that_is_deleted_within_a_session_by_id(b: Peer) -> None:
    topic, other = some_batches(b), some_batches(b, "u")
    known = b.topic_id(topic)
    session = fetch(b, wanted(topic, (0, 6)), wanted(other, (0, 0)), session_epoch=0)["SessionId"]
    b.ask(ApiKey.DELETE_TOPICS, {"topic_names": [topic], "timeout_ms": 30000}, 5, is_noted=False)
    fetch(b, session_id=session, session_epoch=1)
    fetch(b, wanted(topic, (0, 6)) | {"topic_id": known}, session_id=session, session_epoch=2)
    fetch(b, session_id=session, session_epoch=3)
    fetch(b, wanted(topic, (0, 6), (1, 6)) | {"topic_id": known}, session_epoch=-1)


@CASES.of(BY_ID)
def ids_that_no_topic_has(b: Peer) -> None:
    topic = some_batches(b)
    unknown = [wanted(b.name(suffix), (0, 0), (1, 0)) for suffix in ("none", "neither")]
    fetch(b, *unknown, session_epoch=-1)
    fetch(b, *unknown, wanted(topic, (0, 0)), session_epoch=-1)
    session = fetch(b, *unknown, wanted(topic, (0, 6)), session_epoch=0)["SessionId"]
    fetch(b, session_id=session, session_epoch=1)
    fetch(b, forgotten={"topic": b.name("none"), "partitions": [0, 1]}, session_id=session, session_epoch=2)
    fetch(b, wanted(topic, (0, 0)), session_id=session, session_epoch=3)
    fetch(b, forgotten={"topic": b.name("neither"), "partitions": [0, 1]}, session_id=session, session_epoch=4)
    fetch(b, wanted(b.name("none"), (7, 0)), session_id=session, session_epoch=5)


@CASES.of(BY_ID)
def an_id_of_zero(b: Peer) -> None:
    topic = some_batches(b)
    zero = wanted("", (0, 0)) | {"topic_id": ZERO_ID}
    fetch(b, zero, session_epoch=-1, about="of an id of zero")
    fetch(b, zero, wanted(topic, (0, 0)), session_epoch=-1, about="of two topics")
    fetch(b, zero, session_epoch=0, about="that opens a session")
    session = fetch(b, wanted(topic, (0, 6)), session_epoch=0)["SessionId"]
    fetch(b, zero, session_id=session, session_epoch=1, about="within a session")


@CASES.of(BY_ID)
def an_id_that_is_named_twice(b: Peer) -> None:
    topic, other = some_batches(b), some_batches(b, "u")
    fetch(b, wanted(topic, (0, 6)), wanted(other, (0, 6)), wanted(topic, (0, 4), (0, 2)), session_epoch=-1)
    session = fetch(b, wanted(topic, (0, 0)), wanted(topic, (0, 6)), session_epoch=0)["SessionId"]
    fetch(b, wanted(topic, (0, 4)), wanted(topic, (0, 2)), session_id=session, session_epoch=1)
    twice = {"topic": topic, "partitions": [0, 0]}
    fetch(b, wanted(other, (0, 6)), forgotten=twice, session_id=session, session_epoch=2)
    fetch(b, wanted(topic, (0, 2)), forgotten=twice, session_id=session, session_epoch=3)


@CASES.of([12, *BY_ID])
def a_session_in_which_names_and_ids_alternate(b: Peer) -> None:
    topic = some_batches(b)
    session = fetch(b, wanted(topic, (0, 6)), session_epoch=0)["SessionId"]
    other_kind = 11 if b.version in BY_ID else 13
    fetch(b, session_id=session, session_epoch=1, version=other_kind)
    fetch(b, wanted(topic, (0, 0)), session_id=session, session_epoch=1, version=other_kind)
    fetch(b, session_id=session, session_epoch=2, version=other_kind, about="of another epoch")
    fetch(b, wanted(topic, (0, 0)), session_id=session, session_epoch=1)
    fetch(b, session_id=session, session_epoch=2, version=17 if b.version in BY_ID else 11)
    fetch(b, wanted(topic, (0, 0)), session_id=session, session_epoch=0, version=other_kind)
    fetch(b, session_id=session, session_epoch=3)


@CASES.of(FETCH)
def clients_that_do_not_know_zstd(b: Peer) -> None:
    asked_for, chosen = b.create("a", 1, compression_type="zstd"), b.create("c")
    b.produce(chosen, batch(b"x" * 100, compression=Compression.ZSTD))
    fetch(b, wanted(asked_for, (0, 0)), wanted(chosen, (0, 0)))


@CASES.of(FETCH)
def several_segments(b: Peer) -> None:
    topic = b.create("t", 1, segment_bytes="300", index_interval_bytes="1")
    for number in range(4):
        b.produce(topic, batch(b"x" * 100, b"%d" % number))
    for offset in range(9):
        fetch(b, wanted(topic, (0, offset)))
        fetch(b, wanted(topic, (0, offset), partition_max_bytes=250))


@CASES.of(FETCH)
def records_with_unusual_fields(b: Peer) -> None:
    topic = b.create()
    headers = [("h", b"x"), ("h", None), ("", b"")]
    for records in (
        batch(b"a", first_time=-5),
        batch(b"a", first_time=2**62),
        batch(b"", key=b""),
        batch(None),
        batch(b"a", partition_leader_epoch=7),
        build_batch([Record(0, T, b"k", b"v", headers)]),
    ):
        b.produce(topic, records)
    fetch(b, wanted(topic, (0, 0)))


@CASES.of(FETCH)
def fetches_from_a_topic_with_log_append_time(b: Peer) -> None:
    topic = b.create("t", 1, message_timestamp_type="LogAppendTime")
    b.produce(topic, batch(b"a", b"b"))
    fetch(b, wanted(topic, (0, 0)))
