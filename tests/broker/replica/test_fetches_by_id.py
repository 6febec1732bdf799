"""Fetches and fetch sessions that name topics by id (KIP-516): the id is resolved once, and is not the name."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from odradek.broker.replica.fetch.fetch_session import UNRESOLVED, FetchTarget
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchResponse
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.replica.harness import ReplicaHarness, records_of

MB = 1 << 20
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OLD, NEW = UUID(int=1 << 100), UUID(int=2 << 100)
BY_ID = 13
WAITS: dict[str, Any] = {"max_wait_ms": 500, "min_bytes": 1, "version": BY_ID}


def target(topic_id: UUID = OLD, partition: int = 0, offset: int = 0) -> FetchTarget:
    made = FetchTarget(UNRESOLVED, offset, MB)
    made.identify(topic_id, partition)
    return made


def topics(response: FetchResponse) -> list[tuple[UUID, list[tuple[int, int]]]]:
    """(id, [(partition, error)]) of each entry, in the response's order."""
    return [
        (topic.topic_id, [(data.partition_index, data.error_code) for data in topic.partitions])
        for topic in response.responses
    ]


@pytest.fixture
def led(harness: ReplicaHarness) -> ReplicaHarness:
    """This broker leads two partitions of the topic OLD."""
    harness.names[OLD] = "t"
    for key in (T0, T1):
        harness.lead(key, topic_id=OLD)
    return harness


def recreate(harness: ReplicaHarness) -> None:
    """The topic is deleted; a new one with the same name has the id NEW."""
    del harness.names[OLD]
    for key in (T0, T1):
        harness.manager.stop_replica(key, delete=True)
        harness.lead(key, topic_id=NEW)
    harness.names[NEW] = "t"


class TestNames:
    def test_partitions_are_found_by_id(self, led: ReplicaHarness) -> None:
        led.produce(led.batch(3), T1)
        fetched = led.fetch(target(partition=0), target(partition=1), version=BY_ID)
        assert topics(fetched.response) == [(OLD, [(0, 0), (1, 0)])]
        assert records_of(fetched.partitions[T1])

    def test_an_id_that_no_topic_has_is_an_error_of_its_partitions(self, led: ReplicaHarness) -> None:
        fetched = led.fetch(target(NEW), target(), target(NEW, 1), target(UUID(int=0)), version=BY_ID)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
        assert topics(fetched.response) == [
            (NEW, [(0, unknown)]),
            (OLD, [(0, 0)]),
            (NEW, [(1, unknown)]),
            (UUID(int=0), [(0, unknown)]),
        ]

    def test_two_unknown_ids_have_an_entry_each(self, harness: ReplicaHarness) -> None:
        fetched = harness.fetch(target(OLD), target(NEW), version=BY_ID)
        assert [topic_id for topic_id, _ in topics(fetched.response)] == [OLD, NEW]

    def test_the_log_of_a_topic_without_an_id_fits_every_id(self, harness: ReplicaHarness) -> None:
        harness.names[OLD] = "t"
        harness.lead(T0, topic_id=UUID(int=0))
        assert topics(harness.fetch(target(), version=BY_ID).response) == [(OLD, [(0, 0)])]

    def test_a_fetch_without_a_session_waits_for_its_partition(self, led: ReplicaHarness) -> None:
        waiting = led.fetch(target(), **WAITS)
        assert not waiting.is_answered
        led.produce(led.batch(), T0)
        assert records_of(waiting.data)

    def test_a_topic_that_is_recreated_during_the_wait_ends_it(self, led: ReplicaHarness) -> None:
        waiting = led.fetch(target(), **WAITS)
        led.manager.stop_replica(T0, delete=True)
        led.lead(T0, topic_id=NEW)
        led.turn()
        assert waiting.data.error_code == ErrorCode.INCONSISTENT_TOPIC_ID


