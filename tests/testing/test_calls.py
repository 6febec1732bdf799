"""A coroutine of the kit that nobody awaits is an error when its broker stops, and masks no other one."""

from __future__ import annotations

import asyncio
import gc
import inspect
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from odradek.testing import (
    BrokerThread,
    Cluster,
    ClusterThread,
    Fault,
    Faults,
    InProcessBroker,
    NeverAwaited,
    UnusedFaults,
    in_process_broker,
    in_process_cluster,
)

KIT = (InProcessBroker, Cluster, Faults, Fault)
COROUTINE_FUNCTIONS = [
    (kind, name)
    for kind in KIT
    for name, function in inspect.getmembers(kind, callable)
    if not name.startswith("_") and inspect.iscoroutinefunction(inspect.unwrap(function))
]
UNAWAITED_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "advance": (5,),
    "advance_until": (bool,),
    "create_topic": ("orders",),
    "move_coordinator": (1,),
    "move_leader": ("orders", 0, 1),
    "restart": (1,),
    "seed": ({},),
    "start": (1,),
    "stop": (1,),
    "wait": (1, 1.0),
    "wait_for_hits": (None,),
    "wait_for_isr": ("orders", 0, {1}),
    "wait_for_leader": ("orders", 0),
    "wait_until": (bool,),
}


def line_of(marker: str) -> str:
    """FILE:LINE of the line of this file with the marker, which stands in a comment."""
    lines = Path(__file__).read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if line.endswith(f"# {marker}")]
    return f"{__file__}:{number}"


def test_the_kit_has_the_coroutine_functions_that_are_noted() -> None:
    found = {f"{kind.__name__}.{name}" for kind, name in COROUTINE_FUNCTIONS}
    assert {"InProcessBroker.advance", "InProcessBroker.stop", "Cluster.wait_until", "Fault.wait"} <= found


@pytest.mark.parametrize(("kind", "name"), COROUTINE_FUNCTIONS)
async def test_every_coroutine_function_of_the_kit_is_noted_if_nobody_awaits_it(kind: type, name: str) -> None:
    """Of a broker that is not started: the coroutine is never begun."""
    faults = Faults()
    thing: Any = object.__new__(kind)
    thing.__dict__["faults" if kind in (InProcessBroker, Cluster) else "calls"] = (
        faults if kind in (InProcessBroker, Cluster) else faults.calls
    )
    arguments = UNAWAITED_ARGUMENTS.get(name, ())
    parameters = inspect.signature(inspect.unwrap(getattr(kind, name))).parameters.values()
    needed = [each for each in parameters if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD]
    named = {each.name: None for each in parameters if each.default is each.empty and each.kind is each.KEYWORD_ONLY}
    if len(arguments) < len(needed) - 1 or (kind is InProcessBroker and name in ("start", "stop")):
        arguments = (None,) * (len(needed) - 1)
    getattr(thing, name)(*arguments, **named)
    with pytest.raises(NeverAwaited, match=rf"^{kind.__name__}\.{name}\(\) was called and never awaited"):
        await faults.calls.check()
    await faults.calls.check()


async def test_an_advance_without_await_fails_the_test_at_its_end_and_names_the_line() -> None:
    with pytest.raises(NeverAwaited) as failure:
        async with in_process_broker(time="virtual") as broker:
            broker.advance(5)  # type: ignore[unused-coroutine] # advance of a broker
    assert str(failure.value) == (
        "InProcessBroker.advance() was called and never awaited, so it did nothing: " + line_of("advance of a broker")
    )


async def test_a_wait_of_a_cluster_without_await_fails_the_test() -> None:
    with pytest.raises(NeverAwaited, match=r"Cluster\.wait_for_isr\(\) was called and never awaited"):
        async with in_process_cluster(brokers=1) as cluster:
            cluster.wait_for_isr("orders", 0, {1})  # type: ignore[unused-coroutine]


async def test_a_failure_of_the_test_is_raised_and_has_what_was_not_awaited_as_a_note() -> None:
    async def fails() -> None:
        async with in_process_broker() as broker:
            broker.request(api="Produce")  # type: ignore[unused-coroutine] # request of a broker
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError) as failure:
        await fails()
    assert failure.value.__notes__ == [
        "InProcessBroker.request() was called and never awaited, so it did nothing: " + line_of("request of a broker")
    ]


