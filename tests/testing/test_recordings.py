"""`recorded` and `replayed` as tests call them."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest
from kafka import KafkaProducer

from odradek.clients.recording.relay import CannotRecord
from odradek.testing import BrokerThread, recorded, recordings, replayed
from tests.clients.recording.test_recording_file import FullDisk
from tests.patience import PATIENCE_S


def produce(bootstrap: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    producer.send("orders", b"an order").get(timeout=PATIENCE_S)
    producer.close()


def test_a_recording_that_could_not_be_written_fails_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, file = FullDisk(), tmp_path / "file"
    monkeypatch.setattr(recordings, "OsFiles", lambda: disk)
    with BrokerThread() as broker, contextlib.ExitStack() as stack:
        proxy = stack.enter_context(recorded(broker.bootstrap, file))
        produce(proxy)
        disk.room = file.stat().st_size
        host, port = proxy.split(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
            assert connection.recv(1) == b""
        with pytest.raises(CannotRecord, match="No space left"):
            stack.close()


def test_a_secured_cluster_is_recorded_and_a_recording_sent_to_one(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with (
        BrokerThread(security="SASL_SSL") as cluster,
        recorded(cluster.bootstrap, file, client_properties=cluster.client_properties()) as proxy,
    ):
        produce(proxy)
    with BrokerThread(security="SASL_SSL") as other:
        assert replayed(file, other.bootstrap, client_properties=other.client_properties()) == []
