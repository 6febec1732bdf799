"""Two brokers on one store, over sockets: their life as members, and the settings of it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.metadata.new_topic import NewTopic
from odradek.broker.metadata_store.shared.shared_store import SharedStore
from odradek.broker.server import Broker
from odradek.broker.settings.config import BrokerConfig
from odradek.clients.network_client import NetworkClient
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.topic_partition import TopicPartition
from tests.patience import until

T0 = TopicPartition("t", 0)


class Two:
    """Brokers 1 and 2, and the requests that each has sent to the other."""

    def __init__(self, path: Path, settings: Mapping[str, str]) -> None:
        store = SharedStore(session_timeout_ms=6000)
        self.brokers = [
            Broker(
                BrokerConfig.single_node(
                    {
                        "broker.id": str(number),
                        "listeners": "PLAINTEXT://127.0.0.1:0",
                        "log.dirs": str(path / str(number)),
                        "replica.fetch.wait.max.ms": "50",
                        **settings,
                    }
                ),
                new_metadata_store=lambda config, *_: store.session(str(config.broker_id)),
            )
            for number in (1, 2)
        ]

    @property
    def controller(self) -> Broker:
        return next(broker for broker in self.brokers if broker.controller.terms.is_active)

    @property
    def other(self) -> Broker:
        return next(broker for broker in self.brokers if not broker.controller.terms.is_active)

    async def create(self, *replicas: int) -> None:
        """Creates `t` with one partition, led by the first of the replicas."""
        (outcome,) = await self.controller.controller.topics.create(
            [NewTopic("t", assignments={0: replicas})], timeout_ms=5000
        )
        assert not isinstance(outcome, Exception), outcome
        await until(lambda: all(broker.metadata.topic("t") for broker in self.brokers))

    async def stop(self) -> None:
        for broker in self.brokers:
            await broker.stop(hand_over=False)


@contextlib.asynccontextmanager
async def two_brokers(path: Path, **settings: object) -> AsyncIterator[Two]:
    two = Two(path, {name.replace("_", "."): str(value) for name, value in settings.items()})
    for broker in two.brokers:
        await broker.start()
    await until(lambda: all(len(broker.metadata.brokers) == 2 for broker in two.brokers))
    yield two
    for broker in two.brokers:
        broker.config.apply_dynamic({}, {})
    await two.stop()


async def test_a_broker_that_stops_passes_its_leaderships_on_first(tmp_path: Path) -> None:
    async with two_brokers(tmp_path, controlled_shutdown_max_retries=1) as two:
        leader, follower = two.controller, two.other
        await two.create(leader.broker_id, follower.broker_id)
        await until(lambda: len(leader.replica_manager.partitions.find(T0).isr.committed) == 2)
        states: list[bool] = []
        closing = leader._close_connections

        async def close() -> None:
            states.append(follower.replica_manager.partitions.find(T0).is_leader)
            await closing()

        leader._undo[leader._undo.index(leader._close_connections)] = close
        await leader.stop()
        assert states == [True]
        await until(lambda: follower.controller.terms.is_active)


async def test_a_broker_connects_to_others_within_the_time_of_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts: list[int] = []
    connect = NetworkClient.connect

    async def noted(host: str, port: int, *, timeout_ms: int, **names: Any) -> NetworkClient:
        timeouts.append(timeout_ms)
        return await connect(host, port, timeout_ms=timeout_ms, **names)

    monkeypatch.setattr(NetworkClient, "connect", noted)
    async with two_brokers(tmp_path, socket_connection_setup_timeout_ms=4321):
        await until(lambda: timeouts)
    assert set(timeouts) == {4321}


async def test_the_last_broker_asks_as_often_as_the_settings_say_and_then_stops(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "controlled_shutdown_max_retries": 3,
        "controlled_shutdown_retry_backoff_ms": 100,
        "controller_socket_timeout_ms": 1000,
    }
    async with two_brokers(tmp_path, **settings) as two:
        leader, follower = two.controller, two.other
        await two.create(leader.broker_id, follower.broker_id)
        await until(lambda: len(leader.replica_manager.partitions.find(T0).isr.committed) == 2)
        await leader.stop()
        await until(lambda: follower.controller.terms.is_active)
        timeouts: list[int] = []
        asking = follower.links.active_controller.controlled_shutdown

        async def ask(timeout_ms: int) -> list[TopicPartition]:
            timeouts.append(timeout_ms)
            return await asking(timeout_ms)

        follower.links.active_controller.controlled_shutdown = ask  # type: ignore[method-assign]
        start = time.monotonic()
        await follower.stop()
        assert timeouts == [1000, 1000, 1000]
        assert time.monotonic() - start >= 0.2


async def test_a_broker_may_stop_without_a_controlled_shutdown(tmp_path: Path) -> None:
    async with two_brokers(tmp_path, controlled_shutdown_enable="false") as two:
        asked: list[object] = []
        two.other.links.active_controller.controlled_shutdown = asked.append  # type: ignore[assignment, method-assign]
        await two.other.stop()
        assert asked == []


async def test_a_follower_fetches_as_the_settings_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {
        "replica_fetch_wait_max_ms": 77,
        "replica_fetch_min_bytes": 3,
        "replica_fetch_response_max_bytes": 123_456,
        "replica_fetch_max_bytes": 65_432,
        "replica_socket_timeout_ms": 5432,
    }
    sent: list[tuple[FetchRequest, int | None]] = []
    async with two_brokers(tmp_path, **settings) as two:
        leader, follower = two.controller, two.other
        peer = follower.links.peers.peer(leader.broker_id, "fetcher-0")
        send = peer.send

        async def noted(request: Any, *, version: int | None = None, timeout_ms: int | None = None) -> Any:
            sent.append((request, timeout_ms))
            return await send(request, version=version, timeout_ms=timeout_ms)

        monkeypatch.setattr(peer, "send", noted)
        await two.create(leader.broker_id, follower.broker_id)
        await until(lambda: sent)
        request, timeout_ms = sent[0]
        assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (77, 3, 123_456)
        assert request.topics[0].partitions[0].partition_max_bytes == 65_432
        assert timeout_ms == 5432


async def test_the_number_of_fetchers_can_be_changed(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as two:
        leader, follower = two.controller, two.other
        topic = NewTopic("t", assignments=dict.fromkeys(range(8), (leader.broker_id, follower.broker_id)))
        await leader.controller.topics.create([topic], timeout_ms=5000)
        await until(lambda: len(follower.replica_manager.partitions) == 8)

        def fetchers() -> int:
            return len({key for key in follower.links.peers._peers if key[1].startswith("fetcher")})

        await until(lambda: fetchers() == 1)
        follower.config.apply_dynamic({"num.replica.fetchers": "3"}, {})
        await until(lambda: fetchers() == 3)


async def test_leaders_are_balanced_at_their_interval(tmp_path: Path) -> None:
    async with two_brokers(tmp_path, leader_imbalance_check_interval_seconds=4321) as two:
        broker = two.controller
        jobs = [job for interval_ms, job, *_ in broker.periodic_work.table() if interval_ms == 4_321_000]
        assert jobs == [broker.controller.replicas.balance_leaders]


async def test_settings_reach_the_brokers_that_did_not_change_them(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as two:
        await two.create(two.controller.broker_id, two.other.broker_id)

        def change(before: Mapping[str, str]) -> Any:
            yield
            return {**before, "segment.bytes": "5000"}

        await two.other.cluster.configs.alter_topic_config("t", change)
        for broker in two.brokers:
            await until(
                lambda broker=broker: broker.replica_manager.partitions.find(T0).log.config.segment_bytes == 5000
            )


async def test_producer_ids_of_two_brokers_differ(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as two:
        given: list[object] = []
        for broker in two.brokers * 2:
            broker.coordinators.new_producer_id(given.append)
        await until(lambda: len(given) == 4)
        assert len(set(given)) == 4
        assert all(isinstance(number, int) for number in given)


async def test_a_deleted_topic_leaves_no_trace_on_any_broker(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as two:
        await two.create(two.controller.broker_id, two.other.broker_id)
        await two.controller.controller.topics.delete(["t"], timeout_ms=5000)
        for broker in two.brokers:
            await until(lambda broker=broker: broker.metadata.topic("t") is None)
            await until(lambda broker=broker: broker.log_manager.get(T0) is None)
        await asyncio.sleep(0)
        await two.create(two.other.broker_id, two.controller.broker_id)
        await until(lambda: two.other.replica_manager.partitions.find(T0).is_leader)
