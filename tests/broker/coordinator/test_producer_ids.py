import asyncio

import pytest

from odradek.broker.controller import znodes
from odradek.broker.coordinator.transaction.producer_ids import BLOCK_SIZE, ProducerIds
from odradek.protocol.errors import ErrorCode, ProtocolError
from tests.broker.controller.rooms import BROKER_ID, ControllerRoom


async def test_producer_ids_are_counted_from_zero_over_several_blocks() -> None:
    room = await ControllerRoom().start()
    ids = ProducerIds(room.store, BROKER_ID)
    given = [await ids.next() for _ in range(2 * BLOCK_SIZE + 1)]
    assert given == list(range(2 * BLOCK_SIZE + 1))
    entry = await room.store.get(znodes.PRODUCER_ID_BLOCK)
    assert znodes.parse_producer_id_block(entry.data or b"") == (2000, 2999)


async def test_no_producer_id_is_allocated_again_after_a_restart() -> None:
    room, given = await ControllerRoom().start(), list[int]()
    for _ in range(4):
        ids = ProducerIds(room.store, BROKER_ID)
        given += [await ids.next() for _ in range(3)]
        room = await room.again()
    assert given == [0, 1, 2, 1000, 1001, 1002, 2000, 2001, 2002, 3000, 3001, 3002]


async def test_concurrent_callers_and_brokers_get_different_producer_ids() -> None:
    room = await ControllerRoom().start()
    ids, others = ProducerIds(room.store, BROKER_ID), ProducerIds(room.store, 8)
    given = await asyncio.gather(*(source.next() for _ in range(50) for source in (ids, others)))
    assert len(set(given)) == 100


async def test_an_unwritable_store_is_a_retriable_error() -> None:
    room = await ControllerRoom().start()
    ids = ProducerIds(room.store, BROKER_ID)
    room.files.room = 0
    with pytest.raises(ProtocolError) as caught:
        await ids.next()
    assert caught.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    room.files.room = None
    assert await ids.next() == 0
