"""A client's property file, with Kafka's names: how its connections are secured.

    security.protocol=SSL
    ssl.truststore.location=/etc/kafka/authority.pem

Other settings of a client have no effect here, and are ignored as Kafka's tools ignore unknown ones. A setting of
security that Odradek's commands do not have is an error: they would connect less safely than the file says.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

from odradek.broker.settings import BROKER, TlsSettings, Value, parse_value
from odradek.broker.settings.config import ConfigError, read_properties_file
from odradek.broker.settings.setting import rows
from odradek.broker.settings.tls_checks import TlsOptions, check_tls
from odradek.broker.settings.tls_stores import tls_of_client
from odradek.storage.files import Files

PROTOCOL = "security.protocol"
PROTOCOLS = ("PLAINTEXT", "SSL")
OF_SERVERS = ("ssl.client.auth", "ssl.principal.mapping.rules")
OF_CLIENTS = {row.name: row for row in rows(TlsSettings) if row.name not in OF_SERVERS}


def tls_of_file(path: str, files: Files) -> ssl.SSLContext | None:
    """Returns the TLS of the connections, None for plain ones. Raises ConfigError."""
    return tls_of_properties(read_properties_file(Path(path)), files)


def tls_of_properties(properties: Mapping[str, str], files: Files) -> ssl.SSLContext | None:
    """As `tls_of_file`, for names and values."""
    protocol = properties.get(PROTOCOL, "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise ConfigError(PROTOCOL, f"{PROTOCOL}={protocol} is not one of {', '.join(PROTOCOLS)}")
    for name, text in properties.items():
        setting = BROKER.get(name)
        if setting is not None and setting.promises_missing_protection(parse_value(setting, text)):
            raise ConfigError(name, f"{name} is not supported by Odradek's commands")
    if protocol == "PLAINTEXT":
        return None
    values: dict[str, Value] = {row.name: row.default for row in rows(TlsSettings)}
    given = {name: text for name, text in properties.items() if name in OF_CLIENTS}
    values |= {name: parse_value(OF_CLIENTS[name], text) for name, text in given.items()}
    tls = TlsOptions(TlsSettings(values), given)
    check_tls(tls)
    return tls_of_client(tls, files)
