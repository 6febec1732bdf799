"""The image that `make image-test` has built: what it declares, and a real client that talks to the broker in it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import kafka
import pytest

from odradek.protocol.compiler import decode
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.spawned_broker import free_port
from tests.wire.blocking_client import RawClient
from tests.wire.frames import request_payload

CONTAINER = os.environ["ODRADEK_IMAGE_CONTAINER"]


def inspect() -> dict[str, object]:
    out = subprocess.run(
        ["buildah", "inspect", "--type", "image", os.environ["ODRADEK_IMAGE"]], capture_output=True, check=True
    ).stdout
    config = json.loads(out)["Docker"]["config"]
    assert isinstance(config, dict)
    return config


def in_container(*command: str, volume: Path) -> list[str]:
    isolation = ["buildah", "run", "--isolation=chroot", "--volume", f"{volume}:/var/lib/odradek"]
    return [*isolation, CONTAINER, "--", *command]


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A directory owned by the image's user, like a new volume."""
    os.chmod(tmp_path, 0o755)
    for parent in tmp_path.parents:
        if parent.stat().st_mode & 0o005 != 0o005 and parent.is_relative_to("/tmp"):
            parent.chmod(parent.stat().st_mode | 0o005)
    path = tmp_path / "volume"
    path.mkdir()
    os.chown(path, 1001, 1001)
    return path


@contextlib.contextmanager
def running(volume: Path, *settings: str) -> Iterator[subprocess.Popen[str]]:
    """The image's command with its addresses moved to loopback: chroot isolation shares this machine's network."""
    config = inspect()
    entrypoint = config["Entrypoint"]
    assert isinstance(entrypoint, list)
    sets = [part for setting in settings for part in ("--set", setting)]
    command = in_container(*entrypoint, "serve", "--data-dir", "/var/lib/odradek", *sets, volume=volume)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready "), "the broker in the image did not start"
        yield process
    finally:
        for pid in broker_pids():
            os.kill(pid, signal.SIGTERM)  # as an engine does; buildah itself would kill -9
        process.communicate(timeout=15)


def broker_pids() -> list[int]:
    """Python processes on this machine that serve the image's data directory."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if b"/var/lib/odradek" in words and Path(os.readlink(entry / "exe")).name.startswith("python"):
                found.append(int(entry.name))
    return found


def test_the_image_declares_a_user_a_volume_a_port_and_a_health_check() -> None:
    config = inspect()
    assert config["User"] == "odradek"
    assert config["Volumes"] == {"/var/lib/odradek": {}}
    assert config["ExposedPorts"] == {"9092/tcp": {}}
    health = config["Healthcheck"]
    assert isinstance(health, dict)
    assert health["Test"] == ["CMD", "odradek", "health"]


def test_records_survive_a_restart_and_the_broker_does_not_run_as_root(volume: Path) -> None:
    port = free_port()
    listener = f"listeners=PLAINTEXT://127.0.0.1:{port}"
    address = f"127.0.0.1:{port}"
    with running(volume, listener):
        assert {Path(f"/proc/{pid}").stat().st_uid for pid in broker_pids()} == {1001}
        producer = kafka.KafkaProducer(bootstrap_servers=address, acks="all", compression_type="zstd")
        for number in range(1000):
            producer.send("kept", b"%d" % number, partition=0)
        producer.flush(timeout=30)
        producer.close()
    assert (volume / ".kafka_cleanshutdown").exists(), "SIGTERM is a clean shutdown in the image too"
    with running(volume, listener):
        consumer = kafka.KafkaConsumer(bootstrap_servers=address, group_id=None, consumer_timeout_ms=10_000)
        partition = kafka.TopicPartition("kept", 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        values = []
        for message in consumer:
            values.append(message.value)
            if len(values) == 1000:
                break
        consumer.close()
    assert values == [b"%d" % number for number in range(1000)]


def advertised(bootstrap: str) -> set[tuple[str, int]]:
    """The brokers that Metadata names on this listener."""
    request = MetadataRequest(topics=[])
    with RawClient(bootstrap) as client:
        answer = decode(MetadataResponse, 8, client.call(request_payload(request, 8)), 4)
    return {(broker.host, broker.port) for broker in answer.brokers}


def test_each_listener_answers_with_its_own_advertised_address(volume: Path) -> None:
    inside, outside = free_port(), free_port()
    settings = [
        f"listeners=INTERNAL://127.0.0.1:{inside},EXTERNAL://127.0.0.1:{outside}",
        f"advertised.listeners=INTERNAL://broker.internal:{inside},EXTERNAL://localhost:{outside}",
        "listener.security.protocol.map=INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
        "inter.broker.listener.name=INTERNAL",
    ]
    with running(volume, *settings):
        addresses = {port: advertised(f"127.0.0.1:{port}") for port in (inside, outside)}
    assert addresses[inside] == {("broker.internal", inside)}
    assert addresses[outside] == {("localhost", outside)}


def test_the_health_check_passes_while_it_serves_and_fails_otherwise(volume: Path) -> None:
    port = free_port()
    health = inspect()["Healthcheck"]
    assert isinstance(health, dict)
    check = [*health["Test"][1:], "--bootstrap-server", f"127.0.0.1:{port}"]
    with running(volume, f"listeners=PLAINTEXT://127.0.0.1:{port}"):
        assert subprocess.run(in_container(*check, volume=volume), check=False, timeout=60).returncode == 0
    assert subprocess.run(in_container(*check, volume=volume), check=False, timeout=60).returncode != 0
