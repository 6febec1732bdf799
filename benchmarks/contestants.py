"""The compared brokers: how each is started, found and stopped. One instance has one data directory."""

from __future__ import annotations

import contextlib
import os
import resource
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.checkout import THIS, Checkout
from benchmarks.kafka_versions import environment_of, kafka_version
from benchmarks.processes import free_port, listener_of
from benchmarks.wire import until_metadata

STOP_TIMEOUT_S = 60
START_TIMEOUT_S = 600
SAME_AS_KAFKAS = ("group.initial.rebalance.delay.ms=0", "group.min.session.timeout.ms=1000")
"""Settings that $KAFKA_CONTROL adds to addresses and replication: groups start without waiting for more members."""
ODRADEK, BEFORE, KAFKA = "odradek", "before", "kafka"


class Contestant(ABC):
    """A broker on 127.0.0.1:`port`, with its data in `directory`. It may be started and stopped repeatedly."""

    open_files: int | None = None
    """Its limit on open files from the next start on; None: the limit of this process."""

    def __init__(self, name: str, workspace: Path) -> None:
        self.name = name
        self.directory = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=workspace))
        self.port = free_port()
        self.ports: dict[str, int] = {}
        """The ports of a secured broker, by protocol (secured.py)."""
        self.settings: dict[str, str] = {}
        """Settings besides the usual ones, from the next start on."""
        self.pid = 0

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> float:
        """Starts the broker; returns the seconds until its first Metadata response."""
        self.pid = 0
        begin = time.perf_counter()
        self._launch()
        until_metadata(self.port, START_TIMEOUT_S, self._expect_running)
        seconds = time.perf_counter() - begin
        self._settle()
        self.pid = listener_of(self.port)
        return seconds

    @abstractmethod
    def stop(self) -> None:
        """Stops the broker cleanly; keeps its data."""

    def kill(self) -> None:
        """Ends a started broker with SIGKILL; keeps its data."""
        assert self.pid
        os.kill(self.pid, signal.SIGKILL)
        self._settle_killed()

    def remove(self) -> None:
        """Stops the broker, by force if necessary, and removes its data."""
        try:
            self.stop()
        except Exception:
            if self.pid:
                with contextlib.suppress(OSError):
                    self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    @abstractmethod
    def _launch(self) -> None:
        """Starts the process and returns at once."""

    @abstractmethod
    def _expect_running(self) -> None:
        """Raises RuntimeError if the launch is known to have failed."""

    @abstractmethod
    def _settle(self) -> None:
        """Waits for leftovers of the launch."""

    @abstractmethod
    def _settle_killed(self) -> None:
        """Waits until the process is gone."""

    def _limit_files(self) -> None:
        """Runs in the child before it becomes the broker."""
        if self.open_files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (self.open_files, self.open_files))


