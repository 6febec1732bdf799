"""`odradek transactions` against a running broker, with transactions that are open, ended, and hanging."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from odradek.cli.__main__ import main
from odradek.clients.admin.client import AdminClient
from odradek.protocol.records import Record, build_batch
from tests.cli.conftest import Odradek
from tests.spawned_broker import spawned_broker
from tests.wire import requests
from tests.wire.records import PRODUCE_VERSION, connect

LONG_AGO_MS = 1_700_000_000_000
HANGING_PRODUCER = 4_000_000
"""A producer id that no coordinator knows."""


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {
        "transaction.partition.verification.enable": "false",
        "transaction.state.log.num.partitions": "3",
    }
    with spawned_broker(tmp_path_factory.mktemp("cli") / "data", settings) as broker:
        yield broker.bootstrap


@pytest.fixture
def odradek(bootstrap: str, run_odradek: Odradek) -> Odradek:
    """Runs `odradek transactions` with the broker."""
    return lambda *arguments: run_odradek("transactions", *arguments, "--bootstrap-server", bootstrap)


def open_transaction(bootstrap: str, name: str, topic: str) -> confluent_kafka.Producer:
    """Returns a producer with a record in an open transaction."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 54321, "linger.ms": 0}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"v", partition=0)
    assert producer.flush(30) == 0
    return producer


def hang(bootstrap: str, topic: str) -> None:
    """Appends an old transactional batch of a producer that no coordinator knows. Its client is an older one, whose
    partitions the broker does not add to the transaction.
    """

    async def work() -> None:
        async with await connect(bootstrap) as client:
            batch = build_batch(
                [Record(0, LONG_AGO_MS, None, b"v")],
                producer_id=HANGING_PRODUCER,
                producer_epoch=3,
                base_sequence=0,
                is_transactional=True,
            )
            request = requests.produce(topic, batch, transactional_id="gone")
            response = await client.send(request, version=PRODUCE_VERSION)
            answer = response.responses[0].partition_responses[0]
            assert (answer.error_code, answer.base_offset) == (0, 0)

    asyncio.run(work())


def last_stable(bootstrap: str, topic: str) -> int:
    async def work() -> int:
        async with AdminClient(bootstrap) as admin:
            request = requests.list_offsets(topic, isolation_level=1)
            return int((await admin.ask_broker(0, request)).topics[0].partitions[0].offset)

    return asyncio.run(work())


def new_topic(bootstrap: str, name: str) -> str:
    assert main(["topics", "create", name, "--bootstrap-server", bootstrap]) == 0
    return name


def listed(odradek: Odradek, *arguments: str) -> list[Any]:
    status, out, err = odradek("list", *arguments, "--json")
    assert (status, err) == (0, "")
    found: list[Any] = json.loads(out)
    return found


def test_an_open_transaction_is_listed_described_and_aborted(bootstrap: str, odradek: Odradek) -> None:
    topic = new_topic(bootstrap, "orders")
    producer = open_transaction(bootstrap, "copier", topic)
    (one,) = listed(odradek, "--state", "Ongoing")
    assert (one["transactional_id"], one["coordinator"], one["state"]) == ("copier", 0, "Ongoing")
    assert odradek("list", "--state", "Ongoing")[1] == (
        f"TransactionalId: copier\tCoordinator: 0\tProducerId: {one['producer_id']}\tState: Ongoing\n"
    )
    (described,) = json.loads(odradek("describe", "copier", "--json")[1])
    assert described["timeout_ms"] == 54321
    assert described["partitions"] == ["orders-0"]
    assert 0 <= described["duration_ms"] < 54321
    assert last_stable(bootstrap, topic) == 0
    assert odradek("abort", "copier") == (0, "copier is CompleteAbort\n", "")
    assert last_stable(bootstrap, topic) == 2
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        producer.commit_transaction(30)
    assert caught.value.args[0].code() == confluent_kafka.KafkaError._FENCED
    status, out, _ = odradek("describe", "copier")
    assert status == 0
    assert "\tState: CompleteAbort\t" in out
    assert out.endswith("\tStartMs: none\tDurationMs: none\tPartitions: \n")


