"""Copiers in transactions of both versions, whose broker dies again and again: each record is copied once, in order.

librdkafka adds its partitions itself; Kafka's own client has an epoch for each transaction (KIP-890).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.clients.network_client import NetworkClient
from odradek.protocol.messages.transactions import DescribeTransactionsRequest
from tests.clients.members.watch import Watch, until_coordinators
from tests.clients.transactions import CopierProcess, Numbers, read_committed, until_no_transaction_is_open
from tests.sequences import assert_same
from tests.spawned_broker import SpawnedBroker

FROM, TO, PARTITIONS, PER_SECOND = "from", "to", 4, 500
GROUP, TRANSACTIONAL_ID = "copiers", "copier"
ENDS: tuple[Callable[[SpawnedBroker], object], ...] = (SpawnedBroker.kill, SpawnedBroker.terminate, SpawnedBroker.kill)


def epoch_of(bootstrap: str) -> int:
    """The producer epoch of the copier's transactional id."""

    async def described() -> int:
        host, port = bootstrap.split(":")
        async with await NetworkClient.connect(host, int(port), client_id="epochs") as client:
            (found,) = (
                await client.send(DescribeTransactionsRequest(transactional_ids=[TRANSACTIONAL_ID]))
            ).transaction_states
            assert found.error_code == 0
            return int(found.producer_epoch)

    return asyncio.run(described())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["confluent", "java"])
def test_a_copier_copies_each_record_once_while_its_broker_dies(
    kind: str, newest_java_programs: list[str], brokers: Callable[[], SpawnedBroker], tmp_path: Path
) -> None:
    broker = brokers()
    bootstrap = broker.bootstrap
    until_coordinators(bootstrap)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (FROM, TO)]).values():
        made.result(30)
    program = [*newest_java_programs, "odradek.Copier"]
    if kind == "confluent":
        program = [sys.executable, "-m", "tests.clients.copiers.confluent_copier"]
    numbers = Numbers(bootstrap, FROM, PARTITIONS, PER_SECOND)
    copier = CopierProcess([*program, bootstrap, FROM, TO, GROUP, TRANSACTIONAL_ID], tmp_path / "copier.log")
    copier.start()
    for number, end in enumerate(ENDS):
        copier.until_it_works()
        end(broker)
        broker = brokers()
        if number == 1:
            copier.kill()
            copier.start()
    copier.until_it_works()
    written = numbers.finish()
    Watch(bootstrap, GROUP, FROM, PARTITIONS).until_all_is_committed()
    until_no_transaction_is_open(bootstrap, TO, PARTITIONS)
    transactions, epoch = len(copier.committed()), epoch_of(bootstrap)
    copier.kill()
    assert (epoch >= transactions) is (kind == "java"), f"{transactions} transactions up to epoch {epoch}"
    read = read_committed(bootstrap, TO, PARTITIONS)
    for partition in range(PARTITIONS):
        assert_same(read[partition], [f"copy of {value}" for value in range(partition, written, PARTITIONS)])
