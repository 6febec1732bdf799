import asyncio
from itertools import pairwise

import pytest

from odradek.broker.background.stepwise import (
    ITEMS_PER_LOOK,
    ITEMS_PER_STEP,
    EachMade,
    Pace,
    Steps,
    each_in_steps,
    each_when_written,
    finished,
    in_steps,
    let_go,
    once,
    others_between,
)
from odradek.broker.background.turns import MOST_BYTES_AT_ONCE, Turns
from odradek.protocol.messages.group_admin import DescribeGroupsRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest


def count(steps: int, seen: list[str], name: str) -> Steps[str]:
    for _ in range(steps):
        seen.append(name)
        yield
    return name


def test_steps_run_at_once_return_their_value() -> None:
    seen: list[str] = []
    assert finished(count(3, seen, "a")) == "a"
    assert seen == ["a"] * 3


def test_a_list_is_built_a_few_items_per_step_and_nested_loops_share_a_step() -> None:
    pace = Pace()
    for _ in range(ITEMS_PER_STEP - 1):
        assert not pace.step_ends()
    steps = each_in_steps(range(2), str, pace)
    next(steps)
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value == ["0", "1"]
    assert not Pace().step_ends(ITEMS_PER_STEP - 1)
    assert Pace().step_ends(ITEMS_PER_STEP)


def test_unique_items_keep_the_order_of_their_first_occurrence() -> None:
    assert finished(once("abca")) == ["a", "b", "c"]
    assert len(list(once("a" * (3 * ITEMS_PER_LOOK)))) == 2


async def test_all_stepwise_work_together_runs_one_step_per_turn() -> None:
    turns, seen = Turns(), list[str]()
    both = [asyncio.ensure_future(turns.take(count(5, seen, name))) for name in "ab"]
    before: list[int] = []
    while not all(task.done() for task in both):
        before.append(len(seen))
        await asyncio.sleep(0)
    assert max(after - earlier for earlier, after in pairwise(before)) == 1
    assert [task.result() for task in both] == ["a", "b"]
    assert "".join(seen) != "a" * 5 + "b" * 5


async def test_an_exception_of_a_step_reaches_its_waiter_and_other_work_continues() -> None:
    turns = Turns()

    def failing() -> Steps[None]:
        yield
        raise ValueError("no")

    task = asyncio.ensure_future(turns.take(failing()))
    assert await turns.take(count(5, [], "other")) == "other"
    with pytest.raises(ValueError, match="no"):
        await task


async def test_requests_that_are_too_large_together_run_one_after_the_other() -> None:
    turns, log = Turns(), []

    async def work(name: str, size: int) -> None:
        async with turns.room_for(size):
            log.append(f"{name} begins")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            log.append(f"{name} ends")

    await asyncio.gather(work("huge", MOST_BYTES_AT_ONCE + 1), work("large", MOST_BYTES_AT_ONCE - 1), work("small", 1))
    assert log[:2] == ["huge begins", "huge ends"]
    assert log[2:4] == ["large begins", "small begins"]


async def test_work_beside_the_requests_waits_for_room_if_it_needs_much() -> None:
    turns, log = Turns(), list[str]()

    async def work(name: str, size: int) -> None:
        await turns.take_then(count(2, [], name), log.append, lambda error: None, size)

    async with turns.room_for(MOST_BYTES_AT_ONCE):
        large = asyncio.ensure_future(work("large", 1))
        await work("small", 0)
        assert log == ["small"]
    await large
    assert log == ["small", "large"]


async def test_an_abandoned_request_frees_its_share_for_others() -> None:
    turns = Turns()

    async def hold() -> None:
        async with turns.room_for(MOST_BYTES_AT_ONCE):
            await asyncio.Event().wait()

    holding, waiting = asyncio.ensure_future(hold()), asyncio.ensure_future(hold())
    await asyncio.sleep(0)
    for task in (waiting, holding):
        task.cancel()
        await asyncio.wait([task])
    async with asyncio.timeout(60), turns.room_for(MOST_BYTES_AT_ONCE):
        pass


async def test_a_coroutine_runs_its_own_steps_one_per_turn() -> None:
    seen: list[str] = []
    task = asyncio.ensure_future(in_steps(count(3, seen, "a")))
    for taken in range(4):
        assert len(seen) == taken
        await asyncio.sleep(0)
    assert await task == "a"


async def test_a_costly_item_takes_a_step_of_its_own() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(other())
    assert [item async for item in others_between(range(10), ITEMS_PER_STEP)] == list(range(10))
    task.cancel()
    assert turns >= 9


async def test_a_coroutine_that_never_waits_still_yields_to_others() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(other())
    assert [item async for item in others_between(range(10 * ITEMS_PER_STEP))] == list(range(10 * ITEMS_PER_STEP))
    task.cancel()
    assert turns >= 9


def test_the_arrays_of_a_message_are_emptied_a_few_items_per_step() -> None:
    names = DescribeGroupsRequest(groups=["g"] * (3 * ITEMS_PER_STEP))
    partition, topic = OffsetCommitRequest.OffsetCommitRequestPartition, OffsetCommitRequest.OffsetCommitRequestTopic
    nested = topic(name="t", partitions=[partition(partition_index=i) for i in range(2 * ITEMS_PER_STEP)])
    commits = OffsetCommitRequest(topics=[nested] + [topic(name="u")] * ITEMS_PER_STEP)
    left = [len(names.groups) for _ in let_go(names)]
    assert left == [2 * ITEMS_PER_STEP, ITEMS_PER_STEP, 0]
    finished(let_go(commits))
    assert (commits.topics, nested.partitions) == ([], [])


def test_a_long_array_among_few_is_emptied_in_steps() -> None:
    partition, topic = OffsetCommitRequest.OffsetCommitRequestPartition, OffsetCommitRequest.OffsetCommitRequestTopic
    long = topic(name="t", partitions=[partition(partition_index=i) for i in range(2 * ITEMS_PER_STEP)])
    commits = OffsetCommitRequest(topics=[long])
    assert [len(long.partitions) for _ in let_go(commits)] == [ITEMS_PER_STEP, 0]
    assert commits.topics == [long]


def test_a_very_long_array_of_a_response_creates_its_elements_on_access() -> None:
    made = []

    def make(number: int) -> str:
        made.append(number)
        return str(number)

    many = each_when_written(range(ITEMS_PER_STEP + 1), make)
    assert isinstance(many, EachMade)
    assert len(many) == ITEMS_PER_STEP + 1
    assert made == []
    assert list(many) == list(map(str, range(ITEMS_PER_STEP + 1)))
    assert each_when_written(range(ITEMS_PER_STEP), str) == list(map(str, range(ITEMS_PER_STEP)))
