"""The rows of secured listeners that need no Java, measured with few connections and records."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import secured
from benchmarks.checkout import Checkout
from benchmarks.contestants import ApacheKafka, Odradek
from benchmarks.measurement import TLS, TakesNoPart
from benchmarks.security_rows import Handshakes, IdleTls, PacedLatency


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Odradek]:
    broker = Odradek(tmp_path)
    secured.secure(broker, TLS)
    yield broker
    broker.remove()


@pytest.fixture
def started(broker: Odradek) -> Odradek:
    broker.start()
    secured.prepare(broker, TLS)
    return broker


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_connections_are_counted_and_the_brokers_time_for_them(started: Odradek, protocol: str) -> None:
    (reading,) = Handshakes(1, protocol, "handshakes").measure(started).values()
    assert reading.operations > 0
    assert reading.value == pytest.approx(reading.operations / reading.seconds)
    assert reading.cpu_seconds > 0


def test_records_are_acknowledged_over_tls(started: Odradek) -> None:
    p50, p99 = PacedLatency(200, "SASL_SSL").measure(started).values()
    assert 0 < p50.value <= p99.value


def test_idle_connections_take_memory(broker: Odradek, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IdleTls, "connections", 200)
    (reading,) = IdleTls().measure(broker).values()
    assert 1 < reading.value < 1000


def test_files_with_secrets_are_private(started: Odradek) -> None:
    client = secured.client_of(started, "SASL_SSL")
    assert client.config is not None
    assert client.librdkafka is not None
    for path in (client.config, client.librdkafka, started.directory / "broker.pem"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_both_brokers_get_the_same_listeners(broker: Odradek, tmp_path: Path) -> None:
    kafka = ApacheKafka(tmp_path)
    secured.secure(kafka, TLS)
    own = kafka.settings.pop("listeners").split(",")
    assert own[-1] == f"CONTROLLER://127.0.0.1:{kafka.port + 1}"
    assert [each.partition(":")[0] for each in own[:-1]] == list(broker.ports) == list(kafka.ports)
    assert kafka.settings.keys() == broker.settings.keys() - {"listeners"}


def test_a_version_without_tls_takes_no_part(tmp_path: Path) -> None:
    older = Odradek(tmp_path, Checkout(tmp_path, "python"), "before")
    with pytest.raises(TakesNoPart, match="this version has no TLS"):
        secured.secure(older, TLS)
