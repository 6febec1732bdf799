"""A cluster of brokers and a ZooKeeper, each in a network namespace of its own, between any two of which the network
can be cut. Clients are outside, and reach all of them.

A cut drops all packets between two nodes, both ways, and says nothing: each node has an Ethernet address for the other
that nobody has.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.cluster.cluster import PATIENT_SETTINGS, Node
from tests.cluster.process_cluster import ProcessCluster
from tests.cluster.zookeeper_process import ZooKeeperProcess
from tests.pipeline.cluster import nodes

NOBODYS_ADDRESS = "02:00:00:00:00:01"
SESSION_TIMEOUT_MS = 4000
"""A client may pause for a second before it finds that ZooKeeper has started again; sessions must live longer."""
BROKER_PORT, ZOOKEEPER_PORT = 9092, 2181


class NetworkedCluster(ProcessCluster):
    """Started by `networked_cluster`."""

    session_timeout_ms = SESSION_TIMEOUT_MS

    def __init__(
        self, directory: Path, settings: Mapping[str, str], machines: Sequence[nodes.Node], zookeeper: ZooKeeperProcess
    ) -> None:
        super().__init__(directory, settings, len(machines), zookeeper.address)
        self.zookeeper = zookeeper
        self._machines = dict(enumerate(machines, start=1))
        self.nodes = {
            broker_id: Node(f"{machine.address}:{BROKER_PORT}", self.nodes[broker_id].data)
            for broker_id, machine in self._machines.items()
        }

    def _place(self, broker_id: int) -> list[str]:
        return in_network_of(self._machines[broker_id])

    def cut(self, broker_id: int, other: int | None = None) -> None:
        """Cuts a broker off from another one, or from ZooKeeper; both stay reachable for all others."""
        for here, there in self._both_ways(broker_id, other):
            address = there.address
            here.run(["ip", "neigh", "replace", address, "lladdr", NOBODYS_ADDRESS, "dev", "eth0", "nud", "permanent"])

    def heal(self, broker_id: int, other: int | None = None) -> None:
        """Ends a cut. What was not received meanwhile is sent again by TCP."""
        for here, there in self._both_ways(broker_id, other):
            here.run(["ip", "neigh", "del", there.address, "dev", "eth0"])

    def _both_ways(self, broker_id: int, other: int | None) -> list[tuple[nodes.Node, nodes.Node]]:
        one = self._machines[broker_id]
        two = self.zookeeper.machine if other is None else self._machines[other]
        assert two is not None
        return [(one, two), (two, one)]


def in_network_of(machine: nodes.Node) -> list[str]:
    """The command before one that is to run in the network of a machine, but is a process as any other."""
    return ["nsenter", "--target", str(machine.pid), "--net", "--"]


@contextlib.contextmanager
def networked_cluster(
    control: Sequence[str], directory: Path, settings: Mapping[str, str] | None = None, *, brokers: int = 3
) -> Iterator[NetworkedCluster]:
    """A running cluster with a ZooKeeper of its own. Prints the logs in the end: pytest shows them if the test has
    failed.
    """
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(nodes.switched_network())
        machine = network.add_node()
        zookeeper = ZooKeeperProcess(
            control, directory / "zookeeper", f"{machine.address}:{ZOOKEEPER_PORT}", in_network_of(machine), machine
        )
        stack.callback(zookeeper.close)
        zookeeper.start()
        machines = [network.add_node() for _ in range(brokers)]
        login = {"odradek.security.auth.login.config": str(zookeeper.login)}
        cluster = NetworkedCluster(directory, {**PATIENT_SETTINGS, **login, **(settings or {})}, machines, zookeeper)
        stack.callback(cluster.print_logs)
        stack.callback(cluster.close)
        cluster.start()
        yield cluster
