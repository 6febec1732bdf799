"""What a test does with the time of a broker: it advances it, waits for conditions, and gets clear errors."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.group_admin import DescribeGroupsRequest
from odradek.protocol.messages.groups import JoinGroupRequest, JoinGroupResponse
from odradek.testing import (
    BrokerThread,
    CannotAdvance,
    InProcessBroker,
    NotReached,
    in_process_broker,
    in_process_cluster,
)
from odradek.testing.virtual_time.members import groups_of
from odradek.timer import ManualClock
from tests.patience import until
from tests.testing.leftovers import left_behind
from tests.testing.virtual_time.timed_api import TimedApi, timed_api
from tests.wire.records import produce
from tests.wire.requests import create_topics, sync

HOUR_S = 3600
SESSION_MS = 30_000
NO_DELAY = {"group.initial.rebalance.delay.ms": "0"}


async def join(api: TimedApi, group: str = "g", session_ms: int = SESSION_MS) -> None:
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=60_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(10))],
    )
    response: JoinGroupResponse = await api(request, 3)
    assert response.error_code == ErrorCode.NONE
    synced = await api(sync(group, response.generation_id, response.member_id, {response.member_id: b""}), 3)
    assert synced.error_code == ErrorCode.NONE


def members(broker: InProcessBroker) -> int:
    return sum(group.size for group in groups_of(broker))


async def group_is_served(api: TimedApi) -> None:
    """The first request for a coordinator creates its topic."""

    async def found() -> bool:
        return bool((await api(FindCoordinatorRequest(key="g", key_type=0), 2)).error_code == ErrorCode.NONE)

    await until(found)


async def test_a_session_expires_when_it_is_advanced_past_its_end_and_not_before() -> None:
    async with timed_api(NO_DELAY) as api:
        await group_is_served(api)
        await join(api)
        await api.broker.advance(20)
        assert members(api.broker) == 1
        await api.broker.advance(timedelta(seconds=10))
        assert members(api.broker) == 0


async def test_sessions_of_members_can_be_kept() -> None:
    async with timed_api(NO_DELAY) as api:
        await group_is_served(api)
        await join(api)
        await api.broker.advance(2 * HOUR_S, keep_members=True)
        await api.broker.advance(20)
        assert members(api.broker) == 1
        await api.broker.advance(10)
        assert members(api.broker) == 0


async def test_a_member_of_a_consumer_group_that_gives_up_too_late_is_removed_also_if_sessions_are_kept() -> None:
    async with timed_api({"group.consumer.assignment.interval.ms": 0}) as api:
        await group_is_served(api)
        assert (await api(create_topics("t", partitions=2), 5)).topics[0].error_code == ErrorCode.NONE

        async def beat(member_id: str, epoch: int, **fields: Any) -> int:
            request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **fields)
            response = await api(request, 1)
            assert response.error_code == ErrorCode.NONE
            return int(response.member_epoch)

        joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
        epoch = await beat("a", 0, **joins)
        await beat("b", 0, **joins)
        assert await beat("a", epoch) == epoch, "it must give up a partition first"
        await api.broker.advance(59, keep_members=True)
        assert members(api.broker) == 2
        await api.broker.advance(2, keep_members=True)
        assert members(api.broker) == 1


async def test_a_condition_is_reached_at_the_moment_at_which_it_holds() -> None:
    async with timed_api(NO_DELAY) as api:
        await group_is_served(api)
        begun = api.broker.clock.now_ms()
        await join(api)
        joined = api.broker.clock.now_ms()
        await api.broker.advance_until(lambda: members(api.broker) == 0)
        assert begun + SESSION_MS <= api.broker.clock.now_ms() < joined + SESSION_MS + 1000


async def test_a_condition_may_use_a_client() -> None:
    async with timed_api({**NO_DELAY, "connections.max.idle.ms": "-1"}) as api:
        await group_is_served(api)
        await join(api)

        async def is_empty() -> bool:
            (group,) = (await api(DescribeGroupsRequest(groups=["g"]), 4)).groups
            return bool(group.group_state == "Empty")

        begun = api.broker.clock.now_ms()
        await api.broker.advance_until(is_empty, within=60)
        assert SESSION_MS - 1000 < api.broker.clock.now_ms() - begun < SESSION_MS + 20_000


async def test_a_condition_that_is_not_reached_shows_what_is_there_instead() -> None:
    async with timed_api(NO_DELAY) as api:
        await group_is_served(api)
        await join(api)
        assert await produce(api.broker.bootstrap, "orders", b"x") in (0, 3)
        begun = api.broker.clock.now_ms()
        with pytest.raises(NotReached) as raised:
            await api.broker.advance_until(lambda: False, within=timedelta(seconds=10), what="an invoice")
        text = str(raised.value)
        assert text.startswith("an invoice: not within 10 s of virtual time. What there is:\n")
        assert "group g: Stable, members: " in text
        assert "partition __consumer_offsets-0: offsets 0 to " in text
        assert 10_000 <= api.broker.clock.now_ms() - begun < 30_000


@pytest.mark.parametrize("by", [-1, -0.001, float("nan"), float("inf"), 1e12, timedelta(seconds=-1)])
async def test_time_does_not_go_back_nor_beyond_all_dates(by: Any) -> None:
    async with in_process_broker(time="virtual") as broker:
        before = broker.clock.now_ms()
        with pytest.raises(ValueError, match=f"not by {by}".replace("+", r"\+")):
            await broker.advance(by)
        with pytest.raises(ValueError, match="time advances by 0 to"):
            await broker.advance_until(lambda: True, within=by)
        await broker.advance(0)
        assert broker.clock.now_ms() - before < 20_000


async def test_two_tasks_cannot_advance_at_once() -> None:
    async with in_process_broker(time="virtual") as broker:
        first = asyncio.create_task(broker.advance(60))
        await asyncio.sleep(0)
        with pytest.raises(CannotAdvance, match="another task is advancing time: await it first"):
            await broker.advance(1)
        await first
        await broker.advance(1)


async def test_wall_time_cannot_be_advanced() -> None:
    async with in_process_broker() as broker:
        with pytest.raises(CannotAdvance, match='has wall time: start it with time="virtual"'):
            await broker.advance(1)
    async with in_process_cluster(1) as cluster:
        with pytest.raises(CannotAdvance, match='has wall time: start it with time="virtual"'):
            await cluster.advance_until(lambda: True)


async def test_a_stopped_broker_cannot_be_advanced() -> None:
    async with in_process_broker(time="virtual") as broker:
        await broker.stop()
        with pytest.raises(CannotAdvance, match="no broker is running"):
            await broker.advance(1)
    with pytest.raises(CannotAdvance, match="no broker is running"):
        await broker.advance(1)


async def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"time is \"wall\" or \"virtual\", not 'fast'"):
        async with in_process_broker(time="fast"):
            pass
    with pytest.raises(ValueError, match="leave out clock"):
        async with in_process_broker(time="virtual", clock=ManualClock()):
            pass
    with pytest.raises(ValueError, match="leave out clock"):
        async with in_process_cluster(time="virtual", clock=ManualClock()):
            pass


async def test_coroutines_of_the_broker_run_on_its_loop() -> None:
    for time in ("wall", "virtual"):
        async with in_process_broker(time=time) as broker:
            await broker.run(broker.periodic_work.apply_retention())


async def test_a_condition_that_takes_until_the_last_moment_is_asked_again_then() -> None:
    async with in_process_broker(time="virtual") as broker:
        last_ms = broker.clock.now_ms() + 20

        async def is_last_moment() -> bool:
            holds = broker.clock.now_ms() >= last_ms
            await asyncio.sleep(0.05)  # time flows beyond it
            return holds

        await broker.advance_until(is_last_moment, within=0.02)


def test_a_broker_in_a_thread_is_advanced_by_its_methods() -> None:
    with BrokerThread(time="virtual") as running:
        begun = running.broker.clock.now_ms()
        running.advance(timedelta(hours=1))
        running.advance_until(lambda: running.broker.clock.now_ms() >= begun + 2 * HOUR_S * 1000)
        assert 7_200_000 <= running.broker.clock.now_ms() - begun < 7_300_000
        with pytest.raises(NotReached, match=r"^never: not within 1 s"):
            running.advance_until(never, within=1)
        with pytest.raises(CannotAdvance, match="methods of the thread"):
            asyncio.run(running.broker.advance(1))
        running.call(running.broker.periodic_work.apply_retention())


def never() -> bool:
    return False


@pytest.mark.usefixtures("isolated")
async def test_a_broker_with_virtual_time_leaves_nothing_behind() -> None:
    async def one() -> None:
        async with in_process_broker(time="virtual") as broker:
            await produce(broker.bootstrap, "orders", b"x")
            await broker.advance(60)

    await one()
    before, tasks = left_behind(), asyncio.all_tasks()
    await one()
    assert left_behind() == before
    assert asyncio.all_tasks() == tasks


async def test_an_hour_of_an_idle_broker_takes_few_turns_of_the_loop() -> None:
    """Its wall time is in docs/testing/virtual_time.md; here counts, which do not depend on the machine."""
    async with in_process_broker(time="virtual") as broker:
        assert broker.virtual_time is not None
        before = broker.virtual_time._scheduled
        await broker.advance(HOUR_S)
        assert broker.virtual_time._scheduled - before < 20_000
