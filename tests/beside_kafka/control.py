"""Nodes of Apache Kafka for a comparison, started and stopped by $KAFKA_CONTROL (tests/programs.py)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.spawned_broker import free_port, free_port_beside_another

SMALL_JVM = "-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
START_S = 120
SMALL_INDEXES = {"log.index.size.max.bytes": "4096"}
"""For many partitions: each index takes its largest size in the beginning."""


@contextmanager
def apache_broker(
    control: Sequence[str],
    zookeeper: str,
    directory: Path,
    settings: Mapping[str, str],
    *,
    protocol: str = "PLAINTEXT",
    broker_id: str = "1",
) -> Iterator[int]:
    """Yields the port of a broker in ZooKeeper mode. `zookeeper`: its address; the broker has a chroot of its own."""
    port = free_port()
    address = f"{protocol}://127.0.0.1:{port}"
    connect = f"{zookeeper}/beside-kafka-{port}"
    lines = _lines({**settings, "listeners": address, "advertised.listeners": address})
    with _running(control, directory, "zk-broker", broker_id, str(port), connect, str(directory), *lines):
        yield port


@contextmanager
def apache_node(
    control: Sequence[str],
    directory: Path,
    settings: Mapping[str, str],
    *,
    release: str | None = None,
    port: int | None = None,
) -> Iterator[int]:
    """Yields the port of a node in KRaft mode: broker and controller. `release`: None for that of the others. A node
    that starts again with the data of a directory needs the `port` that it had.
    """
    port = port or free_port_beside_another()
    environment = {} if release is None else {"KAFKA_VERSION": release}
    with _running(control, directory, "start", str(port), str(directory), *_lines(settings), **environment):
        yield port


@contextmanager
def _running(control: Sequence[str], directory: Path, *command: str, **variables: str) -> Iterator[None]:
    environment = {**os.environ, "KOPTS": SMALL_JVM, **variables}
    try:
        subprocess.run([*control, *command], check=True, timeout=START_S, env=environment, stdin=subprocess.DEVNULL)
        yield
    finally:
        subprocess.run([*control, "stop", str(directory)], check=False, timeout=60)


def _lines(settings: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in settings.items()]
