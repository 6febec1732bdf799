"""One login of a client by SASL: which messages are expected, in which order, and what is answered.

    phase               expects                         goes to
    FIRST               ApiVersions                     HANDSHAKE
                        SaslHandshake                   TOKEN
    HANDSHAKE           SaslHandshake                   TOKEN
    TOKEN               SaslAuthenticate, or a raw      TOKEN, COMPLETE
                        token after SaslHandshake 0
    OTHER_MECHANISM     anything, which fails           FAILED
    COMPLETE, FAILED    nothing

    (A) An ApiVersions request that is refused (its version, the name of the software) leaves the phase as it is.
    (B) A client whose session has a limited lifetime authenticates again on the same connection (KIP-368). It begins in
        the phase HANDSHAKE, and must use the same mechanism and be the same user. The handshake with another mechanism
        is answered; only its token fails.
    (C) All failures of a mechanism have one text, which shows neither what was wrong nor whether there is such a user,
        except where the mechanism has a text of its own.

Source: Kafka's `SaslServerAuthenticator`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from odradek.broker.security.authentication_counts import AuthenticationCounts
from odradek.broker.security.sasl.mechanism import LoginRefused, Mechanism, SaslServer
from odradek.protocol.api_keys import ApiKey

USER = "User:"


class Phase(Enum):
    """See the head of this file."""

    FIRST = "first"
    HANDSHAKE = "handshake"
    TOKEN = "token"  # nosec B105 # the name of a phase
    OTHER_MECHANISM = "other mechanism"
    COMPLETE = "complete"
    FAILED = "failed"


EXPECTED: Mapping[Phase, frozenset[int]] = {
    Phase.FIRST: frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}),
    Phase.HANDSHAKE: frozenset({ApiKey.SASL_HANDSHAKE}),
    Phase.TOKEN: frozenset({ApiKey.SASL_AUTHENTICATE}),
    Phase.OTHER_MECHANISM: frozenset(),
    Phase.COMPLETE: frozenset(),
    Phase.FAILED: frozenset(),
}


class SaslListener(NamedTuple):
    """What a listener asks of its clients. `failure_delay_ms`: how long the answer to a failed login waits, at least.
    `longest_message`: the most bytes of a request before the login. `counts` counts its logins.
    """

    mechanisms: Mapping[str, Mechanism]
    failure_delay_ms: int
    longest_message: int
    counts: AuthenticationCounts


class Login(NamedTuple):
    """A login that is complete: the principal, and how."""

    principal: str
    mechanism: str
    session_lifetime_ms: int


class AuthenticationFailed(Exception):
    """The login has failed. `reason` is for the log; `shown` is the text for the client, None if it gets no answer."""

    def __init__(self, reason: str, shown: str | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.shown = shown


class Authentication:
    """One login. `before` is the login that the client renews (B)."""

    __slots__ = ("_is_framed", "_mechanism", "_server", "before", "listener", "login", "phase")

    def __init__(self, listener: SaslListener, before: Login | None = None) -> None:
        self.listener = listener
        self.before = before
        self.phase = Phase.FIRST if before is None else Phase.HANDSHAKE
        self.login: Login | None = None
        """The login once it is complete."""
        self._is_framed = True
        self._mechanism: Mechanism | None = None
        self._server: SaslServer | None = None

    @property
    def takes_raw_tokens(self) -> bool:
        """Whether the next frame is a token without a header."""
        return self.phase is Phase.OTHER_MECHANISM or (self.phase is Phase.TOKEN and not self._is_framed)

    @property
    def mechanism_name(self) -> str | None:
        """The mechanism of the handshake, None before it."""
        return None if self._mechanism is None else self._mechanism.name

    def expects(self, api_key: int) -> bool:
        """Whether the next request may be of this API."""
        return api_key in EXPECTED[self.phase]

    def versions_sent(self) -> None:
        """ApiVersions has been answered, and is not expected again."""
        if self.phase is Phase.FIRST:
            self.phase = Phase.HANDSHAKE

    def handshake(self, mechanism: str, *, is_framed: bool) -> bool:
        """Takes the mechanism that the client chooses. Returns False if the listener does not have it: the login has
        failed. `is_framed`: whether tokens come in SaslAuthenticate requests.
        """
        found = self.listener.mechanisms.get(mechanism)
        if not self.expects(ApiKey.SASL_HANDSHAKE) or found is None:
            self.phase = Phase.FAILED
            return False
        self._is_framed = is_framed
        self._mechanism = found
        if self.before is not None and self.before.mechanism != mechanism:
            self.phase = Phase.OTHER_MECHANISM
        else:
            self._server = found.new_server()
            self.phase = Phase.TOKEN
        return True

    def token(self, token: bytes) -> bytes:
        """Returns the answer to a token; `login` is set if it was the last one. Raises AuthenticationFailed."""
        server, mechanism = self._server, self._mechanism
        if self.phase is not Phase.TOKEN or server is None or mechanism is None:
            self.phase = Phase.FAILED
            raise AuthenticationFailed("another mechanism than in the login before", None)
        try:
            answer = server.evaluate(token)
            if server.username is not None:
                self._complete(USER + server.username, mechanism)
        except LoginRefused as refused:
            self.phase = Phase.FAILED
            raise AuthenticationFailed(refused.reason, refused.shown or self._text(mechanism)) from None
        return answer

    def count(self, *, is_successful: bool) -> None:
        """Counts how this login has ended."""
        counts = self.listener.counts
        if self.before is None:
            counts.successful += is_successful
            counts.failed += not is_successful
        else:
            counts.successful_again += is_successful
            counts.failed_again += not is_successful

    def _complete(self, principal: str, mechanism: Mechanism) -> None:
        if self.before is not None and self.before.principal != principal:
            texts = [each.replace(":", ".", 1) for each in (self.before.principal, principal)]
            text = f"Cannot change principals during re-authentication from {texts[0]}: {texts[1]}"
            raise LoginRefused("another user than in the login before", text)
        self.login = Login(principal, mechanism.name, mechanism.session_lifetime_ms)
        self.phase = Phase.COMPLETE

    def _text(self, mechanism: Mechanism) -> str:
        when = "authentication" if self.before is None else "re-authentication"
        return f"Authentication failed during {when} due to invalid credentials with SASL mechanism {mechanism.name}"
