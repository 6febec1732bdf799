from __future__ import annotations

import pytest

from odradek.broker.settings.config import BrokerConfig, ConfigError, load_config
from odradek.broker.settings.listeners import Listener


def listeners(text: str, **others: str) -> list[Listener]:
    settings = {name.replace("_", "."): value for name, value in others.items()}
    return BrokerConfig.from_mapping({"listeners": text, **settings}).listeners


def test_a_listener_advertises_its_own_address_by_default() -> None:
    assert listeners("PLAINTEXT://10.0.0.1:9092") == [
        Listener("PLAINTEXT", "PLAINTEXT", "10.0.0.1", 9092, "10.0.0.1", 9092)
    ]


def test_a_listener_without_host_binds_all_interfaces_and_advertises_the_host_name() -> None:
    assert listeners("PLAINTEXT://:9092") == [Listener("PLAINTEXT", "PLAINTEXT", "", 9092, "", 9092)]


def test_each_listener_can_advertise_its_own_address() -> None:
    inside, outside = listeners(
        "INSIDE://:9092,outside://0.0.0.0:9093",
        advertised_listeners="OUTSIDE://kafka.example.org:19093,INSIDE://broker:9092",
        listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:plaintext",
        inter_broker_listener_name="INSIDE",
    )
    assert inside == Listener("INSIDE", "PLAINTEXT", "", 9092, "broker", 9092)
    assert outside == Listener("OUTSIDE", "PLAINTEXT", "0.0.0.0", 9093, "kafka.example.org", 19093)


def test_a_listener_left_out_of_the_advertised_ones_is_opened_but_not_advertised() -> None:
    config = BrokerConfig.from_mapping(
        {
            "listeners": "PLAINTEXT://:9092,SIDE://:9093",
            "advertised.listeners": "PLAINTEXT://here:9092",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SIDE:PLAINTEXT",
        }
    )
    assert [(each.name, each.advertised_host) for each in config.listeners] == [("PLAINTEXT", "here"), ("SIDE", None)]


def test_an_ipv6_address_is_written_in_brackets() -> None:
    assert listeners("PLAINTEXT://[::1]:9092")[0].host == "::1"


def test_one_ipv4_and_one_ipv6_address_may_share_a_port() -> None:
    both = listeners(
        "PLAINTEXT://127.0.0.1:9092,SIX://[::1]:9092",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,SIX:PLAINTEXT",
    )
    assert [each.port for each in both] == [9092, 9092]


def test_advertised_listeners_may_share_a_port() -> None:
    both = listeners(
        "PLAINTEXT://:9092,B://:9093",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
        advertised_listeners="PLAINTEXT://a:1,B://b:1",
    )
    assert [(each.port, each.advertised_host, each.advertised_port) for each in both] == [
        (9092, "a", 1),
        (9093, "b", 1),
    ]


def test_a_kraft_controllers_listener_stays_closed() -> None:
    config = BrokerConfig.from_mapping(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": "1@localhost:9093",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
            "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        }
    )
    assert [each.name for each in config.listeners] == ["PLAINTEXT"]
    assert config.broker_id == 1


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"listeners": "PLAINTEXT:9092"}, "PLAINTEXT:9092 is not NAME://host:port"),
        ({"listeners": "PLAINTEXT://:99999"}, "no port between 0 and 65535"),
        ({"listeners": "PLAINTEXT://:-1"}, "no port between 0 and 65535"),
        ({"listeners": ""}, "has no values"),
        ({"listeners": "INSIDE://:9092"}, "INSIDE is not in listener.security.protocol.map"),
        ({"listeners": "PLAINTEXT://:9092,plaintext://:9093"}, "two listeners named PLAINTEXT"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, "cannot connect to 0.0.0.0"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "cannot connect to 0.0.0.0"),
        ({"advertised.listeners": "SSL://here:9092"}, "SSL is not among listeners"),
        ({"advertised.listeners": ""}, "has no values"),
        ({"listener.security.protocol.map": "PLAINTEXT=PLAINTEXT"}, "is not NAME:PROTOCOL"),
        ({"listener.security.protocol.map": "PLAINTEXT:TLS"}, "is not NAME:PROTOCOL"),
        ({"inter.broker.listener.name": "OTHER"}, "OTHER is not in listener.security.protocol.map"),
        ({"inter.broker.listener.name": "SSL"}, "SSL is not among the advertised listeners"),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "only one of",
        ),
        (
            {
                "listeners": "PLAINTEXT://:9092,B://:9092",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
            },
            "share port 9092",
        ),
    ],
)
def test_invalid_listeners_are_refused(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        BrokerConfig.from_mapping(settings)


def test_the_port_flag_changes_only_the_first_listeners_port() -> None:
    config = load_config(port=0)
    assert [(each.host, each.port, each.advertised_port) for each in config.listeners] == [("127.0.0.1", 0, 0)]
    config = load_config(
        port=7000,
        settings=[
            "listeners=PLAINTEXT://[::1]:1,B://h:2",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
        ],
    )
    assert [(each.host, each.port) for each in config.listeners] == [("::1", 7000), ("h", 2)]
