"""The brokers that are compared: how each is started, found and stopped. One instance, one data directory."""

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
from benchmarks.processes import free_port, listener_of
from benchmarks.wire import until_metadata

STOP_TIMEOUT_S = 60
START_TIMEOUT_S = 600
SAME_AS_KAFKAS = ("group.initial.rebalance.delay.ms=0", "group.min.session.timeout.ms=1000")
"""What $KAFKA_CONTROL sets beside addresses and replication: groups do not wait for more members before they begin."""
ODRADEK, BEFORE, KAFKA = "odradek", "before", "kafka"


class Contestant(ABC):
    """A broker on 127.0.0.1:`port`, its data in `directory`. Started and stopped as often as one likes."""

    open_files: int | None = None
    """The limit of its open files from the next start on; None: that of this process."""

    def __init__(self, name: str, workspace: Path) -> None:
        self.name = name
        self.directory = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=workspace))
        self.port = free_port()
        self.pid = 0

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> float:
        """Start it, and return the seconds that passed until it answered a Metadata request."""
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
        """Stop it in good order; its data stays."""

    def kill(self) -> None:
        """End it with SIGKILL, once it has been started; its data stays."""
        assert self.pid
        os.kill(self.pid, signal.SIGKILL)
        self._settle_killed()

    def remove(self) -> None:
        """Stop it, however that goes, and remove its data."""
        try:
            self.stop()
        except Exception:
            if self.pid:
                with contextlib.suppress(OSError):
                    self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    @abstractmethod
    def _launch(self) -> None:
        """Start the process and return at once."""

    @abstractmethod
    def _expect_running(self) -> None:
        """Raises RuntimeError where it is known that the launch came to nothing."""

    @abstractmethod
    def _settle(self) -> None:
        """Wait for what the launch left behind."""

    @abstractmethod
    def _settle_killed(self) -> None:
        """Wait until nothing is left of the process."""

    def _limit_files(self) -> None:
        """Runs in the child before it becomes the broker."""
        if self.open_files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (self.open_files, self.open_files))


class Odradek(Contestant):
    """Ours, as `odradek serve` starts it, with the settings that come with it, SAME_AS_KAFKAS and `options`.

    Compiled Python is kept from its first start on, as on any user's machine, whatever this shell is told.
    """

    tracer: Sequence[str] = ()
    """A command that starts it from now on, and has it as a child."""
    options: Sequence[str] = ()

    def __init__(self, workspace: Path, checkout: Checkout = THIS, name: str = ODRADEK) -> None:
        super().__init__(name, workspace)
        self.checkout = checkout
        self._process: subprocess.Popen[bytes] | None = None

    def _launch(self) -> None:
        arguments = ["--port", str(self.port), "--data-dir", str(self.directory / "data"), *self.options]
        arguments += [part for setting in SAME_AS_KAFKAS for part in ("--set", setting)]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self.tracer, *self.checkout.command(self.checkout.module("broker"), *arguments)],
                cwd=self.checkout.directory,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
                env=environment,
                preexec_fn=self._limit_files,
            )

    def _expect_running(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            lines = (self.directory / "log").read_text().splitlines()
            raise RuntimeError(f"{self.name} did not start: {' '.join(lines[-2:])}")

    def _settle(self) -> None:
        """Nothing is left behind: the broker is our own child, or the tracer's."""

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                if self.pid:
                    os.kill(self.pid, signal.SIGTERM)
                else:  # it has not started, and may have a tracer, which would leave it alone
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait(STOP_TIMEOUT_S)

    def _settle_killed(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.wait(STOP_TIMEOUT_S)


class ApacheKafka(Contestant):
    """A single node of Apache Kafka. `$KAFKA_CONTROL start PORT DIR` starts it, `$KAFKA_CONTROL stop DIR` stops it."""

    def __init__(self, workspace: Path) -> None:
        super().__init__(KAFKA, workspace)
        self._starting: subprocess.Popen[bytes] | None = None

    @staticmethod
    def command() -> list[str] | None:
        return shlex.split(os.environ.get("KAFKA_CONTROL", "")) or None

    def _launch(self) -> None:
        command = [*(self.command() or []), "start", str(self.port), str(self.directory)]
        with (self.directory / "start.log").open("ab") as log:
            self._starting = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=self._limit_files)

    def _expect_running(self) -> None:
        """The control alone knows its process."""

    def _settle(self) -> None:
        """Whatever the control says: it gives up before a Kafka that recovers ten thousand logs answers."""
        assert self._starting is not None
        self._starting.wait(STOP_TIMEOUT_S)

    def _settle_killed(self) -> None:
        """The control takes a process that has ended for a running one until its new parent has waited for it."""
        give_up = time.monotonic() + STOP_TIMEOUT_S
        while Path(f"/proc/{self.pid}").exists():
            if time.monotonic() > give_up:
                raise TimeoutError(f"process {self.pid} outlives SIGKILL")
            time.sleep(0.05)

    def stop(self) -> None:
        subprocess.run(
            [*(self.command() or []), "stop", str(self.directory)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=STOP_TIMEOUT_S,
            check=True,
        )


class Kind(NamedTuple):
    """`make(workspace)` is a contestant of this name that is not started yet."""

    name: str
    make: Callable[[Path], Contestant]


def kinds(before: Checkout | None = None) -> list[Kind]:
    """In the order of the table. `before`: an older Odradek, which is only there when it is given."""
    found = [Kind(ODRADEK, Odradek)]
    if before is not None:
        found.append(Kind(BEFORE, lambda workspace: Odradek(workspace, before, BEFORE)))
    return [*found, Kind(KAFKA, ApacheKafka)]


def taking_part(before: Path | None, only: str | None) -> tuple[list[Kind], list[str]]:
    """Those that take part, and notes about it. Raises NotSetUp, ValueError."""
    checkout = None if before is None else Checkout.at(before)
    notes = [] if checkout is None else [f"{BEFORE} is {before} at {checkout.commit() or 'an unknown commit'}"]
    found = kinds(checkout)
    if only is not None:
        wanted = [name.strip() for name in only.split(",")]
        unknown = set(wanted).difference(kind.name for kind in found)
        if unknown:
            raise ValueError(f"--only {', '.join(sorted(unknown))}: there is none; {BEFORE} needs --before")
        found = [kind for kind in found if kind.name in wanted]
    if ApacheKafka.command() is None and any(kind.name == KAFKA for kind in found):
        found = [kind for kind in found if kind.name != KAFKA]
        notes.append("Kafka is left out: KAFKA_CONTROL is not set. It is the command that starts and stops a Kafka.")
    if not found:
        raise ValueError("no broker is left to measure")
    return found, notes
