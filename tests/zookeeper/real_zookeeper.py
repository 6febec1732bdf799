"""A ZooKeeper server of Apache's, started and stopped by $KAFKA_CONTROL (tests/programs.py)."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.processes import free_port

START_TIMEOUT_S = 120


@contextlib.contextmanager
def running(control: Sequence[str], directory: Path) -> Iterator[str]:
    """Yields HOST:PORT."""
    port = free_port()
    _control(control, "zk-start", str(port), str(directory))
    try:
        yield f"127.0.0.1:{port}"
    finally:
        _control(control, "stop", str(directory))


def _control(control: Sequence[str], *arguments: str) -> None:
    subprocess.run([*control, *arguments], check=True, timeout=START_TIMEOUT_S, stdout=subprocess.DEVNULL)
