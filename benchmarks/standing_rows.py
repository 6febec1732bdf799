"""Rows of a broker with little to do: starting, memory, idle connections, parked fetches."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks import wire
from benchmarks.contestants import Contestant
from benchmarks.measurement import LESS, Metric, Reading, Row
from benchmarks.processes import cpu_seconds, resident_bytes
from odradek.protocol.messages.api_versions import ApiVersionsRequest

MEGABYTE = 1024 * 1024
SETTLE_S = 2


class Start(Row):
    """From the command to the first Metadata response, on a data directory that was used before."""

    name = "start"
    metrics = (Metric("start to first Metadata", "ms", LESS, 10.0),)
    needs_fresh_broker = True

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        contestant.start()
        contestant.stop()
        seconds = contestant.start()
        return {self.metrics[0].name: Reading(seconds * 1000)}


class Memory(Row):
    """Resident memory after one Metadata request, and its growth by 1,000 connections with one ApiVersions each."""

    name = "memory"
    metrics = (
        Metric("idle memory", "MB", LESS, 6.0),
        Metric("1,000 idle connections", "MB", LESS),
    )
    needs_fresh_broker = True
    connections = 1000

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        contestant.start()
        time.sleep(SETTLE_S)
        idle = resident_bytes(contestant.pid)
        with self._connected(contestant.port):
            time.sleep(SETTLE_S)
            more = resident_bytes(contestant.pid) - idle
        values = (idle / MEGABYTE, max(more, 0) / MEGABYTE)
        return {metric.name: Reading(value) for metric, value in zip(self.metrics, values, strict=True)}

    @contextlib.contextmanager
    def _connected(self, port: int) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            hello = wire.framed(ApiVersionsRequest(), 0)
            for _ in range(self.connections):
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), 30))
                connection.sendall(hello)
                wire.receive(connection)
            yield


class ParkedFetches(Row):
    """12,000 waiting fetches, each on its own connection, from a separate process (benchmarks.parked).

    First they wait longer than the measured period: what is their cost? Then their timeouts are spread over ten
    seconds: how late is each response at the client?
    """

    name = "parked"
    metrics = (
        Metric("12,000 parked: CPU while idle", "ms/s", LESS),
        Metric("12,000 parked: memory", "MB", LESS, None),
        Metric("12,000 timeouts: late p50", "ms", LESS, None),
        Metric("12,000 timeouts: late p99", "ms", LESS, None),
        Metric("12,000 timeouts: latest", "ms", LESS, None),
        Metric("12,000 timeouts: CPU", "ms", LESS),
    )
    needs_fresh_broker = True
    fetches = 12_000

    def __init__(self, idle_s: float = 10) -> None:
        self.idle_s = idle_s

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        contestant.start()
        wire.create_topic(contestant.port, "parked")
        before = resident_bytes(contestant.pid)
        command = [sys.executable, "-m", "benchmarks.parked", str(contestant.port), "parked", str(self.fetches)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdout is not None
            client.stdout.readline()
            time.sleep(SETTLE_S)
            memory = resident_bytes(contestant.pid) - before
            idle_cpu = cpu_seconds(contestant.pid)
            time.sleep(self.idle_s)
            idle_cpu = cpu_seconds(contestant.pid) - idle_cpu
            client.stdout.readline()
            busy_cpu = cpu_seconds(contestant.pid)
            late = json.loads(client.stdout.readline())
            busy_cpu = cpu_seconds(contestant.pid) - busy_cpu
        values = (
            idle_cpu * 1000 / self.idle_s,
            memory / MEGABYTE,
            late["late_ms_p50"],
            late["late_ms_p99"],
            late["late_ms_max"],
            busy_cpu * 1000,
        )
        return {metric.name: Reading(value) for metric, value in zip(self.metrics, values, strict=True)}
