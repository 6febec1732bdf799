"""Brokers that are processes, and that connect to each other by SASL_SSL, on a ZooKeeper.

Each has a second listener without security, by which tests look at the cluster. Clients under test use the first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.cluster.cluster import PATIENT_SETTINGS, Node
from tests.cluster.process_cluster import ProcessCluster
from tests.spawned_broker import free_port
from tests.tls_files import NAMES, TlsFiles

MECHANISM = "SCRAM-SHA-512"
BROKER, CLIENT = "broker", "alice"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
SECURED = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURED:SASL_SSL",
    "inter.broker.listener.name": "SECURED",
    "sasl.enabled.mechanisms": MECHANISM,
    "sasl.mechanism.inter.broker.protocol": MECHANISM,
    "listener.name.secured.scram-sha-512.sasl.jaas.config": (
        f'{MODULE} required username="{BROKER}" password="{BROKER}-secret";'
    ),
    "listener.name.secured.ssl.client.auth": "required",
    "connections.max.reauth.ms": "2000",
}


class SecuredCluster(ProcessCluster):
    """Made by `secured_cluster`."""

    def __init__(self, directory: Path, settings: Mapping[str, str], zookeeper: str) -> None:
        super().__init__(directory, settings, 3, zookeeper)
        (directory / "keys").mkdir()
        self.files = TlsFiles(directory / "keys")
        users = "".join(f"{MECHANISM}=[name={user},password={user}-secret]\n" for user in (BROKER, CLIENT))
        self._credentials = self.files.write("credentials", users.encode())
        self.secured = {broker_id: f"127.0.0.1:{free_port()}" for broker_id in self.nodes}
        """The addresses of the listeners with security."""
        self.keys = {
            broker_id: self.files.write(f"{broker_id}.pem", self.files.authority.sign("broker", *NAMES).pem)
            for broker_id in self.nodes
        }
        """The files with the brokers' keys."""

    @property
    def client(self) -> dict[str, object]:
        """How librdkafka connects."""
        return {
            "bootstrap.servers": ",".join(self.secured.values()),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.files.trusted,
            "ssl.certificate.location": self._own,
            "ssl.key.location": self._own,
            "sasl.mechanism": MECHANISM,
            "sasl.username": CLIENT,
            "sasl.password": f"{CLIENT}-secret",
        }

    @property
    def _own(self) -> str:
        path = self.files.directory / "client.pem"
        return str(path) if path.exists() else self.files.write("client.pem", self.files.authority.sign(CLIENT).pem)

    def _own_settings(self, broker_id: int, node: Node) -> dict[str, str]:
        return {
            "listeners": f"SECURED://{self.secured[broker_id]},PLAINTEXT://{node.address}",
            "odradek.scram.credentials.file": self._credentials,
            "ssl.keystore.location": self.keys[broker_id],
            "ssl.truststore.location": self.files.trusted,
            **SECURED,
        }


@contextlib.contextmanager
def secured_cluster(
    directory: Path, zookeeper: str, settings: Mapping[str, str] | None = None
) -> Iterator[SecuredCluster]:
    """Three running brokers on the ZooKeeper at `zookeeper`. Prints their logs in the end."""
    cluster = SecuredCluster(directory, {**PATIENT_SETTINGS, **(settings or {})}, zookeeper)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
        cluster.print_logs()
