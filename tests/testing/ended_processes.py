"""Programs that use `odradek.testing` in a temporary directory of their own, for tests that end them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

READY = "ready"

IN_THREAD = """
from odradek.testing import BrokerThread
thread = BrokerThread()
thread.start()
print("ready", flush=True)
thread._thread._thread.join()
"""

ON_LOOP = """
import asyncio
from odradek.testing import in_process_broker
async def main():
    async with in_process_broker() as broker:
        await broker.seed({"orders": [b"value"]})
        print("ready", flush=True)
        await asyncio.sleep(600)
"""
ON_ASYNCIO = ON_LOOP + "asyncio.run(main())\n"
ON_UVLOOP = ON_LOOP + "import uvloop\nuvloop.run(main())\n"

CLUSTER = """
from odradek.testing import ClusterThread
with ClusterThread() as cluster:
    print("ready", flush=True)
    import time
    time.sleep(600)
"""

SNAPSHOT = """
import time
from odradek.testing import BrokerThread
with BrokerThread() as broker:
    snapshot = broker.snapshot()
print("ready", flush=True)
time.sleep(600)
"""

PROGRAMS = {
    "thread": IN_THREAD,
    "asyncio": ON_ASYNCIO,
    "uvloop": ON_UVLOOP,
    "cluster": CLUSTER,
    "snapshot": SNAPSHOT,
}


def environment(temporary: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(temporary)}


@contextmanager
def running(program: str, temporary: Path) -> Iterator[subprocess.Popen[str]]:
    """A program that has printed READY."""
    with started([sys.executable, "-c", program], temporary) as process:
        wait_for(READY, process)
        yield process


@contextmanager
def started(command: list[str], temporary: Path, folder: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment(temporary), cwd=folder, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(text: str, process: subprocess.Popen[str]) -> str:
    """Returns the line of its output that has a text."""
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return line.strip()
    raise AssertionError(f"the program ended with status {process.wait()} before it said {text!r}")


def run(program: str, temporary: Path) -> str:
    """Returns the output of a program that ends by itself."""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(temporary), check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def left_in(temporary: Path) -> list[str]:
    return sorted(path.name for path in temporary.iterdir() if path.name.startswith("odradek-"))
