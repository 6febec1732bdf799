"""The TLS settings of a listener or a client, and checks of them against each other, before any file is read.

    (A) A listener with TLS needs a key with its certificates: a keystore file, or ssl.keystore.key with
        ssl.keystore.certificate.chain. Two ways at once are an error, as is half of one.
    (B) Keys and certificates in the settings themselves are PEM, and so have no password of a store.
    (C) Versions, suites and mapping rules must be ones that Odradek has (cipher_suites.py, principal_mapping.py).
    (D) As in Kafka, ssl.client.auth counts on a SASL_SSL listener only with the listener's prefix (KIP-684), and
        ssl.principal.mapping.rules never: its clients are who they log in as.

A broker without TLS does not import what (C) needs.

Source: Kafka's `DefaultSslEngineFactory`, `SslChannelBuilder`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from odradek.broker.settings.listener_values import listener_value, name_for_listener
from odradek.broker.settings.listeners import Listener
from odradek.broker.settings.setting import Setting, SettingValues, Value
from odradek.broker.settings.tls import TlsSettings
from odradek.broker.settings.values import ConfigError

T = TypeVar("T", bound=Value)

PEM = "PEM"
KNOWN_TYPES = ("JKS", "PKCS12", PEM)
SASL_SSL = "SASL_SSL"


class TlsOptions:
    """The TLS settings of a client. `given`: the texts of all settings that are set."""

    def __init__(self, values: SettingValues, given: Mapping[str, str]) -> None:
        self._values = values
        self._given = given

    def value(self, setting: Setting[T]) -> T:
        return setting.of(self._values)

    def name(self, setting: Setting[Value]) -> str:
        """The name under which the value is set."""
        return setting.name

    def store_type(self, setting: Setting[str]) -> str | None:
        """The type of a store, None if it is not set: then the content of the store says what it is."""
        return self.value(setting).upper() if self.name(setting) in self._given else None

    @property
    def versions(self) -> list[str]:
        return self.value(TlsSettings.ssl_enabled_protocols) or TlsSettings.ssl_enabled_protocols.default

    @property
    def suites(self) -> list[str] | None:
        """None: all."""
        return self.value(TlsSettings.ssl_cipher_suites) or None


class TlsOfListener(TlsOptions):
    """The TLS settings of one listener."""

    def __init__(self, values: SettingValues, given: Mapping[str, str], listener: Listener) -> None:
        super().__init__(values, given)
        self.listener = listener

    def value(self, setting: Setting[T]) -> T:
        return listener_value(self._values, self._given, self.listener.name, setting)

    def name(self, setting: Setting[Value]) -> str:
        return name_for_listener(self._given, self.listener.name, setting.name)

    @property
    def client_auth(self) -> str:
        """`required`, `requested` or `none` (D)."""
        setting = TlsSettings.ssl_client_auth
        if self.listener.security_protocol == SASL_SSL and self.name(setting) == setting.name:
            return setting.default
        return self.value(setting)


def is_used_by(listener: Listener, name: str) -> bool:
    """Whether a setting of TLS has a use for a listener with TLS, by the name under which it is set (D)."""
    if listener.security_protocol != SASL_SSL:
        return True
    return name != TlsSettings.ssl_client_auth.name and not name.endswith(TlsSettings.ssl_principal_mapping_rules.name)


def check_listener_tls(tls: TlsOfListener) -> None:
    """Raises ConfigError, which names the setting with the listener's prefix if it is set with it."""
    key, chain = TlsSettings.ssl_keystore_key, TlsSettings.ssl_keystore_certificate_chain
    location, listener = TlsSettings.ssl_keystore_location, tls.listener
    if not tls.value(key) and not tls.value(chain) and not tls.value(location):
        raise ConfigError(
            location.name,
            f"listener {listener.name} uses {listener.security_protocol} and has no key: set {location.name}, "
            f"or {key.name} and {chain.name}",
        )
    check_tls(tls)
    from odradek.broker.security.principal_mapping import PrincipalMapping

    try:
        PrincipalMapping(tls.value(TlsSettings.ssl_principal_mapping_rules))
    except ValueError as error:
        raise _error(tls, TlsSettings.ssl_principal_mapping_rules, f": {error}") from error


def check_tls(tls: TlsOptions) -> None:
    """Raises ConfigError."""
    key, chain = TlsSettings.ssl_keystore_key, TlsSettings.ssl_keystore_certificate_chain
    _require_both(tls, key, chain)
    _require_both(tls, chain, key)
    location, password = TlsSettings.ssl_keystore_location, TlsSettings.ssl_keystore_password
    _check_store(tls, key, location, password, TlsSettings.ssl_keystore_type)
    location, password = TlsSettings.ssl_truststore_location, TlsSettings.ssl_truststore_password
    _check_store(tls, TlsSettings.ssl_truststore_certificates, location, password, TlsSettings.ssl_truststore_type)
    algorithm = TlsSettings.ssl_endpoint_identification_algorithm
    if tls.value(algorithm).upper() not in ("HTTPS", ""):
        raise _error(tls, algorithm, f"={tls.value(algorithm)} is neither https nor empty")
    _check_negotiable(tls, TlsSettings.ssl_enabled_protocols, None)
    _check_negotiable(tls, TlsSettings.ssl_cipher_suites, tls.suites)


def _check_store(
    tls: TlsOptions,
    inline: Setting[str | None],
    location: Setting[str | None],
    password: Setting[str | None],
    type_: Setting[str],
) -> None:
    """Cases A and B."""
    kind = tls.store_type(type_)
    if kind is not None and kind not in KNOWN_TYPES:
        raise _error(tls, type_, f"={kind} is not one of {', '.join(KNOWN_TYPES)}")
    if tls.value(inline) and tls.value(location):
        raise _error(tls, inline, f" and {tls.name(location)} cannot both be set")
    if tls.value(inline) and kind not in (None, PEM):
        raise _error(tls, type_, f"={kind}: {tls.name(inline)} is always {PEM}")
    if tls.value(password) and not tls.value(location):
        raise _error(tls, password, f" has no use without {location.name}")
    if tls.value(password) and kind == PEM:
        raise _error(tls, password, f" has no use: a store of type {PEM} has no password")


def _require_both(tls: TlsOptions, one: Setting[str | None], other: Setting[str | None]) -> None:
    if tls.value(one) and not tls.value(other):
        raise _error(tls, one, f" needs {other.name}")


def _check_negotiable(tls: TlsOptions, setting: Setting[list[str]], suites: list[str] | None) -> None:
    from odradek.broker.security.cipher_suites import negotiable

    try:
        negotiable(tls.versions, suites)
    except ValueError as error:
        raise _error(tls, setting, f" {error}") from error


def _error(tls: TlsOptions, setting: Setting[Value], problem: str) -> ConfigError:
    """`problem` continues the setting's name."""
    name = tls.name(setting)
    return ConfigError(name, f"{name}{problem}")
