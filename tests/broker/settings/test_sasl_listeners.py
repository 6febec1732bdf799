"""The settings of listeners with SASL: what each of them has, and which settings nobody would use."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from odradek.broker.settings.config import BrokerConfig, ConfigError

OUTSIDE = {
    "listeners": "PLAINTEXT://:9092,OUTSIDE://:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
}
PREFIX = "listener.name.outside."


def config(settings: dict[str, str]) -> BrokerConfig:
    return BrokerConfig.from_mapping({**OUTSIDE, **settings})


def refusal(settings: dict[str, str]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_mapping(settings).check_protection()
    assert "hidden" not in str(caught.value)
    return caught.value


def test_a_listener_has_its_own_mechanisms_and_each_its_own_module_and_lifetime() -> None:
    (listener,) = config(
        {
            f"{PREFIX}sasl.enabled.mechanisms": "SCRAM-SHA-512, PLAIN",
            f"{PREFIX}plain.sasl.jaas.config": "a.B required;",
            f"{PREFIX}plain.connections.max.reauth.ms": "1000",
            "connections.max.reauth.ms": "2000",
            "sasl.server.max.receive.size": "1000",
        }
    ).sasl_listeners()
    assert (listener.listener, listener.longest_message) == ("OUTSIDE", 1000)
    assert [tuple(each) for each in listener.mechanisms] == [
        ("SCRAM-SHA-512", f"{PREFIX}scram-sha-512.sasl.jaas.config", None, 2000),
        ("PLAIN", f"{PREFIX}plain.sasl.jaas.config", "a.B required;", 1000),
    ]
    assert "a.B" not in repr(listener)


def test_without_a_listener_that_has_sasl_there_is_none() -> None:
    assert BrokerConfig.from_mapping({}).sasl_listeners() == []


@pytest.mark.parametrize("mechanisms", ["GSSAPI", "PLAIN,OAUTHBEARER", "", "plain", "PLAIN,"])
def test_a_mechanism_that_odradek_does_not_have_is_refused_by_name(mechanisms: str) -> None:
    error = refusal({**OUTSIDE, "sasl.enabled.mechanisms": mechanisms})
    assert error.name == "sasl.enabled.mechanisms"
    assert "OUTSIDE" in str(error)
    assert all(name in str(error) for name in mechanisms.split(",") if name != "PLAIN")


def test_kafkas_default_is_gssapi_so_the_mechanisms_must_be_set() -> None:
    settings = dict(OUTSIDE)
    del settings["sasl.enabled.mechanisms"]
    assert "GSSAPI is not supported" in str(refusal(settings))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.jaas.config", "hidden"),
        (f"{PREFIX}sasl.jaas.config", "hidden"),
        (f"{PREFIX}scram-sha-256.sasl.jaas.config", "hidden"),
        (f"{PREFIX}gssapi.sasl.jaas.config", "hidden"),
        (f"{PREFIX}gssapi.connections.max.reauth.ms", "5"),
        (f"{PREFIX}plain.sasl.enabled.mechanisms", "PLAIN"),
        ("listener.name.plaintext.plain.sasl.jaas.config", "hidden"),
        ("listener.name.plaintext.sasl.enabled.mechanisms", "PLAIN"),
        ("listener.name.outsid.connections.max.reauth.ms", "5"),
        ("sasl.mechanism.inter.broker.protocol", "PLAIN"),
        ("odradek.scram.credentials.file", "/credentials"),
    ],
)
def test_a_setting_that_no_listener_uses_is_refused_by_name(name: str, value: str) -> None:
    assert refusal({**OUTSIDE, name: value}).name == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.enabled.mechanisms", "PLAIN"),
        ("connections.max.reauth.ms", "5"),
        ("sasl.server.max.receive.size", "5"),
        ("sasl.mechanism.inter.broker.protocol", "PLAIN"),
        ("odradek.scram.credentials.file", "/credentials"),
        ("odradek.security.auth.login.config", "/jaas.conf"),
    ],
)
def test_without_a_listener_that_has_sasl_settings_of_sasl_are_refused(name: str, value: str) -> None:
    error = refusal({name: value})
    assert error.name == name
    assert name in str(error)


def test_the_mechanism_between_brokers_must_be_enabled_by_their_listener() -> None:
    settings = {**OUTSIDE, "inter.broker.listener.name": "OUTSIDE"}
    BrokerConfig.from_mapping({**settings, "sasl.mechanism.inter.broker.protocol": "PLAIN"}).check_protection()
    error = refusal({**settings, "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"})
    assert error.name == "sasl.mechanism.inter.broker.protocol"


def test_an_invalid_value_of_a_listener_is_named_with_its_prefix() -> None:
    with pytest.raises(ConfigError, match=r"sasl\.server\.max\.receive\.size=many is not an integer"):
        config({f"{PREFIX}sasl.server.max.receive.size": "many"})


def test_settings_of_listeners_with_sasl_have_an_effect() -> None:
    ours = config({f"{PREFIX}plain.sasl.jaas.config": "a.B required;", f"{PREFIX}connections.max.reauth.ms": "5"})
    assert ours.names_without_effect() == []
    assert ours.unknown_names() == []


@pytest.mark.parametrize("name", ["sasl.enabled.mechanisms", f"{PREFIX}connections.max.reauth.ms"])
def test_a_stored_setting_of_sasl_is_ignored_and_logged(name: str) -> None:
    ours = config({})
    with capture_logs() as lines:
        ours.apply_dynamic({}, {name: "5" if name.endswith("ms") else "SCRAM-SHA-256"})
    assert [line["name"] for line in lines] == [name]
    assert ours.sasl_enabled_mechanisms == ["PLAIN"]
    assert name not in ours.per_broker
