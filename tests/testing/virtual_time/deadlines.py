"""What falls due at one broker: for each setting, how to begin to wait for it, and how to see that it has happened."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from odradek.broker.coordinator.group.consumer.group import ConsumerGroup
from odradek.broker.coordinator.transaction.shard import TransactionShard
from odradek.clients.network_client import NetworkClient
from odradek.clients.network_errors import NetworkError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.groups import JoinGroupRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.offsets import OffsetFetchRequest
from odradek.protocol.messages.producers import DescribeProducersRequest, InitProducerIdRequest
from odradek.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from odradek.protocol.messages.topics import DeleteTopicsRequest
from odradek.protocol.records import Record, build_batch, iter_batches, read_records
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoint import HIGH_WATERMARK, LOG_START_OFFSET, RECOVERY_POINT, read_offsets
from odradek.testing import Security
from odradek.testing.virtual_time.members import groups_of
from tests.broker.test_topic_settings_at_work import files_of, log_of, produce, stored
from tests.patience import until
from tests.testing.virtual_time.timed_api import TimedApi
from tests.wire import requests
from tests.wire.requests import add_partition, commit

HOUR_S = 3600
HOUR_MS = HOUR_S * 1000
WHILE_S = 600
WHILE_MS = WHILE_S * 1000
"""For what looks every second whether it has something to do."""
T0 = TopicPartition("t", 0)
Happened = Callable[[], bool] | Callable[[], Awaitable[bool]]
SOON = MappingProxyType({"log.retention.check.interval.ms": "2500", "log.cleaner.backoff.ms": "2500"})
OF_THE_BROKER = MappingProxyType({"log.message.timestamp.type": "LogAppendTime"})
COMPACTED = MappingProxyType(
    {"log.cleanup.policy": "compact", "log.segment.bytes": "1000", "log.cleaner.backoff.ms": "1000"}
)


class Deadline(NamedTuple):
    """With `setting` at `value`, what `begin` waits for happens `after_s` later, within `slack_s`."""

    setting: str
    value: int
    begin: Callable[[TimedApi], Awaitable[Happened]]
    after_s: float = HOUR_S
    slack_s: float = 3
    beside: Mapping[str, str] = MappingProxyType({})
    options: Mapping[str, Any] = MappingProxyType({})
    """Of the broker."""


class NoLuck(Random):
    """All random times are as long as they can be."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return (start if stop is None else stop) - 1


async def a_record(api: TimedApi, **how: Any) -> None:
    assert (await produce(api, at_ms=api.broker.clock.wall_ms(), **how)).error_code == ErrorCode.NONE


async def retention(api: TimedApi) -> Happened:
    await a_record(api)
    return lambda: log_of(api).state.log_start_offset > 0


async def roll(api: TimedApi) -> Happened:
    await a_record(api)

    async def rolls() -> bool:
        await a_record(api)
        return len(log_of(api).segments) > 1

    return rolls


async def deletion_of_files(api: TimedApi) -> Happened:
    directory = Path(log_of(api).folder.path).parent
    (result,) = (await api(DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 3)).responses
    assert result.error_code == ErrorCode.NONE
    return lambda: not list(directory.glob("t-0*"))


async def flush(api: TimedApi) -> Happened:
    await a_record(api)
    return lambda: log_of(api).state.recovery_point > 0


def checkpoint(name: str) -> Callable[[TimedApi], Awaitable[Happened]]:
    async def begin(api: TimedApi) -> Happened:
        await a_record(api)
        await a_record(api)
        log_of(api).start.delete_records_before(1)
        path = str(Path(log_of(api).folder.path).parent / name)

        def is_written() -> bool:
            with contextlib.suppress(FileNotFoundError):
                return read_offsets(api.broker.files, path).get(T0, 0) >= 1
            return False

        return is_written

    return begin


def timestamp(ahead_ms: int, *, is_refused: bool) -> Callable[[TimedApi], Awaitable[Happened]]:
    """A record with a timestamp of its own is accepted, or refused, from some time on."""

    async def begin(api: TimedApi) -> Happened:
        at_ms = api.broker.clock.wall_ms() + ahead_ms

        async def happens() -> bool:
            code = (await produce(api, at_ms=at_ms)).error_code
            return bool(code == ErrorCode.INVALID_TIMESTAMP) is is_refused

        return happens

    return begin


