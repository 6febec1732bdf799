"""TLS of the listeners, by the settings: whom their clients are shown, whom they trust, and who their clients are.

The files that the settings name are read once, at the start. Source: Kafka's `DefaultSslEngineFactory`,
`DefaultKafkaPrincipalBuilder`.
"""

from __future__ import annotations

import ssl

from odradek.broker.requests.request_context import ANONYMOUS
from odradek.broker.security.cipher_suites import negotiable
from odradek.broker.security.distinguished_name import java_name, subject_of
from odradek.broker.security.principal_mapping import PrincipalMapping
from odradek.broker.security.tls import server_context
from odradek.broker.settings.config import BrokerConfig
from odradek.broker.settings.tls_checks import SASL_SSL, TlsOfListener
from odradek.broker.settings.tls_stores import load_stores, tls_of_client
from odradek.storage.files import Files


class ListenerTls:
    """TLS of one listener. `mapping` is None if certificates do not say who the clients are: they log in by SASL."""

    __slots__ = ("_context", "_mapping")

    def __init__(self, context: ssl.SSLContext, mapping: PrincipalMapping | None) -> None:
        self._context = context
        self._mapping = mapping

    def new_session(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> ssl.SSLObject:
        """Returns the session of one connection, between two buffers of ciphertext."""
        return self._context.wrap_bio(incoming, outgoing, server_side=True)

    def principal_of(self, session: ssl.SSLObject) -> str:
        """Returns the principal of the client's certificate, after the handshake. Raises ValueError if no mapping rule
        fits its name.
        """
        certificate = session.getpeercert(binary_form=True)
        if certificate is None or self._mapping is None:
            return ANONYMOUS
        distinguished_name = java_name(subject_of(certificate))
        name = self._mapping.name_of(distinguished_name)
        if name is None:
            raise ValueError(f"no rule of ssl.principal.mapping.rules fits {distinguished_name}")
        return f"User:{name}"


def tls_of_listeners(config: BrokerConfig, files: Files) -> dict[str, ListenerTls]:
    """Returns the TLS of each listener that has it, by the listener's name. Raises ConfigError."""
    return {
        listener.name: _listener_tls(config.tls_of(listener), files)
        for listener in config.listeners
        if listener.uses_tls
    }


def tls_to_brokers(config: BrokerConfig, files: Files) -> ssl.SSLContext | None:
    """Returns the TLS of connections to other brokers: that of the inter-broker listener, with this broker as the
    client. None: they have none. Raises ConfigError.
    """
    for listener in config.listeners:
        if listener.uses_tls and listener.name == config.inter_broker_listener:
            return tls_of_client(config.tls_of(listener), files)
    return None


def _listener_tls(tls: TlsOfListener, files: Files) -> ListenerTls:
    context = server_context(negotiable(tls.versions, tls.suites), tls.client_auth)
    load_stores(context, tls, files)
    if tls.listener.security_protocol == SASL_SSL:
        return ListenerTls(context, None)
    return ListenerTls(context, PrincipalMapping(tls.value(BrokerConfig.ssl_principal_mapping_rules)))
