"""TransactionsCommand in a cluster: open, complete and hanging transactions."""

from __future__ import annotations

import confluent_kafka

from odradek.protocol.messages.transactions import DescribeTransactionsRequest
from odradek.protocol.records import Record, build_batch
from tests.cluster.cluster import TRANSACTION
from tests.cluster.kafka_tools.stage import BROKER, FIRST_TIMESTAMP, Stage
from tests.cluster.kafka_tools.topics import create
from tests.patience import block_until
from tests.wire.blocking_client import Client
from tests.wire.coordinators import field_of, until_loaded
from tests.wire.requests import init, produce

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
CONFIGS = "kafka.admin.ConfigCommand"
LISTED = {r"^(\S+) \d \d+ (\w+)$": r"\1 COORDINATOR PRODUCER \2"}
DESCRIBED = {r"^\d (\S+) \d+ (\d+) (\w+) (\d+) \S+ \d+": r"COORDINATOR \1 PRODUCER \2 \3 \4 START DURATION"}
PRODUCERS = {r"^\d+ (\d+) (-?\d+)": r"PRODUCER \1 \2"}
HANGING = {r"^(\S+ \d+) \d+ (\d+) (-?\d+) (\d+) \S+ \S+": r"\1 PRODUCER \2 \3 \4 SINCE DURATION"}


def transactions(stage: Stage) -> None:
    def show(sentence: str, *arguments: str, mask: dict[str, str] | None = None) -> None:
        stage.step(sentence, TRANSACTIONS, *arguments, mask=mask, in_any_order=True)

    create(stage, "create a topic of sums", "sums", "1:2:3,2:3:1")
    producer = opened(stage, "done", 0)
    producer.commit_transaction(30)
    until_complete(stage, "done")
    pending = opened(stage, "open", 1)
    show("list transactions", "list", mask=LISTED)
    show("list transactions of long duration", "list", "--duration-filter", "3600000", mask=LISTED)
    show("describe an open transaction", "describe", "--transactional-id", "open", mask=DESCRIBED)
    show("describe a complete transaction", "describe", "--transactional-id", "done", mask=DESCRIBED)
    show("describe a transaction that is not there", "describe", "--transactional-id", "nobody")
    partition = ("--topic", "sums", "--partition")
    show("describe the producers", "describe-producers", *partition, "1", mask=PRODUCERS)
    show(
        "describe the producers on a replica", "describe-producers", *partition, "1", "--broker-id", "3", mask=PRODUCERS
    )
    show("find no hanging transactions", "find-hanging", "--topic", "sums", "--max-transaction-timeout", "0")
    hanging(stage)
    pending.abort_transaction(30)
    until_complete(stage, "open")
    show("describe an aborted transaction", "describe", "--transactional-id", "open", mask=DESCRIBED)


def opened(stage: Stage, name: str, partition: int) -> confluent_kafka.Producer:
    """A producer with three records in an open transaction."""
    producer = confluent_kafka.Producer({"bootstrap.servers": stage.bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(3):
        producer.produce("sums", f"{number}", partition=partition)
    assert producer.flush(30) == 0
    return producer


def until_complete(stage: Stage, name: str) -> None:
    """Waits until the markers of a transaction are written."""
    coordinator = stage.cluster.coordinator(name, TRANSACTION)
    with Client(stage.cluster.nodes[coordinator].address) as connection:

        def is_complete() -> bool:
            request = DescribeTransactionsRequest(transactional_ids=[name])
            (state,) = connection.ask(request).transaction_states
            return bool(state.transaction_state.startswith("Complete"))

        block_until(is_complete)


def hanging(stage: Stage) -> None:
    """A batch of a transaction of which its coordinator knows nothing."""

    def show(sentence: str, *arguments: str, mask: dict[str, str] | None = None) -> None:
        stage.step(sentence, TRANSACTIONS, *arguments, mask=mask, in_any_order=True)

    switch = ("--entity-type", "brokers", "--entity-default", "--alter", "--add-config")
    verification = "transaction.partition.verification.enable"
    stage.step("stop verifying transactions", CONFIGS, *switch, f"{verification}=false")
    stage.until_configured(BROKER, "", transaction__partition__verification__enable="false")
    write_outside_transactions(stage, "hanging", 0)
    stage.step("verify transactions again", CONFIGS, *switch, f"{verification}=true")
    find = ("find-hanging", "--max-transaction-timeout", "0")
    show("find hanging transactions of a broker", *find, "--broker-id", "1", mask=HANGING)
    show("find hanging transactions of a follower", *find, "--broker-id", "3", mask=HANGING)
    show("find hanging transactions of a topic", *find, "--topic", "sums", mask=HANGING)
    show("find hanging transactions of a partition", *find, "--topic", "sums", "--partition", "0", mask=HANGING)
    show("find hanging transactions of a topic that is not there", *find, "--topic", "nothing")
    show("find hanging transactions everywhere", *find)
    show("find young hanging transactions", "find-hanging", "--broker-id", "1")
    abort = ("abort", "--topic", "sums", "--partition", "0", "--start-offset")
    show("abort a transaction that does not begin there", *abort, "1")
    show("abort a hanging transaction", *abort, "4")
    show("find no hanging transactions after that", *find, "--broker-id", "1")
    show("describe the producers after that", "describe-producers", *abort[1:5], mask=PRODUCERS)


def write_outside_transactions(stage: Stage, name: str, partition: int) -> None:
    """Writes a transactional batch to a partition that is not in a transaction. Waits until the leader no longer
    verifies this.
    """
    coordinator = stage.cluster.until_coordinator(name, TRANSACTION)
    with Client(stage.cluster.nodes[coordinator].address) as connection:
        given = until_loaded(connection, init(name), "error_code")
    batch = build_batch(
        [Record(0, FIRST_TIMESTAMP, None, b"lost")],
        producer_id=given.producer_id,
        producer_epoch=given.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    request = produce("sums", batch, partition, transactional_id=name)
    leader = stage.cluster.leader("sums", partition)
    with Client(stage.cluster.nodes[leader].address) as connection:

        def is_accepted() -> bool:
            answer = connection.ask(request)
            return field_of(answer, "responses.partition_responses.error_code") == 0

        block_until(is_accepted)
