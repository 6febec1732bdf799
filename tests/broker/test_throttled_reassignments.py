"""Reassignments with a throttle, in clusters within this process. (KIP-73)

Nothing is timed from above: a slow machine copies less, and the test then takes longer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from odradek.broker.metrics.families import FAMILIES
from odradek.broker.replica.quota.replication_quota import UNLIMITED
from odradek.clients.admin.client import AdminClient
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import ConfigOperation, ConfigResourceType
from odradek.testing import Cluster, in_process_broker, in_process_cluster
from tests.wire.records import connect, produce_on

BATCH = 20_000
LIMIT = 400_000
LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
T0 = TopicPartition("t", 0)
PATIENCE_S = 60


class Moving:
    """The topic t of one partition: brokers 1 and 2 have it, and broker 3 is to get it, too."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.admin = AdminClient(cluster.bootstrap, timeout_ms=20_000)

    async def fill(self, batches: int) -> None:
        async with await connect(self.cluster.bootstrap_of(1)) as client:
            for _ in range(batches):
                assert await produce_on(client, "t", b"v" * BATCH) is ErrorCode.NONE

    async def throttle(self, *brokers: int, **rates: int) -> None:
        """Sets rates of brokers, by the names above."""
        for broker in brokers:
            for name, rate in rates.items():
                await self.alter(ConfigResourceType.BROKER, str(broker), name.replace("_", "."), str(rate))

    async def list(self, *, leaders: str = "", followers: str = "") -> None:
        """Sets the topic's lists of throttled replicas."""
        for name, listed in ((LEADERS, leaders), (FOLLOWERS, followers)):
            await self.alter(ConfigResourceType.TOPIC, "t", name, listed)

    async def alter(self, kind: ConfigResourceType, name: str, setting: str, value: str | None) -> None:
        operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
        await self.admin.alter_configs(kind, name, [(setting, operation, value)])

    async def reassign(self) -> float:
        """Begins, and returns when that was."""
        controller = self.cluster.controller
        assert controller is not None
        begun = asyncio.get_running_loop().time()
        reassigning = self.cluster.brokers[controller].controller.replicas.reassign({T0: [1, 2, 3]})
        outcomes = await self.cluster.run(controller, reassigning)
        assert list(outcomes) == [T0]
        return begun

    @property
    def copied(self) -> int:
        """How many bytes broker 3 has."""
        replica = self.cluster.replica(3, "t", 0)
        return 0 if replica is None else replica.log.segments.size_in_bytes

    @property
    def is_in_sync(self) -> bool:
        return 3 in self.cluster.isr("t", 0)

    async def watch(self, begun: float, limit: int) -> None:
        """Waits until broker 3 is in sync. Meanwhile it never has more than the limit allows."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(PATIENCE_S):
            while not self.is_in_sync:
                copied = self.copied
                allowed = limit * (loop.time() - begun + 0.5)
                assert copied <= allowed * 1.05 + 2 * BATCH
                await asyncio.sleep(0.01)


@pytest.fixture
async def moving() -> AsyncIterator[Moving]:
    async with in_process_cluster(3) as cluster:
        await cluster.create_topic("t", assignments={0: [1, 2]})
        moving = Moving(cluster)
        async with moving.admin:
            yield moving


def byte_rates(cluster: Cluster, broker_id: int) -> tuple[float, float]:
    """The metrics of a broker's leaders and of its followers."""
    families = {family.name: family for family in FAMILIES}
    sources = cluster.brokers[broker_id].metric_sources()
    found = []
    for side in ("leader", "follower"):
        ((_, rate),) = families[f"kafka_server_{side}replication_byte_rate"].read(sources)
        found.append(rate)
    return found[0], found[1]


@pytest.mark.parametrize(
    ("rates", "lists"),
    [
        ({1: LEADER_RATE, 2: LEADER_RATE}, {"leaders": "0:1,0:2"}),
        ({3: FOLLOWER_RATE}, {"followers": "0:3"}),
    ],
    ids=["leaders", "followers"],
)
async def test_a_reassignment_is_no_faster_than_its_throttle(
    moving: Moving, rates: Mapping[int, str], lists: Mapping[str, str]
) -> None:
    await moving.fill(60)
    for broker, rate in rates.items():
        await moving.throttle(broker, **{rate: LIMIT})
    await moving.list(**lists)
    await moving.watch(await moving.reassign(), LIMIT)
    leaders, followers = byte_rates(moving.cluster, 1)[0], byte_rates(moving.cluster, 3)[1]
    assert (leaders > 0, followers > 0) == ("leaders" in lists, "followers" in lists)
    await moving.cluster.wait_until_stable()


async def test_a_list_that_names_other_replicas_throttles_nothing(moving: Moving) -> None:
    await moving.fill(20)
    await moving.throttle(1, 2, 3, **{LEADER_RATE: 1, FOLLOWER_RATE: 1})
    await moving.list(leaders="1:1,0:3", followers="0:1,1:3")
    await moving.reassign()
    await moving.cluster.wait_for_isr("t", 0, {1, 2, 3})


async def test_replicas_in_sync_are_not_throttled_and_a_raised_limit_takes_effect_at_once(moving: Moving) -> None:
    await moving.fill(20)
    await moving.throttle(1, 2, 3, **{LEADER_RATE: 1, FOLLOWER_RATE: 1})
    await moving.list(leaders="*", followers="*")
    await moving.reassign()
    await moving.cluster.wait_until(lambda: moving.copied > 0)
    await moving.fill(40)
    assert not moving.is_in_sync
    assert moving.cluster.isr("t", 0) == {1, 2}
    assert moving.copied < 20 * BATCH

    await moving.throttle(1, 3, **{LEADER_RATE: 1 << 40, FOLLOWER_RATE: 1 << 40})
    await moving.cluster.wait_for_isr("t", 0, {1, 2, 3})


