"""Large batches are checked piece by piece. Changes during the checks apply when they are appended."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest

from odradek.broker.background.turns import Turns
from odradek.broker.replica import large_appends
from odradek.broker.replica.append_result import PartitionAppendResult
from odradek.broker.replica.appends import UnfinishedAppends
from odradek.broker.replica.large_appends import LargeAppends
from odradek.protocol.append_allowance import APPEND_BYTES, TURN_BYTES
from odradek.protocol.errors import ErrorCode
from odradek.protocol.records import Compression, iter_batches, read_records
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.log_config import LogConfig
from tests.broker.replica.rooms import T0, Room
from tests.patience import until
from tests.storage.small_logs import bytes_of

T1 = TopicPartition("t", 1)
LARGE = 2 * TURN_BYTES


class HeldThreads:
    """Thread calls wait for `run_one`."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.waiting: deque[tuple[asyncio.Future[Any], Callable[[], Any]]] = deque()

    def run_in_thread(self, function: Callable[..., Any], /, *arguments: Any) -> Awaitable[Any]:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.waiting.append((done, lambda: function(*arguments)))
        return done

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> Any:
        raise NotImplementedError

    def run_one(self) -> None:
        done, function = self.waiting.popleft()
        try:
            done.set_result(function())
        except Exception as error:
            done.set_exception(error)


