"""What a login does with messages out of order, after a failure, and in another one on the same connection.

The answers to messages in order: tests/broker/handlers/test_sasl_beside_kafka.py.
"""

from __future__ import annotations

import pytest

from odradek.broker.security.authentication_counts import AuthenticationCounts
from odradek.broker.security.sasl.authentication import (
    EXPECTED,
    Authentication,
    AuthenticationFailed,
    Login,
    Phase,
    SaslListener,
)
from odradek.broker.security.sasl.mechanism import Mechanism
from odradek.broker.security.sasl.plain import Passwords, PlainServer
from odradek.broker.security.sasl.scram import SCRAM_SHA_256, ScramServer, Unknown
from odradek.protocol.api_keys import ApiKey
from tests.broker.security.scram_client import ScramClient, credential_of

PASSWORDS = Passwords({"alice": "alice-secret", "bob": "bob-secret"})
CREDENTIALS = {"alice": credential_of("alice-secret")}
GENERIC = "Authentication failed during {} due to invalid credentials with SASL mechanism SCRAM-SHA-256"
ALICE = b"\0alice\0alice-secret"


def scram_server() -> ScramServer:
    return ScramServer(SCRAM_SHA_256, CREDENTIALS.get, Unknown(b"secret"), b"server-nonce")


LISTENER = SaslListener(
    {
        "PLAIN": Mechanism("PLAIN", lambda: PlainServer(PASSWORDS), 60_000),
        "SCRAM-SHA-256": Mechanism("SCRAM-SHA-256", scram_server),
    },
    failure_delay_ms=100,
    longest_message=524_288,
    counts=AuthenticationCounts(),
)


def after_handshake(mechanism: str = "PLAIN", before: Login | None = None, *, is_framed: bool = True) -> Authentication:
    authentication = Authentication(LISTENER, before)
    assert authentication.handshake(mechanism, is_framed=is_framed)
    return authentication


def expected(authentication: Authentication) -> set[int]:
    return {key for key in ApiKey if authentication.expects(key)}


@pytest.mark.parametrize("phase", [Phase.OTHER_MECHANISM, Phase.COMPLETE, Phase.FAILED])
def test_nothing_is_expected_at_the_end(phase: Phase) -> None:
    assert not EXPECTED[phase]


def test_a_second_handshake_ends_the_login() -> None:
    authentication = after_handshake()
    assert not authentication.handshake("PLAIN", is_framed=True)
    with pytest.raises(AuthenticationFailed):
        authentication.token(ALICE)
    assert authentication.login is None


def test_a_token_before_the_handshake_ends_the_login() -> None:
    authentication = Authentication(LISTENER)
    with pytest.raises(AuthenticationFailed):
        authentication.token(ALICE)
    assert not authentication.handshake("PLAIN", is_framed=True)


def test_the_versions_of_apis_are_sent_only_before_the_handshake() -> None:
    authentication = after_handshake()
    authentication.versions_sent()
    assert expected(authentication) == {ApiKey.SASL_AUTHENTICATE}


def failure(authentication: Authentication, token: bytes) -> AuthenticationFailed:
    with pytest.raises(AuthenticationFailed) as caught:
        authentication.token(token)
    assert authentication.login is None
    assert authentication.phase is Phase.FAILED
    return caught.value


def test_after_a_failure_the_right_token_is_refused() -> None:
    authentication = after_handshake()
    failure(authentication, b"\0alice\0wrong")
    failure(authentication, ALICE)


def test_after_a_failed_first_message_the_login_does_not_go_on() -> None:
    authentication = after_handshake("SCRAM-SHA-256")
    failure(authentication, b"rubbish")
    failure(authentication, ScramClient("alice", "alice-secret").first)


# Authenticating again

BEFORE = Login("User:alice", "PLAIN", 60_000)


def test_the_first_message_of_another_login_is_the_handshake() -> None:
    assert expected(Authentication(LISTENER, BEFORE)) == {ApiKey.SASL_HANDSHAKE}


def test_another_user_is_refused() -> None:
    shown = failure(after_handshake(before=BEFORE), b"\0bob\0bob-secret").shown
    assert shown == "Cannot change principals during re-authentication from User.alice: User.bob"


def test_another_mechanism_is_refused_at_its_token_without_an_answer() -> None:
    authentication = after_handshake("SCRAM-SHA-256", BEFORE)
    assert authentication.takes_raw_tokens
    assert failure(authentication, ScramClient("alice", "alice-secret").first).shown is None


def test_the_text_of_a_failure_says_that_it_was_another_login() -> None:
    before = Login("User:alice", "SCRAM-SHA-256", 0)
    assert failure(after_handshake("SCRAM-SHA-256", before), b"").shown == GENERIC.format("re-authentication")
