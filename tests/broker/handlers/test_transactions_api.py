"""Transactions over a socket: each request version, markers, settings and metrics.

Restarts: tests/broker/coordinator/test_compacted_internal_topics.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from odradek.broker.coordinator.runtime.runtime import java_string_hash
from odradek.broker.coordinator.transaction.transaction import LARGEST_EPOCH
from odradek.broker.coordinator.transaction.transaction_state import BY_LABEL
from odradek.broker.metrics.families import FAMILIES
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.producers import InitProducerIdRequest
from odradek.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListTransactionsRequest,
    WriteTxnMarkersRequest,
)
from odradek.protocol.records import Record, build_batch
from odradek.protocol.topic_partition import TopicPartition
from tests.patience import until
from tests.wire import requests
from tests.wire.api import Api, api_of_a_broker

Producer = tuple[int, int]
SMALL: dict[str, object] = {"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}
FENCED_BEFORE = {"init": 4, "add": 2, "offsets": 2, "end": 2}
"""The first version of each request that knows PRODUCER_FENCED."""


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with api_of_a_broker(SMALL) as api:
        await prepare(api)
        yield api


async def prepare(api: Api, topic: str = "orders", partitions: int = 2) -> None:
    """Creates a topic and waits for the transaction coordinator."""
    await api(requests.create_topics(topic, partitions=partitions), 5)
    await until_coordinated(api)


async def until_coordinated(api: Api, name: str = "t") -> None:

    async def is_coordinated() -> bool:
        found = await api(FindCoordinatorRequest(key=name, key_type=1), 3)
        return found.error_code == 0 and not api.broker.coordinators.transactions.runtime.loading

    await until(is_coordinated)


async def init(api: Api, version: int = 4, name: str | None = "t", expected: Producer = (-1, -1)) -> Any:
    request = InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=60_000,
        producer_id=expected[0],
        producer_epoch=expected[1],
    )
    return await api(request, version)


async def new_producer(api: Api, name: str = "t") -> Producer:
    answer = await init(api, name=name)
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


async def add(api: Api, producer: Producer, version: int = 3, name: str = "t", **topics: list[int]) -> dict[Any, int]:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=numbers)
            for topic, numbers in (topics or {"orders": [0]}).items()
        ],
    )
    return {
        (topic.name, partition.partition_index): partition.partition_error_code
        for topic in (await api(request, version)).results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    }


async def add_offsets(api: Api, producer: Producer, version: int = 3, group: str = "g") -> int:
    request = AddOffsetsToTxnRequest(
        transactional_id="t", producer_id=producer[0], producer_epoch=producer[1], group_id=group
    )
    return int((await api(request, version)).error_code)


async def end(api: Api, producer: Producer, committed: bool = True, version: int = 3) -> int:
    request = EndTxnRequest(
        transactional_id="t", producer_id=producer[0], producer_epoch=producer[1], committed=committed
    )
    return int((await api(request, version)).error_code)


async def produce(api: Api, producer: Producer, value: bytes, partition: int = 0, sequence: int = 0) -> int:
    batch = build_batch(
        [Record(0, 1_700_000_000_000, None, value)],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        is_transactional=True,
    )
    request = requests.produce("orders", batch, partition, transactional_id="t")
    return int((await api(request, 8)).responses[0].partition_responses[0].error_code)


async def last_stable_and_end(api: Api, partition: int = 0) -> tuple[int, int]:
    found = []
    for isolation_level in (1, 0):
        request = requests.list_offsets("orders", partition, isolation_level=isolation_level)
        found.append((await api(request, 5)).topics[0].partitions[0].offset)
    return found[0], found[1]


async def aborted(api: Api, partition: int = 0) -> list[tuple[int, int]]:
    request = requests.fetch((TopicPartition("orders", partition), 0), isolation_level=1, min_bytes=0)
    answer = (await api(request, 11)).responses[0].partitions[0]
    return [(one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()]


async def describe(api: Api, *names: str) -> list[Any]:
    return list((await api(DescribeTransactionsRequest(transactional_ids=list(names)), 0)).transaction_states)


# By version


@pytest.mark.parametrize("version", range(6))
async def test_a_fenced_producer_that_continues_gets_an_error_that_its_version_knows(api: Api, version: int) -> None:
    old, _ = await new_producer(api), await new_producer(api)
    answer = await init(api, version, expected=old)
    if version < 3:  # these versions name no producer, so the request starts the next one
        assert (answer.error_code, answer.producer_epoch) == (0, 2)
        return
    fenced = ErrorCode.PRODUCER_FENCED if version >= FENCED_BEFORE["init"] else ErrorCode.INVALID_PRODUCER_EPOCH
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (fenced, -1, -1)


@pytest.mark.parametrize("version", range(5))
async def test_a_fenced_producer_gets_an_error_that_its_version_knows(api: Api, version: int) -> None:
    old, _ = await new_producer(api), await new_producer(api)
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert await add(api, old, min(version, 3)) == {("orders", 0): fenced}
    assert await add_offsets(api, old, version) == fenced
    assert await end(api, old, version=version) == fenced


@pytest.mark.parametrize("version", range(5))
async def test_a_transaction_runs_in_every_version(api: Api, version: int) -> None:
    producer = await new_producer(api)
    assert await add(api, producer, min(version, 3), orders=[0, 1]) == {("orders", 0): 0, ("orders", 1): 0}
    assert await add_offsets(api, producer, version) == 0
    assert await produce(api, producer, b"a") == 0
    assert await last_stable_and_end(api) == (0, 1)
    assert await end(api, producer, True, version) == 0
    assert await last_stable_and_end(api) == (2, 2)


async def test_an_unknown_partition_keeps_all_partitions_from_being_added(api: Api) -> None:
    producer = await new_producer(api)
    assert await add(api, producer, orders=[0, 7], none=[0]) == {
        ("orders", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("orders", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert (await describe(api, "t"))[0].transaction_state == "Empty"


async def test_init_producer_id_without_transactional_id_returns_a_new_producer(api: Api) -> None:
    first, second = await init(api, name=None), await init(api, name=None)
    assert (second.producer_id, second.producer_epoch) == (first.producer_id + 1, 0)


@pytest.mark.parametrize("expected", [(5, -1), (-1, 5)])
async def test_a_producer_id_needs_its_epoch_and_an_epoch_its_producer_id(api: Api, expected: Producer) -> None:
    for name in ("t", None):
        answer = await init(api, name=name, expected=expected)
        assert (answer.error_code, answer.producer_id) == (ErrorCode.INVALID_REQUEST, -1)


async def test_every_request_for_an_id_coordinated_elsewhere_is_refused() -> None:
    async with api_of_a_broker() as api:  # no FindCoordinator was sent: the coordinator's topic does not exist
        assert (await init(api)).error_code == ErrorCode.NOT_COORDINATOR
        assert await end(api, (1, 0)) == ErrorCode.NOT_COORDINATOR
        assert (await describe(api, "t"))[0].error_code == ErrorCode.NOT_COORDINATOR
        listed = await api(ListTransactionsRequest(), 0)
        assert (listed.error_code, listed.transaction_states) == (0, [])


async def test_ids_are_described_and_listed(api: Api) -> None:
    producer = await new_producer(api)
    await add(api, producer, orders=[1, 0])
    found, nobody, empty = await describe(api, "t", "nobody", "")
    assert (found.error_code, found.transaction_state, found.transaction_timeout_ms) == (0, "Ongoing", 60_000)
    assert (found.producer_id, found.producer_epoch) == producer
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [("orders", [0, 1])]
    assert nobody.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert empty.error_code == ErrorCode.INVALID_REQUEST
    listed = await api(ListTransactionsRequest(state_filters=["Ongoing", "Odd"], producer_id_filters=[producer[0]]), 0)
    assert [(one.transactional_id, one.producer_id) for one in listed.transaction_states] == [("t", producer[0])]
    assert listed.unknown_state_filters == ["Odd"]


async def test_transactions_are_listed_by_the_time_since_they_began(api: Api) -> None:
    await add(api, await new_producer(api))
    began_ms = (await describe(api, "t"))[0].transaction_start_time_ms
    await until(lambda: api.broker.clock.wall_ms() > began_ms + 20)

    async def listed(longer_than_ms: int) -> list[str]:
        answer = await api(ListTransactionsRequest(duration_filter=longer_than_ms), 1)
        return [one.transactional_id for one in answer.transaction_states]

    assert [await listed(duration) for duration in (-1, 0, 20, 600_000, 2**63 - 1)] == [["t"], ["t"], ["t"], [], []]


async def test_transactions_are_listed_by_a_pattern_of_their_whole_id(api: Api) -> None:
    for name in ("orders-1", "orders-12", "other"):
        await add(api, await new_producer(api, name), name=name)

    async def listed(pattern: str | None) -> tuple[int, list[str]]:
        answer = await api(ListTransactionsRequest(transactional_id_pattern=pattern), 2)
        return answer.error_code, sorted(one.transactional_id for one in answer.transaction_states)

    for pattern in (None, "", "o.*"):
        assert await listed(pattern) == (0, ["orders-1", "orders-12", "other"])
    assert await listed("orders-.") == (0, ["orders-1"])
    assert await listed("orders") == (0, [])
    assert await listed("(") == (ErrorCode.INVALID_REGULAR_EXPRESSION, [])
    assert await listed("(?=o)other") == (ErrorCode.INVALID_REGULAR_EXPRESSION, [])
    endless = "o" * 30_000
    await add(api, await new_producer(api, endless), name=endless)
    assert await listed("other|o{30}.*") == (0, [endless, "other"])
    assert await listed("o?" * 10_000) == (ErrorCode.INVALID_REGULAR_EXPRESSION, [])


async def test_ids_with_colliding_hashes_are_independent() -> None:
    async with api_of_a_broker() as api:
        await prepare(api)
        assert java_string_hash("Aa") == java_string_hash("BB")
        one, other = await new_producer(api, "Aa"), await new_producer(api, "BB")
        assert await add(api, one, name="Aa") == {("orders", 0): 0}
        assert await add(api, one, name="BB") == {("orders", 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING}
        assert await new_producer(api, "BB") == (other[0], 1)
        assert [found.transaction_state for found in await describe(api, "Aa", "BB")] == ["Ongoing", "Empty"]


async def test_an_exhausted_epoch_leads_to_a_new_producer_id(api: Api) -> None:
    producer = await new_producer(api)
    coordinator = api.broker.coordinators.transactions
    coordinator.describe("t").producer_epoch = LARGEST_EPOCH - 1
    answer = await init(api)
    assert answer.producer_id > producer[0]
    assert answer.producer_epoch == 0


# WriteTxnMarkers


async def write_markers(
    api: Api,
    *markers: tuple[Producer, bool, int, dict[str, list[int]]],
    transaction_version: int = 0,
    version: int = 1,
) -> dict[Any, int]:
    request = WriteTxnMarkersRequest(
        markers=[
            WriteTxnMarkersRequest.WritableTxnMarker(
                producer_id=producer[0],
                producer_epoch=producer[1],
                transaction_result=committed,
                coordinator_epoch=epoch,
                transaction_version=transaction_version,
                topics=[
                    WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=name, partition_indexes=numbers)
                    for name, numbers in topics.items()
                ],
            )
            for producer, committed, epoch, topics in markers
        ]
    )
    return {
        (marker.producer_id, topic.name, partition.partition_index): partition.error_code
        for marker in (await api(request, version)).markers
        for topic in marker.topics
        for partition in topic.partitions
    }


async def test_markers_are_written_for_each_producer_and_partition(api: Api) -> None:
    producer = await new_producer(api)
    await add(api, producer, orders=[0, 1])
    for partition in (0, 1):
        assert await produce(api, producer, b"a", partition) == 0
    found = await write_markers(
        api,
        (producer, False, 0, {"orders": [0, 9], "none": [0]}),
        (producer, True, 0, {"orders": [1]}),
        ((4711, 0), True, 0, {"orders": [0]}),
    )
    assert found == {
        (producer[0], "orders", 0): 0,
        (producer[0], "orders", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (producer[0], "none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (producer[0], "orders", 1): 0,
        (4711, "orders", 0): 0,
    }
    assert await aborted(api, 0) == [(producer[0], 0)]
    assert await last_stable_and_end(api, 1) == (2, 2)


async def test_markers_of_an_older_coordinator_are_refused(api: Api) -> None:
    producer = await new_producer(api)
    await add(api, producer)
    await produce(api, producer, b"a")
    key = (producer[0], "orders", 0)
    assert await write_markers(api, (producer, True, 5, {"orders": [0]})) == {key: 0}
    assert await write_markers(api, (producer, True, 4, {"orders": [0]})) == {
        key: ErrorCode.TRANSACTION_COORDINATOR_FENCED
    }


@pytest.mark.parametrize("producer", [(-1, 0), (4711, -1)])
async def test_markers_without_a_valid_producer_are_refused(api: Api, producer: tuple[int, int]) -> None:
    found = await write_markers(api, (producer, True, 0, {"orders": [0]}))
    assert found == {(producer[0], "orders", 0): ErrorCode.INVALID_REQUEST}
    assert await last_stable_and_end(api, 0) == (0, 0)


async def test_a_request_without_markers_is_answered_at_once(api: Api) -> None:
    assert await write_markers(api) == {}
    assert await write_markers(api, ((1, 0), True, 0, {})) == {}


# Settings


async def test_the_maximum_transaction_timeout_is_a_setting() -> None:
    async with api_of_a_broker(SMALL | {"transaction.max.timeout.ms": 1000}) as api:
        await prepare(api)
        for timeout_ms, code in ((1001, ErrorCode.INVALID_TRANSACTION_TIMEOUT), (1000, ErrorCode.NONE)):
            request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=timeout_ms)
            assert (await api(request, 1)).error_code == code


# Metrics


def never_written(*arguments: Any) -> None:
    """Stands for a marker that is not written."""


def metric_values(api: Api, name: str) -> dict[tuple[str, ...], float]:
    (family,) = (family for family in FAMILIES if family.name == name)
    return {tuple(labels): value for labels, value in family.read(api.broker.metric_sources())}


async def test_metrics_count_ids_by_state_and_ongoing_completions(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = "kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize"
    retries = "kafka_coordinator_transaction_transactionmarkerchannelmanager_logappendretryqueuesize"
    await new_producer(api, "idle")
    producer = await new_producer(api)
    await add(api, producer)
    found = metric_values(api, "odradek_transactional_ids")
    assert {labels: count for labels, count in found.items() if count} == {("Empty",): 1, ("Ongoing",): 1}
    assert set(found) == {(label,) for label in BY_LABEL}
    monkeypatch.setattr(api.broker.coordinators._own_logs, "_append", never_written)
    await end(api, producer)
    assert metric_values(api, "odradek_transactions_being_completed") == {(): 1}
    assert metric_values(api, queue) == metric_values(api, retries) == {(): 0}
