"""SCRAM: the messages of RFC 5802 and RFC 7677, and a wrong byte in each of them."""

from __future__ import annotations

import base64
import random
import re
import tracemalloc
from typing import NamedTuple

import pytest

from odradek.broker.security.sasl.mechanism import LoginRefused
from odradek.broker.security.sasl.scram import (
    LONGEST_MESSAGE,
    MECHANISMS,
    OTHER_IDENTITY,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ScramCredential,
    ScramMechanism,
    ScramServer,
    Unknown,
    new_nonce,
    new_salt,
    parse_credential,
)
from tests.broker.security.scram_client import ScramClient, credential_of

UNKNOWN = Unknown(b"a secret of this broker")
SCRAM_SHA_1 = ScramMechanism("SCRAM-SHA-1", 0, "sha1", 20)
"""The mechanism of RFC 5802's example. Brokers do not have it."""


class Example(NamedTuple):
    """An exchange of an RFC: the user is `user`, the password `pencil`."""

    mechanism: ScramMechanism
    client_nonce: bytes
    nonce: bytes
    salt: str
    proof: bytes
    signature: bytes


EXAMPLES = [
    Example(
        SCRAM_SHA_1,
        b"fyko+d2lbbFgONRv9qkxdawL",
        b"3rfcNHYJY1ZVvWVs7j",
        "QSXCR+Q6sek8bf92",
        b"v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        b"rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    ),
    Example(
        SCRAM_SHA_256,
        b"rOprNGfwEbeRWgbNEkqO",
        b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        "W22ZaJ0SNY7soEsUEjb6gQ==",
        b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
]


@pytest.mark.parametrize("example", EXAMPLES, ids=["RFC 5802", "RFC 7677"])
def test_the_example_of_the_rfc(example: Example) -> None:
    salt = base64.b64decode(example.salt)
    mechanism = example.mechanism
    credential = mechanism.credential(mechanism.salted_password("pencil", salt, 4096), salt, 4096)
    server = ScramServer(mechanism, {"user": credential}.get, UNKNOWN, example.nonce)
    nonce = example.client_nonce + example.nonce
    assert server.evaluate(b"n,,n=user,r=" + example.client_nonce) == b"r=%b,s=%b,i=4096" % (
        nonce,
        example.salt.encode(),
    )
    assert server.username is None
    assert server.evaluate(b"c=biws,r=%b,p=%b" % (nonce, example.proof)) == b"v=" + example.signature
    assert server.username == "user"


def server_of(users: dict[str, ScramCredential], mechanism: ScramMechanism = SCRAM_SHA_256) -> ScramServer:
    return ScramServer(mechanism, users.get, UNKNOWN, b"server-nonce")


ALICE = {"alice": credential_of("alice-secret"), "a,b=c": credential_of("alice-secret")}


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512], ids=lambda mechanism: mechanism.name)
@pytest.mark.parametrize("user", ["alice", "a,b=c"])
def test_both_sides_prove_that_they_know_the_password(mechanism: ScramMechanism, user: str) -> None:
    server = server_of({user: credential_of("alice-secret", mechanism, 8192)}, mechanism)
    client = ScramClient(user, "alice-secret", mechanism)
    challenge = server.evaluate(client.first)
    assert challenge.endswith(b",i=8192")
    assert server.evaluate(client.final(challenge)) == client.signature
    assert server.username == user


def test_a_client_may_name_itself_as_the_identity() -> None:
    server = server_of(ALICE)
    client = ScramClient("alice", "alice-secret", header=b"n,a=alice,")
    assert server.evaluate(client.final(server.evaluate(client.first))) == client.signature


def test_a_header_that_the_last_message_does_not_repeat_is_refused() -> None:
    server = server_of(ALICE)
    client = ScramClient("alice", "alice-secret")
    challenge = server.evaluate(b"n,a=alice" + client.first.removeprefix(b"n,"))
    with pytest.raises(LoginRefused, match="channel"):
        server.evaluate(client.final(challenge))


def test_a_proof_for_another_nonce_is_refused() -> None:
    server = server_of(ALICE)
    client = ScramClient("alice", "alice-secret")
    challenge = server.evaluate(client.first)
    with pytest.raises(LoginRefused, match="nonce"):
        server.evaluate(client.final(challenge, b"client-nonceother-nonce"))


