"""All fetchers of a broker, with tasks, threads and the real time. Requests go straight to the leader's handlers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from odradek.broker.background.background import Background
from odradek.broker.metadata.metadata_cache import PartitionState
from odradek.broker.replica.fetch.fetch_session import FetchTarget
from odradek.broker.replica.follower.fetcher_manager import FetcherManager
from odradek.broker.replica.follower.fetcher_settings import FetcherSettings
from odradek.broker.replica.follower.fetcher_state import FetchFrom
from odradek.broker.replica.partition.partition import Partition
from odradek.broker.requests.request_context import PendingResponse
from odradek.clients.network_errors import Disconnected
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse
from odradek.protocol.messages.list_offsets import ListOffsetsRequest
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.log_config import LogConfig
from odradek.timer import ExpirationReaper, SystemClock
from tests.broker.replica.replicas import BROKERS, KEY, TOPIC_ID, Replica, same
from tests.memory_files import ForgetfulFiles
from tests.patience import PATIENCE_S, until
from tests.table_settings import of_table

WAIT_MS = 200
BACKOFF_MS = 30


class GatedFiles(ForgetfulFiles):
    """A disk whose syncs wait while the gate is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = 0

    def count_sync(self, path: str) -> None:
        self.waiting += 1
        assert self.gate.wait(60)
        self.waiting -= 1
        super().count_sync(path)


class DirectConnection:
    """A Peer that calls the leader's handlers. `failure` is raised by the next request."""

    def __init__(self, leader: Node, purpose: str) -> None:
        self.leader = leader
        self.purpose = purpose
        self.requests: list[Message] = []
        self.failure: Exception | None = None

    async def send(self, request: Message, *, timeout_ms: int | None = None) -> Any:
        self.requests.append(request)
        await asyncio.sleep(0)
        if self.leader.is_down:
            raise Disconnected("the leader is down")
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        if isinstance(request, ListOffsetsRequest):
            return self.leader.answer_list_offsets(request)
        assert isinstance(request, FetchRequest)
        response = self.leader.handle_fetch(request)
        if isinstance(response, PendingResponse):
            settled = asyncio.get_running_loop().create_future()
            response.when_settled(lambda: settled.set_result(None))
            await settled
            response = response.result()
        assert isinstance(response, FetchResponse)
        return response


class Node(Replica):
    """A broker with fetchers, on the real time."""

    def __init__(self, broker_id: int, nodes: dict[int, Node], settings: FetcherSettings) -> None:
        self.tasks = Background()
        self.gated = GatedFiles()
        super().__init__(
            broker_id,
            self.gated,
            SystemClock(),
            background=self.tasks,
            soon=asyncio.get_running_loop().call_soon,
            settings=settings,
        )
        self.reaper = ExpirationReaper(self.timer)
        self.reaper.start()
        self.nodes = nodes
        self.connections: dict[tuple[int, str], DirectConnection] = {}
        self.failed_logs: list[Partition] = []
        self.fetchers = FetcherManager(
            self.settings,
            partitions=self.manager.partitions.get,
            peer=self.connection,
            truncation_steps=self.logs.truncation_steps,
            flusher=self.manager.flusher,
            quota=self.manager.follower_quota,
            watermark_moved=self.manager.wakeups.watermark_moved,
            on_log_failed=lambda failed, _: self.failed_logs.append(failed),
            clock=self.clock,
            background=self.tasks,
        )

    def connection(self, broker_id: int, purpose: str) -> DirectConnection:
        key = (broker_id, purpose)
        if key not in self.connections:
            self.connections[key] = DirectConnection(self.nodes[broker_id], purpose)
        return self.connections[key]

    async def fetch_from(self, leader: Node, epoch: int, *keys: TopicPartition) -> None:
        """Follows the leader, as after a LeaderAndIsr request."""
        keys = keys or (KEY,)
        await self.fetchers.remove(keys)
        for key in keys:
            self.partition(key).make_follower(
                PartitionState(key.partition, leader.broker_id, epoch, BROKERS, (leader.broker_id,))
            )
        await self.fetchers.add({key: FetchFrom(leader.broker_id, epoch, TOPIC_ID) for key in keys})

    async def close(self) -> None:
        self.gated.gate.set()
        await self.fetchers.stop()
        self.manager.shutdown()
        self.reaper.stop()
        await self.tasks.stop()


