"""Large batches are checked piece by piece. Changes during the checks apply when they are appended."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest

from odradek.broker.background.turns import Turns
from odradek.broker.handlers.produce import RunningProduce
from odradek.broker.replica.leader.appends import PartitionAppendResult
from odradek.broker.replica.leader.large_appends import LargeAppends
from odradek.protocol.append_allowance import APPEND_BYTES, TURN_BYTES
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.records import Compression, iter_batches, read_records
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.log_config import LogConfig
from tests.broker.replica.harness import T0, ReplicaHarness, context_of, later, produce_handler
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


class LargeAppendsHarness:
    """A replica manager whose large appends run in threads that the test controls."""

    def __init__(self, replica: ReplicaHarness) -> None:
        self.replica = replica
        self.threads = HeldThreads()
        self.large_appends = LargeAppends(replica.manager.appends, replica.manager.partitions, self.threads)
        self.open_transaction = ErrorCode.NONE
        manager = replica.manager
        manager.verification.is_open_transaction = lambda *_: self.open_transaction
        self._handler = produce_handler(manager, self.threads, self.large_appends)

    def produce(
        self, entries: dict[TopicPartition, bytes], acks: int = 1, transactional_id: str | None = None
    ) -> asyncio.Task[Any]:
        """Begins appends that do not fit one turn. The task returns their results."""
        request = ProduceRequest(acks=acks, timeout_ms=1000, transactional_id=transactional_id)
        running = RunningProduce(self._handler, request, context_of(9), entries, {})
        finishing = running._append_verified()
        assert isinstance(finishing, Coroutine)

        async def results() -> dict[TopicPartition, PartitionAppendResult]:
            await finishing
            return running.results

        return asyncio.ensure_future(results())

    async def until_threads_wait(self) -> None:
        while not self.threads.waiting:  # noqa: ASYNC110 - the turns are counted
            await asyncio.sleep(0)

    async def until_written_ahead(self) -> None:
        """Runs until the checks are done and the first piece is written."""
        log = self.replica.manager.partitions.find(T0).log
        while log.writer.ahead is None:
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
def large(harness: ReplicaHarness) -> LargeAppendsHarness:
    return LargeAppendsHarness(harness)


def end_offset(large: LargeAppendsHarness) -> int:
    return large.replica.manager.partitions.find(T0).log.state.log_end_offset


async def test_small_batches_are_appended_in_request_order_around_a_large_one(
    large: LargeAppendsHarness,
) -> None:
    replica = large.replica
    partitions = [replica.lead(TopicPartition("t", number), max_message_bytes=1 << 30) for number in range(3)]
    keys = [partition.topic_partition for partition in partitions]
    batches = [replica.batch(), replica.batch(1, LARGE), replica.batch()]
    produced = large.produce(dict(zip(keys, batches, strict=True)))
    await large.until_threads_wait()
    assert [partition.log.state.log_end_offset for partition in partitions] == [1, 0, 0]
    await large.result(produced)
    assert list(produced.result()) == keys
    assert [result.error for result in produced.result().values()] == [ErrorCode.NONE] * 3
    assert [partition.log.state.log_end_offset for partition in partitions] == [1, 1, 1]
    assert partitions[0].stats.produce_requests == 3


async def test_many_small_batches_take_several_turns(large: LargeAppendsHarness) -> None:
    keys = [TopicPartition("t", number) for number in range(10)]
    partitions = [large.replica.lead(key, max_message_bytes=1 << 30) for key in keys]
    produced = large.produce(dict.fromkeys(keys, large.replica.batch(1, TURN_BYTES // 4)))
    ends = [0]
    while not produced.done():
        await asyncio.sleep(0)
        ends.append(sum(partition.log.state.log_end_offset for partition in partitions))
    assert ends[-1] == 10
    assert [after - before for before, after in pairwise(ends) if after > before] == [3, 3, 3, 1]


async def test_only_one_large_batch_is_checked_at_a_time(large: LargeAppendsHarness) -> None:
    replica = large.replica
    for key in (T0, T1):
        replica.lead(key, max_message_bytes=1 << 30)
    one, other = (large.produce({key: replica.batch(1, LARGE)}) for key in (T0, T1))
    await large.until_threads_wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(large.threads.waiting) == 1
    assert (await large.result(other, T1)).error is ErrorCode.NONE
    assert one.done()


async def test_a_small_batch_is_appended_before_a_large_one_that_is_being_checked(large: LargeAppendsHarness) -> None:
    large.replica.lead(max_message_bytes=1 << 30)
    produced = large.produce({T0: large.replica.batch(1, LARGE)})
    await large.until_threads_wait()
    assert large.replica.produce().result.base_offset == 0
    assert (await large.result(produced)).base_offset == 1


async def test_a_small_batch_is_appended_after_a_large_one_that_is_being_written(large: LargeAppendsHarness) -> None:
    large.replica.lead(max_message_bytes=1 << 30)
    produced = large.produce({T0: large.replica.batch(1, LARGE)})
    await large.until_written_ahead()
    small = large.produce({T0: large.replica.batch()})
    assert (await large.result(small)).base_offset == 1
    assert (await large.result(produced)).base_offset == 0


async def test_a_coordinator_append_precedes_a_large_batch_that_is_being_written(large: LargeAppendsHarness) -> None:
    large.replica.lead(max_message_bytes=1 << 30)
    produced = large.produce({T0: large.replica.batch(1, LARGE)})
    await large.until_written_ahead()
    assert large.replica.manager.appends.append_as_coordinator(T0, large.replica.batch()).base_offset == 0
    assert (await large.result(produced)).base_offset == 1
    data = bytes_of(large.replica.manager.partitions.find(T0).log.reader.read(0, 1 << 30))
    assert [header.base_offset for _, header in iter_batches(data)] == [0, 1]


@pytest.mark.parametrize("written_ahead", [False, True])
async def test_a_leader_that_resigns_refuses_a_checked_batch(large: LargeAppendsHarness, written_ahead: bool) -> None:
    partition = large.replica.lead(max_message_bytes=1 << 30)
    produced = large.produce({T0: large.replica.batch(1, LARGE)})
    await (large.until_written_ahead() if written_ahead else large.until_threads_wait())
    partition.make_follower(later(partition, 1, (0, 1)))
    assert (await large.result(produced)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.make_leader(later(partition, 0, (0,), (0,)))
    assert large.replica.produce().result.base_offset == 0
    assert partition.log.segments.active.file.size() == partition.log.segments.active.size


@pytest.mark.parametrize("written_ahead", [False, True])
async def test_nothing_is_appended_to_a_deleted_topic(large: LargeAppendsHarness, written_ahead: bool) -> None:
    large.replica.lead(max_message_bytes=1 << 30)
    produced = large.produce({T0: large.replica.batch(1, LARGE)})
    await (large.until_written_ahead() if written_ahead else large.until_threads_wait())
    large.replica.manager.stop_replica(T0, delete=True)
    large.replica.known.clear()
    assert (await large.result(produced)).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_settings_changed_during_the_checks_apply_to_the_batch(large: LargeAppendsHarness) -> None:
    large.replica.lead(max_message_bytes=1 << 30)
    produced = large.produce({T0: large.replica.batch(1, LARGE)})
    await large.until_threads_wait()
    changed = LogConfig({"max.message.bytes": str(1 << 30), "compression.type": "gzip"})
    large.replica.manager.update_log_config("t", changed)
    assert (await large.result(produced)).error is ErrorCode.NONE
    data = bytes_of(large.replica.manager.partitions.find(T0).log.reader.read(0, 1 << 30))
    assert [header.compression for _, header in iter_batches(data)] == [Compression.GZIP]

    produced = large.produce({T0: large.replica.batch(1, LARGE)})
    await large.until_threads_wait()
    large.replica.manager.update_log_config("t", LogConfig({"max.message.bytes": "1000"}))
    assert (await large.result(produced)).error is ErrorCode.MESSAGE_TOO_LARGE
    assert end_offset(large) == 1


async def test_a_batch_sent_twice_is_appended_once(large: LargeAppendsHarness) -> None:
    """A producer that has lost its connection sends the batch again on a new one."""
    large.replica.lead(max_message_bytes=1 << 30)
    batch = large.replica.batch(1, LARGE, producer_id=7, producer_epoch=0, base_sequence=0)
    one, other = large.produce({T0: batch}), large.produce({T0: batch})
    results = [await large.result(produced) for produced in (one, other)]
    assert [(result.error, result.base_offset) for result in results] == [(ErrorCode.NONE, 0)] * 2
    assert end_offset(large) == 1


async def test_a_sequence_used_by_another_batch_during_the_checks_is_refused(large: LargeAppendsHarness) -> None:
    large.replica.lead(max_message_bytes=1 << 30)
    idempotent = {"producer_id": 7, "producer_epoch": 0}
    produced = large.produce({T0: large.replica.batch(1, LARGE, base_sequence=5, **idempotent)})
    await large.until_threads_wait()
    large.replica.produce(large.replica.batch(2, base_sequence=0, **idempotent))
    assert (await large.result(produced)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert end_offset(large) == 2


async def test_a_batch_whose_transaction_ended_during_the_checks_is_refused(large: LargeAppendsHarness) -> None:
    large.replica.lead(max_message_bytes=1 << 30)
    transactional = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    produced = large.produce({T0: large.replica.batch(1, LARGE, **transactional)}, transactional_id="copier")
    await large.until_written_ahead()
    large.open_transaction = ErrorCode.INVALID_TXN_STATE
    assert (await large.result(produced)).error is ErrorCode.INVALID_TXN_STATE
    assert end_offset(large) == 0
    assert large.replica.produce().result.base_offset == 0


@pytest.mark.parametrize("written_ahead", [False, True])
async def test_stopping_the_broker_leaves_the_log_unchanged(large: LargeAppendsHarness, written_ahead: bool) -> None:
    partition = large.replica.lead(max_message_bytes=1 << 30)
    large.replica.produce()
    size = partition.log.segments.active.size
    produced = large.produce({T0: large.replica.batch(1, LARGE)})
    await (large.until_written_ahead() if written_ahead else large.until_threads_wait())
    produced.cancel()
    await asyncio.wait([produced])
    assert partition.log.writer.ahead is None
    assert large.replica.produce().result.base_offset == 1
    assert partition.log.segments.active.file.size() == partition.log.segments.active.size == 2 * size


async def test_a_damaged_batch_is_refused_and_the_next_one_is_appended(large: LargeAppendsHarness) -> None:
    for key in (T0, T1):
        large.replica.lead(key, max_message_bytes=1 << 30)
    damaged = large.replica.batch(1, LARGE)[:-1] + b"x"
    produced = large.produce({T0: damaged, T1: large.replica.batch(1, LARGE)})
    assert (await large.result(produced)).error is ErrorCode.CORRUPT_MESSAGE
    assert produced.result()[T1].error is ErrorCode.NONE


@pytest.mark.parametrize("stored", ["producer", "gzip"])
async def test_consecutive_large_batches_are_distinguished(large: LargeAppendsHarness, stored: str) -> None:
    partition = large.replica.lead()
    settings = {"max.message.bytes": str(1 << 30), "compression.type": stored}
    large.replica.manager.update_log_config("t", LogConfig(settings))
    sizes = (2 * LARGE, LARGE + 7, LARGE)
    for size in sizes:
        produced = large.produce({T0: large.replica.batch(1, size, compression=Compression.ZSTD)})
        assert (await large.result(produced)).error is ErrorCode.NONE
    data = bytes_of(partition.log.reader.read(0, 1 << 30))
    values = [read_records(data, position, header)[0].value for position, header in iter_batches(data)]
    assert values == [b"v" * size for size in sizes]


async def test_many_refused_batches_take_several_turns(large: LargeAppendsHarness) -> None:
    """Each batch fails its checksum. Unknown topics take time, too."""
    large.replica.lead(max_message_bytes=1 << 30)
    damaged = bytearray(large.replica.batch(1, TURN_BYTES // 4))
    damaged[-1] ^= 1
    entries = {T0: bytes(damaged)} | dict.fromkeys(
        [TopicPartition("unknown", number) for number in range(3 * TURN_BYTES // APPEND_BYTES)], large.replica.batch()
    )
    finished = large.produce(entries)
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
