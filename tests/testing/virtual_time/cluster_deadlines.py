"""What falls due in a cluster of two brokers; as deadlines.py."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from odradek.broker.server import Broker
from odradek.clients.network_client import NetworkClient
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest
from odradek.testing import BrokerStatus, Cluster
from tests.patience import until
from tests.wire.records import produce_on
from tests.wire.requests import commit

HOUR_S = 3600
HOUR_MS = HOUR_S * 1000
LONG_MS = 100 * HOUR_MS
WITHIN_A_STOP_S = 18
"""A broker that leaves waits for its controller for 22 s at most, whatever its settings are."""
CONTROLLER, OTHER = 1, 2
"""Broker 1 is the first one, and the controller."""


Connect = Callable[[int], Awaitable[NetworkClient]]


class ClusterDeadline(NamedTuple):
    """As Deadline. `begin(cluster, client)`: `client` connects to a broker."""

    setting: str
    value: int
    begin: Callable[[Cluster, Connect], Awaitable[Callable[[], bool]]]
    after_s: float = HOUR_S
    slack_s: float = 3
    beside: Mapping[str, object] = MappingProxyType({})


def as_broker(cluster: Cluster, broker_id: int, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Runs a coroutine of a broker beside the test. Its error is not of interest."""
    task = asyncio.ensure_future(cluster.run(broker_id, coroutine))
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


def fetches(broker: Broker, leader_id: int) -> int:
    """How many requests a broker's fetcher has sent on its connection to a leader; -1 without a connection."""
    client = broker.links.peers.peer(leader_id, "fetcher-0")._client
    return -1 if client is None or not client.is_connected else client._next_correlation_id


async def topic(cluster: Cluster, leader: int) -> None:
    follower = CONTROLLER + OTHER - leader
    await cluster.create_topic("t", assignments={0: [leader, follower]})
    await cluster.wait_for_isr("t", 0, {leader, follower})


async def end_of_a_session(cluster: Cluster, client: Connect) -> Callable[[], bool]:
    cluster.kill(OTHER)
    return lambda: sorted(cluster.brokers[CONTROLLER].metadata.brokers) == [CONTROLLER]


async def end_of_a_lagging_replica(cluster: Cluster, client: Connect) -> Callable[[], bool]:
    await topic(cluster, CONTROLLER)
    cluster.freeze_replication(OTHER)
    assert await produce_on(await client(CONTROLLER), "t", b"x", acks=1) == ErrorCode.NONE
    return lambda: cluster.isr("t", 0) == {CONTROLLER}


async def balance_of_leaders(cluster: Cluster, client: Connect) -> Callable[[], bool]:
    await topic(cluster, OTHER)
    await cluster.restart(OTHER)
    await cluster.wait_for_leader("t", 0, CONTROLLER)
    await cluster.wait_until_stable()
    return lambda: cluster.leader("t", 0) == OTHER


async def next_fetch(cluster: Cluster, client: Connect) -> Callable[[], bool]:
    await topic(cluster, CONTROLLER)
    follower = cluster.brokers[OTHER]
    await until(lambda: fetches(follower, CONTROLLER) > 0)
    await cluster.advance(2 * HOUR_S)  # the session has the topic now, and a fetch waits
    await cluster.advance_until(_changes(lambda: fetches(follower, CONTROLLER)))
    return _changes(lambda: fetches(follower, CONTROLLER))


async def end_of_a_fetch(cluster: Cluster, client: Connect) -> Callable[[], bool]:
    """The cut keeps the answer to a fetch from the follower."""
    await topic(cluster, CONTROLLER)
    follower = cluster.brokers[OTHER]
    await until(lambda: fetches(follower, CONTROLLER) > 0)
    cluster.cut(CONTROLLER, OTHER)
    return lambda: fetches(follower, CONTROLLER) == -1


async def next_attempt_to_fetch(cluster: Cluster, client: Connect) -> Callable[[], bool]:
    """The delay has grown as far as it does."""
    await topic(cluster, CONTROLLER)
    follower = cluster.brokers[OTHER]
    cluster.kill(CONTROLLER)
    await cluster.advance(5 * HOUR_S)

    def failures() -> int:
        return sum(loop.fetcher._failures for loop in follower.cluster.fetchers._loops.values())

    assert failures() > 5
    await cluster.advance_until(_changes(failures), within=2 * HOUR_S)
    return _changes(failures)


async def end_of_an_attempt_to_connect(cluster: Cluster, client: Connect) -> Callable[[], bool]:
    cluster.cut(CONTROLLER, OTHER)
    peer = cluster.brokers[CONTROLLER].links.peers.peer(OTHER, "probe")
    return as_broker(cluster, CONTROLLER, peer.send(ApiVersionsRequest())).done