@asynccontextmanager
async def running(count: int = 2, **changed: int) -> AsyncIterator[list[Node]]:
    nodes: dict[int, Node] = {}
    settings = of_table(FetcherSettings, replica_fetch_wait_max_ms=WAIT_MS, replica_fetch_backoff_ms=BACKOFF_MS)
    settings = settings._replace(**changed)
    for broker_id in range(1, count + 1):
        nodes[broker_id] = Node(broker_id, nodes, settings)
    try:
        yield list(nodes.values())
    finally:
        for node in nodes.values():
            await node.close()


def has(node: Node, *values: bytes, key: TopicPartition = KEY) -> Any:
    return lambda: node.values(key) == list(values)


async def test_a_follower_copies_what_is_there_and_what_comes() -> None:
    async with running() as (leader, follower):
        leader.lead(0, isr=(1, 2))
        leader.produce(b"m0")
        await follower.fetch_from(leader, 0)
        await until(has(follower, b"m0"))
        await until(lambda: leader.log().state.high_watermark == 1)
        leader.produce(b"m1")
        await until(lambda: leader.log().state.high_watermark == 2)
        same(leader, follower)
        assert follower.fetchers.max_lag == 0
        assert follower.fetchers.stats.bytes_in == leader.log().segments.size_in_bytes


async def test_the_partitions_of_a_leader_are_shared_out_among_the_fetchers_by_a_stable_hash() -> None:
    keys = [TopicPartition("orders", number) for number in range(6)]
    async with running(num_replica_fetchers=3) as (leader, follower):
        for key in keys:
            leader.lead(0, key)
        await follower.fetch_from(leader, 0, *keys)
        await until(lambda: sum(1 for each in follower.connections.values() if each.requests) == 3)
        shared = {
            purpose: sorted(asked.partition for asked in _first(connection).topics[0].partitions)
            for (_, purpose), connection in sorted(follower.connections.items())
        }
        assert shared == {"fetcher-0": [1, 4], "fetcher-1": [2, 5], "fetcher-2": [0, 3]}
        await follower.fetchers.resize(1)
        leader.produce(b"m", key=keys[5])
        await until(has(follower, b"m", key=keys[5]))
        assert len(follower.connections[1, "fetcher-0"].requests) > 1


def _first(connection: DirectConnection) -> FetchRequest:
    request = connection.requests[0]
    assert isinstance(request, FetchRequest)
    return request


async def test_a_partition_that_changes_its_leader_is_fetched_from_the_new_one_alone() -> None:
    async with running(3) as (first, second, follower):
        first.lead(0)
        first.produce(b"m0")
        await follower.fetch_from(first, 0)
        await until(has(follower, b"m0"))
        second.lead(1)
        second.produce(b"n0")
        await follower.fetchers.add({KEY: FetchFrom(2, 1, TOPIC_ID)})
        follower.partition().make_follower(PartitionState(0, 2, 1, BROKERS, (2,)))
        await until(has(follower, b"n0"))
        first.produce(b"m1")
        await asyncio.sleep(BACKOFF_MS / 1000)
        assert follower.values() == [b"n0"]


async def test_a_lost_connection_is_survived() -> None:
    async with running() as (leader, follower):
        leader.lead(0)
        await follower.fetch_from(leader, 0)
        leader.is_down = True
        leader.produce(b"m0")
        await until(lambda: len(follower.connections[1, "fetcher-0"].requests) > 3)
        leader.is_down = False
        leader.produce(b"m1")
        await until(has(follower, b"m0", b"m1"))


