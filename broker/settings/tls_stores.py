"""Reads the keys and certificates that TLS settings name, from files or from the settings themselves."""

from __future__ import annotations

import ssl
from typing import NamedTuple

from odradek.broker.security.cipher_suites import negotiable
from odradek.broker.security.key_stores import Store, StoreError, load_key, load_trusted, store_in_setting
from odradek.broker.security.tls import client_context
from odradek.broker.settings.naming_files import naming_file
from odradek.broker.settings.tls import TlsSettings
from odradek.broker.settings.tls_checks import TlsOptions
from odradek.broker.settings.values import ConfigError
from odradek.storage.files import Files


def tls_of_client(tls: TlsOptions, files: Files, *, checks_host_name: bool = True) -> ssl.SSLContext:
    """Returns the TLS of a client's connections. Without `checks_host_name` no host name is verified, whatever the
    settings say. Raises ConfigError.
    """
    algorithm = tls.value(TlsSettings.ssl_endpoint_identification_algorithm)
    allowed = negotiable(tls.versions, tls.suites)
    context = client_context(allowed, checks_host_name=checks_host_name and bool(algorithm))
    load_stores(context, tls, files)
    return context


class Loaded(NamedTuple):
    """Certificates in DER: `own` is that of the key and those above it, empty without a key. `trusted` is empty if the
    system's are."""

    own: list[bytes]
    trusted: list[bytes]


def load_stores(context: ssl.SSLContext, tls: TlsOptions, files: Files) -> Loaded:
    """Gives the context its own key, if there is one, and whom it trusts. Raises ConfigError."""
    return Loaded(_load_own_key(context, tls, files), _load_trusted(context, tls, files))


def _load_own_key(context: ssl.SSLContext, tls: TlsOptions, files: Files) -> list[bytes]:
    key_password = tls.value(TlsSettings.ssl_key_password)
    path = tls.value(TlsSettings.ssl_keystore_location)
    key = tls.value(TlsSettings.ssl_keystore_key)
    if path:
        type_, password = tls.store_type(TlsSettings.ssl_keystore_type), tls.value(TlsSettings.ssl_keystore_password)
        with naming_file(tls.name(TlsSettings.ssl_keystore_location), path):
            return load_key(context, Store(path, files.read_file(path), type_, password, key_password))
    elif key:
        name, chain = tls.name(TlsSettings.ssl_keystore_key), tls.value(TlsSettings.ssl_keystore_certificate_chain)
        try:
            return load_key(context, store_in_setting(name, key, chain or "", key_password=key_password))
        except StoreError as error:
            raise ConfigError(name, f"{name} {error}") from error
    return []


def _load_trusted(context: ssl.SSLContext, tls: TlsOptions, files: Files) -> list[bytes]:
    path = tls.value(TlsSettings.ssl_truststore_location)
    certificates = tls.value(TlsSettings.ssl_truststore_certificates)
    if path:
        type_ = tls.store_type(TlsSettings.ssl_truststore_type)
        password = tls.value(TlsSettings.ssl_truststore_password)
        with naming_file(tls.name(TlsSettings.ssl_truststore_location), path):
            return load_trusted(context, Store(path, files.read_file(path), type_, password))
    elif certificates:
        name = tls.name(TlsSettings.ssl_truststore_certificates)
        try:
            return load_trusted(context, store_in_setting(name, certificates))
        except StoreError as error:
            raise ConfigError(name, f"{name} {error}") from error
    else:
        context.load_default_certs()
    return []