class Workplace:
    """A replica manager whose large appends run in threads that the test controls."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.threads = HeldThreads()
        self.large_appends = LargeAppends(room.manager.appends, room.manager.partitions, self.threads)
        self.refusals: dict[TopicPartition, PartitionAppendResult] = {}

    def produce(self, entries: dict[TopicPartition, bytes], acks: int = 1) -> asyncio.Task[Any]:
        """Begins appends that do not fit one turn."""
        unfinished = self.room.manager.append_records(1000, acks, entries, 9, lambda _: None)
        assert isinstance(unfinished, UnfinishedAppends)
        finishing = self.large_appends.finish(
            unfinished, lambda key, _: self.refusals.get(key), lambda results: results
        )
        return asyncio.ensure_future(finishing)

    async def until_threads_wait(self) -> None:
        while not self.threads.waiting:  # noqa: ASYNC110 - the turns are counted
            await asyncio.sleep(0)

    async def until_written_ahead(self) -> None:
        """Runs until the checks are done and the first piece is written."""
        log = self.room.manager.partition(T0).log
        while log.ahead is None:
            await self.one_step()

    async def one_step(self) -> None:
        await asyncio.sleep(0)
        if self.threads.waiting:
            self.threads.run_one()

    async def result(self, produced: asyncio.Task[Any], key: TopicPartition = T0) -> PartitionAppendResult:
        while not produced.done():
            await self.one_step()
        result: PartitionAppendResult = produced.result()[key]
        return result


@pytest.fixture
def place(room: Room) -> Workplace:
    return Workplace(room)


def end_offset(place: Workplace) -> int:
    return place.room.manager.partition(T0).log.log_end_offset


async def test_small_batches_are_appended_in_request_order_around_a_large_one(
    place: Workplace,
) -> None:
    room = place.room
    partitions = [room.lead(TopicPartition("t", number), max_message_bytes=1 << 30) for number in range(3)]
    keys = [partition.topic_partition for partition in partitions]
    batches = [room.batch(), room.batch(1, LARGE), room.batch()]
    produced = place.produce(dict(zip(keys, batches, strict=True)))
    await place.until_threads_wait()
    assert [partition.log.log_end_offset for partition in partitions] == [1, 0, 0]
    await place.result(produced)
    assert list(produced.result()) == keys
    assert [result.error for result in produced.result().values()] == [ErrorCode.NONE] * 3
    assert [partition.log.log_end_offset for partition in partitions] == [1, 1, 1]
    assert partitions[0].stats.produce_requests == 3


async def test_many_small_batches_take_several_turns(place: Workplace) -> None:
    keys = [TopicPartition("t", number) for number in range(10)]
    partitions = [place.room.lead(key, max_message_bytes=1 << 30) for key in keys]
    produced = place.produce(dict.fromkeys(keys, place.room.batch(1, TURN_BYTES // 4)))
    ends = [0]
    while not produced.done():
        await asyncio.sleep(0)
        ends.append(sum(partition.log.log_end_offset for partition in partitions))
    assert ends[-1] == 10
    assert [after - before for before, after in pairwise(ends) if after > before] == [3, 3, 3, 1]


async def test_only_one_large_batch_is_checked_at_a_time(place: Workplace) -> None:
    room = place.room
    for key in (T0, T1):
        room.lead(key, max_message_bytes=1 << 30)
    one, other = (place.produce({key: room.batch(1, LARGE)}) for key in (T0, T1))
    await place.until_threads_wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(place.threads.waiting) == 1
    assert (await place.result(other, T1)).error is ErrorCode.NONE
    assert one.done()


async def test_a_small_batch_is_appended_before_a_large_one_that_is_being_checked(place: Workplace) -> None:
    place.room.lead(max_message_bytes=1 << 30)
    produced = place.produce({T0: place.room.batch(1, LARGE)})
    await place.until_threads_wait()
    assert place.room.produce().result.base_offset == 0
    assert (await place.result(produced)).base_offset == 1


async def test_a_small_batch_is_appended_after_a_large_one_that_is_being_written(place: Workplace) -> None:
    place.room.lead(max_message_bytes=1 << 30)
    produced = place.produce({T0: place.room.batch(1, LARGE)})
    await place.until_written_ahead()
    small = place.produce({T0: place.room.batch()})
    assert (await place.result(small)).base_offset == 1
    assert (await place.result(produced)).base_offset == 0


async def test_a_coordinator_append_precedes_a_large_batch_that_is_being_written(place: Workplace) -> None:
    place.room.lead(max_message_bytes=1 << 30)
    produced = place.produce({T0: place.room.batch(1, LARGE)})
    await place.until_written_ahead()
    assert place.room.manager.appends.append_as_coordinator(T0, place.room.batch()).base_offset == 0
    assert (await place.result(produced)).base_offset == 1
    data = bytes_of(place.room.manager.partition(T0).log.read(0, 1 << 30))
    assert [header.base_offset for _, header in iter_batches(data)] == [0, 1]


@pytest.mark.parametrize("written_ahead", [False, True])
async def test_a_leader_that_resigns_refuses_a_checked_batch(place: Workplace, written_ahead: bool) -> None:
    partition = place.room.lead(max_message_bytes=1 << 30)
    produced = place.produce({T0: place.room.batch(1, LARGE)})
    await (place.until_written_ahead() if written_ahead else place.until_threads_wait())
    partition.make_follower(1, 2, (0, 1))
    assert (await place.result(produced)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.make_leader(3, (0,), (0,))
    assert place.room.produce().result.base_offset == 0
    assert partition.log.active_segment.file.size() == partition.log.active_segment.size


@pytest.mark.parametrize("written_ahead", [False, True])
async def test_nothing_is_appended_to_a_deleted_topic(place: Workplace, written_ahead: bool) -> None:
    place.room.lead(max_message_bytes=1 << 30)
    produced = place.produce({T0: place.room.batch(1, LARGE)})
    await (place.until_written_ahead() if written_ahead else place.until_threads_wait())
    place.room.manager.stop_replica(T0, delete=True)
    place.room.known.clear()
    assert (await place.result(produced)).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_settings_changed_during_the_checks_apply_to_the_batch(place: Workplace) -> None:
    place.room.lead(max_message_bytes=1 << 30)
    produced = place.produce({T0: place.room.batch(1, LARGE)})
    await place.until_threads_wait()
    changed = LogConfig({"max.message.bytes": str(1 << 30), "compression.type": "gzip"})
    place.room.manager.update_log_config("t", changed)
    assert (await place.result(produced)).error is ErrorCode.NONE
    data = bytes_of(place.room.manager.partition(T0).log.read(0, 1 << 30))
    assert [header.compression for _, header in iter_batches(data)] == [Compression.GZIP]

    produced = place.produce({T0: place.room.batch(1, LARGE)})
    await place.until_threads_wait()
    place.room.manager.update_log_config("t", LogConfig({"max.message.bytes": "1000"}))
    assert (await place.result(produced)).error is ErrorCode.MESSAGE_TOO_LARGE
    assert end_offset(place) == 1


async def test_a_batch_sent_twice_is_appended_once(place: Workplace) -> None:
    """A producer that has lost its connection sends the batch again on a new one."""
    place.room.lead(max_message_bytes=1 << 30)
    batch = place.room.batch(1, LARGE, producer_id=7, producer_epoch=0, base_sequence=0)
    one, other = place.produce({T0: batch}), place.produce({T0: batch})
    results = [await place.result(produced) for produced in (one, other)]
    assert [(result.error, result.base_offset) for result in results] == [(ErrorCode.NONE, 0)] * 2
    assert end_offset(place) == 1


async def test_a_sequence_used_by_another_batch_during_the_checks_is_refused(place: Workplace) -> None:
    place.room.lead(max_message_bytes=1 << 30)
    idempotent = {"producer_id": 7, "producer_epoch": 0}
    produced = place.produce({T0: place.room.batch(1, LARGE, base_sequence=5, **idempotent)})
    await place.until_threads_wait()
    place.room.produce(place.room.batch(2, base_sequence=0, **idempotent))
    assert (await place.result(produced)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert end_offset(place) == 2


async def test_a_batch_whose_transaction_ended_during_the_checks_is_refused(place: Workplace) -> None:
    place.room.lead(max_message_bytes=1 << 30)
    produced = place.produce({T0: place.room.batch(1, LARGE)})
    await place.until_written_ahead()
    place.refusals[T0] = PartitionAppendResult(ErrorCode.INVALID_TXN_STATE)
    assert (await place.result(produced)).error is ErrorCode.INVALID_TXN_STATE
    assert end_offset(place) == 0
    place.refusals.clear()
    assert place.room.produce().result.base_offset == 0


@pytest.mark.parametrize("written_ahead", [False, True])
async def test_stopping_the_broker_leaves_the_log_unchanged(place: Workplace, written_ahead: bool) -> None:
    partition = place.room.lead(max_message_bytes=1 << 30)
    place.room.produce()
    size = partition.log.active_segment.size
    produced = place.produce({T0: place.room.batch(1, LARGE)})
    await (place.until_written_ahead() if written_ahead else place.until_threads_wait())
    produced.cancel()
    await asyncio.wait([produced])
    assert partition.log.ahead is None
    assert place.room.produce().result.base_offset == 1
    assert partition.log.active_segment.file.size() == partition.log.active_segment.size == 2 * size


async def test_a_damaged_batch_is_refused_and_the_next_one_is_appended(place: Workplace) -> None:
    for key in (T0, T1):
        place.room.lead(key, max_message_bytes=1 << 30)
    damaged = place.room.batch(1, LARGE)[:-1] + b"x"
    produced = place.produce({T0: damaged, T1: place.room.batch(1, LARGE)})
    assert (await place.result(produced)).error is ErrorCode.CORRUPT_MESSAGE
    assert produced.result()[T1].error is ErrorCode.NONE


@pytest.mark.parametrize("stored", ["producer", "gzip"])
async def test_batches_inflated_into_the_same_memory_are_distinguished(place: Workplace, stored: str) -> None:
    partition = place.room.lead()
    settings = {"max.message.bytes": str(1 << 30), "compression.type": stored}
    place.room.manager.update_log_config("t", LogConfig(settings))
    sizes = (2 * LARGE, LARGE + 7, LARGE)
    for size in sizes:
        produced = place.produce({T0: place.room.batch(1, size, compression=Compression.ZSTD)})
        assert (await place.result(produced)).error is ErrorCode.NONE
    data = bytes_of(partition.log.read(0, 1 << 30))
    values = [read_records(data, position, header)[0].value for position, header in iter_batches(data)]
    assert values == [b"v" * size for size in sizes]


async def test_the_memory_of_large_batches_is_freed_when_none_is_left(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_appends, "SCRATCH_KEPT_S", 0.1)
    place.room.lead(max_message_bytes=1 << 30)
    await place.result(place.produce({T0: place.room.batch(1, LARGE, compression=Compression.ZSTD)}))
    scratch = place.large_appends._scratch
    assert scratch.size_in_bytes >= LARGE
    await until(lambda: not scratch.size_in_bytes)


async def test_many_refused_batches_take_several_turns(place: Workplace) -> None:
    """Each batch fails its checksum. Unknown topics take time, too."""
    place.room.lead(max_message_bytes=1 << 30)
    damaged = bytearray(place.room.batch(1, TURN_BYTES // 4))
    damaged[-1] ^= 1
    entries = {T0: bytes(damaged)} | dict.fromkeys(
        [TopicPartition("unknown", number) for number in range(3 * TURN_BYTES // APPEND_BYTES)], place.room.batch()
    )
    finished = place.produce(entries)
    turns = 0
    while not finished.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 3
    assert len(finished.result()) == len(entries)
    assert {result.error for key, result in finished.result().items() if key != T0} == {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    assert finished.result()[T0].error is ErrorCode.CORRUPT_MESSAGE
