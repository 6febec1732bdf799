"""Groups of both protocols in /metrics."""

from __future__ import annotations

from typing import Any

from odradek.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from tests.broker.console.test_api import broker_with_console, coordinate
from tests.broker.console.test_hand_overs import JOINS, readers
from tests.broker.console.waiters import join_of
from tests.broker.metrics.test_metrics import ask, samples_of, value
from tests.broker.replica.test_over_sockets import client_of, create
from tests.patience import until

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


async def test_rebalances_assignments_and_resolutions_of_consumer_groups_are_counted() -> None:
    async with readers() as group:

        async def counted() -> tuple[float, float, float]:
            _, _, body = await ask(group.port, "/metrics")
            samples = samples_of(body)
            return (
                value(samples, "kafka_server_group_coordinator_metrics_consumer_group_rebalance_total"),
                value(samples, "odradek_consumer_group_assignments_total"),
                value(samples, "odradek_consumer_group_regex_resolutions_total"),
            )

        async def are(*expected: int) -> None:
            async def is_so() -> bool:
                return await counted() == expected

            await until(is_so)

        await are(0, 0, 0)
        await group.beat("a", 0, **JOINS)
        await group.beat("b", 0, **JOINS)
        await are(2, 2, 0)
        await group.beat("b", -1)
        await are(3, 3, 0)
        await group.beat("a", 2)
        await are(3, 3, 0)
        await group.beat("a", 4, subscribed_topic_regex="orders|payments")
        await are(4, 4, 1)
