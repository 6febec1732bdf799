"""Credentials of users in the metadata store: as Kafka writes them, and known to every broker."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from odradek.broker.cluster.first_credentials import add_first_credentials, parse_first_credentials
from odradek.broker.cluster.user_credentials import user_of, user_path
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import MetadataStoreError
from odradek.broker.security.sasl.scram import MECHANISMS, ScramCredential
from odradek.broker.settings.config import ConfigError
from tests.broker.cluster.configs_harness import SingleNode, to
from tests.broker.cluster.test_dynamic_configs import TwoBrokers
from tests.broker.security.scram_client import credential_of
from tests.memory_files import ForgetfulFiles

VECTORS = Path(__file__).parents[2] / "vectors" / "zookeeper"
SHA_256 = "SCRAM-SHA-256"
CREDENTIAL = credential_of("alice-secret")
SCRAM = {
    "listeners": "PLAINTEXT://:9092,OUTSIDE://:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
}
STORED = {SHA_256: CREDENTIAL.text()}


@pytest.fixture
async def brokers() -> AsyncIterator[TwoBrokers]:
    both = await TwoBrokers(SCRAM).start()
    yield both
    await both.settle()
    await both.store.close()


def kafkas_entry(path: str) -> str:
    lines = (VECTORS / "used.jsonl").read_text().splitlines()
    return str(next(entry["text"] for entry in map(json.loads, lines) if entry["path"] == path))


async def test_credentials_are_stored_byte_for_byte_as_kafka_stores_them() -> None:
    node = await SingleNode(SCRAM).start()
    text = kafkas_entry("/config/users/alice")
    await node.configs.alter_user("alice", to(json.loads(text)["config"]))
    assert (await node.store.get("/config/users/alice")).data == text.encode()
    credential = node.configs.users.credential(SHA_256, "alice")
    assert credential is not None
    assert (credential.salt, credential.iterations) == (b"salt-salt-salt", 4096)


async def test_a_change_is_logged_without_its_keys() -> None:
    node = await SingleNode(SCRAM).start()
    with capture_logs() as lines:
        await node.configs.alter_user("alice", to(STORED))
    assert [(line["user"], line["mechanisms"]) for line in lines] == [("alice", [SHA_256])]
    assert "stored_key" not in str(lines)


async def test_a_restarted_broker_knows_them() -> None:
    node = await SingleNode(SCRAM).start()
    await node.configs.alter_user("alice", to(STORED))
    node = await node.again()
    assert node.configs.users.credential(SHA_256, "alice") == CREDENTIAL


async def test_a_broker_knows_the_change_of_another_by_its_notice(brokers: TwoBrokers) -> None:
    await brokers.one.configs.alter_user("alice", to(STORED))
    assert brokers.one.configs.users.credential(SHA_256, "alice") == CREDENTIAL
    await brokers.settle()
    assert brokers.two.configs.users.credential(SHA_256, "alice") == CREDENTIAL
    await brokers.two.configs.alter_user("alice", to({}))
    await brokers.settle()
    assert brokers.one.configs.users.credential(SHA_256, "alice") is None


async def test_the_notice_is_the_one_of_kafka(brokers: TwoBrokers) -> None:
    await brokers.one.configs.alter_user("alice", to(STORED))
    (name,) = await brokers.store.children(znodes.CONFIG_CHANGES)
    entry = await brokers.store.get(f"{znodes.CONFIG_CHANGES}/{name}")
    assert entry.data == kafkas_entry("/config/changes/config_change_0000000004").encode()


@pytest.mark.parametrize(
    ("user", "name"),
    [
        ("a b+c/d*e~f", "a%20b%2Bc%2Fd%2Ae%7Ef"),
        ("j\xfcrgen", "j%C3%BCrgen"),
        ("<default>", "%3Cdefault%3E"),
        (".-_", ".-_"),
    ],
)
async def test_a_name_is_written_as_kafka_writes_it(user: str, name: str) -> None:
    node = await SingleNode(SCRAM).start()
    await node.configs.alter_user(user, to(STORED))
    assert await node.store.children(znodes.USER_CONFIGS) == [name]
    node = await node.again()
    assert await node.configs.users.names() == [user]
    assert node.configs.users.credential(SHA_256, user) == CREDENTIAL


async def test_quotas_beside_and_below_a_user_do_not_matter() -> None:
    node = await SingleNode(SCRAM).start()
    await node.store.create("/config/users/alice")
    await node.store.create("/config/users/alice/clients")
    await node.store.create("/config/users/<default>", znodes.encode_config({"producer_byte_rate": "1024"}))
    await node.configs.users.read_all()
    assert [user_of(entry) for entry in ("alice", "alice/clients/<default>", "<default>")] == ["alice", None, None]
    assert await node.configs.users.names() == ["alice"]
    assert node.configs.users.credential(SHA_256, "alice") is None
    await node.configs.alter_user("alice", to(STORED))
    assert node.configs.users.credential(SHA_256, "alice") == CREDENTIAL


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", znodes.encode_config({SHA_256: "salt=hidden"}), znodes.encode_config({SHA_256: "hidden"})],
)
async def test_what_cannot_be_read_is_logged_without_its_value_and_is_no_credential(data: bytes) -> None:
    node = await SingleNode(SCRAM).start()
    await node.store.create(user_path("alice"), data)
    await node.configs.alter_user("bob", to(STORED))
    with capture_logs() as lines:
        await node.configs.users.read_all()
    assert node.configs.users.credential(SHA_256, "alice") is None
    assert node.configs.users.credential(SHA_256, "bob") == CREDENTIAL
    assert [line["user"] for line in lines if line["log_level"] == "error"] == ["alice"]
    assert "hidden" not in str(lines)


async def test_without_scram_no_credentials_are_read() -> None:
    node = await SingleNode().start()
    await node.configs.alter_user("alice", to(STORED))
    node = await node.again()
    assert node.configs.users.credential(SHA_256, "alice") is None


async def test_more_users_than_one_read_takes_are_known() -> None:
    node = await SingleNode(SCRAM).start()
    for number in range(250):
        await node.configs.alter_user(f"user-{number}", to(STORED))
    node = await node.again()
    assert all(node.configs.users.credential(SHA_256, f"user-{number}") == CREDENTIAL for number in range(250))


# The first credentials

FILE = "/etc/credentials"


async def add(node: SingleNode, text: str, seed: int = 1) -> None:
    files = ForgetfulFiles()
    files.make_directories("/etc")
    files.replace_file(FILE, text.encode())
    await add_first_credentials(FILE, files, node.configs, random.Random(seed))


def fits(credential: ScramCredential | None, mechanism: str, password: str, iterations: int) -> bool:
    assert credential is not None
    own = MECHANISMS[mechanism]
    salted = own.salted_password(password, credential.salt, iterations)
    return credential == own.credential(salted, credential.salt, iterations)


async def test_a_start_adds_the_credentials_of_the_file() -> None:
    node = await SingleNode(SCRAM).start()
    await add(
        node,
        "# first users\n\n"
        "SCRAM-SHA-256=[name=alice,password=a,b]c=d]\n"
        "SCRAM-SHA-512=[name=alice,iterations=8192,password=other]\n",
    )
    users = node.configs.users
    assert fits(users.credential("SCRAM-SHA-256", "alice"), "SCRAM-SHA-256", "a,b]c=d", 4096)
    assert fits(users.credential("SCRAM-SHA-512", "alice"), "SCRAM-SHA-512", "other", 8192)


async def test_a_later_start_leaves_the_credentials_that_users_have() -> None:
    node = await SingleNode(SCRAM).start()
    await node.configs.alter_user("alice", to(STORED))
    await add(node, "SCRAM-SHA-256=[name=alice,password=first]\nSCRAM-SHA-512=[name=alice,password=first]")
    assert node.configs.users.credential(SHA_256, "alice") == CREDENTIAL
    assert fits(node.configs.users.credential("SCRAM-SHA-512", "alice"), "SCRAM-SHA-512", "first", 4096)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("hidden", "is expected"),
        ("SCRAM-SHA-256=[name=alice]", "is expected"),
        ("SCRAM-SHA-256=[name=alice,password=]", "is expected"),
        ("SCRAM-SHA-256=[name=,password=hidden]", "is expected"),
        ("SCRAM-SHA-256=[name=alice,password=hidden", "is expected"),
        ("SCRAM-SHA-1=[name=alice,password=hidden]", "is not one of SCRAM-SHA-256, SCRAM-SHA-512"),
        ("SCRAM-SHA-256=[name=alice,iterations=4095,password=hidden]", "not between 4096 and 16384"),
        ("SCRAM-SHA-256=[name=alice,iterations=16385,password=hidden]", "not between 4096 and 16384"),
    ],
)
def test_a_line_that_cannot_be_used_is_named_and_not_shown(line: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_first_credentials(f"# comment\n{line}\n", FILE)
    assert str(caught.value).startswith(f"odradek.scram.credentials.file: {FILE}:2: ")
    assert problem in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_nothing_shows_the_passwords_of_the_file() -> None:
    parsed = parse_first_credentials("SCRAM-SHA-256=[name=alice,password=hidden]", FILE)
    assert "hidden" not in repr(parsed)


async def test_a_missing_file_is_named() -> None:
    node = await SingleNode(SCRAM).start()
    with pytest.raises(ConfigError, match=r"odradek\.scram\.credentials\.file=/no/such: "):
        await add_first_credentials("/no/such", ForgetfulFiles(), node.configs, random.Random(1))


async def test_a_store_that_takes_no_changes_keeps_the_broker_from_starting() -> None:
    node = await SingleNode(SCRAM).start()
    await node.store.close()
    with pytest.raises(MetadataStoreError, match="not stored"):
        await add(node, "SCRAM-SHA-256=[name=alice,password=first]")
