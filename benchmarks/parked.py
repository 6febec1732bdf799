"""A client with thousands of waiting fetches, each on its own connection, in one small process.

    python -m benchmarks.parked PORT TOPIC COUNT [SPREAD_MS]

1. Parks COUNT fetches for a long time, prints "parked", and waits for a line on stdin.
2. Hangs up, parks COUNT fetches whose time-outs are spread over SPREAD_MS (10,000), prints "spread", and waits for all
   answers. Prints how late they were as one JSON object. An answer before its time counts as late by a negative
   number.
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

LONG_MS = 600_000
FIRST_MS = 8_000
"""The earliest time-out, so that all requests are out before the first answer comes in."""
REQUESTS_PER_PAUSE, PAUSE_S = 20, 0.005
"""Requests go out at 4,000 a second at most: were they sent at once, each would count the work of all before it."""


def raise_open_files() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connect(port: int, count: int) -> list[socket.socket]:
    return [socket.create_connection(("127.0.0.1", port), 60) for _ in range(count)]


def lateness_ms(connections: list[socket.socket], topic: str, spread_ms: int) -> list[float]:
    """Park a fetch on each connection, and return by how much each answer missed its time, ascending."""
    waits = [FIRST_MS + number * spread_ms // len(connections) for number in range(len(connections))]
    random.Random(1).shuffle(waits)
    due: dict[int, float] = {}
    by_descriptor = {connection.fileno(): connection for connection in connections}
    poll = select.epoll()
    for number, (connection, wait_ms) in enumerate(zip(connections, waits, strict=True)):
        if number % REQUESTS_PER_PAUSE == 0:
            time.sleep(PAUSE_S)
        poll.register(connection.fileno(), select.EPOLLIN)
        request = waiting_fetch(topic, wait_ms)
        due[connection.fileno()] = time.monotonic() + wait_ms / 1000
        connection.sendall(request)
    print("spread", flush=True)
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
    connections = connect(arguments.port, arguments.count)
    request = waiting_fetch(arguments.topic, LONG_MS)
    for connection in connections:
        connection.sendall(request)
    print("parked", flush=True)
    sys.stdin.readline()
    for connection in connections:
        connection.close()
    late = lateness_ms(connect(arguments.port, arguments.count), arguments.topic, arguments.spread_ms)
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