async def test_an_unexpected_error_does_not_end_the_loop() -> None:
    async with running() as (leader, follower):
        leader.lead(0)
        await follower.fetch_from(leader, 0)
        follower.connections[1, "fetcher-0"].failure = ValueError("nobody expects this")
        with capture_logs() as logged:
            leader.produce(b"m0")
            await until(has(follower, b"m0"))
        assert [entry["event"] for entry in logged if entry["log_level"] == "error"] == ["fetch failed"]


async def test_an_unexpected_error_of_a_truncation_is_tried_again() -> None:
    async with running() as (leader, follower):
        follower.lead(0)
        follower.produce(b"f0")
        leader.lead(1)
        leader.produce(b"m0")
        steps, calls = follower.logs.truncation_steps, []

        def fail_first(targets: Any) -> Any:
            calls.append(targets)
            if len(calls) == 1:
                raise ValueError("nobody expects this")
            return steps(targets)

        follower.fetchers._truncation_steps = fail_first
        await follower.fetch_from(leader, 1)
        await until(has(follower, b"m0"))
        assert len(calls) == 2


async def test_a_fetcher_without_partitions_ends_after_a_while_and_begins_again() -> None:
    async with running() as (leader, follower):
        leader.lead(0)
        leader.produce(b"m0")
        await follower.fetch_from(leader, 0)
        await until(has(follower, b"m0"))
        await follower.fetchers.remove([KEY])
        await until(lambda: not [task for task in asyncio.all_tasks() if task.get_name() == "fetcher-0 from broker 1"])
        leader.produce(b"m1")
        await follower.fetch_from(leader, 0)
        await until(has(follower, b"m0", b"m1"))


async def test_removed_partitions_receive_nothing_more() -> None:
    async with running() as (leader, follower):
        leader.lead(0)
        leader.produce(b"m0")
        await follower.fetch_from(leader, 0)
        await until(has(follower, b"m0"))
        await follower.fetchers.remove([KEY])
        leader.produce(b"m1")
        await asyncio.sleep(2 * WAIT_MS / 1000)
        assert follower.values() == [b"m0"]


@pytest.mark.parametrize("by_stop", [False, True], ids=["remove", "stop"])
async def test_the_end_of_following_waits_for_a_truncation_under_way(by_stop: bool) -> None:
    async with running() as (leader, follower):
        follower.lead(0)
        follower.produce(b"f0")
        follower.flush(follower.partition())
        leader.lead(1)
        follower.gated.gate.clear()
        await follower.fetch_from(leader, 1)
        await until(lambda: follower.gated.waiting)
        ended = asyncio.ensure_future(follower.fetchers.stop() if by_stop else follower.fetchers.remove([KEY]))
        await asyncio.sleep(0.05)
        assert not ended.done()
        follower.gated.gate.set()
        await ended
        assert follower.values() == []
        follower.lead(2)
        follower.produce(b"f1")
        assert follower.values() == [b"f1"]


async def test_a_partition_that_is_removed_while_the_number_of_fetchers_changes_is_not_followed_again() -> None:
    async with running() as (leader, follower):
        follower.lead(0)
        follower.produce(b"f0")
        follower.flush(follower.partition())
        leader.lead(1)
        follower.gated.gate.clear()
        await follower.fetch_from(leader, 1)
        await until(lambda: follower.gated.waiting)
        resized = asyncio.ensure_future(follower.fetchers.resize(2))
        await asyncio.sleep(0)
        removed = asyncio.ensure_future(follower.fetchers.remove([KEY]))
        await asyncio.sleep(0.05)
        follower.gated.gate.set()
        await removed
        await resized
        follower.lead(2)
        follower.produce(b"f1")
        leader.produce(b"m0")
        await asyncio.sleep(2 * WAIT_MS / 1000)
        assert follower.values() == [b"f1"]
        assert follower.fetchers._loop_of == {}


