"""The tool for transactions."""

from __future__ import annotations

import confluent_kafka

from odradek.protocol.messages.transactions import DescribeTransactionsRequest
from tests.clients.node_tools.stage import Stage
from tests.patience import block_until
from tests.wire.blocking_client import Client

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"


def transactions(stage: Stage) -> None:
    writers = {name: writer(stage, name) for name in ("opened", "committed")}
    writers["committed"].commit_transaction(20)
    block_until(lambda: has_ended(stage, "committed"))
    stage.step("list transactions", TRANSACTIONS, "list", in_any_order=True)
    stage.step("list transactions that match", TRANSACTIONS, "list", "--transactional-id-pattern", "op.*")
    stage.step("list transactions of a bad pattern", TRANSACTIONS, "list", "--transactional-id-pattern", "(")
    stage.step("list long transactions", TRANSACTIONS, "list", "--duration-filter", "3600000")
    started = {r"(\d+ \w+ \d+ \d+ \w+ \d+) TIME \d+": r"\1 TIME DURATION"}
    stage.step("describe a transaction", TRANSACTIONS, "describe", "--transactional-id", "opened", mask=started)
    stage.step(
        "describe a transaction that has ended",
        TRANSACTIONS,
        "describe",
        "--transactional-id",
        "committed",
        mask=started,
    )
    stage.step("describe a transaction that is not there", TRANSACTIONS, "describe", "--transactional-id", "none")
    partition = ("--topic", "words", "--partition", "0")
    stage.step("describe producers", TRANSACTIONS, "describe-producers", *partition, in_any_order=True)
    stage.step("find hanging transactions", TRANSACTIONS, "find-hanging", "--broker-id", "1")
    stage.step("terminate a transaction", TRANSACTIONS, "forceTerminateTransaction", "--transactionalId", "opened")
    block_until(lambda: has_ended(stage, "opened"))
    stage.step(
        "describe a terminated transaction", TRANSACTIONS, "describe", "--transactional-id", "opened", mask=started
    )
    stage.step("abort what has no transaction", TRANSACTIONS, "abort", *partition, "--start-offset", "0")


def writer(stage: Stage, name: str) -> confluent_kafka.Producer:
    """Returns a producer that has written in a transaction."""
    producer = confluent_kafka.Producer({"bootstrap.servers": stage.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("words", name, partition=0)
    assert producer.flush(20) == 0
    return producer


def has_ended(stage: Stage, name: str) -> bool:
    with Client(stage.bootstrap) as client:
        (state,) = client.ask(DescribeTransactionsRequest(transactional_ids=[name])).transaction_states
    return state.transaction_state in ("Empty", "CompleteCommit", "CompleteAbort")
