"""A client with thousands of waiting fetches, each on its own connection, in one small process.

    python -m benchmarks.parked PORT TOPIC COUNT [SPREAD_MS]

1. Parks COUNT fetches for WAIT_MS, prints "parked", and waits for the responses. Until then nothing happens.
2. Parks them again, with timeouts spread over SPREAD_MS (10,000), prints "spread", and waits for the responses. Prints
   their lateness as one JSON object. A response before its time has a negative lateness.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import resource
import select
import socket
import sys
import time

from benchmarks.wire import waiting_fetch

WAIT_MS = 40_000
FIRST_MS = 8_000
"""The earliest timeout, so that all requests are sent before the first response arrives."""
REQUESTS_PER_PAUSE, PAUSE_S = 20, 0.005
"""Requests are sent at no more than 4,000 a second: all at once, each would count the work of all before it.
Connections are opened at that pace too: a broker may turn away what one address opens all at once."""


def raise_open_files() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connect(port: int, count: int) -> list[socket.socket]:
    connections = []
    for number in range(count):
        if number % REQUESTS_PER_PAUSE == 0:
            time.sleep(PAUSE_S)
        connections.append(socket.create_connection(("127.0.0.1", port), 60))
    return connections


def park(connections: list[socket.socket], topic: str, waits_ms: list[int]) -> dict[int, float]:
    """Sends a fetch on each connection. Returns their due times by file descriptor, on the monotonic clock."""
    due: dict[int, float] = {}
    for number, (connection, wait_ms) in enumerate(zip(connections, waits_ms, strict=True)):
        if number % REQUESTS_PER_PAUSE == 0:
            time.sleep(PAUSE_S)
        request = waiting_fetch(topic, wait_ms)
        due[connection.fileno()] = time.monotonic() + wait_ms / 1000
        connection.sendall(request)
    return due


def lateness_ms(connections: list[socket.socket], due: dict[int, float]) -> list[float]:
    """Waits for all responses; returns their lateness, ascending."""
    by_descriptor = {connection.fileno(): connection for connection in connections}
    poll = select.epoll()
    for descriptor in due:
        poll.register(descriptor, select.EPOLLIN)
    late = []
    while due:
        for descriptor, _ in poll.poll():
            late.append((time.monotonic() - due.pop(descriptor)) * 1000)
            poll.unregister(descriptor)
            if not by_descriptor[descriptor].recv(4096):
                raise ConnectionError("the broker closed a connection")
    return sorted(late)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parked")
    parser.add_argument("port", type=int)
    parser.add_argument("topic")
    parser.add_argument("count", type=int)
    parser.add_argument("spread_ms", type=int, nargs="?", default=10_000)
    arguments = parser.parse_args()
    raise_open_files()
    gc.disable()
    count, spread_ms = arguments.count, arguments.spread_ms
    connections = connect(arguments.port, count)
    due = park(connections, arguments.topic, [WAIT_MS] * count)
    print("parked", flush=True)
    lateness_ms(connections, due)
    waits_ms = [FIRST_MS + number * spread_ms // count for number in range(count)]
    random.Random(1).shuffle(waits_ms)
    due = park(connections, arguments.topic, waits_ms)
    print("spread", flush=True)
    late = lateness_ms(connections, due)
    print(
        json.dumps(
            {
                "answers": len(late),
                "late_ms_min": round(late[0], 3),
                "late_ms_p50": round(late[len(late) // 2], 3),
                "late_ms_p99": round(late[len(late) * 99 // 100], 3),
                "late_ms_p999": round(late[len(late) * 999 // 1000], 3),
                "late_ms_max": round(late[-1], 3),
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
