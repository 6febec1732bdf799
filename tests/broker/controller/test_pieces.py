"""Changes that are too long for one transaction, cut into pieces; and what the next controller makes of them after a
crash between any two pieces. The pieces are short here, so that a topic of twenty partitions has many.
"""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest

from odradek.broker.controller import pieces
from odradek.broker.controller.pieces import pieces_of
from odradek.broker.metadata.metadata_cache import BrokerEndpoint, BrokerInfo
from odradek.broker.metadata.new_topic import NewPartitions, NewTopic
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import LONGEST_CHANGE, Create, Delete, Operation, size_of
from odradek.broker.metadata_store.journal import JOURNAL_NAME
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.replica_control import LeaderAndIsrRequest, UpdateMetadataRequest
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.controller.fleet import codes
from tests.broker.controller.harness import BROKER_ID, DIRECTORY, ControllerHarness, store_disk
from tests.broker.controller.test_controller import turns
from tests.patience import until

FEW_OPERATIONS = 8
PARTITIONS = 20
ROOM_FOR_FIRST_PIECE = 2_000
JOURNAL = f"{DIRECTORY}/{JOURNAL_NAME}"
LARGE_IDS = range(2_000_000_001, 2_000_000_010)


@pytest.fixture
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "OPERATIONS_AT_A_TIME", FEW_OPERATIONS)


@pytest.fixture
async def harness() -> AsyncIterator[ControllerHarness]:
    harness = await ControllerHarness().start()
    yield harness
    await harness.stop()


async def create(harness: ControllerHarness, *wishes: NewTopic) -> list[ErrorCode]:
    return codes(await harness.controller.topics.create(wishes, timeout_ms=60_000))


async def delete(harness: ControllerHarness, *names: str) -> list[ErrorCode]:
    return codes(await harness.controller.topics.delete(names, timeout_ms=60_000))


async def add(harness: ControllerHarness, topic: str, count: int) -> list[ErrorCode]:
    return codes(await harness.controller.topics.add_partitions([NewPartitions(topic, count)], timeout_ms=60_000))


async def stored(harness: ControllerHarness) -> dict[str, int]:
    """The partitions of each topic in the store. Each has a state, and nothing else is there."""
    counts = {}
    for name in await harness.store.children(znodes.TOPICS):
        entry = await harness.store.get(znodes.topic_path(name))
        replicas = znodes.parse_topic(name, entry.data).replicas
        assert sorted(map(int, await harness.store.children(znodes.partitions_path(name)))) == list(replicas)
        states = await harness.store.entries([znodes.state_path(name, partition) for partition in replicas])
        assert None not in states
        counts[name] = len(replicas)
    assert await harness.store.children(znodes.DELETE_TOPICS) == []
    return counts


# Pieces


async def test_a_piece_has_as_many_units_as_fit_and_no_unit_is_cut(short_pieces: None) -> None:
    units: list[list[Operation]] = [[Create(f"/{unit}/{number}") for number in range(3)] for unit in range(5)]
    assert await pieces_of(units) == [[*units[0], *units[1]], [*units[2], *units[3]], units[4]]
    large: list[list[Operation]] = [[Create("/a", bytes(300_000)), Delete("/b")] for _ in range(6)]
    cut = await pieces_of(large)
    assert [len(piece) for piece in cut] == [4, 4, 4]
    assert max(sum(map(size_of, piece)) for piece in cut) <= LONGEST_CHANGE
    assert await pieces_of([]) == []


# A crash after every piece


def later_contents(before: bytes, after: bytes) -> Iterator[bytes]:
    """The journals that a crash between two transactions may leave behind."""
    assert after.startswith(before)
    content = before
    for line in after.removeprefix(before).splitlines(keepends=True):
        yield content
        content += line
    yield content


