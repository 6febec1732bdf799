"""The transaction coordinator: producers of a transactional id, the content of a transaction, its end, and its
description.

Kafka writes markers after it has answered: a case that continues with the same id waits until they are written.
"""

from __future__ import annotations

import time
from typing import Any

from odradek.protocol.api_keys import ApiKey
from tests.beside_kafka.documents import Document, batch
from tests.scenarios.same_as_kafka.case import Cases
from tests.scenarios.same_as_kafka.peer import Peer

CASES = Cases()
DEADLINE_SECONDS = 30
Producer = tuple[int, int]


def coordinator(b: Peer, name: str) -> None:
    """Waits until there is a coordinator."""
    document = {"key": name, "key_type": 1, "coordinator_keys": [name]}
    repeat(lambda: b.ask(ApiKey.FIND_COORDINATOR, document, 3, is_noted=False)["ErrorCode"] == 0)


def repeat(succeeds: Any) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not succeeds() and time.monotonic() < deadline:
        time.sleep(0.05)


def init(
    b: Peer,
    name: str | None,
    version: int | None = None,
    *,
    expected: Producer = (-1, -1),
    timeout_ms: int = 60000,
    is_noted: bool = True,
    about: str = "",
) -> Producer:
    document = {
        "transactional_id": name,
        "transaction_timeout_ms": timeout_ms,
        "producer_id": expected[0],
        "producer_epoch": expected[1],
    }
    answer = b.ask(ApiKey.INIT_PRODUCER_ID, document, version, is_noted=is_noted, about=about)
    return answer.get("ProducerId", -1), answer.get("ProducerEpoch", -1)


def new_producer(b: Peer, name: str, timeout_ms: int = 60000) -> Producer:
    """Retries until the id has a producer; nothing is compared."""
    coordinator(b, name)
    found: list[Producer] = []

    def ask() -> bool:
        found.append(init(b, name, 4, timeout_ms=timeout_ms, is_noted=False))
        return found[-1][0] >= 0

    repeat(ask)
    return found[-1]


def add(
    b: Peer,
    name: str,
    producer: Producer,
    partitions: list[tuple[str, list[int]]],
    version: int | None = None,
    *,
    is_noted: bool = True,
    about: str = "",
) -> Document:
    document = {
        "v3_and_below_transactional_id": name,
        "v3_and_below_producer_id": producer[0],
        "v3_and_below_producer_epoch": producer[1],
        "v3_and_below_topics": [{"name": topic, "partitions": numbers} for topic, numbers in partitions],
    }
    return b.ask(ApiKey.ADD_PARTITIONS_TO_TXN, document, version, is_noted=is_noted, about=about)


def add_offsets(
    b: Peer, name: str, producer: Producer, group: str, version: int | None = None, *, about: str = ""
) -> None:
    document = {
        "transactional_id": name,
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "group_id": group,
    }
    b.ask(ApiKey.ADD_OFFSETS_TO_TXN, document, version, about=about)


def end(
    b: Peer, name: str, producer: Producer, committed: bool, version: int | None = None, *, about: str = ""
) -> None:
    document = {
        "transactional_id": name,
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "committed": committed,
    }
    b.ask(ApiKey.END_TXN, document, version, about=about)


