from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from odradek.broker.background.background import Background, run_all_in_threads
from tests.simulation.loop import NODE, Deadlock, Livelock, Node, ProcessEnded, SimulatedLoop, simulated_loop


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    loop = simulated_loop()
    yield loop
    assert loop.failures == []
    loop.close()


def start(loop: SimulatedLoop, node: Node, coroutine: object) -> asyncio.Task[None]:
    return loop.run_as(node, loop.create_task, coroutine)


async def note_each_second(notes: list[float]) -> None:
    while True:
        await asyncio.sleep(1)
        notes.append(asyncio.get_running_loop().time())


def test_an_hour_passes_at_once(loop: SimulatedLoop) -> None:
    async def an_hour() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    assert loop.run_until_complete(an_hour()) == 3600


def test_timers_of_one_moment_fire_in_the_order_in_which_they_were_scheduled(loop: SimulatedLoop) -> None:
    fired: list[int] = []
    for number in range(20):
        loop.call_later(1, fired.append, number)
    loop.call_later(0.5, fired.append, -1)
    loop.run_for(2)
    assert fired == [-1, *range(20)]
    assert loop.time() == 2


def test_a_cancelled_timer_does_not_fire(loop: SimulatedLoop) -> None:
    fired: list[int] = []
    loop.call_later(1, fired.append, 1).cancel()
    loop.call_later(1, fired.append, 2)
    loop.run_for(2)
    assert fired == [2]


def test_asyncio_works_as_usual(loop: SimulatedLoop) -> None:
    async def scene() -> list[str]:
        done: list[str] = []
        lock = asyncio.Lock()

        async def hold(name: str) -> None:
            async with lock:
                await asyncio.sleep(0.1)
                done.append(name)

        await asyncio.gather(hold("a"), hold("b"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await asyncio.Event().wait()
        done.append(f"{loop.time():.1f}")
        return done

    assert loop.run_until_complete(scene()) == ["a", "b", "1.2"]


def test_everything_that_a_node_starts_belongs_to_it(loop: SimulatedLoop) -> None:
    seen: list[str] = []

    async def grandchild() -> None:
        await asyncio.sleep(1)
        seen.append(str(NODE.get()))

    async def child() -> None:
        loop.call_later(1, lambda: seen.append(str(NODE.get())))
        await loop.create_task(grandchild())

    start(loop, Node("one"), child())
    start(loop, Node("two"), child())
    loop.run_for(2)
    assert seen == ["one/1", "two/1", "one/1", "two/1"]


def test_a_killed_node_never_runs_again(loop: SimulatedLoop) -> None:
    dead, alive = Node("dead"), Node("alive")
    notes: dict[Node, list[float]] = {dead: [], alive: []}
    ended: list[str] = []

    async def with_an_end(node: Node) -> None:
        try:
            await note_each_second(notes[node])
        finally:
            ended.append(node.name)

    start(loop, dead, with_an_end(dead))
    start(loop, alive, with_an_end(alive))
    loop.run_for(2.5)
    loop.kill(dead)
    loop.run_for(2)
    assert notes == {dead: [1, 2], alive: [1, 2, 3, 4]}
    assert ended == [], "not even its finally blocks have run"


def test_a_future_that_others_set_does_not_wake_a_killed_node(loop: SimulatedLoop) -> None:
    node = Node("dead")
    future = loop.create_future()
    woken: list[int] = []

    async def wait() -> None:
        await future
        woken.append(1)

    start(loop, node, wait())
    loop.run_for(1)
    loop.kill(node)
    future.set_result(None)
    loop.run_for(1)
    assert woken == []


def test_a_paused_node_does_later_what_fell_due(loop: SimulatedLoop) -> None:
    node = Node("stopped")
    fired: list[tuple[str, float]] = []
    for name, delay in (("b", 2), ("a", 1), ("c", 9)):
        loop.run_as(node, loop.call_later, delay, lambda name=name: fired.append((name, loop.time())))
    loop.pause(node)
    loop.run_for(5)
    assert fired == []
    loop.resume(node)
    loop.run_for(5)
    assert fired == [("a", 5), ("b", 5), ("c", 9)]


def test_threads_are_later_callbacks_and_no_thread_starts() -> None:
    loop = simulated_loop(lambda _: (1.0, 2.0))
    ran: list[float] = []

    async def scene() -> float:
        background = Background()
        await background.run_in_thread(lambda: ran.append(loop.time()))
        await run_all_in_threads([lambda: ran.append(loop.time())] * 20)
        with pytest.raises(ZeroDivisionError):
            await background.run_in_thread(lambda: 1 // 0)
        await background.stop()
        return loop.time()

    before = threading.active_count()
    assert loop.run_until_complete(scene()) == 9
    assert threading.active_count() == before
    assert ran == [1] + [4] * 20
    loop.close()


def test_a_node_killed_while_a_thread_works_has_done_the_work_and_does_not_hear_of_it() -> None:
    loop = simulated_loop(lambda _: (1.0, 2.0))
    node = Node("dead")
    done: list[str] = []

    async def work() -> None:
        await loop.run_in_executor(None, done.append, "work")
        done.append("heard")

    start(loop, node, work())
    loop.run_for(2)
    loop.kill(node)
    loop.run_for(5)
    assert done == ["work"]
    loop.close()


def test_a_loop_that_never_comes_to_rest_is_a_livelock(loop: SimulatedLoop) -> None:
    def again() -> None:
        loop.call_soon(again)

    again()
    with pytest.raises(Livelock):
        loop.run_for(1)


def test_a_future_that_nothing_can_complete_is_a_deadlock(loop: SimulatedLoop) -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        loop.run_until_complete(wait())


def test_a_callback_that_raises_is_noted() -> None:
    loop = simulated_loop()
    loop.call_later(1, lambda: 1 // 0)
    loop.run_for(2)
    assert [type(failure["exception"]) for failure in loop.failures] == [ZeroDivisionError]
    assert loop.failures[0]["time"] == 1


def test_a_callback_in_whose_midst_a_process_ends_is_not_noted() -> None:
    loop = simulated_loop()

    def end() -> None:
        raise ProcessEnded

    loop.call_soon(end)
    loop.run_for(1)
    assert loop.failures == []
