"""Settings marked as taking effect do: the code outside the table names each, and these tests show the effect of some.

Effects that have their own test elsewhere (retention, rolling, flushing, sessions, idle connections) are
not repeated.
"""

from __future__ import annotations

import socket

import pytest

from odradek.broker.metadata.new_topic import NewTopic
from odradek.broker.network.connection_limits import ConnectionLimits
from odradek.broker.settings import BROKER, TOPIC
from odradek.broker.settings.config import BrokerConfig
from odradek.clients.network_client import NetworkClient
from odradek.testing import in_process_broker
from tests.broker.controller.harness import at_once


def test_a_topic_default_takes_effect_if_and_only_if_the_topic_setting_does() -> None:
    shared = {synonym.name: setting for setting in TOPIC.values() for synonym in setting.synonyms}
    for name, topic_setting in shared.items():
        assert BROKER[name].takes_effect == topic_setting.takes_effect, name


def test_kafkas_small_socket_defaults_apply_only_if_set_explicitly() -> None:
    limits = ConnectionLimits.from_config(BrokerConfig.from_mapping({}))
    assert (limits.listen_backlog, limits.receive_buffer_bytes, limits.send_buffer_bytes) == (8192, -1, -1)
    chosen = {"socket.listen.backlog.size": "50", "socket.send.buffer.bytes": "102400"}
    limits = ConnectionLimits.from_config(BrokerConfig.from_mapping(chosen))
    assert (limits.listen_backlog, limits.receive_buffer_bytes, limits.send_buffer_bytes) == (50, -1, 102400)


async def test_socket_buffers_have_the_configured_size() -> None:
    settings = {"socket.receive.buffer.bytes": "20000", "socket.send.buffer.bytes": "30000"}
    async with in_process_broker(settings) as broker:
        host, _, port = broker.bootstrap.rpartition(":")
        async with await NetworkClient.connect(host, int(port)):
            (connection,) = broker.socket_server.connections
            accepted = connection.transport.get_extra_info("socket")
            # Linux doubles the size for its own use
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 40000
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 60000


@pytest.mark.parametrize(("given", "chosen"), [("1000", 1001), ("50", 51)])
async def test_a_node_without_an_id_gets_the_next_one_above_the_reserved_ids(given: str, chosen: int) -> None:
    async with in_process_broker({"broker.id": "-1", "reserved.broker.max.id": given}) as broker:
        assert broker.broker_id == broker.metadata.broker_id == chosen


async def test_dynamic_limits_apply_to_new_connections_and_dynamic_expiry_to_open_logs() -> None:
    async with in_process_broker() as broker:
        await broker.controller.topics.create([NewTopic("t", 1, 1)], timeout_ms=5000)
        await broker.cluster.configs.alter_broker_config(
            None, at_once(lambda _: {"max.connections": "3", "producer.id.expiration.ms": "5000"})
        )
        assert broker.socket_server.limits.max_connections == 3
        (log,) = broker.log_manager.logs.values()
        assert log.producers.state.expiration_ms == 5000