def test_ids_are_listed_by_producer_and_by_state(bootstrap: str, odradek: Odradek) -> None:
    topic = new_topic(bootstrap, "listed")
    for name in ("first", "second"):
        open_transaction(bootstrap, name, topic).commit_transaction(30)
    by_name = {one["transactional_id"]: one for one in listed(odradek)}
    owner = by_name["first"]["producer_id"]
    assert listed(odradek, "--producer-id", str(owner)) == [by_name["first"]]
    assert listed(odradek, "--producer-id", str(owner), "--state", "Ongoing") == []
    both = listed(odradek, "--state", "CompleteCommit", "--state", "Ongoing")
    assert {one["transactional_id"] for one in both} >= {"first", "second"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list", "--state", "ongoing"], "INVALID_REQUEST: Unknown transaction state: ongoing"),
        (["describe", "nobody"], "TRANSACTIONAL_ID_NOT_FOUND: There is no transactional id 'nobody'"),
        (["abort", "nobody"], "TRANSACTIONAL_ID_NOT_FOUND: There is no transactional id 'nobody'"),
        (["abort"], "abort needs a transactional id, or --topic and --partition"),
        (["abort", "id", "--topic", "t"], "abort takes a transactional id or a partition, not both"),
        (["abort", "--topic", "t"], "abort needs a transactional id, or --topic and --partition"),
        (
            ["abort", "--topic", "t", "--partition", "0", "--producer-id", "4"],
            "abort in a partition needs --start-offset, or --producer-id and --producer-epoch",
        ),
        (
            ["abort", "--topic", "missing", "--partition", "0", "--start-offset", "3"],
            "UNKNOWN_TOPIC_OR_PARTITION: There is no topic 'missing'",
        ),
        (["find-hanging", "--topic", "missing"], "UNKNOWN_TOPIC_OR_PARTITION: There is no topic 'missing'"),
    ],
)
def test_a_failed_command_prints_one_line(odradek: Odradek, arguments: list[str], message: str) -> None:
    assert odradek(*arguments) == (1, "", f"odradek: {message}\n")


def test_a_transaction_that_is_not_open_is_not_aborted(bootstrap: str, odradek: Odradek) -> None:
    producer = open_transaction(bootstrap, "done", new_topic(bootstrap, "done"))
    producer.commit_transaction(30)
    assert odradek("abort", "done") == (
        1,
        "",
        "odradek: INVALID_TXN_STATE: 'done' has no open transaction; its state is CompleteCommit\n",
    )
    producer.begin_transaction()
    producer.abort_transaction(30)


def test_a_hanging_transaction_is_found_and_aborted_where_it_begins(bootstrap: str, odradek: Odradek) -> None:
    topic = new_topic(bootstrap, "hanging")
    open_transaction(bootstrap, "alive", topic).commit_transaction(30)
    other = new_topic(bootstrap, "hanging-too")
    hang(bootstrap, other)
    assert json.loads(odradek("find-hanging", "--topic", topic, "--json")[1]) == []
    (found,) = json.loads(odradek("find-hanging", "--json")[1])
    assert (found["topic"], found["partition"], found["producer_id"]) == (other, 0, HANGING_PRODUCER)
    assert (found["producer_epoch"], found["start_offset"]) == (3, 0)
    assert odradek("find-hanging", "--max-transaction-timeout", "100000000")[1] == ""
    where = ("abort", "--topic", other, "--partition", "0")
    assert odradek(*where, "--start-offset", "7") == (
        1,
        "",
        "odradek: INVALID_TXN_STATE: No open transaction in hanging-too-0 begins at offset 7\n",
    )
    assert last_stable(bootstrap, other) == 0
    assert odradek(*where, "--start-offset", "0") == (
        0,
        f"the transaction of producer {HANGING_PRODUCER} in hanging-too-0 is aborted\n",
        "",
    )
    assert last_stable(bootstrap, other) == 2
    assert odradek("find-hanging")[:2] == (0, "")


def test_a_hanging_transaction_is_aborted_by_its_producer(bootstrap: str, odradek: Odradek) -> None:
    topic = new_topic(bootstrap, "by-producer")
    hang(bootstrap, topic)
    where = ("abort", "--topic", topic, "--partition", "0", "--producer-id", str(HANGING_PRODUCER))
    status, out, err = odradek(*where, "--producer-epoch", "2")
    assert (status, out) == (1, "")
    assert err.startswith("odradek: INVALID_PRODUCER_EPOCH: ")
    assert odradek(*where, "--producer-epoch", "3")[0] == 0
    assert last_stable(bootstrap, topic) == 2
