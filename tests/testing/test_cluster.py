"""A cluster within the process: what it is, what can be done to its brokers, and how tests wait for it."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import structlog

from odradek.broker.server import BrokerState
from odradek.broker.start_error import StartError
from odradek.clients.network_errors import Disconnected, NodeUnreachable
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.topic_partition import TopicPartition
from odradek.testing import (
    BrokerStatus,
    BrokerThread,
    Cluster,
    ClusterThread,
    NotReached,
    in_process_broker,
    in_process_cluster,
)
from odradek.testing.node_loop import NodeEnded
from tests.patience import soon, until
from tests.soak import SOAK, rounds
from tests.testing.leftovers import left_behind
from tests.wire.records import connect, produce, produce_on, values

OK = ErrorCode.NONE
OTHERS = {1: frozenset({2, 3}), 2: frozenset({1, 3}), 3: frozenset({1, 2})}


@pytest.fixture(autouse=True)
def logs_of_a_new_process() -> Iterator[None]:
    """Another test of this process may have left structlog configured."""
    before = structlog.get_config() if structlog.is_configured() else None
    structlog.reset_defaults()
    yield
    if before is not None:
        structlog.configure(**before)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Three brokers and a topic "t" with one partition, which all of them have."""
    async with in_process_cluster() as cluster:
        await cluster.create_topic("t")
        yield cluster


def leader_of(cluster: Cluster) -> int:
    leader = cluster.leader("t", 0)
    assert leader is not None
    return leader


async def consumers_read(cluster: Cluster, *expected: bytes) -> None:
    """Waits until these are the committed records. A new leader may have to hear first how far its followers are."""

    async def are_read() -> bool:
        return await values(cluster.bootstrap_of(leader_of(cluster)), "t") == list(expected)

    await until(are_read)


