"""Who may log in, by the settings and the JAAS file."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from odradek.broker.sasl_mechanisms import sasl_listeners_of
from odradek.broker.security.authentication_counts import AuthenticationCounts
from odradek.broker.security.sasl.authentication import SaslListener
from odradek.broker.security.sasl.mechanism import LoginRefused
from odradek.broker.settings.config import BrokerConfig, ConfigError
from odradek.broker.start_error import StartError
from odradek.storage.files import OsFiles
from tests.broker.handlers.sasl_broker import PLAIN_MODULE, sasl_broker
from tests.broker.security.scram_client import ScramClient, credential_of

SETTINGS = {
    "listeners": "PLAINTEXT://:9092,OUTSIDE://:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
}
JAAS = "listener.name.outside.plain.sasl.jaas.config"
FILE = "odradek.security.auth.login.config"


def outside(settings: dict[str, str]) -> SaslListener:
    config = BrokerConfig.from_mapping({**SETTINGS, **settings})
    stored = {"carol": {"SCRAM-SHA-256": credential_of("carol-secret")}}
    counts = {listener.name: AuthenticationCounts() for listener in config.listeners}
    listeners = sasl_listeners_of(config, OsFiles(), stored, random.Random(7), counts)
    assert list(listeners) == ["OUTSIDE"]
    return listeners["OUTSIDE"]


def logs_in(listener: SaslListener, user: str, password: str) -> bool:
    try:
        listener.mechanisms["PLAIN"].new_server().evaluate(f"\0{user}\0{password}".encode())
    except LoginRefused:
        return False
    return True


def module(options: str) -> str:
    return f"{PLAIN_MODULE} required {options};"


def test_users_of_plain_are_options_of_the_listeners_login_module() -> None:
    listener = outside({JAAS: module('username="admin" password="x" user_alice="a \\"b\\"" user_bob=plain-word')})
    assert logs_in(listener, "alice", 'a "b"')
    assert logs_in(listener, "bob", "plain-word")
    assert not logs_in(listener, "admin", "x")
    assert not logs_in(listener, "alice", "plain-word")


def test_a_section_of_the_file_counts_without_the_setting(tmp_path: Path) -> None:
    file = tmp_path / "jaas.conf"
    file.write_text(f"KafkaServer {{ other.Module required; {module('user_alice=one')} {module('user_alice=two')} }};")
    listener = outside({FILE: str(file)})
    assert logs_in(listener, "alice", "one")
    assert not logs_in(listener, "alice", "two")


def test_the_section_of_the_listener_comes_first_and_the_setting_before_both(tmp_path: Path) -> None:
    file = tmp_path / "jaas.conf"
    own = f"outside.KafkaServer {{ {module('user_alice=own')} }};"
    file.write_text(f"KafkaServer {{ {module('user_alice=all')} }}; {own}")
    assert logs_in(outside({FILE: str(file)}), "alice", "own")
    assert logs_in(outside({FILE: str(file), JAAS: module("user_alice=set")}), "alice", "set")


def test_scram_has_the_stored_credentials_and_the_lifetime_of_its_mechanism() -> None:
    settings = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.outside.scram-sha-256.connections.max.reauth.ms": "5000",
        "connection.failed.authentication.delay.ms": "7",
    }
    listener = outside(settings)
    mechanism = listener.mechanisms["SCRAM-SHA-256"]
    assert (mechanism.session_lifetime_ms, listener.failure_delay_ms) == (5000, 7)
    client, server = ScramClient("carol", "carol-secret"), mechanism.new_server()
    assert server.evaluate(client.final(server.evaluate(client.first))) == client.signature
    assert server.username == "carol"


def test_two_logins_have_different_nonces() -> None:
    mechanism = outside({"sasl.enabled.mechanisms": "SCRAM-SHA-256"}).mechanisms["SCRAM-SHA-256"]
    first = ScramClient("carol", "carol-secret").first
    assert mechanism.new_server().evaluate(first) != mechanism.new_server().evaluate(first)


@pytest.mark.parametrize(
    ("jaas", "problem"),
    [
        ("hidden", "a flag after"),
        ("a.B required;", f"the login module of PLAIN is {PLAIN_MODULE}"),
        (module("user_alice=hidden") * 2, "nothing may follow"),
        (f"{PLAIN_MODULE} required user_alice=hidden", "an option or ;"),
        (f'{PLAIN_MODULE} required user_alice="hidden', "does not end"),
    ],
)
def test_a_login_module_that_cannot_be_used_is_refused_without_showing_it(jaas: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        outside({JAAS: jaas})
    assert caught.value.name == JAAS
    assert JAAS in str(caught.value)
    assert problem in str(caught.value)
    assert "hidden" not in str(caught.value).replace("a flag after hidden", "")


def test_plain_without_users_from_anywhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=JAAS):
        outside({})
    file = tmp_path / "jaas.conf"
    file.write_text("Client { a.B required; };")
    with pytest.raises(ConfigError, match=r"section outside\.KafkaServer or KafkaServer of"):
        outside({FILE: str(file)})


@pytest.mark.parametrize("content", [None, b"KafkaServer {", b"\xff"])
def test_a_file_that_cannot_be_read_is_named(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "jaas.conf"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=str(file)):
        outside({FILE: str(file)})


async def test_a_broker_does_not_start_with_a_bad_login_module() -> None:
    with pytest.raises(StartError, match="the login module of PLAIN"):
        async with sasl_broker({"listener.name.sasl_plaintext.plain.sasl.jaas.config": "a.B required;"}):
            pass