def cleaning(records: int = 4) -> Callable[[TimedApi], Awaitable[Happened]]:
    async def begin(api: TimedApi) -> Happened:
        for _ in range(records):
            await a_record(api, key=b"k")
        log_of(api).flush()
        return lambda: log_of(api).state.cleaned_offset is not None and files_of(api, ".log") != []

    return begin


async def removal_of_a_tombstone(api: TimedApi) -> Happened:
    log = log_of(api)
    log.append_as_leader(build_batch([Record(0, api.broker.clock.wall_ms(), b"gone", None)]), 0)
    log.update_high_watermark(log.state.log_end_offset)

    def keys() -> list[bytes | None]:
        batches = stored(api)
        return [record.key for at, head in iter_batches(batches) for record in read_records(batches, at, head)]

    async def another_round() -> bool:
        for number in range(3):
            await a_record(api, key=b"%d" % number)
        log.flush()
        await api.broker.advance(2)
        return b"gone" not in keys()

    assert not await another_round()
    return another_round


async def idle_connections(api: TimedApi) -> Happened:
    connections = api.broker.socket_server.connections
    assert connections
    return lambda: not connections


async def _log_in(client: NetworkClient, password: bytes) -> int:
    await client.send(SaslHandshakeRequest(mechanism="PLAIN"), version=1)
    response = await client.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0" + password), version=1)
    code: int = response.error_code
    return code


async def end_of_a_login(api: TimedApi) -> Happened:
    assert await _log_in(api.client, b"alice-secret") == ErrorCode.NONE

    async def is_refused() -> bool:
        try:
            await api(MetadataRequest(topics=[]), 9)
        except NetworkError:
            return True
        return False

    return is_refused


async def answer_to_a_failed_login(api: TimedApi) -> Happened:
    answer = asyncio.ensure_future(_log_in(api.client, b"wrong"))
    (counts,) = api.broker.authentications.values()
    await until(lambda: counts.failed)
    return answer.done


async def join_of_a_new_group(api: TimedApi) -> Happened:
    await _coordinators(api)
    joining = asyncio.ensure_future(api.client.send(_join(600_000), version=3, timeout_ms=60_000))
    await until(lambda: any(group.size for group in groups_of(api.broker)))
    return joining.done


def session(timeout_ms: int) -> Callable[[TimedApi], Awaitable[Happened]]:
    async def begin(api: TimedApi) -> Happened:
        await _coordinators(api)
        assert (await api(_join(timeout_ms), 3)).error_code == ErrorCode.NONE
        return lambda: not any(group.size for group in groups_of(api.broker))

    return begin


async def end_of_a_consumers_session(api: TimedApi) -> Happened:
    await _coordinators(api)
    await _join_consumer(api, "a", ["t"])
    return lambda: not any(group.size for group in groups_of(api.broker))


async def second_assignment(api: TimedApi) -> Happened:
    await _coordinators(api)
    for member_id in ("a", "b"):
        await _join_consumer(api, member_id, ["t"])
    return lambda: all(cast(ConsumerGroup, group).target_epoch == 3 for group in groups_of(api.broker))


async def second_resolution(api: TimedApi) -> Happened:
    """A heartbeat begins it."""
    await _coordinators(api)
    await _join_consumer(api, "a", None, "t.*")

    def resolved_ms() -> int:
        (group,) = groups_of(api.broker)
        return max(
            (each.timestamp_ms for each in cast(ConsumerGroup, group).subscriptions.resolved.values()), default=0
        )

    await until(resolved_ms)
    first_ms = resolved_ms()

    async def is_resolved_again() -> bool:
        (group,) = groups_of(api.broker)
        epoch = cast(ConsumerGroup, group).members_by_id["a"].epoch
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=epoch)
        assert (await api(request, 1)).error_code == ErrorCode.NONE
        return resolved_ms() > first_ms

    return is_resolved_again


async def _join_consumer(api: TimedApi, member_id: str, topics: list[str] | None, regex: str | None = None) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        rebalance_timeout_ms=10 * HOUR_MS,
        subscribed_topic_names=topics,
        subscribed_topic_regex=regex,
        topic_partitions=[],
    )
    assert (await api(request, 1)).error_code == ErrorCode.NONE


