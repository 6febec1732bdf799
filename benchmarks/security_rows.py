"""Rows of secured listeners: TLS, logins, and ACLs beside TLS's absence (secured.py).

What TLS costs is what these rows show beside those of the same names without it. The rows with ACLs have a login, but
no TLS.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks import secured, wire
from benchmarks.contestants import Contestant
from benchmarks.measurement import ACLS, LESS, MORE, TLS, Metric, Reading, Row
from benchmarks.processes import resident_bytes
from benchmarks.traffic_rows import Consume, CpuMeter, Produce
from odradek.protocol.messages.api_versions import ApiVersionsRequest

SETTLE_S = 2
RATE = 1000
WITH_ACLS = "SASL_PLAINTEXT"
_numbers = itertools.count(1)


def security_rows(scale: float) -> list[Row]:
    """Returns the rows in the order of the table. `scale`: see `all_rows`."""

    def some(count: int) -> int:
        return max(int(count * scale), 1000)

    def produce(name: str, protocol: str, how: str) -> Row:
        return Produce(f"produce 1 KB {name}", 1000, some(500_000), "acks=1", protocol=protocol, secured=how)

    def consume(name: str, protocol: str, how: str) -> Row:
        return Consume(some(500_000), f"consume {name}", protocol, how)

    return [
        produce("over SSL", "SSL", TLS),
        produce("over SASL_SSL", "SASL_SSL", TLS),
        consume("over SSL", "SSL", TLS),
        consume("over SASL_SSL", "SASL_SSL", TLS),
        PacedLatency(some(10_000), "SASL_SSL"),
        Handshakes(max(int(10 * scale), 2), "SSL", "TLS handshakes"),
        Handshakes(max(int(10 * scale), 2), "SASL_SSL", "logins by SCRAM over TLS"),
        IdleTls(),
        produce("with ACLs", WITH_ACLS, ACLS),
        consume("with ACLs", WITH_ACLS, ACLS),
    ]


class PacedLatency(Row):
    """A thousand records of 1 KB a second with acks=all (benchmarks.acknowledged), from `produce` to the
    acknowledgement.
    """

    secured = TLS

    def __init__(self, records: int, protocol: str) -> None:
        self.records = records
        self.protocol = protocol
        self.name = f"1,000/s over {protocol}"
        self.metrics = (Metric(f"{self.name}: p50", "us", LESS), Metric(f"{self.name}: p99", "us", LESS))

    def warm_up(self, contestant: Contestant) -> None:
        self.measure(contestant)

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        topic = f"paced-{next(_numbers)}"
        wire.create_topic(contestant.port, topic)
        client = secured.client_of(contestant, self.protocol)
        arguments = (client.bootstrap, topic, str(self.records), str(RATE), "--config", str(client.librdkafka))
        done, used = measured("benchmarks.acknowledged", contestant.pid, *arguments)
        wire.delete_topic(contestant.port, topic)
        values = (done["p50_us"], done["p99_us"])
        return {
            metric.name: Reading(value, used, done["seconds"], self.records)
            for metric, value in zip(self.metrics, values, strict=True)
        }


class Handshakes(Row):
    """New connections, one after another in each of a few threads, each with one ApiVersions; none resumes a session
    (benchmarks.handshakes).
    """

    secured = TLS

    def __init__(self, seconds: int, protocol: str, name: str) -> None:
        self.seconds = seconds
        self.protocol = protocol
        self.name = name
        self.metrics = (Metric(name, "1/s", MORE),)

    def warm_up(self, contestant: Contestant) -> None:
        self.measure(contestant)

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        port, trusted = str(contestant.ports[self.protocol]), secured.trusted_file(contestant)
        arguments = (port, self.protocol, trusted, str(self.seconds))
        done, used = measured("benchmarks.handshakes", contestant.pid, *arguments)
        speed = done["connections"] / done["seconds"]
        return {self.name: Reading(speed, used, done["seconds"], done["connections"])}


class IdleTls(Row):
    """How much the broker's resident memory grows by 1,000 connections with TLS and one ApiVersions each, per
    connection.
    """

    name = "idle TLS"
    metrics = (Metric("memory of an idle TLS connection", "KB", LESS),)
    needs_fresh_broker = True
    secured = TLS
    connections = 1000

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        contestant.start()
        with _connected(contestant, 10):  # what the first handshakes load
            time.sleep(SETTLE_S)
        before = resident_bytes(contestant.pid)
        with _connected(contestant, self.connections):
            time.sleep(SETTLE_S)
            more = resident_bytes(contestant.pid) - before
        return {self.metrics[0].name: Reading(max(more, 0) / 1024 / self.connections)}


@contextlib.contextmanager
def _connected(contestant: Contestant, count: int) -> Iterator[None]:
    context = ssl.create_default_context(cafile=secured.trusted_file(contestant))
    hello = wire.framed(ApiVersionsRequest(), 0)
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            plain = socket.create_connection(("127.0.0.1", contestant.ports["SSL"]), 30)
            connection = stack.enter_context(context.wrap_socket(plain, server_hostname="127.0.0.1"))
            connection.sendall(hello)
            wire.receive(connection)
        yield


def measured(module: str, pid: int, *arguments: str) -> tuple[dict[str, Any], float]:
    """Runs a client that prints a line when it begins to measure and JSON at the end. Returns that, and the processor
    time that the broker took meanwhile. Raises RuntimeError.
    """
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        client.stdout.readline()
        meter = CpuMeter(pid)
        line = client.stdout.readline()
        used = meter.used()
    if not line:
        raise RuntimeError(f"{module} failed")
    done: dict[str, Any] = json.loads(line)
    return done, used
