"""ListOffsets over a socket: the version from which each special timestamp is known."""

from __future__ import annotations

import pytest

from odradek.broker.metadata.new_topic import NewTopic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.list_offsets import ListOffsetsRequest
from odradek.protocol.records import Record, build_batch
from tests.wire import requests
from tests.wire.api import Api, api_of_a_broker

FOUND = {-1: (1, 2), -2: (1, 0), -3: (7, 1), -4: (8, 0), -5: (9, -1), -6: (11, -1)}
"""By timestamp: the first version that knows it, and the offset. The log has two records, and nothing is tiered."""


async def offset(api: Api, timestamp: int, version: int, topic: str = "t") -> tuple[int, int]:
    asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[asked])]
    )
    answer = (await api(request, version)).topics[0].partitions[0]
    assert answer.timestamp in ((-1,) if timestamp != -3 else (-1, 1_700_000_000_001))
    return answer.error_code, answer.offset


@pytest.mark.parametrize("version", range(1, 12))
async def test_special_timestamps_are_found_from_their_version_on(version: int) -> None:
    async with api_of_a_broker() as api:
        await api.broker.controller.topics.create([NewTopic("t")], timeout_ms=10_000)
        records = build_batch([Record(number, 1_700_000_000_000 + number, None, b"v") for number in range(2)])
        await api(requests.produce("t", records), 8)
        for timestamp, (first, found) in FOUND.items():
            expected = (0, found) if version >= first else (ErrorCode.UNSUPPORTED_VERSION, -1)
            assert await offset(api, timestamp, version) == expected
        assert await offset(api, -7, version) == (ErrorCode.UNSUPPORTED_VERSION, -1)
        for timestamp in [each for each in (-5, -6) if version >= FOUND[each][0]]:
            assert await offset(api, timestamp, version, "none") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
