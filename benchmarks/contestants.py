"""The two brokers that are compared: how each is started, found and stopped. One instance, one data directory."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path

from benchmarks.processes import free_port, listener_of
from benchmarks.wire import until_metadata

STOP_TIMEOUT_S = 60
SAME_AS_KAFKAS = ("group.initial.rebalance.delay.ms=0", "group.min.session.timeout.ms=1000")
"""What $KAFKA_CONTROL sets beside addresses and replication: groups do not wait for more members before they begin."""


class Contestant(ABC):
    """A broker on 127.0.0.1:`port`, its data in `directory`. Started and stopped as often as one likes."""

    name: str

    def __init__(self, workspace: Path) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=f"{self.name}-", dir=workspace))
        self.port = free_port()
        self.pid = 0

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> float:
        """Start it, and return the seconds that passed until it answered a Metadata request."""
        begin = time.perf_counter()
        self._launch()
        until_metadata(self.port)
        seconds = time.perf_counter() - begin
        self._settle()
        self.pid = listener_of(self.port)
        return seconds

    @abstractmethod
    def stop(self) -> None:
        """Stop it in good order; its data stays."""

    def remove(self) -> None:
        """Stop it and remove its data."""
        with contextlib.suppress(Exception):
            self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    @abstractmethod
    def _launch(self) -> None:
        """Start the process and return at once."""

    @abstractmethod
    def _settle(self) -> None:
        """Wait for what the launch left behind."""


class Odradek(Contestant):
    """Ours, as `odradek serve` starts it, with the settings that come with it and SAME_AS_KAFKAS.

    Compiled Python is kept from its first start on, as on any user's machine, whatever this shell is told.
    """

    name = "odradek"
    _process: subprocess.Popen[bytes] | None = None

    def _launch(self) -> None:
        command = [
            sys.executable,
            "-m",
            "odradek.broker",
            "--port",
            str(self.port),
            "--data-dir",
            str(self.directory / "data"),
        ]
        command += [part for setting in SAME_AS_KAFKAS for part in ("--set", setting)]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True, env=environment
            )

    def _settle(self) -> None:
        """Nothing is left behind: the broker is our own child."""

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait(STOP_TIMEOUT_S)


class ApacheKafka(Contestant):
    """A single node of Apache Kafka. `$KAFKA_CONTROL start PORT DIR` starts it, `$KAFKA_CONTROL stop DIR` stops it."""

    name = "kafka"
    _starting: subprocess.Popen[bytes] | None = None

    @staticmethod
    def command() -> list[str] | None:
        return shlex.split(os.environ.get("KAFKA_CONTROL", "")) or None

    def _launch(self) -> None:
        command = [*(self.command() or []), "start", str(self.port), str(self.directory)]
        with (self.directory / "start.log").open("ab") as log:
            self._starting = subprocess.Popen(command, stdout=log, stderr=log)

    def _settle(self) -> None:
        assert self._starting is not None
        if self._starting.wait(STOP_TIMEOUT_S):
            raise RuntimeError(f"Kafka did not start; see {self.directory}/start.log")

    def stop(self) -> None:
        subprocess.run(
            [*(self.command() or []), "stop", str(self.directory)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=STOP_TIMEOUT_S,
            check=True,
        )


CONTESTANTS: tuple[type[Contestant], ...] = (Odradek, ApacheKafka)
