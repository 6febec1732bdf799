"""What clients need to connect to the brokers of a test, in the words of their libraries.

    kafka-python, aiokafka    keyword arguments
    confluent-kafka           a configuration of librdkafka
    java                      properties of Kafka's programs and the `odradek` commands; `property_text` makes the text
                              of a file

Nothing of it names a file: keys and certificates stand in the settings themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from odradek.testing.certificates import certificate_of, trusted
from odradek.testing.security import Security, module_of

ESCAPED = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"})


def client_settings(security: Security, bootstrap: str, client: str, user: str | None) -> dict[str, Any]:
    """Returns the settings of a client, one of CLIENTS. Raises ValueError, StartError."""
    if client not in CLIENTS:
        raise ValueError(f"client {client!r} is not one of {', '.join(CLIENTS)}")
    return CLIENTS[client](security, bootstrap, user)


def property_text(properties: Mapping[str, str]) -> str:
    """Returns the text of a property file."""
    return "".join(f"{name}={_escaped(text)}\n" for name, text in properties.items())


def _escaped(text: str) -> str:
    """A property's value: a blank before it would be dropped."""
    escaped = text.translate(ESCAPED)
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def _python(security: Security, bootstrap: str, user: str | None) -> dict[str, Any]:
    return {"bootstrap_servers": bootstrap, **security.of_client(user).for_kafka_python()}


def _librdkafka(security: Security, bootstrap: str, user: str | None) -> dict[str, Any]:
    shown, credentials = security.shown_by(user), security.credentials_of(user)
    found = {"bootstrap.servers": bootstrap, "security.protocol": security.protocol}
    if security.has_tls:
        found["ssl.ca.pem"] = trusted()
    if shown is not None:
        own = certificate_of(shown)
        found |= {"ssl.certificate.pem": own.chain_pem.decode(), "ssl.key.pem": own.key_pem.decode()}
    if credentials is not None:
        found["sasl.mechanism"] = credentials.mechanism
        found |= {"sasl.username": credentials.username, "sasl.password": credentials.password}
    return found


def _java(security: Security, bootstrap: str, user: str | None) -> dict[str, Any]:
    shown, credentials = security.shown_by(user), security.credentials_of(user)
    found = {"bootstrap.servers": bootstrap, "security.protocol": security.protocol}
    if security.has_tls:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": trusted()}
    if shown is not None:
        own = certificate_of(shown)
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.key": own.key_pem.decode()}
        found["ssl.keystore.certificate.chain"] = own.chain_pem.decode()
    if credentials is not None:
        found |= {"sasl.mechanism": credentials.mechanism, "sasl.jaas.config": module_of(credentials)}
    return found


CLIENTS: Mapping[str, Callable[[Security, str, str | None], dict[str, Any]]] = {
    "kafka-python": _python,
    "aiokafka": _python,
    "confluent-kafka": _librdkafka,
    "java": _java,
}
