"""Large requests, one after the other, to a broker in this process: the loop's longest turn and the memory taken.

Turns are measured and judged as turns_of_a_loop.py says.
Memory is what Python allocates at most while the request is served (tracemalloc), less one copy of the frame and one
of the answer. The two are measured in runs of their own, since tracing slows the loop.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from odradek.protocol.api_keys import ApiKey
from odradek.testing import BrokerThread
from tests.large_requests import INFLATED_BYTES, LargeRequest
from tests.patience import until
from tests.scenarios.turns_of_a_loop import EachTurn, Turns, collector_as_when_served

GIVE_UP_S = 120
RECEIVE_BYTES = 1 << 20
SWITCH_INTERVAL_S = 0.0002


class Bounds(NamedTuple):
    bytes_per_byte: float = 20
    free_bytes: int = 8 << 20
    """What any request may take in addition. The elements of every request may take 4 MiB (LEAST_MEMORY_OF_REQUEST).
    A frame of up to 64 KB is read at once, and its elements are not charged for: tiny ones and their answers take up to
    100 bytes of memory for each byte, 6.4 MB in all.
    """
    inflated_bytes: int = INFLATED_BYTES + (1 << 20)
    """What inflating batches may take: an lz4 or snappy batch is held completely while it is checked. Its own bound is
    odradek.max.decompressed.batch.bytes.
    """


class Measured(NamedTuple):
    """One case. `frame_bytes` and `answer_bytes` without their lengths; `outcome`: answered, closed or silent."""

    api: str
    version: int
    case: str
    outcome: str
    frame_bytes: int
    answer_bytes: int
    turns: Turns
    seconds: float
    extra_bytes: int
    """The most that was allocated at once, beyond the frame and the answer."""
    kept_bytes: int
    """What is still allocated afterwards."""
    inflates: bool = False

    @property
    def name(self) -> str:
        return f"{self.api} v{self.version}: {self.case}"

    @property
    def bytes_per_byte(self) -> float:
        return self.extra_bytes / self.frame_bytes

    def excess(self, bounds: Bounds) -> list[str]:
        """The exceeded bounds, one sentence each."""
        found = []
        if self.outcome == "silent":
            found.append(f"no answer after {GIVE_UP_S} s")
        if not self.turns.are_short():
            found.append(f"a turn of {self.turns.longest_ms:.0f} ms and {self.turns.most_calls} calls")
        free_bytes = bounds.free_bytes + (bounds.inflated_bytes if self.inflates else 0)
        if self.extra_bytes > free_bytes + bounds.bytes_per_byte * self.frame_bytes:
            found.append(
                f"{self.extra_bytes / 1e6:.1f} MB for {self.frame_bytes} bytes ({self.bytes_per_byte:.0f} each)"
            )
        return found


class Sweep:
    """`measure` sends one request to the broker of `thread`."""

    def __init__(self, thread: BrokerThread) -> None:
        self._thread = thread
        self._scratch = memoryview(bytearray(RECEIVE_BYTES))

    def measure(self, case: LargeRequest) -> Measured:
        payload = case.payload()
        frame = len(payload).to_bytes(4, "big") + payload
        seconds = time.perf_counter()
        outcome, answer_bytes, turns = self._turns_of(frame)
        seconds = time.perf_counter() - seconds
        extra_bytes, kept_bytes = self._memory_of(frame)
        return Measured(
            ApiKey(case.api_key).api_name,
            case.version,
            case.name,
            outcome,
            len(payload),
            answer_bytes,
            turns,
            seconds,
            extra_bytes,
            kept_bytes,
            case.inflates,
        )

    def _turns_of(self, frame: bytes) -> tuple[str, int, Turns]:
        turns = self._thread.call(self._watched())
        outcome, answer_bytes = self._exchange(frame)
        self._thread.call(self._unwatched(turns))
        return outcome, answer_bytes, turns

    def _memory_of(self, frame: bytes) -> tuple[int, int]:
        gc.collect()
        tracemalloc.start()
        try:
            _, answer_bytes = self._exchange(frame)
            _, peak = tracemalloc.get_traced_memory()
            gc.collect()
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        return max(peak - len(frame) - answer_bytes, 0), kept

    def _exchange(self, frame: bytes) -> tuple[str, int]:
        """Sends the frame, receives the answer and waits until its processing has ended."""
        tasks = self._thread.call(_tasks())
        host, port = self._thread.bootstrap.rsplit(":", 1)
        with socket.create_connection((host, int(port)), GIVE_UP_S) as client:
            outcome, size = self._answer(client, frame)
        self._thread.call(_settled(tasks))
        return outcome, size

    def _answer(self, client: socket.socket, frame: bytes) -> tuple[str, int]:
        try:
            client.sendall(frame)
            size = int.from_bytes(client.recv(4, socket.MSG_WAITALL), "big")
            left = size
            while left:
                received = client.recv_into(self._scratch[: min(left, RECEIVE_BYTES)])
                if not received:
                    return "closed", 0
                left -= received
        except TimeoutError:
            return "silent", 0
        except ConnectionError:
            return "closed", 0
        return ("answered", size) if size else ("closed", 0)

    async def _watched(self) -> EachTurn:
        turns = EachTurn()
        turns.start()
        return turns

    async def _unwatched(self, turns: EachTurn) -> None:
        turns.stop()


async def _tasks() -> set[asyncio.Task[object]]:
    return asyncio.all_tasks() - {asyncio.current_task()}


async def _settled(known: set[asyncio.Task[object]]) -> None:
    """Waits until no task of a request is left."""
    await until(lambda: not asyncio.all_tasks() - known - {asyncio.current_task()})


@contextmanager
def collected_as_in_production() -> Iterator[None]:
    """Nor does the client's thread wait long for the interpreter while the loop is watched."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        with collector_as_when_served():
            yield
    finally:
        sys.setswitchinterval(interval)


COLUMNS: tuple[tuple[str, Callable[[Measured], float]], ...] = (
    ("longest turn, ms", lambda case: case.turns.longest_ms),
    ("memory for each byte, beyond frame and answer", lambda case: case.bytes_per_byte),
    ("answer for each byte", lambda case: case.answer_bytes / case.frame_bytes),
    ("bytes kept afterwards", lambda case: case.kept_bytes),
)


def worst(measured: Iterable[Measured], count: int = 10) -> str:
    """The worst cases of each measure, as Markdown tables."""
    found = list(measured)
    lines = []
    for title, measure in COLUMNS:
        lines += ["", f"| {title} | frame, bytes | request | |", "|---|---|---|---|"]
        ranked = sorted(found, key=measure, reverse=True)[:count]
        lines += [f"| {measure(case):,.1f} | {case.frame_bytes:,d} | {case.name} | {case.outcome} |" for case in ranked]
    return "\n".join(lines)