async def test_after_the_stop_nothing_is_followed_again() -> None:
    async with running() as (leader, follower):
        leader.lead(0)
        await follower.fetchers.stop()
        await follower.fetch_from(leader, 0)
        assert follower.connections == {}


async def test_removing_one_partition_does_not_wait_for_the_truncation_of_others() -> None:
    async with running() as (leader, follower):
        other = TopicPartition("other", 0)
        follower.lead(0)
        follower.produce(b"f0")
        follower.flush(follower.partition())
        leader.lead(1)
        leader.lead(0, other)
        await follower.fetch_from(leader, 0, other)
        follower.gated.gate.clear()
        await follower.fetch_from(leader, 1)
        await until(lambda: follower.gated.waiting)
        await follower.fetchers.remove([other])


async def test_a_follower_acknowledges_nothing_before_it_is_flushed() -> None:
    async with running() as (leader, follower):
        leader.lead(0, isr=(1, 2))
        await follower.fetch_from(leader, 0)
        follower.log().update_config(LogConfig({"flush.messages": "1"}))
        follower.gated.gate.clear()
        leader.produce(b"m0")
        await until(has(follower, b"m0"))
        await asyncio.sleep(0.05)
        assert leader.log().state.high_watermark == 0
        follower.gated.gate.set()
        await until(lambda: leader.log().state.high_watermark == 1)
        assert follower.log().state.recovery_point == 1


async def test_a_follower_whose_flush_fails_is_reported_and_not_followed() -> None:
    async with running() as (leader, follower):
        leader.lead(0, isr=(1, 2))
        await follower.fetch_from(leader, 0)
        partition = follower.partition()
        follower.log().update_config(LogConfig({"flush.messages": "1"}))
        follower.gated.fail_sync = OSError(5, "the disk is gone")
        leader.produce(b"m0")
        await until(lambda: follower.failed_logs)
        assert follower.failed_logs == [partition]
        assert follower.fetchers.failed_partitions == 1
        assert leader.log().state.high_watermark == 0
        await follower.fetchers.remove([KEY])
        assert follower.fetchers.failed_partitions == 0


async def test_a_fenced_follower_is_counted_until_it_is_added_again() -> None:
    async with running() as (leader, follower):
        leader.lead(1)
        leader.produce(b"m0")
        await follower.fetch_from(leader, 0)
        await until(lambda: follower.fetchers.failed_partitions == 1)
        assert not follower.failed_logs
        await follower.fetch_from(leader, 1)
        assert follower.fetchers.failed_partitions == 0
        await until(has(follower, b"m0"))


async def test_a_partition_that_is_not_hosted_is_left_out() -> None:
    async with running() as (leader, follower):
        leader.lead(0)
        await follower.fetchers.add({KEY: FetchFrom(1, 0, TOPIC_ID)})
        assert not follower.connections


async def test_other_tasks_run_while_a_large_response_is_applied() -> None:
    keys = [TopicPartition("orders", number) for number in range(100)]
    async with running(replica_fetch_response_max_bytes=10 << 20) as (leader, follower):
        for key in keys:
            leader.lead(0, key)
            leader.produce(b"m" * 50_000, key=key)
        await follower.fetch_from(leader, 0, *keys)
        seen: set[int] = set()
        async with asyncio.timeout(PATIENCE_S):
            while len(keys) not in seen:
                seen.add(sum(1 for key in keys if follower.log(key).state.log_end_offset))
                await asyncio.sleep(0)  # one turn of the loop
        assert len(seen) > 10


async def test_a_consumer_that_waits_at_a_follower_is_woken_by_its_high_watermark() -> None:
    async with running() as (leader, follower):
        leader.lead(0)
        await follower.fetch_from(leader, 0)
        waiting = FetchTarget(KEY, 0, max_bytes=1000)
        partition = follower.partition()
        partition.watchers[waiting] = None
        leader.produce(b"m0")
        await until(lambda: waiting not in partition.watchers)
