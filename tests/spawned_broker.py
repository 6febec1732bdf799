"""``odradek serve`` as a process of its own, for tests that need real sockets, signals and kill -9."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from tests.shown_secrets import look_into

GIVEN_AWAY_BY_NOBODY = range(15_000, 32_000)
"""Below Linux's ephemeral ports."""


@dataclass(slots=True)
class SpawnedBroker:
    process: subprocess.Popen[str]
    bootstrap: str
    metrics_url: str | None
    log: IO[str]

    def kill(self) -> None:
        """kill -9 of the broker and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)

    def terminate(self, timeout: float = 15) -> int:
        """SIGTERM to its process group; the exit status."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        return self.process.wait(timeout)

    def close(self) -> None:
        """Closes its pipe and removes its log, in which secrets are looked for; the process must have ended."""
        look_into(self.log_text(), "log of a broker")
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.log.close()
        Path(self.log.name).unlink(missing_ok=True)

    def log_text(self) -> str:
        """All its stderr output so far."""
        self.log.flush()
        return Path(self.log.name).read_text()


def free_port() -> int:
    """A port that stays free until a server asks for it by number: the system never assigns these."""
    while True:
        port = random.SystemRandom().choice(GIVEN_AWAY_BY_NOBODY)
        if _is_free(port):
            return port


def free_port_beside_another() -> int:
    """A free port whose successor is free too: a KRaft broker's controller listens there."""
    while not _is_free((port := free_port()) + 1):
        pass
    return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def start_broker(
    data_dir: Path,
    settings: Mapping[str, str] | None = None,
    *,
    port: int = 0,
    with_metrics: bool = False,
    config: Path | None = None,
    open_files: int | None = None,
) -> SpawnedBroker:
    """Starts a broker on ``data_dir`` and returns when it has printed its ready line; its log goes to a file.

    ``open_files``: how many files and sockets the system lets it open."""
    command = [sys.executable, "-m", "odradek.broker", "--port", str(port), "--data-dir", str(data_dir)]
    if config is not None:
        command += ["--config", str(config)]
    metrics_port = free_port() if with_metrics else None
    if metrics_port is not None:
        command += ["--metrics-port", str(metrics_port)]
    for name, value in (settings or {}).items():
        command += ["--set", f"{name}={value}"]
    log = tempfile.NamedTemporaryFile("w+", prefix="odradek-", suffix=".jsonl", delete=False)  # noqa: SIM115 - outlives this call
    limited = None if open_files is None else partial(resource.setrlimit, resource.RLIMIT_NOFILE, (open_files,) * 2)
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True, preexec_fn=limited
    )
    assert process.stdout is not None
    ready = process.stdout.readline().split()
    if len(ready) != 2 or ready[0] != "ready":
        process.kill()
        process.wait()
        raise RuntimeError(f"the broker did not start: {Path(log.name).read_text()[-3000:]}")
    url = None if metrics_port is None else f"http://127.0.0.1:{metrics_port}/metrics"
    return SpawnedBroker(process, ready[1], url, log)


@contextlib.contextmanager
def spawned_broker(
    data_dir: Path,
    settings: Mapping[str, str] | None = None,
    *,
    port: int = 0,
    with_metrics: bool = False,
    config: Path | None = None,
    open_files: int | None = None,
) -> Iterator[SpawnedBroker]:
    """Like ``start_broker``; stops the broker at the end and removes its log."""
    broker = start_broker(
        data_dir, settings, port=port, with_metrics=with_metrics, config=config, open_files=open_files
    )
    try:
        yield broker
        if broker.process.poll() is None:
            assert broker.terminate() == 0, broker.log_text()[-3000:]
    finally:
        if broker.process.poll() is None:
            broker.kill()
        broker.close()
