"""The compared clusters: three brokers, each a process of its own, on a ZooKeeper of their own.

`$KAFKA_CONTROL zk-start PORT DIR` starts a ZooKeeper, `$KAFKA_CONTROL zk-broker ID PORT ZOOKEEPER DIR NAME=VALUE...` a
broker of Kafka, and `$KAFKA_CONTROL stop DIR` stops either. Both are of the last release that has ZooKeeper, if the
other rows are measured beside a later one (kafka_versions.py). Without $KAFKA_CONTROL, Odradek's brokers use the model
of the tests (tests/zookeeper/model_server.py).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import wire
from benchmarks.checkout import Checkout
from benchmarks.contestants import (
    START_TIMEOUT_S,
    STOP_TIMEOUT_S,
    ApacheKafka,
    Contestant,
    Odradek,
    environment_of_brokers,
    until_gone,
)
from benchmarks.kafka_versions import environment_of, version_with_zookeeper
from benchmarks.measurement import TakesNoPart
from benchmarks.processes import free_port, listener_of

BROKERS = (1, 2, 3)
SESSION_TIMEOUT_MS = 6000
SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "controlled.shutdown.max.retries": "1",
}
"""The settings that differ from the defaults, with the session time-out."""


class Cluster(ABC):
    """Brokers on 127.0.0.1, with their data in `directory`. Each may be ended and launched repeatedly."""

    def __init__(self, directory: Path, session_timeout_ms: int) -> None:
        self.directory = directory
        self.session_timeout_ms = session_timeout_ms
        self.settings = {"zookeeper.session.timeout.ms": str(session_timeout_ms), **SETTINGS}
        self.ports = {broker_id: free_port() for broker_id in BROKERS}
        self.pids: dict[int, int] = {}
        """The running brokers."""
        self.zookeeper = ""
        """HOST:PORT, once it is started."""

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    @property
    def live_ports(self) -> list[int]:
        return [self.ports[broker_id] for broker_id in self.pids]

    def start(self) -> None:
        """Starts the store and all brokers."""
        self._start_store()
        self.launch(*BROKERS)

    def launch(self, *broker_ids: int) -> None:
        """Starts brokers together; returns when they respond to Metadata."""
        for broker_id in broker_ids:
            self._launch(broker_id)
        for broker_id in broker_ids:
            wire.until_metadata(self.ports[broker_id], START_TIMEOUT_S)
            self._settle(broker_id)
            self.pids[broker_id] = listener_of(self.ports[broker_id])

    def kill(self, broker_id: int) -> None:
        """Ends a broker with SIGKILL; returns when its process is gone."""
        self._end(broker_id, signal.SIGKILL)

    def stop(self, broker_id: int) -> None:
        """Ends a broker with SIGTERM: it hands its leaderships to others. Returns when its process is gone."""
        self._end(broker_id, signal.SIGTERM)

    def _end(self, broker_id: int, number: int) -> None:
        pid = self.pids.pop(broker_id)
        os.kill(pid, number)
        self._until_gone(broker_id, pid)

    @abstractmethod
    def close(self) -> None:
        """Ends all processes, by force if necessary."""

    @abstractmethod
    def _start_store(self) -> None:
        """Starts the store and waits until it accepts connections."""

    @abstractmethod
    def _launch(self, broker_id: int) -> None:
        """Starts a broker's process and returns at once."""

    @abstractmethod
    def _settle(self, broker_id: int) -> None:
        """Waits for leftovers of the launch."""

    @abstractmethod
    def _until_gone(self, broker_id: int, pid: int) -> None:
        """Waits until a process that was ended is gone."""