async def crashes_during(
    harness: ControllerHarness, change: Callable[[], Awaitable[Sequence[ErrorCode]]]
) -> AsyncIterator[ControllerHarness]:
    """Yields the node that starts after a crash between any two transactions of the change."""
    harness.store._compact_bytes = 1 << 30
    contents = harness.files.contents()
    before = contents[JOURNAL]
    assert set(await change()) == {ErrorCode.NONE}
    crashes = list(later_contents(before, harness.files.contents()[JOURNAL]))
    assert len(crashes) > PARTITIONS * 2 / FEW_OPERATIONS
    for content in crashes:
        again = await ControllerHarness(store_disk({**contents, JOURNAL: content})).start()
        await turns()
        yield again
        await again.stop()


def first_seen(harness: ControllerHarness, kind: type[Any], topic: str) -> int | None:
    """How many partitions of a topic the broker's first request that names it has."""
    for request in harness.broker.requests:
        for state in request.topic_states if isinstance(request, kind) else ():
            if state.topic_name == topic:
                return len(state.partition_states)
    return None


async def test_a_creation_that_a_crash_interrupts_is_completed_or_has_not_begun(
    short_pieces: None, harness: ControllerHarness
) -> None:
    seen = []
    wish = NewTopic("t", PARTITIONS, configs={"retention.ms": "5"})
    async for again in crashes_during(harness, lambda: create(harness, wish, NewTopic("u"))):
        seen.append(again.topics.get("t"))
        assert again.topics == await stored(again)
        assert again.topics.get("t", PARTITIONS) == PARTITIONS
        for kind in (LeaderAndIsrRequest, UpdateMetadataRequest):
            assert first_seen(again, kind, "t") == again.topics.get("t")
        config = await again.store.exists(znodes.topic_config_path("t"))
        assert (config is not None) == ("t" in again.topics)
        await create(again, wish)
        assert again.topics["t"] == PARTITIONS == (await stored(again))["t"]
        assert set(await delete(again, *again.topics)) == {ErrorCode.NONE}
        assert await stored(again) == {}
        assert await again.store.children(znodes.TOPIC_CONFIGS) == []
    assert (seen[0], seen[-1]) == (None, PARTITIONS)


async def test_an_addition_of_partitions_that_a_crash_interrupts_is_completed_or_has_not_begun(
    short_pieces: None, harness: ControllerHarness
) -> None:
    await create(harness, NewTopic("t", 2))
    seen = []
    async for again in crashes_during(harness, lambda: add(harness, "t", PARTITIONS)):
        seen.append(again.topics["t"])
        assert again.topics == await stored(again)
        assert len(again.broker.roles) == again.topics["t"]
    assert seen == [2] + [PARTITIONS] * (len(seen) - 1)


async def test_a_deletion_that_a_crash_interrupts_is_completed(short_pieces: None, harness: ControllerHarness) -> None:
    await create(harness, NewTopic("t", PARTITIONS), NewTopic("other"))
    seen = []
    async for again in crashes_during(harness, lambda: delete(harness, "t")):
        seen.append(again.topics)
        assert again.topics == await stored(again)
        assert await again.store.children(znodes.TOPIC_CONFIGS) == list(again.topics)
        assert {key.topic for key in again.broker.roles} == set(again.topics)
    assert seen == [{"other": 1, "t": PARTITIONS}] + [{"other": 1}] * (len(seen) - 1)


# A store that cannot write the rest


async def test_a_full_disk_between_two_pieces_takes_the_change_back(
    short_pieces: None, harness: ControllerHarness
) -> None:
    await create(harness, NewTopic("small"))
    for change in (create(harness, NewTopic("t", PARTITIONS)), add(harness, "small", PARTITIONS)):
        before, harness.files.room = len(harness.files.contents()[JOURNAL]), ROOM_FOR_FIRST_PIECE
        assert await change == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert len(harness.files.contents()[JOURNAL]) > before, "the first piece was written and taken back"
        assert (harness.topics, await stored(harness)) == ({"small": 1}, {"small": 1})
    assert await harness.store.children(znodes.TOPIC_CONFIGS) == ["small"]
    harness.files.room = None
    assert await create(harness, NewTopic("t", PARTITIONS)) == [ErrorCode.NONE]
    assert await add(harness, "small", PARTITIONS) == [ErrorCode.NONE]
    again = await harness.again()
    assert again.topics == {"small": PARTITIONS, "t": PARTITIONS} == await stored(again)
    await again.stop()