def described(b: Peer, *names: str, is_noted: bool = True) -> list[Document]:
    answer = b.ask(ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": list(names)}, 0, is_noted=False)
    states: list[Document] = answer["TransactionStates"]
    for state in states:
        for topic in state["Topics"]:
            topic["Partitions"].sort()
        start = state["TransactionStartTimeMs"]
        state["TransactionStartTimeMs"] = "NOW" if abs(start - time.time() * 1000) < 60000 else start
    if is_noted:
        b.note("DESCRIBE_TRANSACTIONS", states)
    return states


def settle(b: Peer, name: str) -> None:
    """Waits until the markers are written."""
    repeat(lambda: not described(b, name, is_noted=False)[0]["TransactionState"].startswith("Prepare"))


def write(b: Peer, name: str, producer: Producer, topic: str, sequence: int = 0, version: int = 8) -> None:
    records = batch(
        b"v", producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence, is_transactional=True
    )
    b.note("PRODUCE", b.produce(topic, records, transactional_id=name, version=version))


@CASES.of(range(8, 12))
def batches_outside_their_transaction(b: Peer) -> None:
    """The versions are those of Produce."""
    name, topic, other = b.name("id"), b.create(), b.create("u")
    producer = new_producer(b, name)
    write(b, name, producer, topic, version=b.version)
    add(b, name, producer, [(other, [0])], 3)
    write(b, name, producer, topic, version=b.version)
    write(b, name, producer, other, version=b.version)
    end(b, name, producer, True, 3)
    settle(b, name)
    write(b, name, producer, other, 1, version=b.version)
    write(b, name, (producer[0], producer[1] + 1), other, version=b.version)
    write(b, name, (producer[0] + 1000, 0), other, version=b.version)


# InitProducerId


@CASES.of(range(6))
def producers_of_a_transactional_id(b: Peer) -> None:
    name = b.name("id")
    coordinator(b, name)
    for _ in range(3):
        init(b, name)
    init(b, b.name("other"))
    described(b, name)


@CASES.of(range(6))
def invalid_transactional_ids_and_timeouts(b: Peer) -> None:
    name = b.name("id")
    coordinator(b, name)
    for timeout_ms in (0, -1, 1, 900000, 900001, 2147483647, -2147483648):
        init(b, name, timeout_ms=timeout_ms, about=str(timeout_ms))
    init(b, "")
    init(b, "", timeout_ms=0)
    init(b, None, timeout_ms=0)
    described(b, name)


@CASES.of([3, 4, 5])
def producer_ids_without_epochs_and_epochs_without_producer_ids(b: Peer) -> None:
    name = b.name("id")
    coordinator(b, name)
    for expected in ((5, -1), (-1, 5), (-2, 0), (0, -2)):
        for each in (name, None, ""):
            init(b, each, expected=expected, about=f"{expected} {each is None} {each == ''}")


@CASES.of(range(6))
def a_transactional_id_with_an_open_transaction(b: Peer) -> None:
    name, topic = b.name("id"), b.create("t", 2)
    old = new_producer(b, name)
    add(b, name, old, [(topic, [0, 1])], 3)
    write(b, name, old, topic)
    init(b, name)
    settle(b, name)
    described(b, name)
    init(b, name)
    for version in (1, 3):
        end(b, name, old, True, version)
        add(b, name, old, [(topic, [0])], version)
        add_offsets(b, name, old, "g", version)
    write(b, name, old, topic, 1)


@CASES.of([3, 4, 5])
def a_producer_bumps_its_epoch(b: Peer) -> None:
    name = b.name("id")
    first = new_producer(b, name)
    second = init(b, name, expected=first, about="bumps")
    init(b, name, expected=first, about="retries")
    init(b, name, expected=first, about="retries again")
    init(b, name, expected=(second[0], second[1] + 1), about="is ahead")
    init(b, name, expected=(second[0] + 100, 0), about="has another producer id")
    third = init(b, name, about="is new")
    init(b, name, expected=second, about="is fenced")
    init(b, name, expected=third, about="bumps again")


@CASES.of([3, 4, 5])
def a_producer_bumps_its_epoch_with_an_open_transaction(b: Peer) -> None:
    name, topic = b.name("id"), b.create()
    producer = new_producer(b, name)
    add(b, name, producer, [(topic, [0])], 3)
    init(b, name, expected=producer, about="aborts")
    settle(b, name)
    init(b, name, expected=producer, about="comes again")
    init(b, name)


@CASES.of([3, 4, 5])
def a_zombie_bumps_its_epoch_while_its_successor_has_an_open_transaction(b: Peer) -> None:
    name, topic = b.name("id"), b.create()
    old = new_producer(b, name)
    producer = init(b, name)
    add(b, name, producer, [(topic, [0])], 3)
    init(b, name, expected=old, about="of the zombie")
    settle(b, name)
    end(b, name, producer, True, 3, about="of the successor")


# AddPartitionsToTxn, AddOffsetsToTxn


@CASES.of(range(4))
def partitions_of_a_transaction(b: Peer) -> None:
    name, topic, other = b.name("id"), b.create("t", 3), b.create("u")
    producer = new_producer(b, name)
    add(b, name, producer, [(topic, [0])])
    described(b, name)
    add(b, name, producer, [(topic, [0, 1]), (other, [0])])
    add(b, name, producer, [(topic, [1])])
    add(b, name, producer, [(topic, [2, 2])])
    add(b, name, producer, [])
    described(b, name)


@CASES.of(range(4))
def a_transaction_without_partitions(b: Peer) -> None:
    name = b.name("id")
    producer = new_producer(b, name)
    add(b, name, producer, [])
    described(b, name)
    end(b, name, producer, True, 3)
    settle(b, name)
    described(b, name)


@CASES.of(range(4))
def unknown_partitions_are_added_to_a_transaction(b: Peer) -> None:
    name, topic = b.name("id"), b.create("t", 2)
    producer = new_producer(b, name)
    add(b, name, producer, [(topic, [0, 7]), (b.name("none"), [0])])
    add(b, name, producer, [(topic, [-1])])
    add(b, name, producer, [("", [0])])
    add(b, name, (producer[0] + 100, 0), [(topic, [7])])
    described(b, name)


@CASES.of(range(4))
def partitions_are_added_by_other_producers(b: Peer) -> None:
    name, topic = b.name("id"), b.create()
    producer = new_producer(b, name)
    add(b, b.name("nobody"), producer, [(topic, [0])])
    add(b, "", producer, [(topic, [0])])
    for other in ((producer[0] + 100, 0), (producer[0], 1), (producer[0], -1), (-1, 0), (-1, -1)):
        add(b, name, other, [(topic, [0])], about=str((other[0] - producer[0], other[1])))


def add_all(b: Peer, *transactions: tuple[str, Producer, list[tuple[str, list[int]]], bool], about: str) -> None:
    """Each with whether its partitions are only verified."""
    document = {
        "transactions": [
            {
                "transactional_id": name,
                "producer_id": producer[0],
                "producer_epoch": producer[1],
                "verify_only": verify_only,
                "topics": [{"name": topic, "partitions": numbers} for topic, numbers in partitions],
            }
            for name, producer, partitions, verify_only in transactions
        ]
    }
    b.ask(ApiKey.ADD_PARTITIONS_TO_TXN, document, about=about)


@CASES.of([4, 5])
def partitions_of_several_transactions(b: Peer) -> None:
    name, second, topic, other = b.name("id"), b.name("second"), b.create("t", 3), b.create("u")
    producer, successor = new_producer(b, name), new_producer(b, second)
    for verify_only in (True, False, True):
        add_all(
            b,
            (name, producer, [(topic, [0]), (other, [0])], verify_only),
            (second, successor, [(topic, [1])], verify_only),
            about=f"verified: {verify_only}",
        )
        described(b, name, second)
    add_all(b, (name, producer, [(topic, [0, 1])], True), about="of which one is missing")
    add_all(b, (name, producer, [], False), (second, successor, [], True), about="without partitions")
    add_all(b, (name, producer, [(topic, [0, 0])], False), about="named twice")
    end(b, name, producer, True, 3)
    settle(b, name)
    add_all(b, (name, producer, [(topic, [0])], True), about="of an ended transaction")


@CASES.of([4, 5])
def refused_partitions_of_several_transactions(b: Peer) -> None:
    name, topic = b.name("id"), b.create("t", 2)
    producer = new_producer(b, name)
    for verify_only in (True, False):
        about = f"verified: {verify_only}"
        add_all(b, (name, producer, [(topic, [0, 7]), (b.name("none"), [0])], verify_only), about=about)
        add_all(b, (b.name("nobody"), producer, [(topic, [0])], verify_only), about=about)
        add_all(b, ("", producer, [(topic, [0])], verify_only), about=about)
        for other in ((producer[0] + 100, 0), (producer[0], 1), (producer[0], -1), (-1, -1)):
            about = f"by another, verified: {verify_only} {other[0] - producer[0]} {other[1]}"
            add_all(b, (name, other, [(topic, [0])], verify_only), about=about)
    described(b, name)


@CASES.of([4])
def no_transactions_to_add_to(b: Peer) -> None:
    add_all(b, about="")


@CASES.of([4])
def a_transaction_that_is_named_twice(b: Peer) -> None:
    name, topic = b.name("id"), b.create("t", 2)
    producer = new_producer(b, name)
    add_all(b, (name, producer, [(topic, [0])], False), (name, producer, [(topic, [1])], False), about="")


@CASES.of(range(5))
def offsets_are_added_to_a_transaction(b: Peer) -> None:
    name = b.name("id")
    producer = new_producer(b, name)
    add_offsets(b, b.name("nobody"), producer, "g")
    add_offsets(b, "", producer, "g")
    add_offsets(b, name, (producer[0] + 100, 0), "g")
    add_offsets(b, name, (producer[0], 1), "g")
    add_offsets(b, name, producer, b.name("g"))
    add_offsets(b, name, producer, b.name("g"))
    add_offsets(b, name, producer, "")
    described(b, name)
    end(b, name, producer, False, 3)


# EndTxn


@CASES.of(range(5))
def transactions_are_ended(b: Peer) -> None:
    name, topic = b.name("id"), b.create()
    producer = new_producer(b, name)
    for committed in (True, False):
        end(b, name, producer, committed, about="of nothing")
    for committed in (True, False):
        add(b, name, producer, [(topic, [0])], 3)
        end(b, name, producer, committed)
        settle(b, name)
        described(b, name)
        end(b, name, producer, committed, about="once more")
        end(b, name, producer, not committed, about="the other way")


@CASES.of(range(5))
def transactions_are_ended_by_other_producers(b: Peer) -> None:
    name, topic = b.name("id"), b.create()
    producer = new_producer(b, name)
    add(b, name, producer, [(topic, [0])], 3)
    end(b, b.name("nobody"), producer, True)
    end(b, "", producer, True)
    for other in ((producer[0] + 100, 0), (producer[0], 1), (producer[0], -1), (-1, -1)):
        end(b, name, other, True, about=str((other[0] - producer[0], other[1])))
    described(b, name)


@CASES.of([3])
def a_transaction_whose_topic_is_deleted(b: Peer) -> None:
    name, topic = b.name("id"), b.create()
    producer = new_producer(b, name)
    add(b, name, producer, [(topic, [0])], 3)
    write(b, name, producer, topic)
    b.ask(ApiKey.DELETE_TOPICS, {"topic_names": [topic], "timeout_ms": 5000}, 5, is_noted=False)
    end(b, name, producer, True)
    settle(b, name)
    described(b, name)


@CASES.of([3])
def a_transaction_that_times_out(b: Peer) -> None:
    name, topic = b.name("id"), b.create()
    producer = new_producer(b, name, timeout_ms=500)
    add(b, name, producer, [(topic, [0])])
    write(b, name, producer, topic)
    repeat(lambda: described(b, name, is_noted=False)[0]["TransactionState"] == "CompleteAbort")
    described(b, name)
    end(b, name, producer, True)
    add(b, name, producer, [(topic, [0])])
    write(b, name, producer, topic, 1)
    init(b, name, 4, expected=producer)
    init(b, name, 4)


@CASES.of([3])
def unusual_transactional_ids(b: Peer) -> None:
    topic = b.create()
    for name in ("a b", "ünïcödé", "x" * 30000, "\u0000", "polygenelubricants"):
        coordinator(b, b.name(name))
        producer = init(b, b.name(name), 4)
        add(b, b.name(name), producer, [(topic, [0])])
        end(b, b.name(name), producer, True)
        settle(b, b.name(name))
        described(b, b.name(name))


# DescribeTransactions, ListTransactions


@CASES.of([0])
def transactional_ids_are_described(b: Peer) -> None:
    name, topic, other = b.name("id"), b.create("t", 3), b.create("u")
    producer = new_producer(b, name, timeout_ms=12345)
    add(b, name, producer, [(topic, [2, 0]), (other, [0])], 3)
    described(b, name, b.name("nobody"), "", name)
    described(b)
    init(b, name, 4)
    settle(b, name)
    described(b, name)


@CASES.of([0])
def a_transactional_id_is_described_after_its_next_producer_began(b: Peer) -> None:
    name, topic = b.name("id"), b.create()
    producer = new_producer(b, name)
    add(b, name, producer, [(topic, [0])], 3)
    end(b, name, producer, True, 3)
    settle(b, name)
    described(b, name)
    init(b, name, 4)
    described(b, name)


@CASES.of([0, 1])
def transactional_ids_are_listed(b: Peer) -> None:
    topic = b.create()
    producers = {}
    for kind in ("empty", "open", "committed", "aborted"):
        producers[kind] = new_producer(b, b.name(kind))
        if kind != "empty":
            add(b, b.name(kind), producers[kind], [(topic, [0])], 3)
    end(b, b.name("committed"), producers["committed"], True, 3)
    end(b, b.name("aborted"), producers["aborted"], False, 3)
    for kind in producers:
        settle(b, b.name(kind))
    filters: list[tuple[list[str], list[str]]] = [
        ([], []),
        (["Ongoing"], []),
        (["Empty", "CompleteCommit"], []),
        (["ongoing", "Nonsense", "Dead"], []),
        (["Dead", "PrepareEpochFence"], []),
        ([], ["open", "aborted"]),
        (["Ongoing", "Empty"], ["open", "aborted"]),
        ([], ["nobody"]),
    ]
    for states, kinds in filters:
        owners = [producers[kind][0] if kind in producers else 123456789 for kind in kinds]
        document = {"state_filters": states, "producer_id_filters": owners}
        answer = b.ask(ApiKey.LIST_TRANSACTIONS, document, is_noted=False)
        answer["UnknownStateFilters"].sort()
        answer["TransactionStates"] = [
            state for state in answer["TransactionStates"] if state["TransactionalId"].startswith(b.prefix + "-")
        ]
        b.note(f"LIST_TRANSACTIONS {states} {kinds}", answer)


@CASES.of([1])
def transactions_are_listed_by_duration(b: Peer) -> None:
    name, topic = b.name("id"), b.create()
    producer = new_producer(b, name)
    add(b, name, producer, [(topic, [0])], 3)
    new_producer(b, b.name("empty"))
    time.sleep(0.5)
    for duration_ms in (-1, 0, 200, 600_000, 2**63 - 1, -2, -(2**63)):
        answer = b.ask(ApiKey.LIST_TRANSACTIONS, {"duration_filter": duration_ms}, is_noted=False)
        names = sorted(state["TransactionalId"] for state in answer["TransactionStates"])
        b.note(f"LIST_TRANSACTIONS {duration_ms}", [each for each in names if each.startswith(b.prefix + "-")])
