"""DIGEST-MD5 as in RFC 2831, and what a server may not say."""

from __future__ import annotations

import random
import re

import pytest

from odradek.broker.security.digest_md5 import LONGEST_CHALLENGE, BadChallenge, Credentials, DigestMd5Client
from tests.zookeeper.sasl import DigestMd5Server, LoginFailed

CHALLENGE = 'realm="zk-sasl-md5",nonce="n",charset=utf-8,algorithm=md5-sess'


class RfcNonce(random.Random):
    """Draws the nonce of the example of RFC 2831, whose text is not hexadecimal."""

    def randbytes(self, n: int) -> bytes:
        return Hexless()


class Hexless(bytes):
    def hex(self, *_: object) -> str:
        return "OA6MHXh6VqTrRk"


def client(username: str = "kafka", password: str = "secret", seed: int = 1) -> DigestMd5Client:
    return DigestMd5Client(Credentials(username, password), "zookeeper", "zk-sasl-md5", random.Random(seed))


def test_the_example_of_the_rfc() -> None:
    ours = DigestMd5Client(Credentials("chris", "secret"), "imap", "elwood.innosoft.com", RfcNonce())
    response = ours.respond(
        b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'
    )
    assert response == (
        b'charset=utf-8,username="chris",realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",nc=00000001,'
        b'cnonce="OA6MHXh6VqTrRk",digest-uri="imap/elwood.innosoft.com",'
        b"response=d388dad90d4bbd760a152321f2143af7,qop=auth"
    )
    assert ours.respond(b"rspauth=ea40f60335c427b5527b84dbabcdfffd") is None


@pytest.mark.parametrize(("username", "password"), [("kafka", "secret"), ('a "b\\', 'c\\"d, e='), ("müller", "grün")])
def test_a_server_accepts_the_login(username: str, password: str) -> None:
    server, ours = DigestMd5Server({username: password}), client(username, password)
    response = ours.respond(server.evaluate(b""))
    assert response is not None
    assert ours.respond(server.evaluate(response)) is None
    assert server.user == username


def test_a_wrong_password_is_not_accepted() -> None:
    server, ours = DigestMd5Server({"kafka": "secret"}), client(password="guess")
    response = ours.respond(server.evaluate(b""))
    assert response is not None
    assert b"guess" not in response
    with pytest.raises(LoginFailed):
        server.evaluate(response)


def test_each_login_has_its_own_nonce() -> None:
    nonces = {
        re.findall(rb'cnonce="(\w+)"', client(seed=seed).respond(CHALLENGE.encode()) or b"")[0] for seed in (1, 2)
    }
    assert len(nonces) == 2


@pytest.mark.parametrize("proof", [b"", b"rspauth=", b"rspauth=" + b"0" * 32, b"rspauth=\xc3\xbc", b"other=1"])
def test_a_server_that_does_not_know_the_password_is_found_out(proof: bytes) -> None:
    ours = client()
    ours.respond(CHALLENGE.encode())
    with pytest.raises(BadChallenge):
        ours.respond(proof)


@pytest.mark.parametrize(
    ("challenge", "problem"),
    [
        ("", "the server has no SASL login"),
        ('realm="r",algorithm=md5-sess', "no nonce"),
        ('nonce="",algorithm=md5-sess', "no nonce"),
        ('nonce="n"', "algorithm is '', not md5-sess"),
        ('nonce="n",algorithm=sha-256', "algorithm is 'sha-256'"),
        ('nonce="n",algorithm=md5-sess,qop="auth-int,auth-conf"', "protection auth-int, auth-conf, not auth"),
        ('nonce="n', "cannot be read at character 0"),
        ('realm="r" nonce="n"', "cannot be read at character 0"),
        ('realm="r",=', "cannot be read at character 10"),
        ("x" * (LONGEST_CHALLENGE + 1), "has 2049 bytes"),
    ],
)
def test_a_challenge_that_cannot_be_answered_is_refused(challenge: str, problem: str) -> None:
    with pytest.raises(BadChallenge, match=problem):
        client().respond(challenge.encode())


def test_a_challenge_that_is_no_text_is_refused() -> None:
    with pytest.raises(BadChallenge, match="not UTF-8"):
        client().respond(b'nonce="\xff"')


@pytest.mark.parametrize("qop", ['"auth"', '"auth-int, auth"', "auth", '""auth'])
def test_auth_is_chosen_of_several(qop: str) -> None:
    challenge = f'nonce="n" , algorithm = md5-sess,qop={qop},realm=first,realm="second"'
    if qop == '""auth':
        with pytest.raises(BadChallenge):
            client().respond(challenge.encode())
        return
    response = client().respond(challenge.encode())
    assert response is not None
    assert response.endswith(b"qop=auth")
    assert b'realm="first"' in response


def test_credentials_do_not_show_the_password() -> None:
    credentials = Credentials("kafka", "secret")
    assert "secret" not in f"{credentials!r} {credentials}"
