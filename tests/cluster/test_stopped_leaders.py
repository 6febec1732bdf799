"""A leader that SIGSTOP holds beyond its session: when it goes on, it does not know yet that it leads no more.

Requests that arrived meanwhile wait in its sockets. Those with acks=all must not be acknowledged; those with acks=1
may be, and what they have appended is truncated.
"""

from __future__ import annotations

import contextlib
import time

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.produce import ProduceRequest, ProduceResponse
from odradek.protocol.records import Record, build_batch, read_batch_header, read_records
from odradek.protocol.topic_partition import TopicPartition
from tests.cluster.agreement import assert_replicas_agree, stored
from tests.cluster.cluster import Cluster
from tests.cluster.writer import Writer
from tests.wire.blocking_client import Client
from tests.wire.coordinators import field_of
from tests.wire.requests import assigned_topic, produce

TOPIC = "numbers"
KEY = TopicPartition(TOPIC, 0)
PER_SECOND = 500
LATE = 20
"""Records of each kind that are sent to the stopped leader."""
IMPATIENT = {"request.timeout.ms": 1000, "socket.timeout.ms": 1500}
"""A producer gives a silent broker up after a minute by default."""

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def of_value(value: bytes, acks: int) -> ProduceRequest:
    return produce(TOPIC, build_batch([Record(0, int(time.time() * 1000), None, value)]), acks=acks)


def error_of(answer: ProduceResponse) -> ErrorCode:
    return ErrorCode.of(field_of(answer, "responses.partition_responses.error_code"))


def stored_numbers(cluster: Cluster, broker_id: int) -> list[int]:
    """The numbers in a broker's log, each at the place of its offset."""
    batches = stored(cluster.nodes[broker_id].data, KEY)
    records = [record for batch in batches.values() for record in read_records(batch, 0, read_batch_header(batch))]
    assert [record.offset for record in records] == list(range(len(records)))
    return [int(record.value or b"") for record in records]


@pytest.mark.parametrize("is_controller", [False, True], ids=["a broker", "the controller"])
def test_a_leader_that_was_stopped_acknowledges_nothing_and_its_tail_is_truncated(
    cluster: Cluster, dump_tool: list[str], is_controller: bool
) -> None:
    controller = cluster.controller()
    others = [broker_id for broker_id in cluster.nodes if broker_id != controller]
    leader, *followers = [controller, *others] if is_controller else [*others, controller]
    cluster.create(assigned_topic(TOPIC, [leader, *followers]))
    writer = Writer(cluster.bootstrap, TOPIC, 1, PER_SECOND, settings=IMPATIENT)
    with contextlib.ExitStack() as stack:
        stack.callback(writer.finish)
        address = cluster.nodes[leader].address
        strict, lax = (stack.enter_context(Client(address)) for _ in range(2))
        assert error_of(strict.ask(of_value(b"-1", -1))) == ErrorCode.NONE
        assert error_of(lax.ask(of_value(b"-1", 1))) == ErrorCode.NONE
        writer.until_acknowledged()

        cluster.stop(leader)
        stopped_at = time.monotonic()
        cluster.until_led_by_another(TOPIC, 0, leader)
        writer.until_acknowledged()
        time.sleep(max(0.0, stopped_at + 2 * cluster.session_timeout_ms / 1000 - time.monotonic()))
        for _ in range(LATE):
            lax.send(of_value(b"-2", 1))
            strict.send(of_value(b"-3", -1))
        cluster.go_on(leader)

        lax_answers = [error_of(lax.receive()) for _ in range(LATE)]
        strict_answers = [error_of(strict.receive()) for _ in range(LATE)]
        print(f"acks=1: {lax_answers}, acks=all: {strict_answers}")
        assert ErrorCode.NONE not in strict_answers
        assert set(lax_answers) <= {ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER}
        assert ErrorCode.NONE in lax_answers, "the leader went on before it knew of its end"
        cluster.until_whole()
        writer.until_acknowledged()
    assert cluster.leader(TOPIC, 0) != leader
    assert_replicas_agree(cluster, dump_tool)
    numbers = stored_numbers(cluster, leader)
    assert sorted(number for number in numbers if number < 0) == [-1, -1]
    assert [number for number in numbers if number >= 0] == list(range(writer.count))
    writer.assert_acknowledged_at(0, numbers)
