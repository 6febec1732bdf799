"""Settings in the metadata store: any broker changes them, every broker applies them. Two brokers share a store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from uuid import UUID

import pytest

from odradek.broker.background.stepwise import Steps
from odradek.broker.cluster.deltas import TopicNews
from odradek.broker.cluster.store_follower import EXPIRATION_MS
from odradek.broker.controller.topic_operations import MOST_CONFIG_BYTES
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import Create
from odradek.broker.metadata_store.shared.shared_store import SharedStore
from odradek.broker.metadata_store.start_up import make_persistent_entries
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.timer import ManualClock
from tests.broker.cluster.configs_harness import TOPIC, ConfigsHarness, SingleNode, to
from tests.simulation.loop import run_in_virtual_time


class TwoBrokers:
    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.clock = ManualClock()
        self.shared = SharedStore(session_timeout_ms=6000)
        self.store = self.shared.session("both")
        self.one, self.two = (ConfigsHarness(number, self.store, self.clock, settings) for number in (1, 2))

    async def start(self) -> TwoBrokers:
        await self.store.open()
        await self.store.multi(Create(path) for path in znodes.PERSISTENT_PATHS)
        await self.store.create(znodes.topic_path("t"), b"{}")
        for broker in (self.one, self.two):
            await broker.load()
        return self

    async def settle(self) -> None:
        await self.one.settle()
        await self.two.settle()


@pytest.fixture
async def brokers() -> AsyncIterator[TwoBrokers]:
    both = await TwoBrokers().start()
    yield both
    await both.settle()
    await both.store.close()


async def test_a_topic_setting_is_applied_by_every_broker(brokers: TwoBrokers) -> None:
    await brokers.one.configs.alter_topic_config("t", to({"segment.bytes": "1000"}))
    assert brokers.one.applied["t"].segment_bytes == 1000
    await brokers.settle()
    assert brokers.two.applied["t"].segment_bytes == 1000
    assert brokers.two.cache.topic_config("t") == {"segment.bytes": "1000"}
    assert brokers.two.in_effect.log_config("t").segment_bytes == 1000


async def test_every_broker_applies_a_change_once(brokers: TwoBrokers) -> None:
    for number in range(3):
        await brokers.one.configs.alter_topic_config("t", to({"segment.bytes": str(1000 + number)}))
        await brokers.settle()
    assert brokers.one.applications == brokers.two.applications == ["t"] * 3


async def test_a_cluster_wide_setting_reaches_every_broker_and_its_logs(brokers: TwoBrokers) -> None:
    await brokers.one.configs.alter_broker_config(None, to({"log.segment.bytes": "2000"}))
    await brokers.settle()
    for broker in (brokers.one, brokers.two):
        assert broker.config.log_segment_bytes == 2000
        assert broker.applied["t"].segment_bytes == 2000


async def test_the_setting_of_one_broker_does_not_reach_the_others(brokers: TwoBrokers) -> None:
    await brokers.one.configs.alter_broker_config(1, to({"log.cleaner.threads": "2"}))
    await brokers.settle()
    assert (brokers.one.config.log_cleaner_threads, brokers.two.config.log_cleaner_threads) == (2, 1)


async def test_changes_of_two_brokers_to_one_topic_are_both_kept(brokers: TwoBrokers) -> None:
    def adding(name: str, value: str) -> Callable[[Mapping[str, str]], Steps[dict[str, str]]]:
        def steps(current: Mapping[str, str]) -> Steps[dict[str, str]]:
            yield
            return {**current, name: value}

        return steps

    await asyncio.gather(
        brokers.one.configs.alter_topic_config("t", adding("segment.bytes", "1000")),
        brokers.two.configs.alter_topic_config("t", adding("retention.ms", "5")),
    )
    await brokers.settle()
    both = {"segment.bytes": "1000", "retention.ms": "5"}
    assert brokers.one.cache.topic_config("t") == brokers.two.cache.topic_config("t") == both


CALL_S = 1.0
"""How long messages take, so that each of the four of a change can be lost."""
SESSION_TIMEOUT_MS = 60_000


@pytest.mark.parametrize("lost_after_s", [0.5, 1.5, 2.5, 3.5])
@pytest.mark.parametrize("healed_after_s", [1, SESSION_TIMEOUT_MS / 1000 + 1])
def test_a_change_waits_for_the_connection_and_is_made_once(lost_after_s: float, healed_after_s: float) -> None:
    """Also in another session, and whether the change or its answer was lost."""

    async def test() -> None:
        shared = SharedStore(
            session_timeout_ms=SESSION_TIMEOUT_MS, delay=lambda name: CALL_S if name == "slow" else 0.0
        )
        slow, other = shared.session("slow"), shared.session("other")
        await slow.open()
        await other.open()
        await other.multi(Create(path) for path in znodes.PERSISTENT_PATHS)
        await other.create(znodes.topic_path("t"), b"{}")
        one = await ConfigsHarness(1, slow, ManualClock()).load()
        two = await ConfigsHarness(2, other, ManualClock()).load()
        loop = asyncio.get_running_loop()
        loop.call_later(lost_after_s, shared.cut, "slow")
        loop.call_later(lost_after_s + healed_after_s, shared.heal, "slow")
        await one.configs.alter_topic_config("t", to({"segment.bytes": "1000"}))
        assert one.cache.topic_config("t") == {"segment.bytes": "1000"}
        assert one.applied["t"].segment_bytes == 1000
        await two.settle()
        assert two.applied["t"].segment_bytes == 1000
        assert (await other.get(znodes.topic_config_path("t"))).version == 0
        assert len(await other.children(znodes.CONFIG_CHANGES)) == 1
        await one.settle()

    run_in_virtual_time(test())


async def test_a_change_that_waits_ends_with_the_store(brokers: TwoBrokers) -> None:
    brokers.shared.cut("both")
    change = asyncio.ensure_future(brokers.one.configs.alter_broker_config(None, to({"log.segment.bytes": "2000"})))
    await asyncio.sleep(0.01)
    assert not change.done()
    await brokers.store.close()
    with pytest.raises(ProtocolError) as caught:
        await change
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_broker_reads_a_topics_settings_before_it_serves_the_topic(brokers: TwoBrokers) -> None:
    await brokers.store.create(znodes.topic_config_path("new"), znodes.encode_config({"segment.bytes": "3000"}))
    await brokers.two.configs.ensure(["t", "new"])
    assert brokers.two.in_effect.log_config("new").segment_bytes == 3000
    brokers.two.configs.topic_changed("new", TopicNews.DELETED)
    await brokers.store.set(znodes.topic_config_path("new"), znodes.encode_config({}))
    await brokers.two.configs.ensure(["new"])
    assert brokers.two.cache.topic_config("new") == {}


async def test_settings_are_there_after_a_restart(brokers: TwoBrokers) -> None:
    await brokers.one.configs.alter_topic_config("t", to({"segment.bytes": "1000"}))
    await brokers.one.configs.alter_broker_config(2, to({"log.cleaner.threads": "3"}))
    again = ConfigsHarness(2, brokers.store, brokers.clock)
    await again.configs.load()
    assert again.in_effect.log_config("t").segment_bytes == 1000
    assert again.config.log_cleaner_threads == 3


@pytest.mark.parametrize(
    ("topic", "settings", "code"),
    [
        ("t", {"segment.bytes": "no number"}, ErrorCode.INVALID_CONFIG),
        ("t", {"retention.ms": "x" * MOST_CONFIG_BYTES}, ErrorCode.INVALID_CONFIG),
        ("missing", {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("gone", {"retention.ms": "5"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_a_refused_change_changes_nothing(
    brokers: TwoBrokers, topic: str, settings: dict[str, str], code: ErrorCode
) -> None:
    """The broker still knows `gone`, which was deleted meanwhile."""
    brokers.one.cache.put_topic(TOPIC._replace(name="gone", topic_id=UUID(int=8)), {})
    with pytest.raises(ProtocolError) as caught:
        await brokers.one.configs.alter_topic_config(topic, to(settings))
    assert caught.value.code is code
    assert brokers.one.applied == {}
    assert await brokers.store.children(znodes.CONFIG_CHANGES) == []


async def test_validating_a_change_writes_nothing(brokers: TwoBrokers) -> None:
    await brokers.one.configs.alter_topic_config("t", to({"retention.ms": "1"}), validate_only=True)
    assert await brokers.store.exists(znodes.topic_config_path("t")) is None


async def test_a_lone_broker_leaves_no_notices() -> None:
    single = await SingleNode().start()
    await single.configs.alter_topic_config("t", to({"retention.ms": "1000"}))
    await single.settle()
    assert single.applied["t"].retention_ms == 1000
    assert await single.store.children(znodes.CONFIG_CHANGES) == []


async def test_too_large_settings_of_a_broker_are_refused(brokers: TwoBrokers) -> None:
    with pytest.raises(ProtocolError) as caught:
        await brokers.one.configs.alter_broker_config(None, to({"plug.in": "x" * MOST_CONFIG_BYTES}))
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


async def test_notices_of_changes_are_removed_after_a_quarter_of_an_hour(brokers: TwoBrokers) -> None:
    await brokers.one.configs.alter_topic_config("t", to({"retention.ms": "1"}))
    await brokers.settle()
    brokers.clock.advance(EXPIRATION_MS)
    await brokers.two.configs.alter_topic_config("t", to({"retention.ms": "2"}))
    await brokers.settle()
    assert await brokers.store.children(znodes.CONFIG_CHANGES) == ["config_change_0000000001"]
    assert brokers.one.applied["t"].retention_ms == 2


@pytest.mark.parametrize("data", [b"no json", b'{"version":2}', b'{"version":2,"entity_path":"brokers/x"}', None])
async def test_an_unreadable_notice_does_not_stop_later_ones(brokers: TwoBrokers, data: bytes | None) -> None:
    await brokers.store.create(znodes.CONFIG_CHANGE_PREFIX, data, sequential=True)
    await brokers.one.configs.alter_topic_config("t", to({"retention.ms": "1"}))
    await brokers.settle()
    assert brokers.two.applied["t"].retention_ms == 1


async def test_notices_of_kafka_before_0_10_1_are_read(brokers: TwoBrokers) -> None:
    await brokers.store.create(znodes.topic_config_path("t"), znodes.encode_config({"retention.ms": "9"}))
    notice = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    await brokers.store.create(znodes.CONFIG_CHANGE_PREFIX, notice, sequential=True)
    await brokers.settle()
    assert brokers.one.applied["t"].retention_ms == 9


async def test_stored_settings_that_are_unusable_do_not_keep_a_topic_from_being_served(brokers: TwoBrokers) -> None:
    data = znodes.encode_config({"segment.bytes": "no number"})
    await brokers.store.create(znodes.topic_config_path("t"), data)
    brokers.one.configs.topic_changed("t", TopicNews.DELETED)
    await brokers.one.configs.ensure(["t"])
    default = brokers.one.config.log_config({})
    assert brokers.one.in_effect.log_config("t").segment_bytes == default.segment_bytes


async def test_settings_that_could_not_be_read_are_read_when_the_store_is_back() -> None:
    shared = SharedStore(session_timeout_ms=6000)
    other, store = shared.session("1"), shared.session("2")
    await other.open()
    await store.open()
    await make_persistent_entries(other)
    broker = await ConfigsHarness(2, store, ManualClock()).load()
    await other.create(znodes.topic_config_path("new"), znodes.encode_config({"min.insync.replicas": "2"}))
    shared.cut("2")
    await asyncio.sleep(0)
    await broker.configs.ensure(["new"])
    assert broker.in_effect.log_config("new").min_insync_replicas == 1
    shared.heal("2")
    await store.connected()
    await broker.settle()
    assert broker.applied["new"].min_insync_replicas == 2
    assert store.session_epoch == 1, "no change was announced, and none was missed"


async def test_damaged_settings_of_a_topic_are_ignored_for_that_topic_alone(brokers: TwoBrokers) -> None:
    await brokers.store.create(znodes.topic_config_path("damaged"), b"{")
    await brokers.store.create(znodes.topic_config_path("whole"), znodes.encode_config({"retention.ms": "5"}))
    await brokers.one.configs.ensure(["damaged", "whole"])
    assert brokers.one.cache.topic_config("damaged") == {}
    assert brokers.one.in_effect.log_config("whole").retention_ms == 5
    await ConfigsHarness(3, brokers.store, brokers.clock).load()


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"{",
        b'{"version":2,"entity_path":"topics/"}',
        b'{"version":2,"entity_path":"topics/.."}',
        b'{"version":2,"entity_path":"topics/a/b"}',
        b'{"version":2,"entity_path":"brokers/one"}',
        b'{"version":2,"entity_path":"teapots/t"}',
        b'{"version":2,"entity_path":7}',
        b'{"version":2,"entity_path":"users/alice"}',
        b'{"version":2,"entity_path":"users/alice/clients/<default>"}',
        b'{"version":2,"entity_path":"clients/<default>"}',
        b'{"version":2,"entity_path":"ips/127.0.0.1"}',
        b'{"version":1,"entity_type":"clients","entity_name":"c"}',
    ],
)
async def test_a_change_that_concerns_no_broker_does_not_stop_later_ones(
    brokers: TwoBrokers, data: bytes | None
) -> None:
    await brokers.store.create(znodes.CONFIG_CHANGE_PREFIX, data, sequential=True)
    await brokers.settle()
    await brokers.one.configs.alter_topic_config("t", to({"segment.bytes": "1000"}))
    await brokers.settle()
    assert brokers.two.applications == ["t"]
    assert brokers.two.applied["t"].segment_bytes == 1000


@pytest.mark.parametrize("data", [None, b"{", b'{"version":1,"config":[]}'])
async def test_damaged_settings_of_a_broker_are_ignored(brokers: TwoBrokers, data: bytes | None) -> None:
    await brokers.store.create(znodes.broker_config_path(2), data)
    await brokers.one.configs.alter_broker_config(None, to({"log.segment.bytes": "2000"}))
    again = ConfigsHarness(2, brokers.store, brokers.clock)
    await again.configs.load()
    assert again.config.log_segment_bytes == 2000


async def test_a_setting_of_all_brokers_reaches_logs_of_topics_that_are_not_in_the_metadata_yet(
    brokers: TwoBrokers,
) -> None:
    """Apache's controllers send the roles before the metadata."""
    await brokers.two.configs.ensure(["t"])
    brokers.two.cache.remove_topic("t")
    await brokers.one.configs.alter_broker_config(None, to({"log.segment.bytes": "2000"}))
    await brokers.settle()
    assert brokers.two.applied["t"].segment_bytes == 2000
