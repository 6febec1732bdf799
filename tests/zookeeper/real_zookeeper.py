"""ZooKeeper servers of Apache's, run by $KAFKA_CONTROL (tests/programs.py)."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.processes import free_port
from tests.patience import block_until

START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 30
SERVER = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
WITHOUT_SYNC = "-Dzookeeper.forceSync=no -Dzookeeper.preAllocSize=64"
"""No test takes the power away, and a sync may wait for what others write to the same disk. Files grow by 64 KB."""
SMALL_JVM = f"-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 {WITHOUT_SYNC}"


@contextlib.contextmanager
def running(control: Sequence[str], directory: Path) -> Iterator[str]:
    """Yields HOST:PORT."""
    port = free_port()
    _control(control, "zk-start", str(port), str(directory))
    try:
        yield f"127.0.0.1:{port}"
    finally:
        _control(control, "stop", str(directory))


@contextlib.contextmanager
def running_with(
    control: Sequence[str], directory: Path, settings: Mapping[str, str], java_options: str = ""
) -> Iterator[None]:
    """Runs a server with these lines of its zoo.cfg. The port is in `settings`: secureClientPort or clientPort."""
    file = directory / "zoo.cfg"
    fixed = {"dataDir": str(directory / "data"), "admin.enableServer": "false", "tickTime": "2000"}
    file.write_text("".join(f"{name}={text}\n" for name, text in {**fixed, **settings}.items()))
    port = int(settings.get("secureClientPort") or settings["clientPort"])
    environment = {**os.environ, "KOPTS": f"{SMALL_JVM} {java_options}"}
    with open(directory / "log", "wb") as log:
        server = subprocess.Popen([*control, "tool", SERVER, str(file)], env=environment, stdout=log, stderr=log)
    try:
        block_until(lambda: _answers(port) or _ended(server, directory))
        yield
    finally:
        server.terminate()
        server.wait(STOP_TIMEOUT_S)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def _ended(server: subprocess.Popen[bytes], directory: Path) -> bool:
    if server.poll() is not None:
        raise RuntimeError((directory / "log").read_text()[-2000:])
    return False


def _control(control: Sequence[str], *arguments: str) -> None:
    environment = {**os.environ, "KOPTS": f"{os.environ.get('KOPTS', '-Xmx256m')} {WITHOUT_SYNC}"}
    subprocess.run(
        [*control, *arguments], check=True, timeout=START_TIMEOUT_S, stdout=subprocess.DEVNULL, env=environment
    )
