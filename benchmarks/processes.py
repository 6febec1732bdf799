"""Properties of other processes on Linux: CPU time, resident memory, the listener on a port."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
LISTEN = "0A"
CPUCLOCK_SCHED = 2
"""The clock of all CPU time, as numbered in the clocks of a process by clock_getcpuclockid(3)."""


def cpu_seconds(pid: int) -> float:
    """Returns user and system time of all threads, exactly. Raises OSError if the process has ended."""
    return time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED)


def is_running(pid: int) -> bool:
    """False also for a process that has ended and has not been waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def cpu_seconds_with_children(pid: int) -> float:
    """Returns user and system time, including that of ended child processes, in hundredths of a second."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(after_name[field]) for field in (11, 12, 13, 14)) / TICKS_PER_SECOND


def children_of(pid: int) -> list[int]:
    """Returns the children of a process that have not been waited for."""
    processes = [path for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return [int(path.name) for path in processes if _parent(path) == pid]


def cpu_seconds_of_session(session: int) -> float:
    """Like `cpu_seconds_with_children`, for all processes of a session, in any process group."""
    total = 0.0
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with contextlib.suppress(OSError, ProcessLookupError):
                if os.getsid(int(process.name)) == session:
                    total += cpu_seconds_with_children(int(process.name))
    return total


def resident_bytes(pid: int) -> int:
    """VmRSS."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(f"process {pid} has no memory")


def listener_of(port: int, give_up_s: float = 10) -> int:
    """Returns the process that listens on a TCP port. Raises ProcessLookupError.

    Linux omits lines from its socket tables while other sockets come and go, so the look-up is retried for some time.
    """
    give_up = time.monotonic() + give_up_s
    while True:
        try:
            return _listener_of(port)
        except ProcessLookupError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.05)


def _listener_of(port: int) -> int:
    inodes = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and inodes.intersection(_open_files(process / "fd")):
            return int(process.name)
    raise ProcessLookupError(f"no process listens on port {port}")


def free_port() -> int:
    """Returns a free port, followed by another free one, which Kafka's controller uses."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port


def _parent(process: Path) -> int | None:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # the process has ended
        return None


def _open_files(directory: Path) -> set[str]:
    try:
        return {os.readlink(file) for file in directory.iterdir()}
    except OSError:
        return set()
