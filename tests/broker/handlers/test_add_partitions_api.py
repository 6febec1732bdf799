"""AddPartitionsToTxn 4 and 5: several transactions in one request, added to or only verified."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.transactions import AddPartitionsToTxnRequest
from tests.broker.handlers.test_transactions_api import Producer, api, describe, end, new_producer, produce
from tests.wire.api import Api

__all__ = ["api"]

NONE, NOT_ATTEMPTED, UNKNOWN = ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
both_versions = pytest.mark.parametrize("version", [4, 5])


def asked(name: str, producer: Producer, *, verify_only: bool = False, **topics: list[int]) -> Any:
    return AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id=name,
        producer_id=producer[0],
        producer_epoch=producer[1],
        verify_only=verify_only,
        topics=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=numbers)
            for topic, numbers in topics.items()
        ],
    )


async def send(api: Api, version: int, *transactions: Any) -> list[tuple[str, dict[int, int]]]:
    """Returns the error of each partition, by transaction."""
    answer = await api(AddPartitionsToTxnRequest(transactions=list(transactions)), version)
    assert (answer.error_code, answer.results_by_topic_v3_and_below) == (0, [])
    return [
        (
            result.transactional_id,
            {
                partition.partition_index: partition.partition_error_code
                for topic in result.topic_results
                for partition in topic.results_by_partition
            },
        )
        for result in answer.results_by_transaction
    ]


async def codes(api: Api, version: int, transaction: Any) -> dict[int, int]:
    ((_, found),) = await send(api, version, transaction)
    return found


@both_versions
async def test_partitions_are_added_to_several_transactions(api: Api, version: int) -> None:
    one, other = await new_producer(api, "t"), await new_producer(api, "u")
    assert await send(api, version, asked("t", one, orders=[0, 1]), asked("u", other, orders=[1])) == [
        ("t", {0: NONE, 1: NONE}),
        ("u", {1: NONE}),
    ]
    assert [found.transaction_state for found in await describe(api, "t", "u")] == ["Ongoing", "Ongoing"]
    assert await produce(api, one, b"a") == NONE
    assert await end(api, one) == NONE


@both_versions
async def test_each_transaction_has_its_own_error(api: Api, version: int) -> None:
    producer = await new_producer(api)
    fenced, other = (producer[0], producer[1] + 1), (producer[0] + 7, 0)
    found = await send(
        api,
        version,
        asked("t", producer, orders=[0, 7]),
        asked("t", fenced, orders=[0]),
        asked("t", other, orders=[0]),
        asked("", producer, orders=[0]),
        asked("t", producer),
        asked("t", producer, orders=[0]),
    )
    assert found == [
        ("t", {0: NOT_ATTEMPTED, 7: UNKNOWN}),
        ("t", {0: ErrorCode.PRODUCER_FENCED}),
        ("t", {0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}),
        ("", {0: ErrorCode.INVALID_REQUEST}),
        ("t", {}),
        ("t", {0: NONE}),
    ]


@both_versions
async def test_partitions_of_an_open_transaction_are_verified_and_none_is_added(api: Api, version: int) -> None:
    producer = await new_producer(api)
    late, other = (producer[0], producer[1] + 1), (producer[0] + 7, 0)
    await send(api, version, asked("t", producer, orders=[1]))
    verified = {
        kind: await codes(api, version, asked(name, who, verify_only=True, orders=numbers))
        for kind, name, who, numbers in (
            ("in it and not", "t", producer, [0, 1]),
            ("late", "t", late, [1]),
            ("other producer", "t", other, [1]),
            ("unknown id", "u", producer, [1]),
            ("no id", "", producer, [1]),
            ("unknown partition", "t", producer, [1, 7]),
        )
    }
    assert verified == {
        "in it and not": {0: ErrorCode.TRANSACTION_ABORTABLE, 1: NONE},
        "late": {1: ErrorCode.PRODUCER_FENCED},
        "other producer": {1: ErrorCode.INVALID_PRODUCER_ID_MAPPING},
        "unknown id": {1: ErrorCode.INVALID_PRODUCER_ID_MAPPING},
        "no id": {1: ErrorCode.INVALID_REQUEST},
        "unknown partition": {1: NOT_ATTEMPTED, 7: UNKNOWN},
    }
    assert [(topic.topic, topic.partitions) for topic in (await describe(api, "t"))[0].topics] == [("orders", [1])]
    await end(api, producer)
    assert await codes(api, version, asked("t", producer, verify_only=True, orders=[1])) != {1: NONE}


@both_versions
async def test_a_request_without_transactions_is_answered(api: Api, version: int) -> None:
    assert await send(api, version) == []


@both_versions
async def test_too_many_transactions_without_topics_are_refused(api: Api, version: int) -> None:
    request = AddPartitionsToTxnRequest(transactions=[asked("t", (1, 0))] * 10_001)
    assert (await api(request, version)).error_code == ErrorCode.POLICY_VIOLATION
