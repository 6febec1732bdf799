"""The client's side of PLAIN and SCRAM: it fits the server's, and believes no other server."""

from __future__ import annotations

import pytest

from odradek.broker.security.sasl.client import ClientCredentials, NotTheServer, Tokens, tokens
from odradek.broker.security.sasl.mechanism import SaslServer
from odradek.broker.security.sasl.plain import Passwords, PlainServer
from odradek.broker.security.sasl.scram import SCRAM_SHA_256, SCRAM_SHA_512, ScramMechanism, ScramServer, Unknown
from tests.broker.security.scram_client import credential_of

NONCE = b"client-nonce"
USER = "a,b=c"


def login(mechanism: str, password: str = "secret") -> Tokens:
    return tokens(ClientCredentials(mechanism, USER, password), NONCE)


def scram_server(mechanism: ScramMechanism = SCRAM_SHA_256, iterations: int = 4096) -> ScramServer:
    credential = credential_of("secret", mechanism, iterations)
    return ScramServer(mechanism, {USER: credential}.get, Unknown(b"x"), b"server-nonce")


@pytest.mark.parametrize(
    ("mechanism", "server"),
    [
        ("PLAIN", PlainServer(Passwords({USER: "secret"}))),
        ("SCRAM-SHA-256", scram_server()),
        ("SCRAM-SHA-512", scram_server(SCRAM_SHA_512, 16384)),
    ],
)
def test_client_and_server_fit(mechanism: str, server: SaslServer) -> None:
    client = login(mechanism)
    token = next(client)
    while server.username is None:
        answer = server.evaluate(token)
        if server.username is None:
            token = client.send(answer)
    with pytest.raises(StopIteration):
        client.send(answer)


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"e=other-error",
        b"r=client-nonce,s=c2FsdA==,i=4096",
        b"r=other-nonceserver-nonce,s=c2FsdA==,i=4096",
        b"r=client-nonceserver-nonce,s=c2FsdA==,i=4095",
        b"r=client-nonceserver-nonce,s=c2FsdA==,i=999999999",
        b"r=client-nonceserver-nonce,s=c2F,i=4096",
        b"r=client-nonceserver-nonce,i=4096",
    ],
)
def test_another_first_message_of_the_server_is_refused(challenge: bytes) -> None:
    client = login("SCRAM-SHA-256")
    next(client)
    with pytest.raises(NotTheServer):
        client.send(challenge)


def test_a_server_that_does_not_know_the_password_is_not_believed() -> None:
    server, client = scram_server(), login("SCRAM-SHA-256")
    last = server.evaluate(client.send(server.evaluate(next(client))))
    for position in range(len(last)):
        server, client = scram_server(), login("SCRAM-SHA-256")
        wrong = bytearray(server.evaluate(client.send(server.evaluate(next(client)))))
        assert bytes(wrong) == last
        wrong[position] ^= 1
        with pytest.raises(NotTheServer):
            client.send(bytes(wrong))


def test_nothing_shows_the_password() -> None:
    assert "hidden" not in repr(ClientCredentials("PLAIN", "alice", "hidden"))