@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_another_identity_is_refused_whether_or_not_the_user_exists(user: str) -> None:
    with pytest.raises(LoginRefused) as caught:
        server_of(ALICE).evaluate(f"n,a=bob,n={user},r=nonce".encode())
    assert caught.value.shown == OTHER_IDENTITY


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"alice",
        b"y,,n=alice,r=nonce",
        b"p=tls-unique,,n=alice,r=nonce",
        b"n,,n=alice",
        b"n,,n=alice,r=",
        b"n,,n=,r=nonce",
        b"n,,m=x,n=alice,r=nonce",
        b"n,,n=al=ice,r=nonce",
        b"n,,n=alice,r=no nce",
        b"n,,n=alice,r=nonce,",
        b"n,,n=alice,r=nonce,x",
        b"n,,n=alice,r=nonce\0",
        b"n,,n=alice,r=nonce\n",
        "n,,n=jürgen,r=nonce".encode(),
        b"n,,n=alice,r=nonce,tokenauth=true",
        b"n,,n=" + b"=" * 100_000 + b",r=nonce",
        b"n,,n=alice,r=" + b"," * 100_000,
    ],
)
def test_another_first_message_is_refused(first: bytes) -> None:
    with pytest.raises(LoginRefused) as caught:
        server_of(ALICE).evaluate(first)
    assert caught.value.shown is None


LARGE = {
    "name": b"n,,n=" + b"a" * 500_000 + b",r=nonce",
    "escaped name": b"n,,n=" + b"=2C" * 160_000 + b",r=nonce",
    "nonce": b"n,,n=alice,r=" + b"x" * 500_000,
    "extensions": b"n,,n=alice,r=nonce" + b",a=b" * 120_000,
    "last extensions": b"c=biws,r=nonceserver-nonce" + b",a=b" * 120_000,
    "proof": b"c=biws,r=nonceserver-nonce,p=" + b"abcd" * 120_000,
}


@pytest.mark.parametrize("token", LARGE.values(), ids=LARGE)
def test_a_large_message_is_refused_and_takes_no_more_memory_than_itself(token: bytes) -> None:
    server = server_of(ALICE)
    if token.startswith(b"c="):
        server.evaluate(b"n,,n=alice,r=nonce")
    tracemalloc.start()
    try:
        with pytest.raises(LoginRefused):
            server.evaluate(token)
        assert tracemalloc.get_traced_memory()[1] < len(token)
    finally:
        tracemalloc.stop()


def test_the_longest_name_fits_into_a_message() -> None:
    name = "," * 1024
    server = server_of({name: credential_of("alice-secret")})
    escaped = b"=2C" * 1024
    client = ScramClient(name, "alice-secret", nonce="x" * 500, header=b"n,a=" + escaped + b",")
    assert len(client.first) < LONGEST_MESSAGE

    server.evaluate(client.final(server.evaluate(client.first)))
    assert server.username == name


def test_extensions_are_ignored() -> None:
    server = server_of(ALICE)
    client = ScramClient("alice", "alice-secret", nonce="nonce,extension=value,tokenauth=false")
    challenge = server.evaluate(client.first)
    assert challenge.startswith(b"r=nonceserver-nonce,")
    assert server.evaluate(client.final(challenge)) == client.signature


def test_one_wrong_byte_in_either_message_is_refused() -> None:
    client = ScramClient("alice", "alice-secret")
    for position in range(len(client.first)):
        first = bytearray(client.first)
        first[position] ^= 1
        server = server_of(ALICE)
        with pytest.raises(LoginRefused):
            server.evaluate(client.final(server.evaluate(bytes(first))))
        assert server.username is None
    final = client.final(server_of(ALICE).evaluate(client.first))
    for position in range(len(final)):
        wrong = bytearray(final)
        wrong[position] ^= 1
        server = server_of(ALICE)
        server.evaluate(client.first)
        with pytest.raises(LoginRefused):
            server.evaluate(bytes(wrong))
        assert server.username is None


def test_a_cut_last_message_is_refused() -> None:
    client = ScramClient("alice", "alice-secret")
    final = client.final(server_of(ALICE).evaluate(client.first))
    for end in range(len(final)):
        server = server_of(ALICE)
        server.evaluate(client.first)
        with pytest.raises(LoginRefused):
            server.evaluate(final[:end])


