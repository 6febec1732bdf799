"""What clients send to a listener with SASL, and what they get: of Apache Kafka and of Odradek.

A scenario speaks on a new connection and notes each answer; `closed` is the end of the connection. What is random is
not noted. The broker has SETTINGS, and the user alice for all mechanisms.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from odradek.broker.security.sasl.scram import MECHANISMS
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.registry import request_class
from odradek.protocol.messages.scram import AlterUserScramCredentialsRequest, DescribeUserScramCredentialsRequest
from odradek.protocol.schema import Message
from tests.broker.security.scram_client import SALT, ScramClient
from tests.wire.frames import framed, request_bytes
from tests.wire.raw_client import RawClient, raw_client

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PREFIX = "listener.name.sasl_plaintext."
SETTINGS = {
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    f"{PREFIX}plain.sasl.jaas.config": (
        f'{PLAIN_MODULE} required username="admin" password="admin-secret" '
        'user_admin="admin-secret" user_alice="alice-secret" user_a="b";'
    ),
    f"{PREFIX}scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    f"{PREFIX}scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    f"{PREFIX}scram-sha-512.connections.max.reauth.ms": "3600000",
    "connection.failed.authentication.delay.ms": "1",
}
ALICE = b"\0alice\0alice-secret"
LONGEST = 524_288
Notes = list[Any]
Scenario = Callable[[RawClient, Notes], Awaitable[None]]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


async def outcomes_of(port: int) -> dict[str, Notes]:
    """Plays all scenarios against the broker at a port."""
    async with raw_client(port) as client:
        await client.handshake()
        await client.token(ALICE)
        await add_alice(client)
    found: dict[str, Notes] = {}
    for name, play in SCENARIOS.items():
        async with raw_client(port) as client:
            found[name] = []
            await play(client, found[name])
    return found


async def add_alice(client: RawClient) -> None:
    """Gives alice her credentials for SCRAM."""
    upsertions = [upsertion("alice", mechanism.number) for mechanism in MECHANISMS.values()]
    results = (await client.call(AlterUserScramCredentialsRequest(upsertions=upsertions), 0)).results
    assert [result.error_code for result in results] == [0]


def upsertion(user: str, mechanism: int, iterations: int = 4096) -> Any:
    names = {each.number: each for each in MECHANISMS.values()}
    salted = names.get(mechanism, names[1]).salted_password(f"{user}-secret", SALT, max(iterations, 1))
    return AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=SALT, salted_password=salted
    )


def note(notes: Notes, response: Any) -> None:
    """Notes the fields of a response to a login."""
    if response is None:
        notes.append("closed")
        return
    noted = {"error_code": response.error_code}
    if hasattr(response, "mechanisms"):
        noted["mechanisms"] = sorted(response.mechanisms)
    for name in ("error_message", "session_lifetime_ms"):
        if hasattr(response, name):
            noted[name] = getattr(response, name)
    notes.append(noted)


async def end(client: RawClient, notes: Notes) -> None:
    notes.append("closed" if await client.frame() is None else "answered")


async def raw(client: RawClient, notes: Notes, token: bytes) -> None:
    client.send(framed(token))
    frame = await client.frame()
    notes.append("closed" if frame is None else frame.hex())


async def metadata(client: RawClient, notes: Notes) -> None:
    notes.append("closed" if await client.call(MetadataRequest(topics=[]), 12) is None else "let in")


async def other(client: RawClient, notes: Notes, request: Message, version: int) -> None:
    """Sends a request of another API; notes whether there is an answer."""
    client.send(request_bytes(request, version))
    notes.append("closed" if await client.frame() is None else "answered")


def plain(version: int) -> None:
    async def play(client: RawClient, notes: Notes) -> None:
        note(notes, await client.handshake())
        note(notes, await client.token(ALICE, version))
        await metadata(client, notes)

    SCENARIOS[f"plain_{version}"] = play


def wrong_plain(name: str, token: bytes) -> None:
    async def play(client: RawClient, notes: Notes) -> None:
        await client.handshake()
        note(notes, await client.token(token))
        await end(client, notes)

    SCENARIOS[f"plain_{name}"] = play

    async def play_raw(client: RawClient, notes: Notes) -> None:
        await client.handshake(version=0)
        await raw(client, notes, token)

    SCENARIOS[f"raw_plain_{name}"] = play_raw


for _version in range(3):
    plain(_version)
for _name, _token in {
    "wrong_password": b"\0alice\0wrong",
    "unknown_user": b"\0nobody\0alice-secret",
    "rubbish": b"rubbish",
    "empty": b"",
    "without_user": b"\0\0alice-secret",
    "without_password": b"\0alice\0",
    "another_identity": b"bob\0alice\0alice-secret",
    "a_fourth_part": ALICE + b"\0",
}.items():
    wrong_plain(_name, _token)


@scenario
async def raw_plain_of_four_bytes(client: RawClient, notes: Notes) -> None:
    note(notes, await client.handshake(version=0))
    await raw(client, notes, b"\0a\0b")
    await metadata(client, notes)


@scenario
async def own_identity(client: RawClient, notes: Notes) -> None:
    await client.handshake()
    note(notes, await client.token(b"alice" + ALICE))


@scenario
async def unknown_mechanism_0(client: RawClient, notes: Notes) -> None:
    note(notes, await client.handshake("GSSAPI", 0))
    await end(client, notes)


@scenario
async def unknown_mechanism_1(client: RawClient, notes: Notes) -> None:
    note(notes, await client.handshake("plain", 1))
    await end(client, notes)


@scenario
async def api_versions_twice(client: RawClient, notes: Notes) -> None:
    await other(client, notes, ApiVersionsRequest(), 0)
    await other(client, notes, ApiVersionsRequest(), 0)


@scenario
async def api_versions_until_they_are_right(client: RawClient, notes: Notes) -> None:
    await raw(client, notes, bytes.fromhex("0012 0063 00000007 0001 63 00"))
    notes[-1] = notes[-1][:12]
    note(notes, await client.call(ApiVersionsRequest(client_software_name="%", client_software_version="1"), 3))
    await other(client, notes, ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
    note(notes, await client.handshake())


@scenario
async def api_versions_after_the_handshake(client: RawClient, notes: Notes) -> None:
    await client.handshake()
    await other(client, notes, ApiVersionsRequest(), 0)


@scenario
async def another_api_first(client: RawClient, notes: Notes) -> None:
    await other(client, notes, MetadataRequest(topics=[]), 12)


@scenario
async def another_api_after_api_versions(client: RawClient, notes: Notes) -> None:
    await other(client, notes, ApiVersionsRequest(), 0)
    await other(client, notes, MetadataRequest(topics=[]), 12)


@scenario
async def another_api_after_the_handshake(client: RawClient, notes: Notes) -> None:
    await client.handshake()
    await other(client, notes, MetadataRequest(topics=[]), 12)
    await end(client, notes)


@scenario
async def a_token_first(client: RawClient, notes: Notes) -> None:
    note(notes, await client.token(ALICE))


@scenario
async def two_handshakes(client: RawClient, notes: Notes) -> None:
    note(notes, await client.handshake())
    await other(client, notes, request_class(ApiKey.SASL_HANDSHAKE)(mechanism="PLAIN"), 1)


@scenario
async def an_unknown_version_of_the_handshake(client: RawClient, notes: Notes) -> None:
    await raw(client, notes, bytes.fromhex("0011 0009 00000007 0001 63 0005") + b"PLAIN")


@scenario
async def a_page_of_a_browser(client: RawClient, notes: Notes) -> None:
    client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await end(client, notes)


@scenario
async def a_frame_that_is_too_long(client: RawClient, notes: Notes) -> None:
    client.send((LONGEST + 1).to_bytes(4, "big") + bytes(8))
    await end(client, notes)


@scenario
async def a_raw_token_that_is_too_long(client: RawClient, notes: Notes) -> None:
    await client.handshake(version=0)
    client.send((LONGEST + 1).to_bytes(4, "big") + bytes(8))
    await end(client, notes)


@scenario
async def an_empty_frame(client: RawClient, notes: Notes) -> None:
    await raw(client, notes, b"")


@scenario
async def login_messages_after_the_login(client: RawClient, notes: Notes) -> None:
    await client.handshake()
    await client.token(ALICE)
    note(notes, await client.handshake())
    note(notes, await client.token(ALICE))
    await metadata(client, notes)


async def log_in_by_scram(client: RawClient, notes: Notes, scram: ScramClient, mechanism: str) -> None:
    note(notes, await client.handshake(mechanism))
    answer = await client.token(scram.first)
    note(notes, answer)
    if answer is not None and not answer.error_code:
        answer = await client.token(scram.final(answer.auth_bytes))
        note(notes, answer)
        notes.append("proved" if answer.auth_bytes == scram.signature else answer.auth_bytes.hex())


def scram(mechanism: str) -> None:
    async def play(client: RawClient, notes: Notes) -> None:
        await log_in_by_scram(client, notes, ScramClient("alice", "alice-secret", MECHANISMS[mechanism]), mechanism)
        await metadata(client, notes)

    SCENARIOS[mechanism] = play


for _mechanism in MECHANISMS:
    scram(_mechanism)


@scenario
async def scram_with_a_wrong_password(client: RawClient, notes: Notes) -> None:
    await log_in_by_scram(client, notes, ScramClient("alice", "wrong"), "SCRAM-SHA-256")
    await end(client, notes)


@scenario
async def scram_of_an_unknown_user(client: RawClient, notes: Notes) -> None:
    await log_in_by_scram(client, notes, ScramClient("nobody", "alice-secret"), "SCRAM-SHA-256")
    await end(client, notes)


@scenario
async def scram_with_extensions(client: RawClient, notes: Notes) -> None:
    scram = ScramClient("alice", "alice-secret", nonce="nonce,extension=value")
    await log_in_by_scram(client, notes, scram, "SCRAM-SHA-256")


@scenario
async def scram_of_its_own_identity(client: RawClient, notes: Notes) -> None:
    scram = ScramClient("alice", "alice-secret", header=b"n,a=alice,")
    await log_in_by_scram(client, notes, scram, "SCRAM-SHA-256")


def wrong_scram(name: str, first: bytes, *, is_first: bool = True) -> None:
    async def play(client: RawClient, notes: Notes) -> None:
        await client.handshake("SCRAM-SHA-256")
        if not is_first:
            note(notes, await client.token(ScramClient("alice", "alice-secret").first))
        note(notes, await client.token(first))
        await end(client, notes)

    SCENARIOS[f"scram_{name}"] = play


for _name, _token in {
    "rubbish": b"rubbish",
    "empty": b"",
    "another_identity": b"n,a=bob,n=alice,r=nonce",
    "with_channel_binding": b"y,,n=alice,r=nonce",
    "with_a_token": b"n,,n=alice,r=nonce,tokenauth=true",
    "with_a_name_that_is_not_ascii": "n,,n=j\xfcrgen,r=nonce".encode(),
}.items():
    wrong_scram(_name, _token)
wrong_scram("rubbish_at_the_end", b"rubbish", is_first=False)
wrong_scram("with_another_nonce", b"c=biws,r=client-nonce,p=AAAA", is_first=False)


@scenario
async def a_session_is_renewed(client: RawClient, notes: Notes) -> None:
    for _ in range(2):
        login = ScramClient("alice", "alice-secret", MECHANISMS["SCRAM-SHA-512"])
        await log_in_by_scram(client, notes, login, "SCRAM-SHA-512")
        await metadata(client, notes)
    note(notes, await client.handshake("SCRAM-SHA-512"))
    await metadata(client, notes)


@scenario
async def a_session_is_renewed_with_a_wrong_password(client: RawClient, notes: Notes) -> None:
    for password in ("alice-secret", "wrong"):
        login = ScramClient("alice", password, MECHANISMS["SCRAM-SHA-512"])
        await log_in_by_scram(client, notes, login, "SCRAM-SHA-512")
    await end(client, notes)


@scenario
async def a_session_is_renewed_by_another_mechanism(client: RawClient, notes: Notes) -> None:
    login = ScramClient("alice", "alice-secret", MECHANISMS["SCRAM-SHA-512"])
    await log_in_by_scram(client, notes, login, "SCRAM-SHA-512")
    note(notes, await client.handshake("PLAIN"))
    note(notes, await client.token(ALICE))


@scenario
async def another_api_while_a_session_is_renewed(client: RawClient, notes: Notes) -> None:
    login = ScramClient("alice", "alice-secret", MECHANISMS["SCRAM-SHA-512"])
    await log_in_by_scram(client, notes, login, "SCRAM-SHA-512")
    note(notes, await client.handshake("SCRAM-SHA-512"))
    await other(client, notes, MetadataRequest(topics=[]), 12)
    await end(client, notes)


async def credentials(client: RawClient, notes: Notes, *items: Any) -> None:
    deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
    request = AlterUserScramCredentialsRequest(
        deletions=[item for item in items if isinstance(item, deletion)],
        upsertions=[item for item in items if not isinstance(item, deletion)],
    )
    results = (await client.call(request, 0)).results
    notes.append(sorted([one.user, one.error_code, one.error_message] for one in results))


@scenario
async def changes_of_credentials(client: RawClient, notes: Notes) -> None:
    await client.handshake()
    await client.token(ALICE)
    deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
    await credentials(client, notes, upsertion("one", 1), upsertion("one", 2, 8192), upsertion("two", 1))
    await credentials(client, notes, upsertion("", 1), upsertion("x", 1, 4095), upsertion("y", 1, 16385))
    await credentials(client, notes, upsertion("x", 0), upsertion("y", 9), deletion(name="z", mechanism=7))
    await credentials(client, notes, upsertion("x", 1), upsertion("x", 1), deletion(name="", mechanism=1))
    await credentials(client, notes, deletion(name="nobody", mechanism=1), deletion(name="two", mechanism=2))
    await credentials(client, notes, deletion(name="one", mechanism=1), upsertion("two", 1, 5000))
    name = DescribeUserScramCredentialsRequest.UserName
    for users in (None, ["two", "one", "two"], ["", "nobody", "one"]):
        asked = None if users is None else [name(name=user) for user in users]
        response = await client.call(DescribeUserScramCredentialsRequest(users=asked), 0)
        notes.append([response.error_code, response.error_message])
        notes.append(
            [
                [one.user, one.error_code, one.error_message]
                + [[info.mechanism, info.iterations] for info in one.credential_infos]
                for one in response.results
            ]
        )
