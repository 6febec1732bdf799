"""Every topic setting marked as taking effect, set in each possible way, changes what a client or the disk of a
running broker shows. The default has another effect. Settings that are times have rows in
tests/testing/virtual_time/deadlines.py instead.

The ways: in the broker's server.properties, under the broker's name; when the topic is created; changed on
the topic or for the whole cluster while the broker runs and the topic's log is open.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from odradek.broker.settings import BROKER, TOPIC
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.configs import IncrementalAlterConfigsRequest
from odradek.protocol.messages.produce import ProduceResponse
from odradek.protocol.records import Compression, Record, build_batch, iter_batches
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.log.log import Log
from tests.patience import until, within
from tests.wire import requests
from tests.wire.api import Api, api_of_a_broker

A_TIME = re.compile(r"\.(ms|seconds|minutes|hours)$")
"""The end of the name of a setting that is a time."""
HOUR_MS = 3_600_000
PAUSES = 30
"""How long the broker is watched that should do nothing. Its work is due within a few of these."""
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
STATIC, CREATED, ALTERED, DYNAMIC = "in the file", "at creation", "altered on the topic", "altered for the cluster"
AT_ONCE = (STATIC, CREATED, ALTERED, DYNAMIC)
NEXT_SEGMENT = (STATIC, CREATED)
"""A segment takes these settings when it is created. The open segment keeps its values."""
QUICK = {"log.retention.check.interval.ms": "20"}
CLEANED = {"log.cleanup.policy": "compact", "log.segment.bytes": "1000", "log.cleaner.backoff.ms": "20"}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def produce(api: Api, size: int = 900, *, at_ms: int | None = None, key: bytes | None = b"k", **how: Any) -> Any:
    """Appends one record to t-0 and returns the partition's response."""
    records = build_batch([Record(0, now_ms() if at_ms is None else at_ms, key, b"v" * size)], **how)
    response: ProduceResponse = await api(requests.produce("t", records), 9)
    return response.responses[0].partition_responses[0]


async def produced(api: Api, count: int, size: int = 900, **how: Any) -> Log:
    """Appends records, requires success and returns the log."""
    for _ in range(count):
        assert (await produce(api, size, **how)).error_code == ErrorCode.NONE
    return log_of(api)


def log_of(api: Api) -> Log:
    log: Log = api.broker.replica_manager.partitions.find(TopicPartition("t", 0)).log
    return log


def files_of(api: Api, suffix: str) -> list[Path]:
    return sorted(Path(log_of(api).folder.path).glob(f"*{suffix}"))


def stored(api: Api) -> bytes:
    return b"".join(path.read_bytes() for path in files_of(api, ".log"))


async def earliest(api: Api) -> int:
    response = await api(requests.list_offsets("t", timestamp=-2), 5)
    return int(response.topics[0].partitions[0].offset)


# Observed effects


async def segments_of_five(api: Api) -> bool:
    return len((await produced(api, 5)).segments) > 1


async def index_entries_of_five_small_batches(api: Api) -> bool:
    log = await produced(api, 5, 10)
    return len(log.segments.active.offset_index) > 0


async def old_records_are_deleted(api: Api) -> bool:
    """Whether the broker's own retention deletes old records, of which there are three segments."""
    log = await produced(api, 3, 1500, at_ms=now_ms() - 2 * HOUR_MS)
    await produced(api, 1, 1500)
    await within(lambda: log.state.log_start_offset > 0, PAUSES)
    return await earliest(api) > 0


async def is_cleaned(api: Api) -> bool:
    """Whether the cleaner cleans the log within some rounds."""
    log = await produced(api, 4)
    log.flush()
    assert api.broker.log_cleaner is not None
    manager = api.broker.log_cleaner.manager
    for _ in range(4):
        looked = manager.last_run_ms
        await until(lambda looked=looked: manager.last_run_ms > looked)
    return log.state.cleaned_offset is not None


def refusal_of(size: int = 10, **how: Any) -> Callable[[Api], Awaitable[ErrorCode]]:
    async def code(api: Api) -> ErrorCode:
        return ErrorCode((await produce(api, size, **how)).error_code)

    return code


async def time_is_the_brokers(api: Api) -> bool:
    answer = await produce(api, at_ms=now_ms() - HOUR_MS)
    return bool(answer.log_append_time_ms >= now_ms() - 60_000)


async def stored_codec(api: Api) -> Compression:
    await produced(api, 1)
    (header,) = [header for _, header in iter_batches(stored(api))]
    return Compression(header.compression)


async def stored_size(api: Api) -> int:
    """Returns the stored size of a batch that compresses better at higher levels."""
    text = b" ".join(b"%d and %d" % (number * 7919 % 1000, number * 104_729 % 997) for number in range(4000))
    records = build_batch([Record(0, now_ms(), b"k", text)])
    await api(requests.produce("t", records), 9)
    return len(stored(api))


async def is_flushed_when_acknowledged(api: Api) -> bool:
    log = await produced(api, 1)
    return log.state.recovery_point == log.state.log_end_offset


async def file_has_its_full_size(api: Api) -> bool:
    await produced(api, 1, 10)
    return files_of(api, ".log")[0].stat().st_size == log_of(api).config.segment_bytes


