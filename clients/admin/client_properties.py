"""A client's property file, with Kafka's names: how its connections are secured.

    security.protocol=SASL_SSL
    ssl.truststore.location=/etc/kafka/authority.pem
    sasl.mechanism=SCRAM-SHA-256
    sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
      username="alice" password="${file:/run/secrets/alice.properties:password}";

sasl.mechanism may be OAUTHBEARER, too, which Odradek's brokers do not have, but others (bearer_tokens.py).

(A) Settings may have variables, if config.providers has providers (config_providers.py). Errors show nothing of what
    these yield, nor of a password.
(B) Other settings of a client have no effect here, and are ignored as Kafka's tools ignore unknown ones. A setting of
    security that Odradek's commands do not have is an error: they would connect less safely than the file says.
(C) A setting of TLS or SASL that promises protection, and for which security.protocol has no use, is an error; Kafka
    ignores it.
"""

from __future__ import annotations

import random
import ssl
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from odradek.broker.security.jaas import JaasError, login_module_class, parse_login_module
from odradek.broker.security.sasl.client import OAUTHBEARER, ClientCredentials
from odradek.broker.security.sasl.scram import new_nonce
from odradek.broker.settings import BROKER, TlsSettings, Value, parse_value
from odradek.broker.settings.config import ConfigError, read_properties_file
from odradek.broker.settings.config_providers import resolve
from odradek.broker.settings.listeners import PROTOCOLS, SASL_PROTOCOLS, TLS_PROTOCOLS
from odradek.broker.settings.sasl_listeners import MECHANISMS
from odradek.broker.settings.setting import rows
from odradek.broker.settings.tls_checks import TlsOptions, check_tls
from odradek.broker.settings.tls_stores import tls_of_client
from odradek.clients.admin.bearer_tokens import HANDLER, JAAS, URL, BearerTokens, bearer_tokens
from odradek.clients.logins import logged_in
from odradek.clients.network_client import Connect, NetworkClient
from odradek.storage.files import Files

PROTOCOL = "security.protocol"
MECHANISM = "sasl.mechanism"
DEFAULT_MECHANISM = "GSSAPI"
OF_LOGINS = (MECHANISM, JAAS)
OF_SERVERS = ("ssl.client.auth", "ssl.principal.mapping.rules")
OF_CLIENTS = {row.name: row for row in rows(TlsSettings) if row.name not in OF_SERVERS}


class ClientSecurity(NamedTuple):
    """How a client's connections are secured. `tls` and `login` are None if `protocol` does without. `tokens`: where
    `login` has its token from, with OAUTHBEARER."""

    protocol: str = "PLAINTEXT"
    tls: ssl.SSLContext | None = None
    login: ClientCredentials | None = None
    tokens: BearerTokens | None = None

    def connect(self, source: random.Random) -> Connect:
        """Returns what connects. `source` draws nonces."""
        connecting = NetworkClient.connect if self.tls is None else partial(NetworkClient.connect, tls=self.tls)
        return connecting if self.login is None else logged_in(connecting, self.login, lambda: new_nonce(source))

    def for_kafka_python(self) -> dict[str, Any]:
        """Returns the arguments of kafka-python's clients, which aiokafka's have, too."""
        arguments: dict[str, Any] = {"security_protocol": self.protocol}
        if self.tls is not None:
            arguments["ssl_context"] = self.tls
        if self.login is not None:
            arguments["sasl_mechanism"] = self.login.mechanism
            if self.tokens is None:
                arguments["sasl_plain_username"] = self.login.username
                arguments["sasl_plain_password"] = self.login.password
            else:
                arguments["sasl_oauth_token_provider"] = _for_kafka_python(self.tokens)
        return arguments


def _for_kafka_python(tokens: BearerTokens) -> Any:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return tokens.token()

    return Provider()


def security_of_file(path: str, files: Files, environment: Mapping[str, str]) -> ClientSecurity:
    """Returns what a property file says. Raises ConfigError."""
    return security_of_properties(read_properties_file(Path(path)), files, environment)


def security_of_properties(
    properties: Mapping[str, str], files: Files, environment: Mapping[str, str]
) -> ClientSecurity:
    """As `security_of_file`, for names and values."""
    resolved, provided = resolve(properties, files, environment)
    with provided.hiding():
        return _security(resolved, files)


def _security(properties: Mapping[str, str], files: Files) -> ClientSecurity:
    protocol = properties.get(PROTOCOL, "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise ConfigError(PROTOCOL, f"{PROTOCOL}={protocol} is not one of {', '.join(PROTOCOLS)}")
    mechanism = properties.get(MECHANISM, DEFAULT_MECHANISM).strip()
    of_bearers = (URL, HANDLER) if mechanism == OAUTHBEARER else ()
    for name, text in properties.items():
        setting = BROKER.get(name)
        if (
            name not in of_bearers
            and setting is not None
            and setting.promises_missing_protection(parse_value(setting, text))
        ):
            raise ConfigError(name, f"{name} is not supported by Odradek's commands")
    _check_use(properties, protocol)
    tls = _tls(properties, files) if protocol in TLS_PROTOCOLS else None
    if protocol not in SASL_PROTOCOLS:
        return ClientSecurity(protocol, tls)
    if mechanism != OAUTHBEARER:
        return ClientSecurity(protocol, tls, _login(mechanism, properties))
    tokens = bearer_tokens(properties, files)
    return ClientSecurity(protocol, tls, ClientCredentials(OAUTHBEARER, tokens.holder, tokens.token()), tokens)


def _check_use(properties: Mapping[str, str], protocol: str) -> None:
    """Case (C)."""
    for name, text in properties.items():
        row = OF_CLIENTS.get(name)
        is_of_tls = row is not None and row.promises_protection(parse_value(row, text))
        if (is_of_tls and protocol not in TLS_PROTOCOLS) or (name in OF_LOGINS and protocol not in SASL_PROTOCOLS):
            raise ConfigError(name, f"{name} has no use: {PROTOCOL} is {protocol}")


def _tls(properties: Mapping[str, str], files: Files) -> ssl.SSLContext:
    values: dict[str, Value] = {row.name: row.default for row in rows(TlsSettings)}
    given = {name: text for name, text in properties.items() if name in OF_CLIENTS}
    values |= {name: parse_value(OF_CLIENTS[name], text) for name, text in given.items()}
    tls = TlsOptions(TlsSettings(values), given)
    check_tls(tls)
    return tls_of_client(tls, files)


def _login(mechanism: str, properties: Mapping[str, str]) -> ClientCredentials:
    if mechanism not in MECHANISMS:
        raise ConfigError(MECHANISM, f"{MECHANISM}={mechanism} is not one of {', '.join((*MECHANISMS, OAUTHBEARER))}")
    if not properties.get(JAAS):
        raise ConfigError(JAAS, f"{JAAS} is missing: it has the username and the password")
    try:
        module = parse_login_module(properties[JAAS], JAAS)
    except JaasError as error:
        raise ConfigError(JAAS, str(error)) from None
    wanted = login_module_class(mechanism)
    if module.class_name != wanted:
        raise ConfigError(JAAS, f"{JAAS}: the login module of {mechanism} is {wanted}")
    missing = [name for name in ("username", "password") if name not in module.options]
    if missing:
        raise ConfigError(JAAS, f"{JAAS} lacks the option {' and '.join(missing)}")
    return ClientCredentials(mechanism, module.options["username"], module.options["password"])
