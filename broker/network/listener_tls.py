"""TLS of one listener: whom its clients are shown, whom they must be, and who they are.

Source: Kafka's `DefaultSslEngineFactory`, `DefaultKafkaPrincipalBuilder`.
"""

from __future__ import annotations

import ssl

from odradek.broker.requests.request_context import ANONYMOUS
from odradek.broker.security.authentication_counts import AuthenticationCounts
from odradek.broker.security.certificate_fields import java_name, subject_of
from odradek.broker.security.principal_mapping import PrincipalMapping


class ListenerTls:
    """TLS of one listener. `mapping` is None if certificates do not say who the clients are: they log in by SASL."""

    __slots__ = ("_mapping", "context", "counts")

    def __init__(
        self, context: ssl.SSLContext, mapping: PrincipalMapping | None, counts: AuthenticationCounts | None = None
    ) -> None:
        self.context = context
        """For new sessions. May be replaced at any time."""
        self.counts = counts or AuthenticationCounts()
        self._mapping = mapping

    def new_session(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> ssl.SSLObject:
        """Returns the session of one connection, between two buffers of ciphertext."""
        return self.context.wrap_bio(incoming, outgoing, server_side=True)

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

    def handshake_ended(self, *, is_successful: bool) -> None:
        """Counts it. With SASL, a client that has shaken hands is still to log in."""
        if self._mapping is not None or not is_successful:
            self.counts.successful += is_successful
            self.counts.failed += not is_successful
