"""Each client error is one log line with the client, the request, the refused item and the reason.

Here the items of requests are wrong. Errors that close a connection are in test_connection.py and its vectors.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import structlog.testing

from odradek.broker.handlers.item_faults import LONGEST_ITEM, MOST_ITEMS, ORDINARY, item_faults
from odradek.broker.metadata.new_topic import NewTopic
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.groups import JoinGroupResponse
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.produce import ProduceRequest, ProduceResponse
from odradek.protocol.messages.sasl import SaslHandshakeRequest
from odradek.protocol.records import Compression, Record, build_batch
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition
from tests.wire import requests
from tests.wire.api import Api, api_of_a_broker

GOOD = build_batch([Record(0, 1, b"k", b"v" * 50), Record(1, 2, b"k", b"v")])


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with api_of_a_broker(
        {"message.max.bytes": "1000000", "odradek.max.decompressed.batch.bytes": "50000"}
    ) as api:
        await api.broker.controller.topics.create([NewTopic("t", 1, 1)], timeout_ms=10_000)
        yield api


def changed(position: int) -> bytes:
    batch = bytearray(GOOD)
    batch[position] ^= 0x05
    return bytes(batch)


def produce(records: bytes) -> ProduceRequest:
    return requests.produce("t", records, acks=1)


def fetch(topic: str, offset: int) -> FetchRequest:
    return requests.fetch((TopicPartition(topic, 0), offset), partition_bytes=1000)


@pytest.mark.parametrize(
    ("request_", "version", "item"),
    [
        (produce(changed(20)), 9, "t-0 CORRUPT_MESSAGE: "),
        (produce(changed(16)), 9, "t-0 CORRUPT_MESSAGE: "),
        (produce(GOOD[:40]), 9, "t-0 INVALID_RECORD: "),
        (produce(b""), 3, "t-0 INVALID_RECORD"),
        (produce(GOOD[:16] + b"\1" + GOOD[17:]), 2, "t-0 UNSUPPORTED_VERSION"),
        (produce(build_batch([Record(3, 1, None, b"")], base_offset=3)), 9, "t-0 INVALID_RECORD: "),
        (produce(build_batch([Record(0, 1, None, bytes(1_000_000))])), 9, "t-0 MESSAGE_TOO_LARGE: "),
        (
            produce(build_batch([Record(0, 1, None, bytes(60_000))], compression=Compression.ZSTD)),
            9,
            "t-0 MESSAGE_TOO_LARGE: ",
        ),
        (fetch("t", 99), 11, "t-0 OFFSET_OUT_OF_RANGE"),
        (fetch("t", 0), 3, "t-0 UNSUPPORTED_VERSION"),
        (requests.create_topics("a/b"), 5, "a/b INVALID_TOPIC_EXCEPTION: "),
        (requests.create_topics(".."), 5, ".. INVALID_TOPIC_EXCEPTION: "),
        (requests.create_topics("x" * 250), 5, "xxx"),
        (MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="a/b")]), 9, "a/b INVALID_TOPIC_EXCEPTION"),
        (requests.list_offsets("t", 0, -77), 5, "t-0 "),
        (SaslHandshakeRequest(mechanism="PLAIN"), 1, "ILLEGAL_SASL_STATE"),
    ],
)
async def test_a_refused_item_is_logged_in_one_line_with_the_reason(
    api: Api, request_: Message, version: int, item: str
) -> None:
    with structlog.testing.capture_logs() as logs:
        await api(request_, version)
    (line,) = logs
    assert line["event"] == "request items refused"
    assert (line["log_level"], line["client"], line["api_version"]) == ("warning", "127.0.0.1", version)
    assert line["api"] == ApiKey(request_.__schema__.api_key or 0).name
    assert line["connection"].startswith(api.broker.bootstrap)
    (logged,) = line["items"]
    assert logged.startswith(item)
    assert len(logged) <= LONGEST_ITEM


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (produce(GOOD), 9),
        (fetch("t", 0), 11),
        (fetch("not-there", 0), 11),
        (MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")]), 9),
        (requests.create_topics("t"), 5),
    ],
)
async def test_expected_errors_are_not_logged(api: Api, request_: Message, version: int) -> None:
    with structlog.testing.capture_logs() as logs:
        await api(request_, version)
    assert logs == []


def test_the_first_few_refused_items_are_named_and_expected_errors_never() -> None:
    def answer(index: int, code: ErrorCode, message: str | None = None) -> Any:
        return ProduceResponse.PartitionProduceResponse(index=index, error_code=code, error_message=message)

    ordinary = [answer(1, code) for code in ORDINARY]
    faults = [answer(index, ErrorCode.INVALID_RECORD, "x" * 10_000) for index in range(2, 10)]
    topic = ProduceResponse.TopicProduceResponse(name="a", partition_responses=ordinary + faults)
    logged = item_faults(ProduceResponse(responses=[topic]))
    assert [text[:22] for text in logged] == [f"a-{index} INVALID_RECORD: xx" for index in (2, 3, 4)]
    assert len(logged) == MOST_ITEMS
    assert {len(text) for text in logged} == {LONGEST_ITEM}


def test_the_member_id_required_error_of_a_new_member_is_not_logged() -> None:
    """The first JoinGroup of each member returns the id with which it must join again."""
    assert item_faults(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="m")) == []
    assert item_faults(JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID, member_id="m")) != []
