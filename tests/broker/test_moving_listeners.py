"""Brokers move from PLAINTEXT to SASL_SSL one after the other, and replicate all the time."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.broker.server import Broker
from odradek.broker.settings.config import BrokerConfig, ConfigError
from odradek.clients.network_client import NetworkClient
from odradek.protocol.errors import ErrorCode
from tests.broker.handlers.sasl_broker import PLAIN_MODULE
from tests.patience import until
from tests.tls_files import TlsFiles
from tests.wire.records import produce_on
from tests.zookeeper.brokers import Brokers, brokers_on_zookeeper

OTHER = "odradek.other.inter.broker.listener.name"
TOPIC = "t"


def plain_beside_secured(files: TlsFiles) -> dict[str, str]:
    return {
        **files.stores(),
        "listeners": "PLAINTEXT://127.0.0.1:0,SECURED://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURED:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        "listener.name.secured.plain.sasl.jaas.config": (
            f'{PLAIN_MODULE} required username="broker" password="broker-secret" user_broker="broker-secret";'
        ),
        "inter.broker.listener.name": "PLAINTEXT",
    }


def next_steps(first: dict[str, str]) -> list[dict[str, str]]:
    """Brokers serve others by both, move to the new one, and leave the old one."""
    both = first | {OTHER: "secured"}
    moved = first | {
        "inter.broker.listener.name": "SECURED",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        OTHER: "PLAINTEXT",
    }
    return [both, moved, {name: text for name, text in moved.items() if name != OTHER}]


async def restart(brokers: Brokers, number: int) -> None:
    await brokers.all[number - 1].stop()
    brokers.all[number - 1] = brokers.broker(number)
    await brokers.all[number - 1].start()


def in_sync(brokers: Brokers) -> bool:
    """Whether all brokers are in sync by what each of them knows."""
    for broker in brokers.all:
        topic = broker.metadata.topic(TOPIC)
        if topic is None or sorted(topic.partitions[0].isr) != [1, 2, 3]:
            return False
    return True


def leader_of(brokers: Brokers) -> Broker:
    topic = brokers.all[0].metadata.topic(TOPIC)
    assert topic is not None
    return next(each for each in brokers.all if each.broker_id == topic.partitions[0].leader)


def listeners_in_use(brokers: Brokers) -> set[str]:
    """The listeners that have connections."""
    return {each.info.listener.name for broker in brokers.all for each in broker.socket_server.connections}


async def test_brokers_move_one_by_one_and_stay_in_sync(tmp_path: Path) -> None:
    first = plain_beside_secured(TlsFiles(tmp_path))
    settings = {name.replace(".", "_"): text for name, text in first.items()}
    async with brokers_on_zookeeper(tmp_path, 3, **settings) as brokers:
        await brokers.create(TOPIC, 2, 1, 3)
        for step in next_steps(first):
            for number in (1, 2, 3):
                brokers.settings = step
                await restart(brokers, number)
                await until(lambda: in_sync(brokers))
                leader = leader_of(brokers)
                async with await NetworkClient.connect("127.0.0.1", leader.endpoints[0].port) as client:
                    assert await produce_on(client, TOPIC, b"all of them", acks=-1) == ErrorCode.NONE
        await until(lambda: listeners_in_use(brokers) == {"SECURED"})


@pytest.mark.parametrize("name", ["NOWHERE", "nowhere"])
def test_the_other_listener_must_be_advertised(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{OTHER}: NOWHERE is not among the advertised listeners PLAINTEXT"):
        BrokerConfig.single_node({OTHER: name})
