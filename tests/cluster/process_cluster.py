"""A cluster of brokers that are processes, on a ZooKeeper that is one too: the model, or Apache's.

Each broker keeps its port and its data over restarts. Its log goes to a file beside its data.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from tests.cluster.cluster import PATIENT_SETTINGS, Cluster, Node
from tests.spawned_broker import free_port

ROOT = Path(__file__).parents[2]
SESSION_TIMEOUT_MS = 1500
END_S = 30
SHOWN_OF_LOGS = 20_000


class SignaledCluster(Cluster):
    """Brokers that are processes, which get signals and write logs."""

    def __init__(self) -> None:
        self._stopped: set[int] = set()

    @property
    def stopped(self) -> Collection[int]:
        return self._stopped

    def kill(self, broker_id: int) -> None:
        self._signal(broker_id, signal.SIGKILL)
        self._stopped.discard(broker_id)
        self._ended(broker_id)

    def stop(self, broker_id: int) -> None:
        self._signal(broker_id, signal.SIGSTOP)
        self._stopped.add(broker_id)

    def go_on(self, broker_id: int) -> None:
        self._signal(broker_id, signal.SIGCONT)
        self._stopped.discard(broker_id)

    def log_tail(self, broker_id: int) -> str:
        """The last lines that a broker has logged."""
        log = self._log(broker_id)
        return log.read_text()[-SHOWN_OF_LOGS:] if log.exists() else ""

    @abstractmethod
    def _signal(self, broker_id: int, number: int) -> None:
        """Sends a signal to a broker that is up."""

    @abstractmethod
    def _ended(self, broker_id: int) -> int:
        """Waits for a broker's end; returns the exit status."""

    @abstractmethod
    def _log(self, broker_id: int) -> Path:
        """Where a broker writes its log."""


class ProcessCluster(SignaledCluster):
    """Started by `process_cluster`."""

    session_timeout_ms = SESSION_TIMEOUT_MS

    def __init__(self, directory: Path, settings: Mapping[str, str], brokers: int, zookeeper: str | None) -> None:
        super().__init__()
        self.nodes = {
            broker_id: Node(f"127.0.0.1:{free_port()}", directory / f"broker-{broker_id}")
            for broker_id in range(1, brokers + 1)
        }
        self._directory = directory
        self._settings = {**settings, "zookeeper.session.timeout.ms": str(self.session_timeout_ms)}
        self._zookeeper = zookeeper
        self._processes: dict[int, subprocess.Popen[str]] = {}
        """Those of the brokers that are up."""
        self._model: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Starts all brokers together, and waits until they know each other."""
        if self._zookeeper is None:
            with (self._directory / "zookeeper-log").open("ab") as log:
                self._model = spawned([sys.executable, "-m", "tests.zookeeper.model_server"], log)
            self._zookeeper = ready(self._model, self._directory / "zookeeper-log")
        for broker_id in self.nodes:
            self._processes[broker_id] = self._spawned(broker_id, self.nodes[broker_id])
        for broker_id, process in self._processes.items():
            ready(process, self._log(broker_id))
        self.until(lambda view: len(view.brokers) == len(self.nodes) and view.controller in view.brokers)

    def _spawned(self, broker_id: int, node: Node) -> subprocess.Popen[str]:
        command = [*self._place(broker_id), sys.executable, "-m", "odradek.broker", "--data-dir", self._log_dirs(node)]
        settings = {
            "broker.id": str(broker_id),
            "zookeeper.connect": str(self._zookeeper),
            **self._own_settings(broker_id, node),
            **self._settings,
        }
        command += [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        with self._log(broker_id).open("ab") as log:
            return spawned(command, log)

    def _own_settings(self, _broker_id: int, node: Node) -> dict[str, str]:
        """The settings that are a broker's own."""
        return {"listeners": f"PLAINTEXT://{node.address}"}

    def _place(self, _broker_id: int) -> list[str]:
        """The command before that of a broker."""
        return []

    def _log_dirs(self, node: Node) -> str:
        return str(node.data)

    def _log(self, broker_id: int) -> Path:
        return self._directory / f"broker-{broker_id}-log"

    def has_said(self, broker_id: int, text: str) -> int:
        """How often a text is in what a broker has logged."""
        return self._log(broker_id).read_text().count(text)

    def print_logs(self) -> None:
        """Prints the last lines of all logs."""
        for broker_id in self.nodes:
            print(f"--- broker {broker_id}\n{self.log_tail(broker_id)}")

    @property
    def running(self) -> list[int]:
        return [one for one in self.nodes if one in self._processes and one not in self._stopped]

    def launch(self, broker_id: int) -> None:
        assert broker_id not in self._processes, f"broker {broker_id} is up"
        process = self._spawned(broker_id, self.nodes[broker_id])
        ready(process, self._log(broker_id))
        self._processes[broker_id] = process

    def launch_another(self, broker_id: int, data: Path) -> None:
        """Starts a second broker with an id, which must fail: RuntimeError."""
        host, _, port = self.nodes[broker_id].address.partition(":")
        ready(self._spawned(broker_id, Node(f"{host}:{int(port) + 1}", data)), self._log(broker_id))

    def terminate(self, broker_id: int) -> None:
        self._signal(broker_id, signal.SIGTERM)
        assert self._ended(broker_id) == 0, self.log_tail(broker_id)

    def _signal(self, broker_id: int, number: int) -> None:
        process = self._processes[broker_id]
        assert process.poll() is None, f"broker {broker_id} has ended by itself: {self.log_tail(broker_id)}"
        os.killpg(process.pid, number)

    def _ended(self, broker_id: int) -> int:
        """Waits for a broker's end; returns the exit status."""
        return ended(self._processes.pop(broker_id))

    def close(self) -> None:
        """Ends all processes."""
        for process in [*self._processes.values(), *([] if self._model is None else [self._model])]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            ended(process)


@contextlib.contextmanager
def process_cluster(
    directory: Path, settings: Mapping[str, str] | None = None, *, brokers: int = 3, zookeeper: str | None = None
) -> Iterator[ProcessCluster]:
    """A running cluster, on the ZooKeeper at `zookeeper` or else on the model. Prints the brokers' logs in the end:
    pytest shows them if the test has failed.
    """
    cluster = ProcessCluster(directory, {**PATIENT_SETTINGS, **(settings or {})}, brokers, zookeeper)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
        cluster.print_logs()


def spawned(command: Sequence[str], log: IO[bytes]) -> subprocess.Popen[str]:
    """A process that leads its group; `log` gets what it writes to stderr."""
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True, cwd=ROOT, env=_environment()
    )


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def ready(process: subprocess.Popen[str], log: Path) -> str:
    """Waits for the ready line; returns its address."""
    assert process.stdout is not None
    words = process.stdout.readline().split()
    if len(words) != 2 or words[0] != "ready":
        process.kill()
        ended(process)
        raise RuntimeError(f"not started: {log.read_text()[-SHOWN_OF_LOGS:]}")
    return words[1]


def ended(process: subprocess.Popen[str]) -> int:
    """Waits for its end; returns the exit status."""
    status = process.wait(END_S)
    assert process.stdout is not None
    process.stdout.close()
    return status
