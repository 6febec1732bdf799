"""What zookeeper.connect may be."""

from __future__ import annotations

import pytest

from odradek.broker.settings import ConfigError
from odradek.broker.settings.config import BrokerConfig
from odradek.broker.settings.connect_string import Address, ConnectString, parse_connect_string


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("localhost", [("localhost", 2181)], ""),
        ("a:1", [("a", 1)], ""),
        ("a:1/", [("a", 1)], ""),
        ("a:1,b,c:3/kafka", [("a", 1), ("b", 2181), ("c", 3)], "/kafka"),
        (" a:1 , b:2/one/two ", [("a", 1), ("b", 2)], "/one/two"),
        ("[::1]:2182,[fe80::2]/k", [("::1", 2182), ("fe80::2", 2181)], "/k"),
    ],
)
def test_a_connect_string_has_servers_and_a_chroot(text: str, servers: list[tuple[str, int]], chroot: str) -> None:
    assert parse_connect_string(text) == ConnectString(tuple(Address(*server) for server in servers), chroot)


@pytest.mark.parametrize(
    "text",
    ["", "/kafka", ",", ":1", "a:x", "a:0", "a:65536", "::1", "[::1", "[::1]x", "a:1/k/", "a//k", "a/../k"],
)
def test_what_cannot_be_meant_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.connect"):
        BrokerConfig.single_node({"zookeeper.connect": text})


def test_the_metadata_are_in_one_place() -> None:
    with pytest.raises(ConfigError, match=r"process\.roles"):
        BrokerConfig.single_node(
            {"zookeeper.connect": "a", "process.roles": "broker", "node.id": "1", "broker.id": "1"}
        )
