"""A broker with TLS on all listeners, and the settings with which each client connects to it, with verification on.

`WAYS` to connect: with a certificate and without SASL, and each mechanism of SASL.
"""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.spawned_broker import SpawnedBroker, free_port, spawned_broker
from tests.tls_files import TlsFiles

MUTUAL_TLS = "mutual TLS"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
WAYS = (MUTUAL_TLS, "PLAIN", *SCRAM)
USER, PASSWORD = "alice", "alice-secret"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
SETTINGS = {
    "inter.broker.listener.name": "SASL_SSL",
    "sasl.enabled.mechanisms": ",".join(WAYS[1:]),
    "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_{USER}="{PASSWORD}";',
    "listener.name.ssl.ssl.client.auth": "required",
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "3",
}


class SecuredBroker:
    """Made by `secured_broker`."""

    def __init__(self, files: TlsFiles, broker: SpawnedBroker, ssl_port: int) -> None:
        self.files = files
        self.broker = broker
        self._ssl_port = ssl_port
        self._key = files.client(files.authority.sign(USER))["ssl.keystore.location"]

    def bootstrap(self, way: str) -> str:
        return f"127.0.0.1:{self._ssl_port}" if way == MUTUAL_TLS else self.broker.bootstrap

    def kafka_python(self, way: str) -> dict[str, Any]:
        settings = {"bootstrap_servers": self.bootstrap(way), "ssl_cafile": self.files.trusted}
        if way == MUTUAL_TLS:
            return settings | {"security_protocol": "SSL", "ssl_certfile": self._key, "ssl_keyfile": self._key}
        return settings | self._sasl_of_python(way)

    def aiokafka(self, way: str) -> dict[str, Any]:
        context = ssl.create_default_context(cafile=self.files.trusted)
        settings = {"bootstrap_servers": self.bootstrap(way), "ssl_context": context}
        if way == MUTUAL_TLS:
            context.load_cert_chain(self._key)
            return settings | {"security_protocol": "SSL"}
        return settings | self._sasl_of_python(way)

    def _sasl_of_python(self, way: str) -> dict[str, Any]:
        return {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": way,
            "sasl_plain_username": USER,
            "sasl_plain_password": PASSWORD,
        }

    def librdkafka(self, way: str) -> dict[str, Any]:
        settings = {"bootstrap.servers": self.bootstrap(way), "ssl.ca.location": self.files.trusted}
        if way == MUTUAL_TLS:
            own = {"ssl.certificate.location": self._key, "ssl.key.location": self._key}
            return settings | own | {"security.protocol": "SSL"}
        login = {"sasl.mechanism": way, "sasl.username": USER, "sasl.password": PASSWORD}
        return settings | login | {"security.protocol": "SASL_SSL"}

    def franz_go(self, way: str) -> dict[str, str]:
        """Variables of the program's environment."""
        security = {"authority": self.files.trusted}
        if way == MUTUAL_TLS:
            security["certificate"] = self._key
        else:
            security |= {"mechanism": way, "username": USER, "password": PASSWORD}
        return {"FRANZ_GO_SECURITY": self.files.write(f"{way}.json", json.dumps(security).encode())}

    def java(self, way: str) -> dict[str, str]:
        """A client's properties."""
        settings = {"ssl.truststore.location": self.files.trusted, "ssl.truststore.type": "PEM"}
        if way == MUTUAL_TLS:
            own = {"ssl.keystore.location": self._key, "ssl.keystore.type": "PEM"}
            return settings | own | {"security.protocol": "SSL"}
        module = PLAIN_MODULE if way == "PLAIN" else SCRAM_MODULE
        jaas = f'{module} required username="{USER}" password="{PASSWORD}";'
        return settings | {"security.protocol": "SASL_SSL", "sasl.mechanism": way, "sasl.jaas.config": jaas}

    def java_file(self, way: str) -> str:
        """The same as a file."""
        lines = "".join(f"{name}={text}\n" for name, text in self.java(way).items())
        return self.files.write(f"{way}.properties", lines.encode())


@contextlib.contextmanager
def secured_broker(
    directory: Path, settings: Mapping[str, str] | None = None, *, with_metrics: bool = False
) -> Iterator[SecuredBroker]:
    """Yields a running broker. At its end its log must not show the password."""
    files, ssl_port = TlsFiles(directory), free_port()
    credentials = "".join(f"{each}=[name={USER},password={PASSWORD}]\n" for each in SCRAM)
    both = {
        **SETTINGS,
        **files.stores(),
        "listeners": f"SASL_SSL://127.0.0.1:0,SSL://127.0.0.1:{ssl_port}",
        "odradek.scram.credentials.file": files.write("credentials", credentials.encode()),
        **(settings or {}),
    }
    with spawned_broker(directory / "data", both, with_metrics=with_metrics) as broker:
        yield SecuredBroker(files, broker, ssl_port)
        assert PASSWORD not in broker.log_text()