def _join(session_ms: int) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=10 * HOUR_MS,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(10))],
    )


async def _coordinators(api: TimedApi) -> None:
    """The first requests for the coordinators create their topics."""
    for key_type in (0, 1):

        async def is_found(key_type: int = key_type) -> bool:
            answer = await api(FindCoordinatorRequest(key="g", key_type=key_type), 2)
            return bool(answer.error_code == ErrorCode.NONE)

        await until(is_found)


async def expiry_of_an_offset(api: TimedApi) -> Happened:
    await _coordinators(api)
    (topic,) = (await api(commit("g", "t", 0, 7), 7)).topics
    assert topic.partitions[0].error_code == ErrorCode.NONE

    async def is_gone() -> bool:
        asked = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
        (topic,) = (await api(OffsetFetchRequest(group_id="g", topics=[asked]), 5)).topics
        return bool(topic.partitions[0].committed_offset == -1)

    return is_gone


async def producers(api: TimedApi) -> list[int]:
    topic = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0])
    response = await api(DescribeProducersRequest(topics=[topic]), 0)
    return [one.producer_id for one in response.topics[0].partitions[0].active_producers]


async def expiry_of_a_producer(api: TimedApi) -> Happened:
    await a_record(api, producer_id=100, producer_epoch=0, base_sequence=0)

    async def is_gone() -> bool:
        return not await producers(api)

    return is_gone


def _transactions(api: TimedApi) -> list[TransactionShard]:
    return [cast(TransactionShard, shard) for shard in api.broker.coordinators.transactions.runtime.shards()]


def has_transactional_ids(api: TimedApi) -> bool:
    """Whether the coordinator knows any."""
    return any(shard.transactions for shard in _transactions(api))


async def _init(api: TimedApi, timeout_ms: int) -> tuple[int, int]:
    await _coordinators(api)
    request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=timeout_ms)
    answer = await api(request, 3)
    assert answer.error_code == ErrorCode.NONE
    return answer.producer_id, answer.producer_epoch


def abort(timeout_ms: int) -> Callable[[TimedApi], Awaitable[Happened]]:
    async def begin(api: TimedApi) -> Happened:
        producer = await _init(api, timeout_ms)
        await api(add_partition("x", producer, "t", 0), 2)
        assert any(shard.open for shard in _transactions(api))
        return lambda: not any(shard.open for shard in _transactions(api))

    return begin


def first_batch(*, coordinator_is_busy: bool) -> Callable[[TimedApi], Awaitable[Happened]]:
    """Of a transaction after another one, which was asked about while the markers of that one were held back. They are
    written then, unless the coordinator stays busy.
    """

    async def begin(api: TimedApi) -> Happened:
        producer, held = await _init(api, 60_000), list[Any]()
        assert await _produced(api, producer) == ErrorCode.NONE
        writer = api.broker.coordinators._own_logs
        append, writer._append = writer._append, lambda *arguments: held.append(arguments)
        ended = await api(requests.end("x", producer, True), 5)
        batch = asyncio.ensure_future(_produced(api, (ended.producer_id, ended.producer_epoch)))
        await until(lambda: api.broker.replica_manager.verification._unsettled and held)
        if coordinator_is_busy:
            return lambda: batch.done() and batch.result() == ErrorCode.CONCURRENT_TRANSACTIONS
        writer._append = append
        for arguments in held:
            append(*arguments)
        return lambda: batch.done() and batch.result() == ErrorCode.NONE

    return begin


async def _produced(api: TimedApi, producer: tuple[int, int]) -> int:
    batch = build_batch(
        [Record(0, 0, None, b"v")],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=0,
        is_transactional=True,
    )
    request = requests.produce("t", batch, transactional_id="x")
    response = await api.client.send(request, version=12, timeout_ms=60_000)
    return int(response.responses[0].partition_responses[0].error_code)


async def expiry_of_a_transactional_id(api: TimedApi) -> Happened:
    await _init(api, 60_000)
    return lambda: not has_transactional_ids(api)


