from __future__ import annotations

import pytest

from odradek.broker.settings import BROKER, BrokerSettings
from odradek.broker.settings.config import BrokerConfig, ConfigError
from odradek.broker.settings.listener_values import listener_value

IDLE = BrokerSettings.connections_max_idle_ms
REAUTHENTICATION = BROKER["connections.max.reauth.ms"]


def test_a_value_with_the_listeners_prefix_comes_before_that_of_the_broker() -> None:
    config = BrokerConfig.from_mapping(
        {"connections.max.idle.ms": "5000", "listener.name.plaintext.connections.max.idle.ms": "7000"}
    )
    assert config.of_listener("PLAINTEXT", IDLE) == 7000
    assert config.of_listener("OTHER", IDLE) == 5000


def test_without_any_value_a_listener_has_the_default() -> None:
    assert BrokerConfig.from_mapping({}).of_listener("PLAINTEXT", IDLE) == 600000


def test_a_value_of_a_mechanism_comes_first() -> None:
    prefix = "listener.name.outside."
    config = BrokerConfig.from_mapping(
        {
            f"{prefix}connections.max.reauth.ms": "1",
            f"{prefix}scram-sha-256.connections.max.reauth.ms": "2",
            "connections.max.reauth.ms": "3",
        }
    )
    assert config.of_listener("OUTSIDE", REAUTHENTICATION, "SCRAM-SHA-256") == 2
    assert config.of_listener("OUTSIDE", REAUTHENTICATION, "PLAIN") == 1
    assert config.of_listener("OUTSIDE", REAUTHENTICATION) == 1
    assert config.of_listener("INSIDE", REAUTHENTICATION, "PLAIN") == 3


def test_the_listeners_name_in_a_prefix_is_in_lower_case_as_in_kafka() -> None:
    config = BrokerConfig.from_mapping({"listener.name.PLAINTEXT.connections.max.idle.ms": "7000"})
    assert config.of_listener("PLAINTEXT", IDLE) == 600000


def test_an_invalid_value_is_named_with_its_prefix() -> None:
    name = "listener.name.x.connections.max.idle.ms"
    with pytest.raises(ConfigError, match=rf"^{name}=soon is not an integer") as caught:
        listener_value(BrokerConfig.from_mapping({}), {name: "soon"}, "X", IDLE)
    assert caught.value.name == name
