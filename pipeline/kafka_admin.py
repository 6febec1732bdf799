"""kafka-python's admin client, as the settings want it: for offsets, topics and groups, where Spark has no say.

Of `[kafka]`, whose names are those of the Java client, the part that says how to connect is taken over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kafka.admin import KafkaAdminClient
from kafka.net.compat import KafkaNetClient

from pipeline.errors import PipelineError
from pipeline.settings import Settings

PEM_FILES = {
    "ssl.truststore.location": ("ssl_cafile",),
    "ssl.keystore.location": ("ssl_certfile", "ssl_keyfile"),
}


@contextmanager
def admin_client(settings: Settings, patience_ms: int = 10_000) -> Iterator[KafkaAdminClient]:
    """A client that gives up after `patience_ms` without an answer. Raises PipelineError and KafkaError."""
    networks: list[KafkaNetClient] = []

    def network(**configs: Any) -> KafkaNetClient:
        networks.append(KafkaNetClient(**configs))
        return networks[-1]

    try:
        yield KafkaAdminClient(
            bootstrap_servers=[server.strip() for server in settings.bootstrap_server.split(",")],
            client_id=f"odradek-{settings.name}",
            bootstrap_timeout_ms=patience_ms,
            request_timeout_ms=patience_ms,
            reconnect_backoff_max_ms=1000,
            kafka_client=network,
            **connection_options(settings.kafka),
        )
    finally:
        # Where no broker answers there is no client to close, but its thread and its sockets stay.
        for each in networks:
            each.close()


def connection_options(options: Mapping[str, str]) -> dict[str, Any]:
    """The Java client's options on security, as kafka-python names them. Raises PipelineError for key stores."""
    found: dict[str, Any] = {}
    if protocol := options.get("security.protocol"):
        found["security_protocol"] = protocol
    if mechanism := options.get("sasl.mechanism"):
        found["sasl_mechanism"] = mechanism
    for name in ("username", "password"):
        if match := re.search(rf"""\b{name}=(["'])(.*?)\1""", options.get("sasl.jaas.config", "")):
            found[f"sasl_plain_{name}"] = match[2]
    if options.get("ssl.endpoint.identification.algorithm") == "":
        found["ssl_check_hostname"] = False
    for name, targets in PEM_FILES.items():
        if location := options.get(name):
            kind = options.get(name.replace("location", "type"), "JKS")
            if kind.upper() != "PEM":
                raise PipelineError(f"{name} is a {kind} store, which Python cannot read", "give PEM files")
            found.update(dict.fromkeys(targets, location))
    return found
