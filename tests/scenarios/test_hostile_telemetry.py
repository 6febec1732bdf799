"""Pushes of metrics that take much more to read than to send: the other clients are served, in bounded memory."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from uuid import UUID

import pytest

from odradek.broker.telemetry.client_series import MOST_METRICS
from odradek.broker.telemetry.otlp import MOST_METRIC_BYTES
from odradek.broker.telemetry.subscriptions import DEFAULT_INTERVAL_MS, Wanted
from odradek.protocol.compiler import decode
from odradek.protocol.compression import compress
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.telemetry import (
    GetTelemetrySubscriptionsRequest,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from tests.broker.telemetry.otlp_messages import gauge, histogram, metrics_data, total
from tests.patience import block_until
from tests.scenarios.sweep import Bounds
from tests.scenarios.test_hostile_batches import forget_peak, peak_bytes, resident_bytes
from tests.scenarios.watched_broker import WatchedBroker, watched_broker
from tests.soak import rounds
from tests.spawned_broker import spawned_broker
from tests.wire.blocking_client import Client, RawClient
from tests.wire.frames import request_payload

pytestmark = pytest.mark.soak("hostile telemetry", minutes=1)
BOUNDS = Bounds()
SETTINGS = {"odradek.client.metrics.enable": "true", "odradek.metrics.port": "0"}
MOST_BYTES = 1 << 20
MUTATIONS = rounds(300, in_soak=20_000)
CROWD = 50
CROWD_BYTES = 24 << 20
_numbers = itertools.count(1 << 64)


@pytest.fixture(scope="module")
def broker() -> Iterator[WatchedBroker]:
    with watched_broker(SETTINGS) as broker:
        yield broker


def varint(number: int) -> bytes:
    low, high = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(high) if high else bytes([low])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def in_metric(number: int, content: bytes) -> bytes:
    """A push with one metric, which has this content in a field of its own."""
    return field(1, field(2, field(2, field(1, b"a") + field(number, content))))


def filled(unit: bytes, size: int) -> bytes:
    return unit * (size // len(unit))


def metrics_of(metric: bytes) -> bytes:
    return field(1, field(2, filled(field(2, metric), MOST_BYTES - 16)))


def nested(depth: int) -> bytes:
    """An attribute whose value is a list of a list of a list..."""
    value = b""
    for _ in range(depth):
        value = field(5, field(1, value))
    return field(7, field(1, b"k") + field(2, value))


SMALL = MOST_METRIC_BYTES - 64
HOSTILE: dict[str, Callable[[], bytes]] = {
    "empty resources": lambda: filled(b"\x0a\x00", MOST_BYTES),
    "empty scopes": lambda: field(1, filled(b"\x12\x00", MOST_BYTES - 8)),
    "empty metrics": lambda: field(1, field(2, filled(b"\x12\x00", MOST_BYTES - 16))),
    "unknown fields": lambda: filled(b"\x78\x01", MOST_BYTES),
    "many names": lambda: metrics_data(*(gauge(f"a.{number}", 1.0) for number in range(20_000))),
    "many labels": lambda: metrics_data(*(total("a", 1, topic=f"t{number}" * 9) for number in range(9000))),
    "many points": lambda: in_metric(5, filled(b"\x0a\x00", MOST_BYTES - 64)),
    "metrics of many points": lambda: metrics_of(field(1, b"a") + field(5, filled(b"\x0a\x00", SMALL))),
    "metrics of some points": lambda: metrics_of(
        field(1, b"a") + field(5, filled(field(1, b"\x21" + b"\0" * 8), 11_000))
    ),
    "points of many attributes": lambda: metrics_of(
        field(1, b"a") + field(5, field(1, b"\x21" + b"\0" * 8 + filled(b"\x3a\x00", SMALL)))
    ),
    "metrics of many attributes": lambda: metrics_of(field(1, b"a") + filled(b"\x62\x00", SMALL)),
    "long labels": lambda: metrics_of(
        field(1, b"a")
        + field(5, field(1, b"\x21" + b"\0" * 8 + field(7, field(1, b"k") + field(2, field(1, b"\n" * 60_000)))))
    ),
    "a long name": lambda: metrics_data(gauge("a" * 1_000_000, 1.0)),
    "long names": lambda: metrics_of(field(1, b"a" * SMALL)),
    "many buckets": lambda: metrics_data(*(histogram(f"h{n}", range(3000), [1] * 3001) for n in range(20))),
    "histograms": lambda: metrics_data(*(histogram(f"h{n}", range(99), [1] * 100) for n in range(500))),
    "deep values": lambda: in_metric(5, field(1, b"\x21" + b"\0" * 8 + nested(30))),
    "too deep values": lambda: in_metric(5, field(1, b"\x21" + b"\0" * 8 + nested(5000))),
    "resources of many attributes": lambda: filled(field(1, field(1, filled(b"\x0a\x00", 4000))), MOST_BYTES),
    "a long resource": lambda: field(1, field(1, filled(b"\x0a\x00", MOST_BYTES - 16))),
    "junk": lambda: random.Random(5).randbytes(MOST_BYTES - 1000),
    "zeros": lambda: b"\0" * MOST_BYTES,
}
NO_METRICS_DATA = {"too deep values", "junk", "zeros"}


def push(metrics: bytes, codec: int = 0) -> PushTelemetryRequest:
    """A push of a client that the broker sees for the first time."""
    client_instance_id = UUID(int=next(_numbers))
    return PushTelemetryRequest(
        client_instance_id=client_instance_id,
        subscription_id=Wanted((), DEFAULT_INTERVAL_MS).id_for(client_instance_id),
        compression_type=codec,
        metrics=metrics,
    )


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_push_takes_short_turns_and_bounded_memory(broker: WatchedBroker, name: str, codec: int) -> None:
    data = HOSTILE[name]()
    assert len(data) <= MOST_BYTES
    data = compress(codec, data) if codec else data
    answer = broker.ask(push(data, codec), 0)
    expected = ErrorCode.INVALID_RECORD if name in NO_METRICS_DATA else ErrorCode.NONE
    assert decode(PushTelemetryResponse, 0, answer.body).error_code == expected
    assert answer.turns.are_short(), answer.turns
    if codec:
        memory = broker.memory_of(push(data, codec), 0)
        assert memory.beyond_frame_and_answer < BOUNDS.free_bytes + BOUNDS.bytes_per_byte * memory.request


@pytest.mark.parametrize(("codec", "inflated"), [(1, 256 << 20), (2, 16 << 20), (3, 192 << 20), (4, 256 << 20)])
def test_a_push_that_inflates_to_much_more_stops_at_the_limit(broker: WatchedBroker, codec: int, inflated: int) -> None:
    data = compress(codec, b"\0" * inflated)
    assert len(data) <= MOST_BYTES
    answer = broker.ask(push(data, codec), 0)
    assert decode(PushTelemetryResponse, 0, answer.body).error_code == ErrorCode.INVALID_RECORD
    assert answer.turns.are_short(), answer.turns
    memory = broker.memory_of(push(data, codec), 0)
    assert memory.beyond_frame_and_answer < BOUNDS.free_bytes + BOUNDS.bytes_per_byte * memory.request


def test_crowds_that_push_what_is_large_in_memory_take_no_more_than_one(tmp_path: Path) -> None:
    """Of the process, since protobuf's memory is not Python's."""
    bomb = compress(4, HOSTILE["metrics of many points"]())
    with spawned_broker(tmp_path / "data", SETTINGS) as broker, ExitStack() as connected:
        with Client(broker.bootstrap) as first:
            assert first.ask(push(bomb, 4), 0).error_code == 0
        forget_peak(broker)
        before = resident_bytes(broker)
        clients = [connected.enter_context(Client(broker.bootstrap)) for _ in range(CROWD)]
        for client in clients:
            client.send(push(bomb, 4), 0)
        assert {client.receive().error_code for client in clients} == {0}
        assert peak_bytes(broker) - before < CROWD_BYTES


def test_clients_that_make_up_names_leave_bounded_series_and_instances(broker: WatchedBroker) -> None:
    """And none of them once they have gone."""
    telemetry = broker.thread.broker.telemetry
    assert telemetry is not None
    with Client(broker.thread.bootstrap) as client:
        for number in range(100):
            points = (gauge(f"a.{number}.{n}", 1.0, topic=f"t{n}") for n in range(300))
            assert client.ask(push(metrics_data(*points)), 0).error_code == 0
        assert len(telemetry.series.metrics) == MOST_METRICS
        assert telemetry.series.size <= 20_000
        assert telemetry.series.dropped >= 29_000
    block_until(lambda: len(telemetry.instances) == telemetry.series.size == 0)


def test_mutated_requests_are_answered_or_end_the_connection(broker: WatchedBroker) -> None:
    chance = random.Random(72)
    metrics = metrics_data(gauge("a", 1.0, topic="t"), histogram("h", [1.0], [1, 2], 3.0))
    for number in range(MUTATIONS):
        if number % 3 == 0:
            payload = request_payload(GetTelemetrySubscriptionsRequest(client_instance_id=UUID(int=next(_numbers))), 0)
        else:
            codec = chance.randrange(5)
            payload = request_payload(push(compress(codec, metrics) if codec else metrics, codec), 0)
        mutated = bytearray(payload)
        for _ in range(chance.randint(1, 4)):
            mutated[chance.randrange(8, len(mutated))] = chance.randrange(256)
        with RawClient(broker.thread.bootstrap) as client, suppress(ConnectionError):
            client.call(bytes(mutated))
    assert broker.response(GetTelemetrySubscriptionsRequest(), 0).error_code == 0
