"""Each setting that is a time takes effect in virtual time: what it decides happens so much later, and not before."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from inspect import isawaitable

import pytest

from odradek.broker.settings import BROKER, DYNAMIC_ONLY, TOPIC
from odradek.clients.network_client import NetworkClient
from odradek.testing import in_process_cluster
from odradek.testing.virtual_time.controls import TimeControls
from tests.broker.test_topic_settings_at_work import A_TIME, TOPIC_RESOURCE, alter
from tests.patience import until
from tests.testing.virtual_time.cluster_deadlines import CLUSTER, ClusterDeadline
from tests.testing.virtual_time.deadlines import LOGINS, ONE_BROKER, Deadline, Happened, create
from tests.testing.virtual_time.timed_api import timed_api
from tests.wire.records import connect

OF_NEW_SEGMENTS = {"segment.jitter.ms"}
"""Set when the topic is created. Other settings of topics are altered while its log is open."""
KEPT: dict[str, object] = {"connections.max.idle.ms": "-1"}
"""The connections of the tests stay open."""
WITHOUT_A_ROW = {
    "group.consumer.heartbeat.interval.ms": "clients are told it, and they keep it",
    **dict.fromkeys(
        (
            f"group.consumer.{bound}.{time}.ms"
            for bound in ("max", "min")
            for time in ("assignment.interval", "heartbeat.interval", "session.timeout")
        ),
        "they are the bounds of groups' settings",
    ),
    "zookeeper.connection.timeout.ms": "it ends the start of a broker, before which time cannot be advanced",
}


def now_s(controls: TimeControls) -> float:
    assert controls.virtual_time is not None
    return controls.virtual_time.time()


async def holds(happened: Happened) -> bool:
    found = happened()
    return bool(await found if isawaitable(found) else found)


async def falls_due(
    controls: TimeControls, begin: Callable[[], Awaitable[Happened]], after_s: float, slack_s: float, started_s: float
) -> None:
    """An interval may have begun with the broker, at `started_s` of the loop."""
    happened = await begin()
    begun_s = now_s(controls)
    earliest_s = begun_s - (asyncio.get_running_loop().time() - started_s) + after_s - slack_s
    assert not await holds(happened), "it has happened at once"
    await controls.advance(max(earliest_s - now_s(controls), 0))
    assert not await holds(happened), f"it has happened before {after_s - slack_s} s"
    await controls.advance(max(begun_s + after_s + slack_s - now_s(controls), 0))
    await until(lambda: holds(happened))  # a client may have yet to read its answer


@pytest.mark.parametrize("deadline", ONE_BROKER, ids=[each.setting for each in ONE_BROKER])
async def test_what_a_setting_decides_happens_when_it_is_due(deadline: Deadline) -> None:
    setting, value = deadline.setting, str(deadline.value)
    own = {setting: value}
    settings = {**KEPT, **deadline.beside, **(own if setting in BROKER else {})}
    started_s = asyncio.get_running_loop().time()
    async with timed_api(settings, **deadline.options) as api:
        if deadline.options is not LOGINS:
            await create(api, own if setting in OF_NEW_SEGMENTS else {})
        if setting in TOPIC:
            await alter(api, TOPIC_RESOURCE, "t", setting, value)
        begin = partial(deadline.begin, api)
        await falls_due(api.broker, begin, deadline.after_s, deadline.slack_s, started_s)


@pytest.mark.long
@pytest.mark.parametrize("deadline", CLUSTER, ids=[each.setting for each in CLUSTER])
async def test_what_a_setting_decides_happens_in_a_cluster_when_it_is_due(deadline: ClusterDeadline) -> None:
    settings = {**KEPT, **deadline.beside, deadline.setting: deadline.value}
    started_s = asyncio.get_running_loop().time()
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(in_process_cluster(2, settings, time="virtual"))

        async def client(broker_id: int) -> NetworkClient:
            return await stack.enter_async_context(await connect(cluster.bootstrap_of(broker_id)))

        begin = partial(deadline.begin, cluster, client)
        await falls_due(cluster, begin, deadline.after_s, deadline.slack_s, started_s)
        for broker_id in cluster.ids:
            cluster.heal(broker_id)
            cluster.thaw(broker_id)


def test_each_setting_that_is_a_time_has_a_row() -> None:
    settings = {**BROKER, **DYNAMIC_ONLY, **TOPIC}
    times = {name for name, setting in settings.items() if setting.takes_effect and A_TIME.search(name)}
    rows = [each.setting for each in ONE_BROKER] + [each.setting for each in CLUSTER]
    assert times == {*rows, *WITHOUT_A_ROW}
    assert len(rows) == len(set(rows))
    assert not WITHOUT_A_ROW.keys() & set(rows)