async def answer_of_the_controller(cluster: Cluster, client: Connect) -> Callable[[], bool]:
    await topic(cluster, OTHER)
    cluster.cut(CONTROLLER, OTHER)
    stopping = asyncio.ensure_future(cluster.stop(OTHER))
    return stopping.done


async def second_attempt_to_stop(cluster: Cluster, client: Connect) -> Callable[[], bool]:
    """The last replica cannot hand its leadership over."""
    await topic(cluster, OTHER)
    await cluster.stop(CONTROLLER)
    await cluster.wait_for_leader("t", 0, OTHER)
    await until(lambda: cluster.controller == OTHER)
    stopping = asyncio.ensure_future(cluster.stop(OTHER))
    await until(lambda: cluster.status(OTHER) is BrokerStatus.STOPPING)
    return stopping.done


async def end_of_a_commit(cluster: Cluster, client: Connect) -> Callable[[], bool]:
    first = await client(CONTROLLER)
    found = FindCoordinatorRequest(key="g", key_type=0)
    await until(lambda: _is_ok(first.send(found, version=2)))
    coordinator = (await first.send(found, version=2)).node_id
    second = await client(coordinator)
    request: OffsetCommitRequest = commit("g", "t", 0, 7)
    await topic(cluster, CONTROLLER)
    await until(lambda: _is_committed(second, request))
    await cluster.wait_until_stable()
    cluster.freeze_replication(CONTROLLER + OTHER - coordinator)
    waiting = asyncio.ensure_future(second.send(request, version=7, timeout_ms=120_000))
    return waiting.done


async def _is_ok(answer: Awaitable[Any]) -> bool:
    return bool((await answer).error_code == ErrorCode.NONE)


async def _is_committed(client: NetworkClient, request: OffsetCommitRequest) -> bool:
    (found,) = (await client.send(request, version=7)).topics
    return bool(found.partitions[0].error_code == ErrorCode.NONE)


async def creation_of_a_topic(cluster: Cluster, client: Connect) -> Callable[[], bool]:
    other = await client(OTHER)
    cluster.cut(CONTROLLER, OTHER)
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="new")])
    return asyncio.ensure_future(other.send(asked, version=9, timeout_ms=120_000)).done


def _changes(number: Callable[[], int]) -> Callable[[], bool]:
    before = number()
    return lambda: number() != before


SLOW: dict[str, object] = {"replica.lag.time.max.ms": LONG_MS, "replica.socket.timeout.ms": LONG_MS}
"""Nothing else happens to a replica that is slow."""
CLUSTER = [
    ClusterDeadline("zookeeper.session.timeout.ms", HOUR_MS, end_of_a_session),
    ClusterDeadline("replica.lag.time.max.ms", HOUR_MS, end_of_a_lagging_replica, 1.25 * HOUR_S, 0.26 * HOUR_S),
    ClusterDeadline("leader.imbalance.check.interval.seconds", HOUR_S, balance_of_leaders),
    ClusterDeadline("replica.fetch.wait.max.ms", HOUR_MS, next_fetch, beside=SLOW),
    ClusterDeadline("replica.socket.timeout.ms", HOUR_MS, end_of_a_fetch, beside={"replica.lag.time.max.ms": LONG_MS}),
    ClusterDeadline(
        "replica.fetch.backoff.ms",
        HOUR_MS,
        next_attempt_to_fetch,
        beside={**SLOW, "zookeeper.session.timeout.ms": LONG_MS},
    ),
    ClusterDeadline("socket.connection.setup.timeout.ms", HOUR_MS, end_of_an_attempt_to_connect),
    ClusterDeadline(
        "controller.socket.timeout.ms",
        WITHIN_A_STOP_S * 1000,
        answer_of_the_controller,
        WITHIN_A_STOP_S,
        slack_s=12,
        beside={"controlled.shutdown.max.retries": 1, **SLOW},
    ),
    ClusterDeadline(
        "controlled.shutdown.retry.backoff.ms",
        WITHIN_A_STOP_S * 1000,
        second_attempt_to_stop,
        WITHIN_A_STOP_S,
        beside={"controlled.shutdown.max.retries": 2},
    ),
    ClusterDeadline("offsets.commit.timeout.ms", HOUR_MS, end_of_a_commit, beside=SLOW),
    ClusterDeadline(
        "request.timeout.ms",
        HOUR_MS,
        creation_of_a_topic,
        slack_s=12,
        beside=SLOW,
    ),
]