@pytest.mark.parametrize("removed", ["rates", "lists"])
async def test_a_reassignment_goes_on_at_full_speed_once_the_throttle_is_removed(
    moving: Moving, removed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Followers are woken: by themselves they would not look again for minutes."""
    monkeypatch.setattr("odradek.broker.replica.quota.replication_quota.LONGEST_WAIT_MS", 600_000)
    await moving.fill(40)
    await moving.throttle(1, 3, **{LEADER_RATE: 1, FOLLOWER_RATE: 1})
    await moving.list(leaders="0:1", followers="0:3")
    await moving.reassign()
    await moving.cluster.wait_until(lambda: moving.copied > 0)
    assert not moving.is_in_sync
    if removed == "lists":
        for name in (LEADERS, FOLLOWERS):
            await moving.alter(ConfigResourceType.TOPIC, "t", name, None)
    else:
        for broker in ("1", "3"):
            for name in (LEADER_RATE, FOLLOWER_RATE):
                await moving.alter(ConfigResourceType.BROKER, broker, name, None)
    await moving.cluster.wait_for_isr("t", 0, {1, 2, 3})


async def test_the_default_of_all_brokers_applies_to_a_broker_without_a_rate(moving: Moving) -> None:
    await moving.alter(ConfigResourceType.BROKER, "", LEADER_RATE, "7000")
    await moving.throttle(2, **{LEADER_RATE: 8000})
    limits = {broker_id: broker.replica_manager.leader_quota for broker_id, broker in moving.cluster.brokers.items()}
    await moving.cluster.wait_until(lambda: [limits[each].limit for each in (1, 2, 3)] == [7000, 8000, 7000])
    await moving.alter(ConfigResourceType.BROKER, "2", LEADER_RATE, None)
    await moving.cluster.wait_until(lambda: limits[2].limit == 7000)


@pytest.mark.parametrize("name", [LEADER_RATE, FOLLOWER_RATE, "replica.alter.log.dirs.io.max.bytes.per.second"])
@pytest.mark.parametrize("value", ["-1", "x", "", "1.5", str(1 << 63)])
async def test_a_rate_that_is_none_is_refused(name: str, value: str) -> None:
    async with in_process_broker() as broker, AdminClient(broker.bootstrap) as admin:
        for of in (str(broker.broker_id), ""):
            with pytest.raises(ProtocolError, match=name) as refused:
                await admin.alter_configs(ConfigResourceType.BROKER, of, [(name, ConfigOperation.SET, value)])
            assert refused.value.code is ErrorCode.INVALID_REQUEST
        assert not broker.replica_manager.leader_quota.is_limited


@pytest.mark.parametrize("name", [LEADERS, FOLLOWERS])
@pytest.mark.parametrize("value", ["x", "1", "1:", "*,0:1", "0:1;1:1", "-1:0"])
async def test_a_list_of_throttled_replicas_that_is_none_is_refused(moving: Moving, name: str, value: str) -> None:
    with pytest.raises(ProtocolError, match=name) as refused:
        await moving.alter(ConfigResourceType.TOPIC, "t", name, value)
    assert refused.value.code is ErrorCode.INVALID_CONFIG


async def test_the_windows_of_the_quotas_are_settings() -> None:
    settings = {"replication.quota.window.num": "3", "replication.quota.window.size.seconds": "2"}
    async with in_process_broker(settings) as broker:
        manager = broker.replica_manager
        for quota in (manager.leader_quota, manager.follower_quota):
            quota.set_limit(1000)
            assert quota.share == 60
            quota.record(4000)
            assert quota.byte_rate == 2000


def limits(cluster: Cluster) -> dict[int, tuple[int, int]]:
    """What each broker's leaders and followers may exchange in a second."""
    managers = {broker_id: broker.replica_manager for broker_id, broker in cluster.brokers.items()}
    return {each: (manager.leader_quota.limit, manager.follower_quota.limit) for each, manager in managers.items()}


def lists(cluster: Cluster) -> tuple[list[str], list[str]]:
    """What the topic's leader knows of its throttled replicas."""
    replica = cluster.replica(1, "t", 0)
    assert replica is not None
    config = replica.log.config
    return config.leader_replication_throttled_replicas, config.follower_replication_throttled_replicas


async def output_of(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


async def test_kafkas_tool_sets_the_throttle_raises_it_and_removes_it(
    moving: Moving, java_tools: list[str], tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2, 3]}]}))
    tool = [*java_tools, REASSIGN, "--bootstrap-server", moving.cluster.bootstrap]
    of_the_plan = ["--reassignment-json-file", str(plan)]
    await moving.fill(40)
    await output_of(*tool, "--execute", "--throttle", "2000", *of_the_plan)
    assert limits(moving.cluster) == dict.fromkeys((1, 2, 3), (2000, 2000))
    assert lists(moving.cluster) == (["0:1", "0:2"], ["0:3"])
    assert moving.cluster.is_reassigned("t")

    await output_of(*tool, "--execute", "--additional", "--throttle", str(1 << 30), *of_the_plan)
    assert limits(moving.cluster) == dict.fromkeys((1, 2, 3), (1 << 30, 1 << 30))
    await moving.cluster.wait_for_isr("t", 0, {1, 2, 3})
    await moving.cluster.wait_until_stable()

    await output_of(*tool, "--verify", *of_the_plan)
    assert limits(moving.cluster) == dict.fromkeys((1, 2, 3), (UNLIMITED, UNLIMITED))
    assert lists(moving.cluster) == ([], [])