def test_a_failure_beside_a_broker_in_a_thread_has_the_note_too() -> None:
    def fails(thread: BrokerThread | ClusterThread) -> None:
        with thread as running:
            inside = running.broker if isinstance(running, BrokerThread) else running.cluster
            inside.wait_for_hits(running.faults.add(api="Fetch", delay=1, optional=True))  # type: ignore[unused-coroutine]
            _ = 1 / 0

    for thread in (BrokerThread(), ClusterThread(brokers=1)):
        with pytest.raises(ZeroDivisionError) as failure:
            fails(thread)
        (note,) = failure.value.__notes__
        assert ".wait_for_hits() was called and never awaited" in note


def test_what_is_not_awaited_of_a_broker_in_a_thread_is_an_error_when_it_stops() -> None:
    thread = BrokerThread()
    thread.start()
    thread.broker.advance(5)  # type: ignore[unused-coroutine]
    with pytest.raises(NeverAwaited, match=r"InProcessBroker\.advance\(\)"):
        thread.stop()


async def test_what_is_not_awaited_comes_before_the_fault_that_it_may_have_kept_from_being_hit() -> None:
    async def seeded(*, is_awaited: bool) -> None:
        async with in_process_broker() as broker:
            broker.faults.add(api="Heartbeat", delay=1)
            seeding = broker.seed({"orders": [b"a value"]})
            if is_awaited:
                await seeding

    with pytest.raises(NeverAwaited):
        await seeded(is_awaited=False)
    with pytest.raises(UnusedFaults):
        await seeded(is_awaited=True)


async def test_tasks_and_closed_coroutines_are_not_errors() -> None:
    tasks: list[asyncio.Task[Any]] = []
    async with in_process_broker(time="virtual") as broker:
        broker.advance(5).close()
        await asyncio.gather(broker.seed({"orders": [b"a value"]}), asyncio.wait_for(broker.advance(1), 20))
        tasks.append(asyncio.create_task(broker.request(api="Produce", within=0.001)))
        tasks.append(asyncio.create_task(asyncio.wait_for(broker.request(api="Produce", within=0.001), 20)))
        unbegun = asyncio.create_task(broker.wait_for_hits(broker.faults.add(api="Fetch", delay=1, optional=True)))
        unbegun.cancel()
    outcomes = await asyncio.gather(*tasks, unbegun, return_exceptions=True)
    assert isinstance(outcomes[-1], asyncio.CancelledError)


async def test_a_task_of_the_last_moment_is_not_an_error() -> None:
    """Its coroutine has not begun when the test ends."""
    async with in_process_broker() as broker:
        last = asyncio.create_task(broker.request(api="Produce", within=0.001))
    await asyncio.wait([last])


async def test_the_collector_finds_no_coroutine_before_the_broker_stops_or_after() -> None:
    async def awaits_nothing() -> None:
        async with in_process_broker(time="virtual") as broker:
            for _ in range(100):
                broker.advance(5)  # type: ignore[unused-coroutine]
            gc.collect()

    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with pytest.raises(NeverAwaited):
            await awaits_nothing()
        gc.collect()
    assert not [each for each in shown if "never awaited" in str(each.message)]


async def test_calls_that_have_begun_are_forgotten() -> None:
    async with in_process_broker(time="virtual") as broker:
        for _ in range(100):
            await broker.advance(0)
        assert len(broker.calls._kept) <= 20


OTHER_PROJECTS_TESTS = """
import asyncio


def test_it_passes_and_awaits_nothing(odradek_broker):
    odradek_broker.broker.advance(5)


def test_it_fails_and_awaits_nothing(odradek_broker):
    odradek_broker.broker.reset()
    assert 0, "the test's own failure"


def test_a_broker_of_the_session(odradek_session_broker):
    odradek_session_broker.broker.snapshot()


def test_a_cluster(odradek_cluster):
    odradek_cluster.cluster.wait_until_stable()
"""


def test_the_fixtures_report_what_was_not_awaited(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(OTHER_PROJECTS_TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "-p", "no:asyncio"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert "1 failed, 3 passed, 3 errors" in done.stdout, done.stdout + done.stderr
    for call in ("InProcessBroker.advance", "InProcessBroker.snapshot", "Cluster.wait_until_stable"):
        assert f"NeverAwaited: {call}() was called and never awaited" in done.stdout
    assert "Captured stderr teardown" in done.stdout
    assert "InProcessBroker.reset() was called and never awaited" in done.stdout
