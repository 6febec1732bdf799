"""A cluster of brokers of Apache Kafka and of ours, on a real ZooKeeper.

$KAFKA_CONTROL writes the server.properties of Apache's brokers. Ours run as `odradek serve --config` with the same
file, in which only the id, the port and the directory are others.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.cluster.cluster import SETTINGS, Node
from tests.cluster.process_cluster import SignaledCluster, ended, ready, spawned
from tests.spawned_broker import free_port

APACHE = 1
SESSION_TIMEOUT_MS = 6000
CONTROL_S = 120
JVM = "-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
OF_THE_CLUSTER = {
    **SETTINGS,
    "inter.broker.protocol.version": "3.0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
}


class MixedCluster(SignaledCluster):
    """Started by `mixed_cluster`. The brokers `apache` are Apache's."""

    session_timeout_ms = SESSION_TIMEOUT_MS

    def __init__(
        self,
        control: Sequence[str],
        zookeeper: str,
        directory: Path,
        brokers: int,
        apache: Sequence[int],
        settings: Mapping[str, str],
    ) -> None:
        super().__init__()
        self.zookeeper = zookeeper
        self.apache = tuple(apache)
        self._settings = settings
        self._control = control
        self._directory = directory
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._apache_up: set[int] = set()
        self.nodes = {
            broker_id: Node(f"127.0.0.1:{free_port()}", self.place(broker_id) / "data")
            for broker_id in range(1, brokers + 1)
        }

    def place(self, broker_id: int) -> Path:
        """Where a broker's files are."""
        return self._directory / f"broker-{broker_id}"

    @property
    def ours(self) -> list[int]:
        """The brokers of ours."""
        return [broker_id for broker_id in self.nodes if broker_id not in self.apache]

    @property
    def running(self) -> list[int]:
        return [one for one in self.nodes if self._is_up(one) and one not in self._stopped]

    def _is_up(self, broker_id: int) -> bool:
        return broker_id in self._apache_up or broker_id in self._processes

    def launch(self, broker_id: int) -> None:
        assert not self._is_up(broker_id), f"broker {broker_id} is up"
        if broker_id in self.apache:
            place = str(self.place(broker_id))
            settings = [f"{name}={value}" for name, value in self._settings.items()]
            self._run("zk-broker", str(broker_id), self._port(broker_id), self.zookeeper, place, *settings)
            self._apache_up.add(broker_id)
        else:
            self._launch_ours(broker_id)

    def _launch_ours(self, broker_id: int) -> None:
        place = self.place(broker_id)
        place.mkdir(exist_ok=True)
        properties = self._as_of(self.apache[0], broker_id) if self.apache else self._of_ours(broker_id)
        (place / "server.properties").write_text(properties)
        with self._log(broker_id).open("ab") as log:
            command = [sys.executable, "-m", "odradek.broker", "--config", str(place / "server.properties")]
            process = self._processes[broker_id] = spawned(command, log)
        ready(process, self._log(broker_id))

    def _as_of(self, apache: int, broker_id: int) -> str:
        """The server.properties of a broker of Apache's, with the id, the port and the directory of another."""
        properties = (self.place(apache) / "server.properties").read_text()
        properties = properties.replace(f"broker.id={apache}\n", f"broker.id={broker_id}\n")
        properties = properties.replace(f":{self._port(apache)}\n", f":{self._port(broker_id)}\n")
        return properties.replace(f"{self.place(apache)}/", f"{self.place(broker_id)}/")

    def _of_ours(self, broker_id: int) -> str:
        """The server.properties that $KAFKA_CONTROL would write."""
        address = f"PLAINTEXT://{self.nodes[broker_id].address}"
        lines = {
            "listeners": address,
            "advertised.listeners": address,
            "auto.create.topics.enable": "true",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            "broker.id": str(broker_id),
            "zookeeper.connect": self.zookeeper,
            "log.dirs": str(self.nodes[broker_id].data),
            **self._settings,
        }
        return "".join(f"{name}={value}\n" for name, value in lines.items())

    def _port(self, broker_id: int) -> str:
        return self.nodes[broker_id].address.partition(":")[2]

    def _log(self, broker_id: int) -> Path:
        return self.place(broker_id) / "log"

    def terminate(self, broker_id: int) -> None:
        if broker_id not in self.apache:
            self._signal(broker_id, signal.SIGTERM)
        assert self._ended(broker_id) == 0, self.log_tail(broker_id)

    def _signal(self, broker_id: int, number: int) -> None:
        is_apache = broker_id in self.apache
        pid = int((self.place(broker_id) / "pid").read_text()) if is_apache else self._processes[broker_id].pid
        os.kill(pid, number)

    def _ended(self, broker_id: int) -> int:
        """Waits for a broker's end; returns the exit status."""
        if broker_id not in self.apache:
            return ended(self._processes.pop(broker_id))
        self._apache_up.discard(broker_id)
        self._run("stop", str(self.place(broker_id)))
        return 0

    def _run(self, *arguments: str) -> None:
        command = [*self._control, *arguments]
        environment = {**os.environ, "KOPTS": JVM}
        subprocess.run(command, check=True, timeout=CONTROL_S, stdout=subprocess.DEVNULL, env=environment)

    def close(self) -> None:
        """Ends all processes."""
        for broker_id in [one for one in self.nodes if self._is_up(one)]:
            with contextlib.suppress(ProcessLookupError):
                self.kill(broker_id)


@contextlib.contextmanager
def mixed_cluster(
    control: Sequence[str],
    zookeeper: str,
    directory: Path,
    *,
    brokers: int = 3,
    apache: Sequence[int] = (APACHE,),
    settings: Mapping[str, str] = OF_THE_CLUSTER,
) -> Iterator[MixedCluster]:
    """A running cluster, of which the first broker is the controller. Prints the brokers' logs in the end: pytest shows
    them if the test has failed. `zookeeper`: as in zookeeper.connect. `apache`: those that are Apache's. If there are
    any, the first broker is among them.
    """
    cluster = MixedCluster(control, zookeeper, directory, brokers, apache, settings)
    try:
        for broker_id in cluster.nodes:
            cluster.launch(broker_id)
        cluster.until(lambda view: len(view.brokers) == brokers and view.controller == APACHE)
        yield cluster
    finally:
        cluster.close()
        for broker_id in cluster.nodes:
            print(f"--- broker {broker_id}\n{cluster.log_tail(broker_id)}")