def bytes_of(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


# --- what there is


async def test_brokers_know_each_other_and_one_is_the_controller(cluster: Cluster) -> None:
    assert cluster.ids == cluster.running == [1, 2, 3]
    assert [broker.broker_id for broker in cluster.brokers.values()] == [1, 2, 3]
    assert {broker.state for broker in cluster.brokers.values()} == {BrokerState.RUNNING}
    assert {broker.metadata.controller_id for broker in cluster.brokers.values()} == {cluster.controller}
    assert [sorted(broker.metadata.brokers) for broker in cluster.brokers.values()] == [[1, 2, 3]] * 3
    assert cluster.bootstrap == ",".join(broker.bootstrap for broker in cluster.brokers.values())


@pytest.mark.soak("the start of a cluster on a quiet machine", minutes=0.1)
async def test_a_cluster_starts_in_less_than_half_a_second() -> None:
    times: list[float] = []
    for _ in range(rounds(1, in_soak=3)):
        began = time.perf_counter()
        async with in_process_cluster():
            times.append(time.perf_counter() - began)
    assert min(times) < 0.5 or not SOAK


async def test_topics_have_three_replicas_of_which_two_acknowledge(cluster: Cluster) -> None:
    state = cluster.partition("t", 0)
    assert state is not None
    assert sorted(state.replicas) == [1, 2, 3]
    assert cluster.isr("t", 0) == {1, 2, 3}
    assert await produce(cluster.bootstrap_of(leader_of(cluster)), "t", b"1") is OK
    cluster.kill(min(OTHERS[leader_of(cluster)]))
    await cluster.wait_for_isr("t", 0, set(cluster.running))
    assert await produce(cluster.bootstrap_of(leader_of(cluster)), "t", b"2") is OK
    for follower in OTHERS[leader_of(cluster)] & set(cluster.running):
        cluster.kill(follower)
    await cluster.wait_for_isr("t", 0, {leader_of(cluster)})
    assert await produce(cluster.bootstrap_of(leader_of(cluster)), "t", b"3") is ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize("brokers", [1, 2, 5])
async def test_a_cluster_has_as_many_brokers_as_it_should_have(brokers: int) -> None:
    async with in_process_cluster(brokers=brokers) as cluster:
        assert cluster.running == list(range(1, brokers + 1))
        await cluster.create_topic("t", 2)
        assert len(cluster.isr("t", 1)) == min(brokers, 3)
        leader = await cluster.wait_for_leader("t", 1)
        assert cluster.replica(leader, "t", 1) is not None
    with pytest.raises(ValueError, match="at least one"):
        async with in_process_cluster(brokers=0):
            pass


async def test_settings_are_those_of_all_brokers_and_of_single_ones() -> None:
    racks = {1: {"broker.rack": "a"}, 3: {"broker.rack": "c"}}
    async with in_process_cluster(settings_of=racks, num_partitions=4) as it:
        assert [broker.config.num_partitions for broker in it.brokers.values()] == [4, 4, 4]
        assert [broker.rack for broker in it.brokers[2].metadata.brokers.values()] == ["a", None, "c"]
    for name in ("broker.id", "listeners", "log.dirs"):
        with pytest.raises(ValueError, match=f"{name} is chosen by the cluster"):
            async with in_process_cluster(settings={name: "1"}):
                pass


async def test_a_topic_can_have_chosen_replicas(cluster: Cluster) -> None:
    await cluster.create_topic("chosen", assignments={0: [3, 1], 1: [2, 3]}, configs={"retention.ms": 1000})
    assert cluster.leader("chosen", 0) == 3
    assert cluster.leader("chosen", 1) == 2
    assert cluster.isr("chosen", 0) == {1, 3}
    assert cluster.brokers[1].metadata.topic_config("chosen") == {"retention.ms": "1000"}


async def test_data_in_a_given_directory_is_kept(tmp_path: Path) -> None:
    async with in_process_cluster(data_dir=tmp_path) as first:
        await first.create_topic("t")
        assert await produce(first.bootstrap_of(leader_of(first)), "t", b"kept") is OK
        assert first.data_dir(2) == tmp_path / "broker-2"
    assert [broker.unclean_directories for broker in first.brokers.values()] == [{}] * 3
    log = next((tmp_path / "broker-1").glob("t-0/*.log"))
    assert b"kept" in log.read_bytes()
    assert (tmp_path / "broker-1" / ".kafka_cleanshutdown").exists()


@pytest.mark.usefixtures("isolated")
async def test_nothing_is_left_behind_whatever_was_done_to_the_brokers() -> None:
    async def one() -> None:
        async with in_process_cluster() as cluster:
            await cluster.create_topic("t")
            assert await produce(cluster.bootstrap_of(leader_of(cluster)), "t", b"v") is OK
            cluster.kill(1)
            cluster.pause(2)
            cluster.cut_off(3)
            cluster.freeze_replication(3)

    await one()
    before, tasks = left_behind(), asyncio.all_tasks()
    await one()
    assert left_behind() == before
    assert asyncio.all_tasks() == tasks


async def test_a_stopped_broker_leaves_no_task_behind(cluster: Cluster) -> None:
    loops = [member.loop for member in cluster.members.values()]
    assert await produce(cluster.bootstrap_of(leader_of(cluster)), "t", b"v") is OK
    for broker_id in (1, 2):
        loop = loops[broker_id - 1]
        assert loop is not None
        await loop.run(cluster.brokers[broker_id].stop())
        assert asyncio.all_tasks(loop) == set()


# --- stop and start


async def test_a_broker_that_stops_hands_its_leaderships_over(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    await cluster.stop(leader)
    assert cluster.status(leader) is BrokerStatus.STOPPED
    after = cluster.partition("t", 0)
    assert after is not None
    assert after.leader in OTHERS[leader]
    assert after.leader_epoch == 1
    with pytest.raises(NodeUnreachable):
        await connect(cluster.bootstrap_of(leader))
    assert await produce(cluster.bootstrap_of(await cluster.wait_for_leader("t", 0)), "t", b"v") is OK
    await cluster.start(leader)
    await cluster.wait_for_isr("t", 0, {1, 2, 3})
    replica = cluster.replica(leader, "t", 0)
    assert replica is not None
    assert replica.log.state.log_end_offset == 1


async def test_brokers_restart_one_after_the_other_with_the_same_addresses(cluster: Cluster) -> None:
    bootstrap = cluster.bootstrap
    for number, broker_id in enumerate(cluster.ids):
        assert await produce(cluster.bootstrap_of(leader_of(cluster)), "t", b"%d" % number) is OK
        await cluster.restart(broker_id)
        await cluster.wait_until_stable()
    assert cluster.bootstrap == bootstrap
    await consumers_read(cluster, b"0", b"1", b"2")


async def test_what_cannot_be_done_to_a_broker_is_refused(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="broker 1 is running"):
        await cluster.start(1)
    with pytest.raises(ValueError, match="broker 1 is running"):
        cluster.resume(1)
    cluster.kill(1)
    with pytest.raises(ValueError, match="broker 1 is killed"):
        await cluster.stop(1)
    with pytest.raises(ValueError, match="broker 1 is killed"):
        cluster.pause(1)
    with pytest.raises(ValueError, match="broker 1 is killed"):
        cluster.kill(1)


# --- kill


async def test_a_killed_broker_writes_nothing_more_and_starts_with_what_it_had(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    client = await connect(cluster.bootstrap_of(leader))
    assert await produce_on(client, "t", b"acknowledged") is OK
    cluster.kill(leader)
    before = bytes_of(cluster.data_dir(leader))
    assert cluster.status(leader) is BrokerStatus.KILLED
    assert leader not in cluster.running
    assert cluster.leader("t", 0) is None
    with pytest.raises(Disconnected):
        await client.send(ApiVersionsRequest(), version=0)
    await client.close()
    with pytest.raises(NodeUnreachable):
        await connect(cluster.bootstrap_of(leader))
    other = await cluster.wait_for_leader("t", 0)
    assert other in OTHERS[leader]
    assert bytes_of(cluster.data_dir(leader)) == before
    assert ".kafka_cleanshutdown" not in before
    await cluster.start(leader)
    await cluster.wait_for_isr("t", 0, {1, 2, 3})
    await consumers_read(cluster, b"acknowledged")


async def test_a_broker_that_starts_at_once_after_a_kill_waits_for_the_end_of_its_old_session(cluster: Cluster) -> None:
    epoch = cluster.brokers[2].links.registration.broker_epoch()
    cluster.kill(2)
    await cluster.start(2)
    await cluster.wait_until_stable()
    assert cluster.brokers[2].links.registration.broker_epoch() > epoch


async def test_the_controller_can_be_killed(cluster: Cluster) -> None:
    first = cluster.controller
    assert first is not None
    cluster.kill(first)
    assert cluster.controller is None
    await cluster.wait_until(lambda: cluster.controller in OTHERS[first])
    await cluster.create_topic("after", replication_factor=2)
    await cluster.start(first)
    await cluster.wait_until_stable()
    assert cluster.brokers[first].metadata.topic_names() == ["after", "t"]


async def test_a_kill_ends_a_start_and_a_stop_that_are_under_way(cluster: Cluster) -> None:
    stopping = asyncio.create_task(cluster.stop(1))
    await asyncio.sleep(0)
    assert cluster.status(1) is BrokerStatus.STOPPING
    cluster.kill(1)
    with pytest.raises(NodeEnded):
        await stopping
    assert cluster.status(1) is BrokerStatus.KILLED
    starting = asyncio.create_task(cluster.start(1))
    await soon(lambda: cluster.status(1) is BrokerStatus.STARTING)
    cluster.kill(1)
    with pytest.raises(NodeEnded):
        await starting
    await cluster.start(1)
    await cluster.wait_until_stable()


@pytest.mark.parametrize("turns", [1, 10])
async def test_a_start_that_is_killed_undoes_nothing(cluster: Cluster, turns: int) -> None:
    await cluster.stop(1)
    with structlog.testing.capture_logs() as lines:
        starting = asyncio.create_task(cluster.start(1))
        await soon(lambda: cluster.status(1) is BrokerStatus.STARTING)
        for _ in range(turns):
            await asyncio.sleep(0)
        cluster.kill(1)
        await asyncio.gather(starting, return_exceptions=True)  # it may have been quicker
    assert [line for line in lines if line["log_level"] == "error"] == []


async def test_a_broker_that_cannot_start_is_stopped_and_can_start_later(cluster: Cluster) -> None:
    await cluster.stop(1)
    identity = cluster.data_dir(1) / "meta.properties"
    text = identity.read_text()
    identity.write_text(text.replace("broker.id=1", "broker.id=9"))
    with pytest.raises(StartError):
        await cluster.start(1)
    assert cluster.status(1) is BrokerStatus.STOPPED
    identity.write_text(text)
    await cluster.start(1)
    await cluster.wait_until_stable()


async def test_killed_brokers_are_collected(cluster: Cluster) -> None:
    dead = weakref.ref(cluster.brokers[3])
    cluster.kill(3)
    await cluster.start(3)
    await cluster.wait_until_stable()
    await asyncio.sleep(0.01)
    gc.collect()
    assert dead() is None


# --- pause


async def test_a_short_pause_is_only_a_delay(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    async with await connect(cluster.bootstrap_of(leader)) as client:
        cluster.pause(leader)
        assert cluster.status(leader) is BrokerStatus.PAUSED
        producing = asyncio.create_task(produce_on(client, "t", b"v"))
        await asyncio.sleep(0.1)
        assert not producing.done()
        cluster.resume(leader)
        assert await producing is OK
    assert leader_of(cluster) == leader
    state = cluster.partition("t", 0)
    assert state is not None
    assert state.leader_epoch == 0
    await asyncio.sleep(0.6)  # more than the session time-out after the pause
    assert cluster.running == sorted(cluster.brokers[leader].metadata.brokers) == [1, 2, 3]


async def test_a_leader_that_was_paused_for_long_acknowledges_nothing_with_acks_all(cluster: Cluster) -> None:
    old = leader_of(cluster)
    async with await connect(cluster.bootstrap_of(old)) as client:
        assert await produce_on(client, "t", b"before") is OK
        cluster.pause(old)
        held = asyncio.create_task(produce_on(client, "t", b"held"))
        new = await cluster.wait_for_leader("t", 0)
        assert new != old
        assert await produce(cluster.bootstrap_of(new), "t", b"after") is OK
        assert not held.done()
        cluster.resume(old)
        assert await held in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT)
    await cluster.wait_for_isr("t", 0, {1, 2, 3})
    await cluster.wait_until_stable()
    await consumers_read(cluster, b"before", b"after")
    replica = cluster.replica(old, "t", 0)
    assert replica is not None
    assert replica.log.state.log_end_offset == 2


async def test_a_paused_broker_can_be_killed(cluster: Cluster) -> None:
    cluster.pause(1)
    cluster.kill(1)
    await cluster.start(1)
    await cluster.wait_until_stable()


# --- cuts


async def test_a_follower_that_is_cut_from_its_leader_leaves_the_isr_and_comes_back(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    follower = sorted(OTHERS[leader] - {cluster.controller})[0]
    other = min(OTHERS[leader] - {follower})
    cluster.cut(leader, follower)
    assert await produce(cluster.bootstrap_of(leader), "t", b"v", acks=1) is OK
    await cluster.wait_for_isr("t", 0, {leader, other})
    assert cluster.running == [1, 2, 3], "its session is alive"
    assert sorted(cluster.brokers[other].metadata.brokers) == [1, 2, 3]
    cluster.heal(leader, follower)
    await cluster.wait_for_isr("t", 0, {1, 2, 3})
    await cluster.wait_until_stable()


async def test_a_leader_that_is_cut_off_is_replaced_and_its_tail_is_truncated(cluster: Cluster) -> None:
    old = leader_of(cluster)
    assert await produce(cluster.bootstrap_of(old), "t", b"1") is OK
    cluster.cut_off(old)
    assert await produce(cluster.bootstrap_of(old), "t", b"lost", acks=1) is OK
    new = await cluster.wait_for_leader("t", 0)
    assert new in OTHERS[old]
    assert await produce(cluster.bootstrap_of(new), "t", b"2") is OK
    waiting = asyncio.create_task(produce(cluster.bootstrap_of(old), "t", b"unacknowledged"))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    cluster.heal(old)
    assert await waiting is ErrorCode.NOT_LEADER_OR_FOLLOWER
    await cluster.wait_until_stable()
    await consumers_read(cluster, b"1", b"2")
    assert bytes_of(cluster.data_dir(old))["t-0/00000000000000000000.log"].count(b"lost") == 0


async def test_a_broker_that_is_cut_from_the_store_loses_its_session_and_registers_again(cluster: Cluster) -> None:
    epoch = cluster.brokers[1].links.registration.broker_epoch()
    cluster.cut_from_store(1)
    await cluster.wait_until(lambda: all(1 not in cluster.brokers[each].metadata.brokers for each in (2, 3)))
    cluster.heal(1)
    await cluster.wait_until_stable()
    assert cluster.brokers[1].links.registration.broker_epoch() > epoch


async def test_a_cut_outlasts_the_restart_of_a_broker(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    follower = sorted(OTHERS[leader] - {cluster.controller})[0]
    cluster.cut(leader, follower)
    cluster.kill(follower)
    await cluster.start(follower)
    await asyncio.sleep(0.2)
    assert follower not in cluster.isr("t", 0)
    assert "cut off from" in cluster.describe()
    cluster.heal(follower)
    await cluster.wait_for_isr("t", 0, {1, 2, 3})


async def test_with_frozen_replication_acks_all_waits_until_it_goes_on(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    for follower in OTHERS[leader]:
        cluster.freeze_replication(follower)
    assert await produce(cluster.bootstrap_of(leader), "t", b"acks=1", acks=1) is OK
    waiting = asyncio.create_task(produce(cluster.bootstrap_of(leader), "t", b"acks=all"))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    assert await values(cluster.bootstrap_of(leader), "t") == []
    assert "replication frozen" in cluster.describe()
    for follower in OTHERS[leader]:
        cluster.thaw(follower)
    assert await waiting is OK
    assert await values(cluster.bootstrap_of(leader), "t") == [b"acks=1", b"acks=all"]


# --- misspelt


UNKNOWN_BROKER: dict[str, Callable[[Cluster], object]] = {
    "kill": lambda cluster: cluster.kill(7),
    "pause": lambda cluster: cluster.pause(7),
    "resume": lambda cluster: cluster.resume(7),
    "cut": lambda cluster: cluster.cut(1, 7),
    "cut_off": lambda cluster: cluster.cut_off(7),
    "cut_from_store": lambda cluster: cluster.cut_from_store(7),
    "heal": lambda cluster: cluster.heal(7),
    "heal, other": lambda cluster: cluster.heal(1, 7),
    "freeze_replication": lambda cluster: cluster.freeze_replication(7),
    "thaw": lambda cluster: cluster.thaw(7),
    "status": lambda cluster: cluster.status(7),
    "bootstrap_of": lambda cluster: cluster.bootstrap_of(7),
    "data_dir": lambda cluster: cluster.data_dir(7),
    "replica": lambda cluster: cluster.replica(7, "t", 0),
}
UNKNOWN_BROKER_AWAITED: dict[str, Callable[[Cluster], Awaitable[object]]] = {
    "start": lambda cluster: cluster.start(7),
    "stop": lambda cluster: cluster.stop(7),
    "restart": lambda cluster: cluster.restart(7),
    "wait_for_leader": lambda cluster: cluster.wait_for_leader("t", 0, 7),
    "wait_for_isr": lambda cluster: cluster.wait_for_isr("t", 0, {1, 7}),
    "move_leader": lambda cluster: cluster.move_leader("t", 0, 7),
    "move_coordinator": lambda cluster: cluster.move_coordinator(7, group="billing"),
}
NO_BROKER = r"there is no broker 7; the brokers are 1, 2, 3"


async def test_a_broker_that_is_not_there_is_an_error_that_says_which_there_are(cluster: Cluster) -> None:
    for name, act in UNKNOWN_BROKER.items():
        with pytest.raises(ValueError, match=NO_BROKER):
            pytest.fail(f"{name}: {act(cluster)}")
    for name, await_ in UNKNOWN_BROKER_AWAITED.items():
        with pytest.raises(ValueError, match=NO_BROKER):
            pytest.fail(f"{name}: {await await_(cluster)}")
    with pytest.raises(ValueError, match="there is no broker None"):
        cluster.kill(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"settings_of: {NO_BROKER}"):
        async with in_process_cluster(settings_of={7: {"broker.rack": "a"}}):
            pass
    await cluster.wait_until_stable()


async def test_a_misspelt_topic_and_a_missing_partition_are_errors(cluster: Cluster) -> None:
    for look in (cluster.leader, cluster.isr):
        with pytest.raises(ValueError, match=r"there is no topic 'T'; the topics: t$"):
            look("T", 0)
        with pytest.raises(ValueError, match=r"topic t has no partition 1; it has 1$"):
            look("t", 1)
    async with in_process_cluster(brokers=1) as empty:
        with pytest.raises(ValueError, match="there is no topic 't'; the topics: there are none"):
            empty.leader("t", 0)
        for number in range(22):
            await empty.create_topic(f"t{number:02}")
        with pytest.raises(ValueError, match=r"t18, t19 and 2 more$"):
            empty.leader("t", 0)


# --- waiting


async def test_a_wait_that_fails_shows_the_state_of_the_cluster(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    follower = min(OTHERS[leader])
    controller = cluster.controller
    cluster.kill(follower)
    with pytest.raises(NotReached) as failure:
        await cluster.wait_for_isr("t", 0, {leader}, within=0.05)
    text = str(failure.value)
    assert text.startswith(f"ISR [{leader}] of t-0: not in 0.05 s: the ISR of t-0 is [1, 2, 3]: ")
    assert f"\nbroker {follower}, killed\n" in text
    if controller != follower:
        assert f"broker {controller}, running, controller, knows brokers [1, 2, 3] and controller {controller}" in text
    assert f"  t-0: leader {leader} (epoch 0); replicas" in text
    assert f"{leader} is leader in epoch 0 with offsets 0 to 0, high watermark 0" in text


async def test_warnings_are_shown_when_a_wait_fails_and_not_before(
    cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    gone = leader_of(cluster)
    cluster.kill(gone)
    await cluster.wait_until(lambda: cluster.leader("t", 0) in OTHERS[gone])
    with pytest.raises(NotReached) as failure:
        await cluster.wait_until(lambda: False, what="never", within=0)
    state, _, warnings = str(failure.value).partition("the latest warnings:\n")
    assert "broker not reached" not in state
    assert "broker not reached" in warnings
    assert f"broker_id={gone}" in warnings
    assert capfd.readouterr() == ("", "")
    structlog.get_logger().error("disk failed")
    assert "disk failed" in capfd.readouterr().err


async def test_a_misspelt_setting_is_an_error_that_names_the_right_one_as_a_keyword_and_in_a_dict() -> None:
    no_setting = r"there is no setting num.partitons; did you mean num.partitions"
    typo = {"num.partitons": 4}
    for start in (in_process_broker, in_process_cluster):
        with pytest.raises(ValueError, match=no_setting):
            async with start(num_partitons=4):
                pass
        with pytest.raises(ValueError, match=no_setting):
            async with start(settings=typo):
                pass
        with pytest.raises(ValueError, match="there is no setting tme; did you mean time"):
            async with start(tme="virtual"):
                pass
    with pytest.raises(ValueError, match=no_setting):
        async with in_process_cluster(settings_of={2: typo}):
            pass
    for thread in (BrokerThread(settings=typo), ClusterThread(settings=typo)):
        with pytest.raises(ValueError, match=no_setting), thread:
            pass
    with pytest.raises(ValueError, match=r"no setting num_partitions; did you mean num\.partitions"):
        async with in_process_broker({"num_partitions": 4}):
            pass


async def test_settings_of_listeners_authorizers_and_config_providers_are_no_typos(tmp_path: Path) -> None:
    (tmp_path / "count").write_text("4")
    settings = {
        "config.providers": "files",
        "config.providers.files.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
        "num.partitions": f"${{files:{tmp_path}:count}}",
        "listener.name.plaintext.max.connections": 100,
        "allow.everyone.if.no.acl.found": True,
    }
    async with in_process_broker(settings, default_replication_factor=1) as broker:
        assert broker.config.num_partitions == 4


async def test_a_misspelt_setting_of_a_topic_is_an_error_that_names_the_right_one(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match=r"no setting retenton\.ms of topics; did you mean retention\.ms"):
        await cluster.create_topic("misspelt", configs={"retenton.ms": 1000})
    assert "misspelt" not in cluster.brokers[1].metadata.topic_names()


async def test_a_single_broker_warns_on_stderr_after_a_cluster_has_ended(capfd: pytest.CaptureFixture[str]) -> None:
    async with in_process_broker():
        async with in_process_cluster(brokers=1):
            structlog.get_logger().warning("within")
        structlog.get_logger().warning("after")
    assert not structlog.is_configured()
    assert "within" not in (shown := capfd.readouterr().err)
    assert "after" in shown


@pytest.mark.parametrize(
    ("waiting", "reason"),
    [
        (lambda cluster: cluster.wait_for_leader("absent", 0, within=0), "there is no partition absent-0"),
        (lambda cluster: cluster.wait_for_leader("t", 1, 3, within=0), "broker 3 as the leader of t-1"),
        (lambda cluster: cluster.wait_until(lambda: 0, within=0, what="zero"), "zero: not in 0 s"),
    ],
)
async def test_a_wait_says_what_is_missing(cluster: Cluster, waiting: object, reason: str) -> None:
    assert callable(waiting)
    with pytest.raises(NotReached, match=reason):
        await waiting(cluster)


async def test_a_condition_may_be_a_coroutine_function(cluster: Cluster) -> None:
    asked: list[int] = []

    async def third_time() -> bool:
        await asyncio.sleep(0)
        asked.append(1)
        return len(asked) == 3

    await cluster.wait_until(third_time)
    assert len(asked) == 3


async def test_a_broker_can_be_asked_to_run_a_coroutine(cluster: Cluster) -> None:
    controller = cluster.controller
    assert controller is not None
    outcome = await cluster.run(
        controller, cluster.brokers[controller].controller.replicas.reassign({TopicPartition("t", 0): [2]})
    )
    assert list(outcome.values()) == [None]
    await cluster.wait_for_isr("t", 0, {2})
    await cluster.wait_until_stable()
