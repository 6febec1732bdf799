"""Producer ids from blocks that the controller gives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from odradek.broker.background.background import Background
from odradek.broker.cluster.active_controller import NoController
from odradek.broker.coordinator.transaction.producer_ids import ProducerIds
from odradek.protocol.errors import ErrorCode, ProtocolError

SIZE = 100


class Controller:
    """Gives blocks of SIZE ids to all brokers, when it is not `held`."""

    def __init__(self) -> None:
        self.blocks = 0
        self.requests = 0
        self.failure: Exception | None = None
        self.held = asyncio.Event()
        self.held.set()

    async def take_block(self) -> range:
        self.requests += 1
        await self.held.wait()
        if self.failure is not None:
            raise self.failure
        self.blocks += 1
        return range(SIZE * (self.blocks - 1), SIZE * self.blocks)


@pytest.fixture
async def background() -> AsyncIterator[Background]:
    background = Background()
    yield background
    await background.stop()


@pytest.fixture
async def controller() -> Controller:
    return Controller()


@pytest.fixture
async def ids(background: Background, controller: Controller) -> ProducerIds:
    return ProducerIds(controller.take_block, background.spawn)


async def test_ids_are_counted_over_several_blocks(ids: ProducerIds) -> None:
    assert [await ids.next() for _ in range(2 * SIZE + 1)] == list(range(2 * SIZE + 1))


async def test_concurrent_callers_and_brokers_get_different_ids(
    background: Background, controller: Controller, ids: ProducerIds
) -> None:
    others = ProducerIds(controller.take_block, background.spawn)
    given = await asyncio.gather(*(source.next() for _ in range(3 * SIZE) for source in (ids, others)))
    assert len(set(given)) == 6 * SIZE


async def test_callers_that_find_no_id_wait_for_the_same_request(controller: Controller, ids: ProducerIds) -> None:
    controller.held.clear()
    waiting = [asyncio.ensure_future(ids.next()) for _ in range(5)]
    await asyncio.sleep(0.01)
    assert controller.requests == 1
    waiting[0].cancel()
    controller.held.set()
    assert await asyncio.gather(*waiting[1:]) == [0, 1, 2, 3]


async def test_the_next_block_is_requested_before_the_current_one_is_used_up(
    controller: Controller, ids: ProducerIds
) -> None:
    for _ in range(SIZE - SIZE // 10 - 1):
        await ids.next()
    assert controller.requests == 1
    controller.held.clear()
    for _ in range(SIZE // 10 + 1):
        await ids.next()
    await asyncio.sleep(0)
    assert controller.requests == 2
    controller.held.set()
    assert await ids.next() == SIZE
    assert controller.requests == 2


@pytest.mark.parametrize(
    "failure",
    [NoController("nobody"), ProtocolError(ErrorCode.STALE_BROKER_EPOCH), ProtocolError(ErrorCode.NOT_CONTROLLER)],
)
async def test_without_a_block_clients_try_again(controller: Controller, ids: ProducerIds, failure: Exception) -> None:
    controller.failure = failure
    for answer in await asyncio.gather(ids.next(), ids.next(), return_exceptions=True):
        assert isinstance(answer, ProtocolError)
        assert answer.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert controller.requests == 1
    controller.failure = None
    assert await ids.next() == 0


async def test_a_block_that_was_refused_too_early_is_requested_again(controller: Controller, ids: ProducerIds) -> None:
    assert await ids.next() == 0
    controller.failure = NoController("nobody")
    assert [await ids.next() for _ in range(SIZE - 1)] == list(range(1, SIZE))
    await asyncio.sleep(0)
    controller.failure = None
    assert await ids.next() == SIZE


async def test_a_caller_gets_the_id_or_the_error_once(controller: Controller, ids: ProducerIds) -> None:
    given: list[Any] = []
    await ids.give(given.append)
    controller.failure = ValueError("a mistake")
    ids = ProducerIds(controller.take_block, Background().spawn)
    await ids.give(given.append)
    assert given[0] == 0
    assert given[1].code is ErrorCode.UNKNOWN_SERVER_ERROR