def refusal_of(server: ScramServer, client: ScramClient) -> tuple[bytes, LoginRefused]:
    challenge = server.evaluate(client.first)
    with pytest.raises(LoginRefused) as caught:
        server.evaluate(client.final(challenge))
    return challenge, caught.value


def test_an_unknown_user_is_refused_as_a_wrong_password_is() -> None:
    challenge, refused = refusal_of(server_of(ALICE), ScramClient("alice", "wrong"))
    unknown_challenge, unknown = refusal_of(server_of(ALICE), ScramClient("nobody", "alice-secret"))
    assert (unknown.reason, unknown.shown) == (refused.reason, refused.shown)
    form = rb"r=client-nonceserver-nonce,s=[A-Za-z0-9+/]+=*,i=4096"
    assert re.fullmatch(form, challenge)
    assert re.fullmatch(form, unknown_challenge)


def test_the_salt_of_an_unknown_user_is_the_same_each_time_and_different_for_each_name_and_mechanism() -> None:
    again = [refusal_of(server_of({}), ScramClient("nobody", "x"))[0] for _ in range(2)]
    assert again[0] == again[1]
    other = refusal_of(server_of({}), ScramClient("somebody", "x"))[0]
    sha_512 = refusal_of(server_of({}, SCRAM_SHA_512), ScramClient("nobody", "x", SCRAM_SHA_512))[0]
    assert len({again[0], other, sha_512}) == 3
    assert UNKNOWN.credential(SCRAM_SHA_256, "nobody") != Unknown(b"other").credential(SCRAM_SHA_256, "nobody")


def test_a_stored_credential_with_too_few_iterations_is_not_used() -> None:
    weak = credential_of("alice-secret", iterations=4095)
    with pytest.raises(LoginRefused, match="4096"):
        server_of({"alice": weak}).evaluate(ScramClient("alice", "alice-secret").first)


def test_salts_and_nonces_are_random_and_printable() -> None:
    source = random.Random(7)
    salts = {new_salt(source) for _ in range(50)}
    nonces = {new_nonce(source) for _ in range(50)}
    assert len(salts) == len(nonces) == 50
    assert all(re.fullmatch(rb"[0-9a-z]{20,26}", salt) for salt in salts)
    assert all(re.fullmatch(rb"[\x21-\x2b\x2d-\x7e]{32}", nonce) for nonce in nonces)


# Stored credentials

STORED = (
    "salt=c2FsdC1zYWx0LXNhbHQ=,stored_key=6ct9Uk0KN7n1jfXaUmgZzB35xmo8/+5PTPJQJlTypsA=,"
    "server_key=0ZBaoZOkXE9oO7v6B9O9LcsYDbYk8rLbc53xs81y4Bo=,iterations=4096"
)
"""As Kafka 3.9.1 has stored it (tests/vectors/zookeeper/used.jsonl)."""


def test_a_credential_is_read_and_written_as_kafka_stores_it() -> None:
    credential = parse_credential(STORED)
    assert (credential.salt, credential.iterations) == (b"salt-salt-salt", 4096)
    assert credential.text() == STORED


@pytest.mark.parametrize(
    "text",
    [
        "",
        "salt",
        STORED.replace("salt=", "sault="),
        STORED.replace(",iterations=4096", ""),
        STORED + ",more=1",
        STORED.replace("4096", "many"),
        STORED.replace("4096", "-1"),
        STORED.replace("c2Fs", "c2F"),
        STORED.replace("c2Fs", "c2F\xfc"),
        STORED.replace("c2Fs", "c2F "),
    ],
)
def test_a_damaged_credential_is_an_error_that_shows_nothing_of_it(text: str) -> None:
    with pytest.raises(ValueError, match="credential of SCRAM") as caught:
        parse_credential(text)
    assert not re.search("6ct9|0ZBa|c2F", str(caught.value))


def test_nothing_shows_the_keys() -> None:
    assert repr(parse_credential(STORED)) == "ScramCredential(iterations=4096)"


def test_the_mechanisms_are_those_of_kafka() -> None:
    assert {name: each.number for name, each in MECHANISMS.items()} == {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