async def a_fetch(api: TimedApi) -> Happened:
    """A fetch that waits for an hour."""
    request = requests.fetch((TopicPartition("t", 0), 0), max_wait_ms=HOUR_MS, max_bytes=1000, partition_bytes=1000)
    answer = asyncio.ensure_future(api.client.send(request, version=4, timeout_ms=60_000))
    await until(lambda: api.broker.timer.size)
    return answer.done


async def end_of_a_rate(api: TimedApi) -> Happened:
    """What ten windows have measured counts for ten windows."""
    quota = api.broker.replica_manager.leader_quota
    quota.set_limit(1000)
    quota.record(4000)
    assert quota.byte_rate > 0
    return lambda: quota.byte_rate == 0


async def create(api: TimedApi, configs: Mapping[str, Any]) -> None:
    (result,) = (await api(requests.create_topics("t", **configs), 5)).topics
    assert result.error_code == ErrorCode.NONE


def each(names: Mapping[str, int], begin: Callable[[TimedApi], Awaitable[Happened]], **more: Any) -> list[Deadline]:
    """One deadline under all its names, with the value of each."""
    return [Deadline(name, value, begin, **more) for name, value in names.items()]


LOGINS = {"security": Security("SASL_PLAINTEXT", mechanism="PLAIN")}
TRANSACTIONS_SOON = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
}
LONG_SESSIONS = {"group.consumer.session.timeout.ms": str(2 * HOUR_MS)}
IMMEDIATE = {"group.initial.rebalance.delay.ms": "0"}
ONE_BROKER = [
    *each(
        {"retention.ms": HOUR_MS, "log.retention.ms": HOUR_MS, "log.retention.minutes": 60, "log.retention.hours": 1},
        retention,
        beside=SOON,
    ),
    Deadline("log.retention.check.interval.ms", HOUR_MS, retention, beside={"log.retention.ms": "1"}),
    *each({"segment.ms": HOUR_MS, "log.roll.ms": HOUR_MS, "log.roll.hours": 1}, roll, beside=OF_THE_BROKER),
    *each(
        {"segment.jitter.ms": HOUR_MS, "log.roll.jitter.ms": HOUR_MS, "log.roll.jitter.hours": 1},
        roll,
        beside={**OF_THE_BROKER, "log.roll.ms": str(2 * HOUR_MS)},
        options={"random": NoLuck(1)},
    ),
    *each({"file.delete.delay.ms": HOUR_MS, "log.segment.delete.delay.ms": HOUR_MS}, deletion_of_files),
    *each(
        {"flush.ms": HOUR_MS, "log.flush.interval.ms": HOUR_MS, "log.flush.scheduler.interval.ms": HOUR_MS}, flush
    ),
    Deadline(
        "log.flush.offset.checkpoint.interval.ms",
        HOUR_MS,
        checkpoint(RECOVERY_POINT),
        beside={"log.flush.interval.messages": "1"},
    ),
    Deadline("log.flush.start.offset.checkpoint.interval.ms", HOUR_MS, checkpoint(LOG_START_OFFSET)),
    Deadline("replica.high.watermark.checkpoint.interval.ms", HOUR_MS, checkpoint(HIGH_WATERMARK)),
    *each(
        {"message.timestamp.after.max.ms": 60_000, "log.message.timestamp.after.max.ms": 60_000},
        timestamp(HOUR_MS + 60_000, is_refused=False),
    ),
    *each(
        {
            "message.timestamp.before.max.ms": HOUR_MS,
            "log.message.timestamp.before.max.ms": HOUR_MS,
            "message.timestamp.difference.max.ms": HOUR_MS,
            "log.message.timestamp.difference.max.ms": HOUR_MS,
        },
        timestamp(0, is_refused=True),
    ),
    *each(
        {"min.compaction.lag.ms": WHILE_MS, "log.cleaner.min.compaction.lag.ms": WHILE_MS},
        cleaning(),
        after_s=WHILE_S,
        beside={**COMPACTED, **OF_THE_BROKER},
    ),
    *each(
        {"max.compaction.lag.ms": WHILE_MS, "log.cleaner.max.compaction.lag.ms": WHILE_MS},
        cleaning(),
        after_s=WHILE_S,
        beside={**COMPACTED, **OF_THE_BROKER, "log.cleaner.min.cleanable.ratio": "1"},
    ),
    Deadline("log.cleaner.backoff.ms", HOUR_MS, cleaning(), beside=COMPACTED),
    *each(
        {"delete.retention.ms": WHILE_MS, "log.cleaner.delete.retention.ms": WHILE_MS},
        removal_of_a_tombstone,
        after_s=WHILE_S,
        slack_s=20,
        beside={**COMPACTED, **OF_THE_BROKER, "log.cleaner.min.cleanable.ratio": "0.01"},
    ),
    Deadline("connections.max.idle.ms", HOUR_MS, idle_connections),
    Deadline("connections.max.reauth.ms", HOUR_MS, end_of_a_login, options=LOGINS),
    Deadline(
        "odradek.login.timeout.ms",
        WHILE_MS,
        idle_connections,
        WHILE_S,
        options=LOGINS,
        beside={"connections.max.idle.ms": str(2 * HOUR_MS)},
    ),
    Deadline(
        "connection.failed.authentication.delay.ms", WHILE_MS, answer_to_a_failed_login, WHILE_S, options=LOGINS
    ),
    Deadline("group.initial.rebalance.delay.ms", 120_000, join_of_a_new_group, 120),
    Deadline(
        "group.min.session.timeout.ms",
        2 * HOUR_MS,
        session(2 * HOUR_MS),
        2 * HOUR_S,
        beside={**IMMEDIATE, "group.max.session.timeout.ms": str(2 * HOUR_MS)},
    ),
    Deadline("group.max.session.timeout.ms", HOUR_MS, session(HOUR_MS), beside=IMMEDIATE),
    Deadline("group.consumer.session.timeout.ms", HOUR_MS, end_of_a_consumers_session),
    Deadline("group.consumer.assignment.interval.ms", HOUR_MS, second_assignment, beside=LONG_SESSIONS),
    Deadline("group.consumer.regex.refresh.interval.ms", HOUR_MS, second_resolution, beside=LONG_SESSIONS),
    Deadline(
        "offsets.retention.minutes",
        WHILE_S // 60,
        expiry_of_an_offset,
        WHILE_S,
        beside={"offsets.retention.check.interval.ms": "1000"},
    ),
    Deadline(
        "offsets.retention.check.interval.ms", HOUR_MS, expiry_of_an_offset, beside={"offsets.retention.minutes": "1"}
    ),
    Deadline(
        "producer.id.expiration.ms",
        WHILE_MS,
        expiry_of_a_producer,
        WHILE_S,
        beside={"producer.id.expiration.check.interval.ms": "1000"},
    ),
    Deadline(
        "producer.id.expiration.check.interval.ms",
        HOUR_MS,
        expiry_of_a_producer,
        beside={"producer.id.expiration.ms": "1000"},
    ),
    Deadline(
        "add.partitions.to.txn.retry.backoff.ms",
        HOUR_MS,
        first_batch(coordinator_is_busy=False),
        beside={"add.partitions.to.txn.retry.backoff.max.ms": str(2 * HOUR_MS), "request.timeout.ms": str(2 * HOUR_MS)},
    ),
    Deadline(
        "add.partitions.to.txn.retry.backoff.max.ms",
        HOUR_MS,
        first_batch(coordinator_is_busy=True),
        beside={"add.partitions.to.txn.retry.backoff.ms": "2000", "request.timeout.ms": str(2 * HOUR_MS)},
    ),
    Deadline("transaction.max.timeout.ms", WHILE_MS, abort(WHILE_MS), WHILE_S, beside=TRANSACTIONS_SOON),
    Deadline("transaction.abort.timed.out.transaction.cleanup.interval.ms", HOUR_MS, abort(1000)),
    Deadline(
        "transactional.id.expiration.ms", WHILE_MS, expiry_of_a_transactional_id, WHILE_S, beside=TRANSACTIONS_SOON
    ),
    Deadline(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        HOUR_MS,
        expiry_of_a_transactional_id,
        beside={"transactional.id.expiration.ms": "1000"},
    ),
    Deadline(
        "replication.quota.window.size.seconds", 360, end_of_a_rate, beside={"replication.quota.window.num": "10"}
    ),
    Deadline("odradek.timer.tick.ms", 5000, a_fetch, HOUR_S - 3, 3),
]  # fmt: skip
