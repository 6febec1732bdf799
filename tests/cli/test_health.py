"""`odradek health` asks the metrics port, or a listener of any kind without a login."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.testing import BrokerThread
from tests.broker.handlers.sasl_broker import PLAIN_MODULE
from tests.cli.conftest import Odradek
from tests.spawned_broker import free_port
from tests.tls_files import TlsFiles

LISTENERS = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "LOGIN": "SASL_PLAINTEXT",
    "BOTH": "SASL_SSL",
    "CERTIFIED": "SSL",
    "OLD": "SSL",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    jaas = f'{PLAIN_MODULE} required user_alice="alice-secret";'
    settings = {
        **TlsFiles(tmp_path_factory.mktemp("tls")).stores(),
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": jaas,
        "listener.name.both.plain.sasl.jaas.config": jaas,
        "listener.name.certified.ssl.client.auth": "required",
        "listener.name.old.ssl.client.auth": "required",
        "listener.name.old.ssl.enabled.protocols": "TLSv1.2",
        "odradek.metrics.port": "0",
    }
    with BrokerThread(settings) as broker:
        yield broker


@pytest.mark.parametrize("listener", LISTENERS)
def test_a_listener_of_any_kind_answers(listener: str, broker: BrokerThread, run_odradek: Odradek) -> None:
    port = next(each.port for each in broker.broker.endpoints if each.name == listener)
    status, out, _ = run_odradek("health", "--bootstrap-server", f"127.0.0.1:{port}")
    assert (status, out) == (0, f"up, by 127.0.0.1:{port}\n")


def test_the_metrics_port_answers_first(broker: BrokerThread, run_odradek: Odradek) -> None:
    server = broker.broker.metrics_server
    assert server is not None
    status, out, _ = run_odradek("health", "--metrics-port", str(server.port))
    assert (status, out) == (0, f"up, by port {server.port}\n")


def test_a_broker_that_starts_is_not_up(
    broker: BrokerThread, run_odradek: Odradek, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = broker.broker.metrics_server
    assert server is not None
    with monkeypatch.context() as patch:
        patch.setattr(type(broker.broker), "is_serving", False)
        assert run_odradek("health", "--metrics-port", str(server.port))[0] == 1


def test_nobody_is_there(run_odradek: Odradek) -> None:
    for arguments in (("--bootstrap-server", f"127.0.0.1:{free_port()}"), ("--bootstrap-server", "nonsense:x")):
        status, out, err = run_odradek("health", *arguments)
        assert (status, out) == (1, "")
        assert len(err.splitlines()) == 1


def test_a_server_of_something_else_is_no_broker(run_odradek: Odradek, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = ("--bootstrap-server", f"127.0.0.1:{server.getsockname()[1]}", "--timeout-ms", "200")
        status, _, err = run_odradek("health", *where)
    assert status == 1
    assert "did not answer API_VERSIONS in 200 ms" in err
