"""Transactions whose coordinator leads none of their partitions, and is killed between PrepareCommit (or PrepareAbort)
and each of the markers: its successor completes them. One is committed while another is aborted.

SIGSTOP holds the leader of a partition so that it does not get its marker, or the follower of the coordinator's log so
that the end of the transaction is not stored.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.produce import ProduceRequest, ProduceResponse
from odradek.protocol.messages.producers import InitProducerIdResponse
from odradek.protocol.messages.topics import CreateTopicsRequest
from odradek.protocol.messages.transactions import (
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnResponse,
)
from odradek.protocol.records import Record, build_batch
from tests.clients.members.watch import until
from tests.clients.transactions import read_committed
from tests.cluster.agreement import assert_replicas_agree
from tests.cluster.cluster import TRANSACTION, Cluster, Start
from tests.scenarios import coordinator_requests as ask
from tests.scenarios.coordinator_requests import Connection, field_of, until_loaded

TRANSACTIONS = "__transaction_state"
TOPIC = "t"
STATES = {"committed": ("PrepareCommit", "CompleteCommit"), "aborted": ("PrepareAbort", "CompleteAbort")}
"""The last states of each transaction."""
COORDINATOR, SUCCESSOR = 1, 2
LEADERS = {0: 3, 1: 4}
"""The leader of each partition."""
SETTINGS = {"min.insync.replicas": "1", "transaction.state.log.num.partitions": "1"}

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture
def cluster(start: Start, tmp_path: Path) -> Iterator[Cluster]:
    """Two brokers for the coordinator's log, and one for each partition."""
    with start(tmp_path, SETTINGS, brokers=4) as cluster:
        cluster.create_offsets_topic()
        create(cluster, TRANSACTIONS, [[COORDINATOR, SUCCESSOR]], {"cleanup.policy": "compact"})
        create(cluster, TOPIC, [[leader] for leader in LEADERS.values()], {})
        yield cluster


def create(cluster: Cluster, name: str, replicas: list[list[int]], configs: dict[str, str]) -> None:
    assignment, config = CreateTopicsRequest.CreatableReplicaAssignment, CreateTopicsRequest.CreatableTopicConfig
    cluster.create(
        CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[assignment(partition_index=number, broker_ids=ids) for number, ids in enumerate(replicas)],
            configs=[config(name=key, value=value) for key, value in configs.items()],
        )
    )


def connected(cluster: Cluster, broker_id: int) -> contextlib.closing[Connection]:
    return contextlib.closing(Connection(cluster.nodes[broker_id].address))


def begin(cluster: Cluster, name: str) -> tuple[int, int]:
    """Writes a record to each partition in a transaction; returns the producer."""
    assert cluster.until_coordinator(name, TRANSACTION) == COORDINATOR
    with connected(cluster, COORDINATOR) as connection:
        begun = until_loaded(connection, ask.init(name), InitProducerIdResponse, "error_code")
        producer = begun.producer_id, begun.producer_epoch
        for partition, leader in LEADERS.items():
            request = ask.add_partition(name, producer, TOPIC, partition)
            error = "results_by_topic_v3_and_below.results_by_partition.partition_error_code"
            assert field_of(until_loaded(connection, request, AddPartitionsToTxnResponse, error), error) == 0
            with connected(cluster, leader) as other:
                answer = other.call(records(name, producer, partition), ProduceResponse)
                assert field_of(answer, "responses.partition_responses.error_code") == 0
    return producer


def records(name: str, producer: tuple[int, int], partition: int) -> ProduceRequest:
    batch = build_batch(
        [Record(0, int(time.time() * 1000), b"k", b"%s %d" % (name.encode(), partition))],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=0,
        is_transactional=True,
    )
    data = ProduceRequest.PartitionProduceData(index=partition, records=batch)
    topic = ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])
    return ProduceRequest(transactional_id=name, acks=-1, timeout_ms=20_000, topic_data=[topic])


def end(cluster: Cluster, name: str, producer: tuple[int, int]) -> None:
    """Returns when the end is decided: it answers then, before the markers are written."""
    with connected(cluster, COORDINATOR) as connection:
        answer = connection.call(ask.end(name, producer, name == "committed"), EndTxnResponse)
        assert answer.error_code == ErrorCode.NONE


def until_marked(cluster: Cluster, partition: int) -> None:
    """Waits until the partition has the markers of all transactions."""
    with connected(cluster, LEADERS[partition]) as connection:
        until(
            lambda: ask.end_offset(connection, TOPIC, partition, 0) > ask.end_offset(connection, TOPIC, partition, 1),
            False.__eq__,
            f"markers in {TOPIC}-{partition}",
        )


def state(connection: Connection, name: str) -> str:
    """The transaction's state as its coordinator knows it."""
    request = DescribeTransactionsRequest(transactional_ids=[name])
    answer = until_loaded(connection, request, DescribeTransactionsResponse, "transaction_states.error_code")
    return answer.transaction_states[0].transaction_state


def states(cluster: Cluster, broker_id: int) -> list[str]:
    with connected(cluster, broker_id) as connection:
        return [state(connection, name) for name in STATES]


def assert_led_elsewhere(cluster: Cluster) -> None:
    """The coordinator and its successor lead none of the partitions."""
    assert [cluster.leader(TOPIC, partition) for partition in LEADERS] == [*LEADERS.values()]
    assert {COORDINATOR, SUCCESSOR}.isdisjoint(LEADERS.values())


@pytest.mark.parametrize("without", [(0, 1), (0,), (1,), ()], ids=["no marker", "the second", "the first", "both"])
def test_transactions_are_completed_when_their_coordinator_is_killed_between_the_markers(
    cluster: Cluster, dump_tool: list[str], without: tuple[int, ...]
) -> None:
    """`without`: the partitions that have no markers when the coordinator is killed."""
    prepared, complete = map(list, zip(*STATES.values(), strict=True))
    producers = {name: begin(cluster, name) for name in STATES}
    assert_led_elsewhere(cluster)
    held = [LEADERS[partition] for partition in without or LEADERS]
    for broker_id in held:
        cluster.stop(broker_id)
    for name, producer in producers.items():
        end(cluster, name, producer)
    if not without:
        cluster.stop(SUCCESSOR)
        for broker_id in held:
            cluster.go_on(broker_id)
        held = [SUCCESSOR]
    for partition in LEADERS.keys() - {*without}:
        until_marked(cluster, partition)
    assert states(cluster, COORDINATOR) == prepared
    cluster.kill(COORDINATOR)
    for broker_id in held:
        cluster.go_on(broker_id)
    for name in STATES:
        assert cluster.until_coordinator(name, TRANSACTION, other_than=COORDINATOR) == SUCCESSOR
    until(lambda: states(cluster, SUCCESSOR), complete.__eq__, f"{complete}")
    for partition in LEADERS:
        until_marked(cluster, partition)
    assert_led_elsewhere(cluster)
    cluster.launch(COORDINATOR)
    cluster.until_whole()
    read = read_committed(cluster.bootstrap, TOPIC, len(LEADERS))
    assert read == {partition: [f"committed {partition}"] for partition in LEADERS}
    assert_replicas_agree(cluster, dump_tool)
