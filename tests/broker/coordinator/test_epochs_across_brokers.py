"""Transactions of version 2 in a cluster of three brokers: partitions are added at a coordinator elsewhere, and its
markers come with the version.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.transactions import EndTxnRequest, TxnOffsetCommitRequest, WriteTxnMarkersRequest
from odradek.protocol.records import Record, build_batch
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.coordinator.test_across_brokers import (
    Producer,
    committed,
    demote,
    producer_elsewhere,
    stable_and_end,
)
from tests.broker.coordinator.three_brokers import IDS, Brokers, three_brokers
from tests.patience import until
from tests.wire import requests

NONE, BUSY = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS
AGAIN = (ErrorCode.NOT_ENOUGH_REPLICAS, BUSY)


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[Brokers]:
    async with three_brokers(tmp_path) as brokers:
        yield brokers


class EpochProducer(Producer):
    """A producer with an epoch for each transaction, which adds nothing by itself."""

    async def begin(self, key: TopicPartition, version: int = 12, sequence: int = 0) -> ErrorCode:
        batch = build_batch(
            [Record(0, 1_700_000_000_000, None, b"v")],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        request = requests.produce(key.topic, batch, key.partition, transactional_id=self.name)
        response = await self._brokers.ask_alone(self._brokers.leader(*key), request, version)
        return ErrorCode.of(response.responses[0].partition_responses[0].error_code)

    async def begin_patiently(self, key: TopicPartition) -> None:
        """As clients do: sends the batch again after an error that is temporary."""

        async def is_written() -> bool:
            code = await self.begin(key)
            assert code in (NONE, *AGAIN)
            return code is NONE

        await until(is_written)

    async def commit(self, offset: int, group: str = "g") -> ErrorCode:
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])
        request = TxnOffsetCommitRequest(group_id=group, topics=[topic], **self.who)
        response = await self._brokers.ask(await self._brokers.coordinator(group), request, 5)
        return ErrorCode.of(response.topics[0].partitions[0].error_code)

    async def end_epoch(self, committed: bool = True) -> None:
        response = await self.ask(EndTxnRequest(committed=committed, **self.who), 5)
        assert response.error_code == 0
        assert (response.producer_id, response.producer_epoch) == (self.id, self.epoch + 1)
        self.epoch = response.producer_epoch


async def elsewhere(brokers: Brokers) -> tuple[EpochProducer, list[TopicPartition]]:
    known, keys = await producer_elsewhere(brokers)
    producer = EpochProducer(brokers)
    producer.id, producer.epoch = known.id, known.epoch
    return producer, keys


async def test_the_first_batch_adds_its_partition_at_a_coordinator_elsewhere(brokers: Brokers) -> None:
    producer, keys = await elsewhere(brokers)
    for number, is_committed in enumerate((True, False, True)):
        for key in keys:
            await producer.begin_patiently(key)
            assert await producer.begin(key, sequence=1) is NONE
        assert await producer.state() == "Ongoing"
        await producer.end_epoch(is_committed)
        assert producer.epoch == number + 1
    await producer.until_state("CompleteCommit")
    assert [await stable_and_end(brokers, key) for key in keys] == [(9, 9)] * 2


async def test_the_coordinator_may_lead_the_partition_while_its_log_is_replicated(brokers: Brokers) -> None:
    producer = EpochProducer(brokers)
    coordinator = await producer.coordinator()
    await brokers.create("t", (coordinator, *(each for each in IDS if each != coordinator)))
    await producer.init()
    key = TopicPartition("t", 0)
    for _ in range(3):
        await producer.begin_patiently(key)
        await producer.end_epoch()
    await producer.until_state("CompleteCommit")
    assert await stable_and_end(brokers, key) == (6, 6)


async def test_strangers_are_refused_by_a_leader_elsewhere(brokers: Brokers) -> None:
    producer, (key, _) = await elsewhere(brokers)
    producer.id += 77
    assert await producer.begin(key) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    producer.id -= 77
    producer.epoch += 1
    assert await producer.begin(key) is ErrorCode.INVALID_PRODUCER_EPOCH


async def test_a_batch_waits_for_the_markers_of_the_transaction_before(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, (key, other) = await elsewhere(brokers)
    await producer.begin_patiently(key)
    markers = brokers.brokers[await producer.coordinator()].coordinators.transactions.markers
    with monkeypatch.context() as unreachable:
        unreachable.setattr(markers, "_writer_to", lambda _: None)
        await producer.end_epoch()
        assert await producer.begin(other) is BUSY
    await producer.begin_patiently(other)
    await producer.end_epoch()
    await producer.until_state("CompleteCommit")
    assert [await stable_and_end(brokers, each) for each in (key, other)] == [(2, 2)] * 2


async def test_the_next_coordinator_goes_on_with_the_epochs(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    producer, (key, _) = await elsewhere(brokers)
    await producer.begin_patiently(key)
    failed = await producer.coordinator()
    monkeypatch.setattr(brokers.brokers[failed].coordinators.transactions.markers, "_writer_to", lambda _: None)
    await producer.end_epoch()
    await brokers.stop(failed)
    await producer.until_state("CompleteCommit")
    producer.epoch -= 1
    await producer.end_epoch()  # its response was lost
    await producer.begin_patiently(key)
    await producer.end_epoch(False)
    await producer.until_state("CompleteAbort")
    assert await stable_and_end(brokers, key) == (4, 4)


async def test_markers_go_with_the_version_to_brokers_that_know_it(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, (key, _) = await elsewhere(brokers)
    await producer.begin_patiently(key)
    leader = brokers.brokers[brokers.leader(*key)]
    appended: list[tuple[int, int]] = []
    append = leader.replica_manager.markers.append

    def noted(key: TopicPartition, producer_id: int, epoch: int, *more: Any) -> None:
        appended.append((epoch, more[3]))
        append(key, producer_id, epoch, *more)

    monkeypatch.setattr(leader.coordinators._own_logs, "_append", noted)
    await producer.end_epoch()
    await producer.until_state("CompleteCommit")
    assert appended == [(1, 2)]
    topics = [WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="t", partition_indexes=[key.partition])]
    late = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=producer.id, producer_epoch=1, coordinator_epoch=99, topics=topics, transaction_version=2
    )
    await producer.begin_patiently(key)
    response = await brokers.ask(leader.broker_id, WriteTxnMarkersRequest(markers=[late]), 2)
    assert response.markers[0].topics[0].partitions[0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await stable_and_end(brokers, key) == (2, 3)


async def test_groups_are_added_at_another_coordinator_and_survive_both(brokers: Brokers) -> None:
    await brokers.create("t", IDS)
    producer = EpochProducer(brokers)
    await producer.init()
    for number, group in enumerate(brokers.names_by_partition("group")):
        await brokers.coordinator(group)
        assert await producer.commit(number, group) is NONE
    await demote(brokers, await producer.coordinator())
    await producer.end_epoch()
    await producer.until_state("CompleteCommit")
    for number, group in enumerate(brokers.names_by_partition("group")):
        assert await committed(brokers, group) == {"t": number}


async def test_many_transactions_of_two_producers_at_once(brokers: Brokers) -> None:
    producer, keys = await elsewhere(brokers)
    other = EpochProducer(brokers, "other")
    await other.init()

    async def transact(one: EpochProducer) -> None:
        for number in range(10):
            for key in keys:
                await one.begin_patiently(key)
            await one.end_epoch(number % 3 > 0)

    await asyncio.gather(transact(producer), transact(other))
    for each in (producer, other):
        await each.until_state("CompleteAbort")
    assert [await stable_and_end(brokers, key) for key in keys] == [(40, 40)] * 2
