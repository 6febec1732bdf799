"""PLAIN: one token with a name and a password. Every failure that a stranger can cause has the same text."""

from __future__ import annotations

import pytest

from odradek.broker.security.sasl.mechanism import LoginRefused
from odradek.broker.security.sasl.plain import OTHER_IDENTITY, WRONG, Passwords, PlainServer

PASSWORDS = Passwords({"alice": "alice-secret", "jürgen": "pässword", "empty": ""})
RIGHT = b"\0alice\0alice-secret"


def login(token: bytes) -> str | None:
    server = PlainServer(PASSWORDS)
    assert server.username is None
    assert server.evaluate(token) == b""
    return server.username


def test_the_right_password_logs_in() -> None:
    assert login(RIGHT) == "alice"


def test_a_client_may_name_itself_as_the_identity() -> None:
    assert login(b"alice" + RIGHT) == "alice"


def test_names_and_passwords_are_utf_8() -> None:
    assert login("\0jürgen\0pässword".encode()) == "jürgen"


@pytest.mark.parametrize(
    "token",
    [
        b"\0alice\0wrong",
        b"\0alice\0alice-secre",
        b"\0alice\0alice-secrets",
        b"\0alice\0",
        b"\0nobody\0alice-secret",
        b"\0\0alice-secret",
        b"\0empty\0",
        b"",
        b"alice",
        b"alice\0alice-secret",
        RIGHT + b"\0",
        RIGHT + b"\0more",
        b"\xff\0alice\xff\0alice-secret",
        b"bob\0alice\0wrong",
        bytes(100_000),
    ],
)
def test_everything_else_is_refused_in_the_same_words(token: bytes) -> None:
    server = PlainServer(PASSWORDS)
    with pytest.raises(LoginRefused) as caught:
        server.evaluate(token)
    assert caught.value.shown == WRONG
    assert server.username is None


@pytest.mark.parametrize("position", range(len(RIGHT)))
def test_one_wrong_byte_anywhere_is_refused(position: int) -> None:
    token = bytearray(RIGHT)
    token[position] ^= 1
    with pytest.raises(LoginRefused):
        PlainServer(PASSWORDS).evaluate(bytes(token))


def test_another_identity_is_named_to_those_who_know_the_password() -> None:
    with pytest.raises(LoginRefused) as caught:
        PlainServer(PASSWORDS).evaluate(b"bob" + RIGHT)
    assert caught.value.shown == OTHER_IDENTITY


def test_nothing_shows_the_passwords() -> None:
    assert repr(PASSWORDS) == "Passwords(3 users)"
    with pytest.raises(LoginRefused) as caught:
        PlainServer(PASSWORDS).evaluate(b"\0alice\0my-typo")
    assert "my-typo" not in f"{caught.value} {caught.value.reason} {caught.value.shown}"
