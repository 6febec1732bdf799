"""Transactions in a partition's log over a socket: verification, hanging transactions, and what clients can query."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from odradek.broker.metadata.new_topic import NewTopic
from odradek.broker.metrics.families import FAMILIES
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.configs import IncrementalAlterConfigsRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.messages.producers import DescribeProducersRequest, InitProducerIdRequest
from odradek.protocol.messages.transactions import AddPartitionsToTxnRequest, EndTxnRequest, WriteTxnMarkersRequest
from odradek.protocol.records import Record, build_batch
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.log.log import Log
from tests.wire import requests
from tests.wire.api import Api, api_of_a_broker

ID = "copier"
FEW = {"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}
YEARS_AGO_MS = 1_700_000_000_000
T0 = TopicPartition("t", 0)


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with api_of_a_broker(FEW) as api:
        await api.broker.controller.topics.create([NewTopic("t", 1, 1)], timeout_ms=10_000)
        yield api


async def new_producer(api: Api) -> int:
    async with asyncio.timeout(30):
        while True:
            await api(FindCoordinatorRequest(key=ID, key_type=1), 2)
            answer = await api(InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000), 4)
            if answer.error_code == 0:
                return int(answer.producer_id)
            await asyncio.sleep(0.05)


async def produce(api: Api, producer_id: int, sequence: int, version: int = 9) -> ErrorCode:
    batch = build_batch(
        [Record(0, YEARS_AGO_MS, b"k", b"v")],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )
    data = ProduceRequest.TopicProduceData(
        name="t", partition_data=[ProduceRequest.PartitionProduceData(index=0, records=batch)]
    )
    request = ProduceRequest(transactional_id=ID, acks=-1, timeout_ms=10_000, topic_data=[data])
    return ErrorCode((await api(request, version)).responses[0].partition_responses[0].error_code)


async def add(api: Api, producer_id: int) -> None:
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[0])
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[topic],
    )
    answer = await api(request, 3)
    assert answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0


async def end(api: Api, producer_id: int) -> None:
    """Commits and waits for the marker."""
    partition_log = log_of(api)
    before = partition_log.state.log_end_offset
    request = EndTxnRequest(transactional_id=ID, producer_id=producer_id, producer_epoch=0, committed=True)
    assert (await api(request, 3)).error_code == 0
    async with asyncio.timeout(30):
        while partition_log.state.log_end_offset == before:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.005)


def log_of(api: Api) -> Log:
    return api.broker.replica_manager.partitions.find(T0).log


async def latest(api: Api, isolation_level: int) -> int:
    answer = await api(requests.list_offsets("t", isolation_level=isolation_level), 5)
    return int(answer.topics[0].partitions[0].offset)


async def producers(api: Api) -> list[Any]:
    topic = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0])
    return list((await api(DescribeProducersRequest(topics=[topic]), 0)).topics[0].partitions[0].active_producers)


def metric_value(api: Api, name: str) -> float:
    (family,) = [family for family in FAMILIES if family.name == name]
    ((_, value),) = family.read(api.broker.metric_sources())
    return value


def late_transactions(api: Api) -> float:
    return metric_value(api, "kafka_server_replicamanager_partitionswithlatetransactionscount")


async def test_a_batch_after_the_end_of_its_transaction_is_refused_and_counted(api: Api) -> None:
    producer_id = await new_producer(api)
    assert await produce(api, producer_id, 0) is ErrorCode.INVALID_TXN_STATE
    assert await produce(api, producer_id, 0, version=10) is ErrorCode.INVALID_TXN_STATE
    assert await produce(api, producer_id, 0, version=11) is ErrorCode.TRANSACTION_ABORTABLE
    await add(api, producer_id)
    assert await produce(api, producer_id, 0) is ErrorCode.NONE
    assert (await latest(api, 0), await latest(api, 1)) == (1, 0)
    await end(api, producer_id)
    assert (await latest(api, 0), await latest(api, 1)) == (2, 2)
    assert await produce(api, producer_id, 1) is not ErrorCode.NONE
    assert log_of(api).state.log_end_offset == 2
    assert metric_value(api, "kafka_server_addpartitionstotxnmanager_verificationfailurerate") == 4


async def test_without_verification_a_late_batch_hangs_until_an_administrator_ends_its_transaction(api: Api) -> None:
    entry = IncrementalAlterConfigsRequest.AlterableConfig(
        name="transaction.partition.verification.enable", config_operation=0, value="false"
    )
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=4, resource_name=str(api.broker.broker_id), configs=[entry]
    )
    assert (await api(IncrementalAlterConfigsRequest(resources=[resource]), 1)).responses[0].error_code == 0
    producer_id = await new_producer(api)
    await add(api, producer_id)
    assert await produce(api, producer_id, 0) is ErrorCode.NONE
    await end(api, producer_id)
    assert late_transactions(api) == 0
    assert await produce(api, producer_id, 1) is ErrorCode.NONE
    assert (await latest(api, 0), await latest(api, 1)) == (3, 2)
    assert late_transactions(api) == 1

    (hanging,) = await producers(api)
    assert (hanging.producer_id, hanging.current_txn_start_offset) == (producer_id, 2)
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=hanging.producer_id,
        producer_epoch=hanging.producer_epoch,
        coordinator_epoch=hanging.coordinator_epoch,
        transaction_result=False,
        topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
    )
    answer = await api(WriteTxnMarkersRequest(markers=[marker]), 1)
    assert answer.markers[0].topics[0].partitions[0].error_code == 0
    assert (await latest(api, 0), await latest(api, 1)) == (4, 4)
    assert late_transactions(api) == 0
    (healed,) = await producers(api)
    assert healed.current_txn_start_offset == -1
