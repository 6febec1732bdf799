"""Groups of both protocols in /metrics."""

from __future__ import annotations

from typing import Any

from odradek.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from tests.broker.console.test_api import broker_with_console, coordinate
from tests.broker.console.waiters import join_of
from tests.broker.metrics.test_metrics import ask
from tests.broker.replica.test_over_sockets import client_of, create

PREFIX = "kafka_server_group_coordinator_metrics_"


async def counts(port: int) -> dict[str, float]:
    """The values of the families of groups by type and state, by name and label."""
    _, _, body = await ask(port, "/metrics")
    lines = [line.removeprefix(PREFIX) for line in body.decode().splitlines() if line.startswith(PREFIX)]
    named = [line.rpartition(" ") for line in lines if "group_count{" in line]
    return {name: float(value) for name, _, value in named}


async def test_groups_are_counted_by_type_and_consumer_groups_by_state() -> None:
    settings = {"group.consumer.assignment.interval.ms": 0, "group.initial.rebalance.delay.ms": 0}
    async with broker_with_console(settings) as (broker, port), client_of(broker) as client:
        await create(client, "orders", 2)
        await coordinate(client, "classic")
        states = ("Empty", "Assigning", "Reconciling", "Stable", "Dead")
        nothing = dict.fromkeys([f'consumer_group_count{{state="{state}"}}' for state in states], 0.0)
        types = dict.fromkeys(['group_count{protocol="classic"}', 'group_count{protocol="consumer"}'], 0.0)
        assert await counts(port) == {**nothing, **types}

        async def beat(group: str, member_id: str, epoch: int) -> None:
            joins: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["orders"]}
            more = {**joins, "topic_partitions": []} if epoch == 0 else {}
            request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **more)
            assert (await client.call(request, 1)).error_code == 0

        await client.call(join_of("classic"), 3)
        for group, members in (("empty", "a"), ("stable", "a"), ("reconciling", "ab"), ("another", "ab")):
            for member_id in members:
                await beat(group, member_id, 0)
        await beat("empty", "a", -1)
        assert await counts(port) == {
            **nothing,
            'consumer_group_count{state="Empty"}': 1.0,
            'consumer_group_count{state="Stable"}': 1.0,
            'consumer_group_count{state="Reconciling"}': 2.0,
            'group_count{protocol="classic"}': 1.0,
            'group_count{protocol="consumer"}': 4.0,
        }