class Case(NamedTuple):
    """With `setting` at `value`, `seen` returns `with_it`; at the default it returns `without`."""

    setting: str
    value: str
    seen: Callable[[Api], Awaitable[Any]]
    with_it: Any = True
    without: Any = False
    ways: tuple[str, ...] = AT_ONCE
    beside: Mapping[str, str] = MappingProxyType({})
    """Broker settings of both runs."""

    @property
    def broker_name(self) -> str:
        return TOPIC[self.setting].synonyms[0].name


OLD = {"log.segment.bytes": "2000", **QUICK}
CASES = [
    Case("segment.bytes", "2000", segments_of_five),
    Case("min.cleanable.dirty.ratio", "1", is_cleaned, False, True, beside=CLEANED),
    Case("segment.index.bytes", "24", segments_of_five, ways=NEXT_SEGMENT, beside={"log.index.interval.bytes": "0"}),
    Case("index.interval.bytes", "10", index_entries_of_five_small_batches),
    Case("retention.bytes", "2000", old_records_are_deleted, beside=OLD),
    Case("max.message.bytes", "500", refusal_of(900), ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NONE),
    Case("max.decompressed.message.bytes", "500", refusal_of(900, compression=Compression.GZIP),
         ErrorCode.INVALID_RECORD, ErrorCode.NONE),
    Case("message.timestamp.type", "LogAppendTime", time_is_the_brokers),
    Case("cleanup.policy", "compact", refusal_of(key=None), ErrorCode.INVALID_RECORD, ErrorCode.NONE),
    *(Case("compression.type", name, stored_codec, Compression[name.upper()], Compression.NONE)
      for name in ("gzip", "snappy", "lz4", "zstd")),
    Case("flush.messages", "1", is_flushed_when_acknowledged),
    Case("preallocate", "true", file_has_its_full_size, ways=NEXT_SEGMENT, beside={"log.segment.bytes": "20000"}),
]  # fmt: skip
LEVELS = [("gzip", "1", "9"), ("lz4", "1", "12"), ("zstd", "-100", "3")]
ELSEWHERE = {
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "min.insync.replicas",
    "unclean.leader.election.enable",
}
"""Settings that need several replicas: tests/broker/test_throttled_reassignments.py,
tests/broker/replica/test_partition.py and tests/broker/controller/test_broker_changes.py test them.
"""

RUNS = [(case, way) for case in CASES for way in case.ways]


@asynccontextmanager
async def topic_with(
    setting: str, broker_setting: str, value: str | None, way: str, beside: Mapping[str, str]
) -> AsyncIterator[Api]:
    """Yields a broker with a topic t that has the setting set in this way; without a value it is not set."""
    static: dict[str, object] = {**beside, **({broker_setting: value} if value is not None and way == STATIC else {})}
    async with api_of_a_broker(static) as api:
        own: dict[str, Any] = {setting: value} if value and way == CREATED else {}
        (result,) = (await api(requests.create_topics("t", **own), 5)).topics
        assert result.error_code == ErrorCode.NONE
        if value is not None and way == ALTERED:
            await alter(api, TOPIC_RESOURCE, "t", setting, value)
        elif value is not None and way == DYNAMIC:
            await alter(api, BROKER_RESOURCE, "", broker_setting, value)
        yield api


async def alter(api: Api, resource_type: int, name: str, setting: str, value: str) -> None:
    item = IncrementalAlterConfigsRequest.AlterableConfig(name=setting, config_operation=0, value=value)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=resource_type, resource_name=name, configs=[item]
    )
    response = await api(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert response.responses[0].error_code == ErrorCode.NONE, response.responses[0].error_message


@pytest.mark.parametrize(("case", "way"), RUNS, ids=[f"{case.broker_name} {way}" for case, way in RUNS])
async def test_a_topic_setting_takes_effect(case: Case, way: str) -> None:
    async with topic_with(case.setting, case.broker_name, case.value, way, case.beside) as api:
        assert await case.seen(api) == case.with_it


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.broker_name)
async def test_the_default_of_a_topic_setting_has_the_other_effect(case: Case) -> None:
    async with topic_with(case.setting, case.broker_name, None, STATIC, case.beside) as api:
        assert await case.seen(api) == case.without


@pytest.mark.parametrize("way", AT_ONCE)
@pytest.mark.parametrize(("codec", "fast", "small"), LEVELS)
async def test_the_compression_level_of_a_codec_takes_effect(codec: str, fast: str, small: str, way: str) -> None:
    setting = f"compression.{codec}.level"
    sizes = []
    for level in (fast, small):
        async with topic_with(setting, setting, level, way, {"compression.type": codec}) as api:
            sizes.append(await stored_size(api))
    assert sizes[1] < sizes[0]


def test_each_topic_setting_that_takes_effect_has_a_test() -> None:
    seen = {case.setting for case in CASES} | {f"compression.{codec}.level" for codec, _, _ in LEVELS} | ELSEWHERE
    assert not any(map(A_TIME.search, seen))
    working = {name for name, setting in TOPIC.items() if setting.takes_effect}
    assert seen == {name for name in working if not A_TIME.search(name)}
    for case in CASES:
        others = {synonym.name for synonym in TOPIC[case.setting].synonyms} - {case.broker_name}
        assert not any(BROKER[name].takes_effect for name in others)