class TestSessions:
    @pytest.fixture
    def session(self, led: ReplicaHarness) -> int:
        return led.fetch(target(), target(partition=1), session=(0, 0), version=BY_ID).response.session_id

    def test_an_id_is_resolved_once(self, led: ReplicaHarness) -> None:
        asked: list[UUID] = []

        def resolve(topic_id: UUID) -> str | None:
            asked.append(topic_id)
            return led.names.get(topic_id)

        led.manager.fetches.reader._topic_name = resolve
        session = led.fetch(target(), target(partition=1), session=(0, 0), version=BY_ID).response.session_id
        assert asked == [OLD]
        for epoch in range(1, 10):
            led.produce(led.batch(), T0)
            assert records_of(led.fetch(target(offset=epoch - 1), session=(session, epoch), version=BY_ID).data)
        assert asked == [OLD]

    def test_only_changed_partitions_are_returned(self, led: ReplicaHarness, session: int) -> None:
        assert led.fetch(session=(session, 1), version=BY_ID).partitions == {}
        led.produce(led.batch(), T1)
        assert topics(led.fetch(session=(session, 2), version=BY_ID).response) == [(OLD, [(1, 0)])]

    def test_a_waiting_session_is_woken(self, led: ReplicaHarness, session: int) -> None:
        waiting = led.fetch(session=(session, 1), **WAITS)
        assert not waiting.is_answered
        led.produce(led.batch(), T1)
        assert records_of(waiting.data)

    def test_an_id_that_becomes_known_is_resolved_within_the_session(self, harness: ReplicaHarness) -> None:
        session = harness.fetch(target(), session=(0, 0), version=BY_ID).response.session_id
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
        assert topics(harness.fetch(session=(session, 1), **WAITS).response) == [(OLD, [(0, unknown)])]
        harness.names[OLD] = "t"
        harness.lead(T0, topic_id=OLD)
        assert topics(harness.fetch(session=(session, 2), version=BY_ID).response) == [(OLD, [(0, 0)])]
        assert harness.fetch(session=(session, 3), version=BY_ID).partitions == {}

    def test_a_recreated_topic_is_another_one_until_the_old_one_is_forgotten(
        self, led: ReplicaHarness, session: int
    ) -> None:
        recreate(led)
        inconsistent = ErrorCode.INCONSISTENT_TOPIC_ID
        fetched = led.fetch(session=(session, 1), version=BY_ID)
        assert topics(fetched.response) == [(OLD, [(0, inconsistent), (1, inconsistent)])]
        fetched = led.fetch(target(NEW), session=(session, 2), version=BY_ID, forgotten=[(OLD.int, 1)])
        assert topics(fetched.response) == [(OLD, [(0, inconsistent)]), (NEW, [(0, 0)])]
        fetched = led.fetch(session=(session, 3), version=BY_ID, forgotten=[(OLD.int, 0)])
        assert fetched.partitions == {}
        led.produce(led.batch(), T0)
        assert topics(led.fetch(session=(session, 4), version=BY_ID).response) == [(NEW, [(0, 0)])]

    def test_a_deleted_topic_of_the_session_has_no_partitions(self, led: ReplicaHarness, session: int) -> None:
        led.known.clear()
        led.names.clear()
        for key in (T0, T1):
            led.manager.stop_replica(key, delete=True)
        gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        fetched = led.fetch(target(partition=2), session=(session, 1), version=BY_ID)
        assert topics(fetched.response) == [(OLD, [(0, gone), (1, gone), (2, ErrorCode.UNKNOWN_TOPIC_ID)])]

    @pytest.mark.parametrize(("opened", "continued"), [(12, 13), (13, 12), (17, 11), (7, 16)])
    def test_a_session_takes_either_names_or_ids(self, led: ReplicaHarness, opened: int, continued: int) -> None:
        def wanted(version: int) -> FetchTarget:
            return target() if version >= BY_ID else FetchTarget(T0, 0, MB)

        session = led.fetch(wanted(opened), session=(0, 0), version=opened).response.session_id
        refused = led.fetch(wanted(continued), session=(session, 1), version=continued).response
        assert refused.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        assert (refused.session_id, refused.responses) == (0, [])
        refused = led.fetch(session=(session, 5), version=continued).response
        assert refused.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert led.fetch(session=(session, 1), version=opened).response.error_code == ErrorCode.NONE

    def test_the_size_of_a_session_is_bounded(self, led: ReplicaHarness, session: int) -> None:
        with pytest.raises(Exception, match="POLICY_VIOLATION"):
            led.fetch(*(target(NEW, number) for number in range(9_999)), session=(session, 1), version=BY_ID)
        assert led.sessions.partitions == 2