class Odradek(Contestant):
    """Odradek, as `odradek serve` starts it, with its default settings, SAME_AS_KAFKAS and `options`.

    It keeps compiled Python from its first start on, as on any user's machine, even if this shell disables that.
    """

    tracer: Sequence[str] = ()
    """A command that starts the broker as its child from now on."""
    options: Sequence[str] = ()

    def __init__(self, workspace: Path, checkout: Checkout = THIS, name: str = ODRADEK) -> None:
        super().__init__(name, workspace)
        self.checkout = checkout
        self._process: subprocess.Popen[bytes] | None = None

    def _launch(self) -> None:
        arguments = ["--port", str(self.port), "--data-dir", str(self.directory / "data"), *self.options]
        own = [f"{name}={value}" for name, value in self.settings.items()]
        arguments += [part for setting in (*SAME_AS_KAFKAS, *own) for part in ("--set", setting)]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self.tracer, *self.checkout.command(self.checkout.module("broker"), *arguments)],
                cwd=self.checkout.directory,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
                env=environment_of_brokers(),
                preexec_fn=self._limit_files,
            )

    def _expect_running(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            lines = (self.directory / "log").read_text().splitlines()
            raise RuntimeError(f"{self.name} did not start: {' '.join(lines[-2:])}")

    def _settle(self) -> None:
        """Nothing to wait for: the broker is a child of this process, or of the tracer."""

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                if self.pid:
                    os.kill(self.pid, signal.SIGTERM)
                else:  # it has not started; SIGTERM to a tracer would leave the broker running
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait(STOP_TIMEOUT_S)

    def _settle_killed(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.wait(STOP_TIMEOUT_S)


class ApacheKafka(Contestant):
    """A single node of Apache Kafka (kafka_versions.py). `$KAFKA_CONTROL start PORT DIR NAME=VALUE...` starts it, with
    some settings of its own if there are any; `$KAFKA_CONTROL stop DIR` stops it.
    """

    def __init__(self, workspace: Path) -> None:
        super().__init__(KAFKA, workspace)
        self._starting: subprocess.Popen[bytes] | None = None

    @staticmethod
    def command() -> list[str] | None:
        return shlex.split(os.environ.get("KAFKA_CONTROL", "")) or None

    def _launch(self) -> None:
        command = [*(self.command() or []), "start", str(self.port), str(self.directory)]
        command += [f"{name}={value}" for name, value in self.settings.items()]
        with (self.directory / "start.log").open("ab") as log:
            environment = environment_of(kafka_version())
            self._starting = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, preexec_fn=self._limit_files
            )

    def _expect_running(self) -> None:
        """Unknown: only the control command knows its process."""

    def _settle(self) -> None:
        """Ignores the exit status: the control gives up before a Kafka that recovers ten thousand logs responds."""
        assert self._starting is not None
        self._starting.wait(STOP_TIMEOUT_S)

    def _settle_killed(self) -> None:
        until_gone(self.pid)

    def stop(self) -> None:
        subprocess.run(
            [*(self.command() or []), "stop", str(self.directory)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=STOP_TIMEOUT_S,
            check=True,
        )


def environment_of_brokers() -> dict[str, str]:
    """Returns this process's environment, in which Python keeps what it compiles."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def until_gone(pid: int) -> None:
    """Waits for the end of a process of Kafka's: its control considers a terminated process running until the process's
    new parent has waited for it.
    """
    give_up = time.monotonic() + STOP_TIMEOUT_S
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() > give_up:
            raise TimeoutError(f"process {pid} is still there after its end")
        time.sleep(0.05)


class Kind(NamedTuple):
    """`make(workspace)` returns a contestant of this name that is not started yet."""

    name: str
    make: Callable[[Path], Contestant]


def kinds(before: Checkout | None = None) -> list[Kind]:
    """Returns the kinds in the order of the table. `before`: an older Odradek, only included if given."""
    found = [Kind(ODRADEK, Odradek)]
    if before is not None:
        found.append(Kind(BEFORE, lambda workspace: Odradek(workspace, before, BEFORE)))
    return [*found, Kind(KAFKA, ApacheKafka)]


def taking_part(before: Path | None, only: str | None) -> tuple[list[Kind], list[str]]:
    """Returns the selected brokers, and notes about the selection. Raises NotSetUp, ValueError."""
    checkout = None if before is None else Checkout.at(before)
    notes = [] if checkout is None else [f"{BEFORE} is {before} at {checkout.commit() or 'an unknown commit'}"]
    found = kinds(checkout)
    if only is not None:
        wanted = [name.strip() for name in only.split(",")]
        unknown = set(wanted).difference(kind.name for kind in found)
        if unknown:
            raise ValueError(f"--only {', '.join(sorted(unknown))}: unknown broker; {BEFORE} needs --before")
        found = [kind for kind in found if kind.name in wanted]
    if ApacheKafka.command() is None and any(kind.name == KAFKA for kind in found):
        found = [kind for kind in found if kind.name != KAFKA]
        notes.append("Kafka is omitted: KAFKA_CONTROL, the command that starts and stops a Kafka, is not set.")
    if not found:
        raise ValueError("there is no broker to measure")
    return found, notes
