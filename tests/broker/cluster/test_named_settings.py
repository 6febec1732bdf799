"""The settings of groups and of client metrics in the store that brokers share."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from odradek.broker.cluster.named_settings import named_path
from odradek.broker.metadata_store import znodes
from odradek.protocol.wire_codes import ConfigResourceType
from tests.broker.cluster.configs_harness import ConfigsHarness, SingleNode, to
from tests.broker.cluster.test_dynamic_configs import TwoBrokers, brokers

GROUP, METRICS = ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS
SESSION = {"consumer.session.timeout.ms": "46000"}

__all__ = ["brokers"]  # a fixture


async def test_a_change_reaches_every_broker(brokers: TwoBrokers) -> None:
    await brokers.one.configs.alter_named_config(GROUP, "a/b", to(SESSION))
    await brokers.one.configs.alter_named_config(METRICS, "m", to({"metrics": "*"}))
    await brokers.settle()
    for broker in (brokers.one, brokers.two):
        assert broker.cache.named_config(GROUP, "a/b") == SESSION
        assert list(broker.cache.named_configs(METRICS)) == ["m"]
    await brokers.two.configs.alter_named_config(GROUP, "a/b", to({}))
    await brokers.settle()
    assert await brokers.store.exists(named_path(GROUP, "a/b")) is None
    for broker in (brokers.one, brokers.two):
        assert broker.cache.named_configs(GROUP) == {}


async def test_two_brokers_change_one_resource_at_once(brokers: TwoBrokers) -> None:
    """One removes it, the other sets another value: the later one counts, and both brokers know it."""
    for number in range(20):
        await brokers.one.configs.alter_named_config(GROUP, "g", to({"consumer.heartbeat.interval.ms": str(number)}))
        await brokers.settle()
        await asyncio.gather(
            brokers.one.configs.alter_named_config(GROUP, "g", to({})),
            brokers.two.configs.alter_named_config(GROUP, "g", to(SESSION)),
        )
        await brokers.settle()
        entry = await brokers.store.exists(named_path(GROUP, "g"))
        stored = {} if entry is None else znodes.parse_config("", entry.data)
        assert brokers.one.cache.named_config(GROUP, "g") == brokers.two.cache.named_config(GROUP, "g") == stored


async def test_a_broker_that_starts_knows_all_of_them_and_one_that_was_away_forgets_those_that_are_gone(
    brokers: TwoBrokers,
) -> None:
    for number in range(250):
        await brokers.one.configs.alter_named_config(GROUP, f"g{number}", to(SESSION))
    third = ConfigsHarness(3, brokers.store, brokers.clock)
    third.cache.put_named_config(GROUP, "gone", SESSION)
    await third.load()
    assert third.cache.named_configs(GROUP).keys() == {f"g{number}" for number in range(250)}
    await third.settle()


async def test_settings_that_cannot_be_read_are_none_and_logged(brokers: TwoBrokers) -> None:
    await brokers.store.create(znodes.GROUP_CONFIGS)
    await brokers.store.create(named_path(GROUP, "damaged"), b"no json")
    await brokers.store.create(named_path(GROUP, "g"), znodes.encode_config(SESSION))
    third = ConfigsHarness(3, brokers.store, brokers.clock)
    with capture_logs() as lines:
        await third.load()
    assert third.cache.named_configs(GROUP) == {"g": SESSION}
    assert [line["path"] for line in lines if line["log_level"] == "error"] == [named_path(GROUP, "damaged")]
    await third.settle()


async def test_they_are_there_after_a_crash() -> None:
    node = await SingleNode().start()
    await node.configs.alter_named_config(GROUP, "..", to(SESSION))
    again = await node.again()
    assert again.cache.named_configs(GROUP) == {"..": SESSION}
    await again.configs.alter_named_config(GROUP, "..", to({}))
    assert (await again.again()).cache.named_configs(GROUP) == {}