class OdradekCluster(Cluster):
    """Brokers of a checkout that knows ZooKeeper. Raises TakesNoPart."""

    def __init__(self, directory: Path, session_timeout_ms: int, checkout: Checkout) -> None:
        super().__init__(directory, session_timeout_ms)
        if not (checkout.directory / "broker" / "metadata_store" / "zookeeper").exists():
            raise TakesNoPart("this version has no clusters on ZooKeeper")
        self._checkout = checkout
        self._zookeeper: ZooKeeper | None = None
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def _start_store(self) -> None:
        if ApacheKafka.command() is not None:
            self._zookeeper = ZooKeeper(self.directory / "zookeeper")
            self.zookeeper = self._zookeeper.start()
        else:
            process = self._spawn("zookeeper", "tests.zookeeper.model_server")
            assert process.stdout is not None
            self.zookeeper = process.stdout.readline().decode().rpartition(" ")[2].strip()

    def _launch(self, broker_id: int) -> None:
        settings = {"broker.id": str(broker_id), "zookeeper.connect": self.zookeeper, **self.settings}
        self._spawn(
            f"broker-{broker_id}",
            "odradek.broker",
            *("--port", str(self.ports[broker_id]), "--data-dir", str(self.directory / f"data-{broker_id}")),
            *(part for name, value in settings.items() for part in ("--set", f"{name}={value}")),
        )

    def _spawn(self, name: str, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.directory / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                self._checkout.command(module, *arguments),
                cwd=self._checkout.directory,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env=environment_of_brokers(),
            )
        self._processes[name] = process
        return process

    def _settle(self, broker_id: int) -> None:
        """Nothing to wait for: the broker is a child of this process."""

    def _until_gone(self, broker_id: int, pid: int) -> None:
        self._processes[f"broker-{broker_id}"].communicate(timeout=STOP_TIMEOUT_S)

    def close(self) -> None:
        """See Cluster."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.communicate()
        if self._zookeeper is not None:
            self._zookeeper.stop()


class KafkaCluster(Cluster):
    """Brokers of Apache Kafka in ZooKeeper mode."""

    def __init__(self, directory: Path, session_timeout_ms: int) -> None:
        super().__init__(directory, session_timeout_ms)
        self._zookeeper = ZooKeeper(directory / "zookeeper")
        self._starting: dict[int, subprocess.Popen[bytes]] = {}

    def _start_store(self) -> None:
        self.zookeeper = self._zookeeper.start()

    def _launch(self, broker_id: int) -> None:
        port, data = str(self.ports[broker_id]), str(self._of(broker_id))
        settings = (f"{name}={value}" for name, value in self.settings.items())
        arguments = ("zk-broker", str(broker_id), port, self.zookeeper, data, *settings)
        with (self.directory / "start.log").open("ab") as log:
            self._starting[broker_id] = subprocess.Popen(
                _control(*arguments), stdout=log, stderr=log, env=environment_of(version_with_zookeeper())
            )

    def _settle(self, broker_id: int) -> None:
        self._starting.pop(broker_id).wait(STOP_TIMEOUT_S)

    def _until_gone(self, broker_id: int, pid: int) -> None:
        until_gone(pid)

    def close(self) -> None:
        """See Cluster."""
        for broker_id in BROKERS:
            _stop(self._of(broker_id))
        self._zookeeper.stop()
        for pid in self.pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _of(self, broker_id: int) -> Path:
        return self.directory / f"kafka-{broker_id}"


class ZooKeeper:
    """A server of Apache's, with its data in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def start(self) -> str:
        """Returns HOST:PORT when it accepts connections."""
        port = free_port()
        command = _control("zk-start", str(port), str(self._directory))
        environment = environment_of(version_with_zookeeper())
        subprocess.run(command, stdout=subprocess.DEVNULL, env=environment, timeout=START_TIMEOUT_S, check=True)
        return f"127.0.0.1:{port}"

    def stop(self) -> None:
        """Has no effect if it does not run."""
        _stop(self._directory)


def _control(*arguments: str) -> Sequence[str]:
    return [*(ApacheKafka.command() or []), *arguments]


def _stop(directory: Path) -> None:
    with contextlib.suppress(subprocess.SubprocessError):
        stop = _control("stop", str(directory))
        subprocess.run(stop, capture_output=True, timeout=STOP_TIMEOUT_S, check=True)


@contextlib.contextmanager
def cluster_like(contestant: Contestant, session_timeout_ms: int = SESSION_TIMEOUT_MS) -> Iterator[Cluster]:
    """A cluster of the contestant's version, without its brokers yet, in its directory. Raises TakesNoPart."""
    cluster: Cluster
    if isinstance(contestant, Odradek):
        cluster = OdradekCluster(contestant.directory, session_timeout_ms, contestant.checkout)
    else:
        cluster = KafkaCluster(contestant.directory, session_timeout_ms)
    try:
        yield cluster
    finally:
        cluster.close()