async def test_a_change_that_can_be_neither_written_nor_taken_back_is_completed_by_the_next_controller(
    short_pieces: None, harness: ControllerHarness
) -> None:
    append, failures = harness.store._disk.append, [False, True, True]

    def sometimes(line: bytes) -> None:
        if failures and failures.pop(0):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        append(line)

    harness.store._disk.append = sometimes
    assert await create(harness, NewTopic("t", PARTITIONS)) == [ErrorCode.NOT_CONTROLLER]
    assert not failures
    await until(lambda: harness.topics)
    assert harness.controller.terms.epoch == 2
    assert harness.topics == {"t": PARTITIONS} == await stored(harness)


# What can never be stored


async def with_many_brokers(harness: ControllerHarness) -> None:
    """Registers brokers whose ids take much space in an assignment."""
    for broker in LARGE_IDS:
        info = BrokerInfo(broker, {"PLAINTEXT": BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9093)})
        await harness.store.create(znodes.broker_path(broker), znodes.encode_broker(info, 0))
    await until(lambda: harness.controller.terms.numbers().active_brokers > len(LARGE_IDS))


def refusal(result: object) -> tuple[ErrorCode, str]:
    assert isinstance(result, ProtocolError)
    return result.code, str(result)


async def test_an_assignment_that_is_too_long_is_refused_by_name_before_anything_is_written(
    harness: ControllerHarness,
) -> None:
    await with_many_brokers(harness)
    factor = len(LARGE_IDS)
    topics = harness.controller.topics
    assert await create(harness, NewTopic("half", 5_000, factor), NewTopic("part", 100, factor)) == [
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    before, epoch = harness.files.contents(), harness.controller.terms.epoch
    for is_dry in (True, False):
        wish = NewTopic("too.long", 10_000, factor)
        (created,) = await topics.create([wish], timeout_ms=60_000, validate_only=is_dry)
        wanted = NewPartitions("half", 10_000)
        (added,) = await topics.add_partitions([wanted], timeout_ms=60_000, validate_only=is_dry)
        for result, name in ((created, "too.long"), (added, "half")):
            code, message = refusal(result)
            assert code is ErrorCode.POLICY_VIOLATION
            assert f"'{name}'" in message
    keys = [TopicPartition("half", number) for number in range(5_000)]
    outcomes = await harness.controller.replicas.reassign({key: [BROKER_ID] for key in keys})
    assert {refusal(outcome)[0] for outcome in outcomes.values()} == {ErrorCode.POLICY_VIOLATION}
    assert harness.files.contents() == before
    assert harness.controller.terms.epoch == epoch
    assert await harness.controller.replicas.reassign({TopicPartition("part", 1): [BROKER_ID]}) == {
        TopicPartition("part", 1): None
    }


async def test_settings_and_an_assignment_that_are_too_long_together_are_refused(harness: ControllerHarness) -> None:
    await with_many_brokers(harness)
    long = ",".join(f"{number}:{BROKER_ID}" for number in range(60_000))
    settings = {"leader.replication.throttled.replicas": long}
    assert await create(harness, NewTopic("settings", configs=settings)) == [ErrorCode.NONE]
    assert await create(harness, NewTopic("both", 4_500, len(LARGE_IDS), configs=settings)) == [
        ErrorCode.POLICY_VIOLATION
    ]
    assert harness.topics == {"settings": 1}
