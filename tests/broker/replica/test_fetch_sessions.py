"""Fetch sessions (KIP-227): incremental responses, epochs, eviction, and the cost of a quiet session."""

from __future__ import annotations

import random
from typing import Any

import pytest

from odradek.broker.replica.fetch.fetch_session import MAX_INT32, FetchIsolation, FetchTarget, next_epoch
from odradek.broker.replica.fetch.fetch_session_cache import FetchSessionCache
from odradek.broker.replica.fetch.log_reader import FetchParams
from odradek.protocol.compiler import encode
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.timer import ManualClock
from tests.broker.replica.harness import ReplicaHarness, records_of

MB = 1 << 20
KEYS = [TopicPartition("t", number) for number in range(5)]
T0, T1, T2 = KEYS[:3]


def target(key: TopicPartition, offset: int = 0, **options: int) -> FetchTarget:
    return FetchTarget(key, offset, MB, **options)


def open_session(harness: ReplicaHarness, *keys: TopicPartition, **parameters: Any) -> int:
    """Sends a full fetch at offset 0 of each partition and returns the session's id."""
    fetched = harness.fetch(*(target(key) for key in keys), session=(0, 0), **parameters)
    assert fetched.response.session_id != 0
    assert list(fetched.partitions) == list(keys)
    return fetched.response.session_id


class TestIncrementalAnswers:
    @pytest.fixture
    def session(self, harness: ReplicaHarness) -> int:
        for key in KEYS[:3]:
            harness.lead(key)
        return open_session(harness, T0, T1, T2)

    def test_an_unchanged_session_gets_an_empty_response(self, harness: ReplicaHarness, session: int) -> None:
        fetched = harness.fetch(session=(session, 1))
        assert fetched.partitions == {}
        assert fetched.response.session_id == session
        assert fetched.response.error_code == ErrorCode.NONE

    def test_only_partitions_with_new_records_are_returned(self, harness: ReplicaHarness, session: int) -> None:
        harness.produce(harness.batch(3), T1)
        fetched = harness.fetch(session=(session, 1))
        assert list(fetched.partitions) == [T1]
        assert fetched.partitions[T1].records

    def test_records_are_returned_again_until_the_client_advances(self, harness: ReplicaHarness, session: int) -> None:
        harness.produce(harness.batch(3), T1)
        for epoch in (1, 2):
            assert harness.fetch(session=(session, epoch)).partitions[T1].records
        assert harness.fetch(target(T1, 3), session=(session, 3)).partitions == {}
        assert harness.fetch(session=(session, 4)).partitions == {}

    def test_a_new_high_watermark_is_returned_once(self, harness: ReplicaHarness) -> None:
        partition = harness.lead(replicas=(0, 1))
        harness.produce(harness.batch(5))
        partition.update_follower(1, 2, 0)
        session = open_session(harness, T0)
        assert list(harness.fetch(target(T0, 5), session=(session, 1)).partitions) == []
        partition.update_follower(1, 4, 0)
        harness.manager.fetches.reader._follower_moved(partition)
        fetched = harness.fetch(session=(session, 2))
        assert fetched.data.high_watermark == 4
        assert fetched.data.records == b""
        assert harness.fetch(session=(session, 3)).partitions == {}

    def test_a_new_log_start_is_returned_once(self, harness: ReplicaHarness, session: int) -> None:
        harness.produce(harness.batch(5), T2)
        harness.fetch(target(T2, 5), session=(session, 1))
        harness.manager.deletions.delete(0, {T2: 2}, lambda _: None)
        assert harness.fetch(session=(session, 2)).partitions[T2].log_start_offset == 2
        assert harness.fetch(session=(session, 3)).partitions == {}

    def test_an_error_is_returned_every_time_and_its_end_once(self, harness: ReplicaHarness, session: int) -> None:
        harness.manager.stop_replica(T1, delete=True)
        for epoch in (1, 2):
            fetched = harness.fetch(session=(session, epoch))
            assert fetched.partitions[T1].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        harness.lead(T1)
        assert harness.fetch(session=(session, 3)).partitions[T1].error_code == ErrorCode.NONE
        assert harness.fetch(session=(session, 4)).partitions == {}

    def test_a_new_leader_epoch_is_an_error_for_fetches_that_name_the_old_one(self, harness: ReplicaHarness) -> None:
        harness.lead(epoch=1)
        session = harness.fetch(target(T0, current_leader_epoch=1), session=(0, 0)).response.session_id
        assert harness.fetch(session=(session, 1)).partitions == {}
        harness.lead(epoch=2)
        for epoch in (2, 3):
            assert harness.fetch(session=(session, epoch)).data.error_code == ErrorCode.FENCED_LEADER_EPOCH
        fetched = harness.fetch(target(T0, current_leader_epoch=2), session=(session, 4))
        assert fetched.data.error_code == ErrorCode.NONE

    def test_a_partition_forgotten_after_an_error_does_not_wake_the_session(self, harness: ReplicaHarness) -> None:
        for key in (T0, T1):
            harness.lead(key, epoch=1)
        session = harness.fetch(
            target(T0, current_leader_epoch=1), target(T1, current_leader_epoch=1), session=(0, 0)
        ).response.session_id
        waiting = harness.fetch(session=(session, 1), max_wait_ms=500, min_bytes=1)
        harness.lead(T0, epoch=2)
        harness.turn()
        assert waiting.data.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert harness.fetch(session=(session, 2), forgotten=[T0]).partitions == {}
        harness.produce(harness.batch(), T0)
        waiting = harness.fetch(session=(session, 3), max_wait_ms=500, min_bytes=1)
        assert not waiting.is_answered
        harness.produce(harness.batch(), T0)
        assert not waiting.is_answered
        harness.produce(harness.batch(), T1)
        assert list(waiting.partitions) == [T1]

    def test_a_recreated_partition_is_noticed(self, harness: ReplicaHarness, session: int) -> None:
        harness.manager.stop_replica(T1, delete=True)
        harness.lead(T1)
        harness.fetch(session=(session, 1))
        harness.produce(harness.batch(3), T1)
        assert harness.fetch(session=(session, 2)).partitions[T1].records

    def test_partitions_are_added_to_and_removed_from_the_session(self, harness: ReplicaHarness, session: int) -> None:
        harness.lead(KEYS[3])
        harness.produce(harness.batch(), KEYS[3])
        harness.produce(harness.batch(), T0)
        fetched = harness.fetch(target(KEYS[3]), session=(session, 1), forgotten=[T0])
        assert list(fetched.partitions) == [KEYS[3]]
        assert harness.sessions.partitions == 3
        harness.produce(harness.batch(), T0)
        assert T0 not in harness.fetch(session=(session, 2)).partitions

    def test_forgetting_all_partitions_ends_the_session(self, harness: ReplicaHarness, session: int) -> None:
        fetched = harness.fetch(session=(session, 1), forgotten=[T0, T1, T2])
        assert fetched.response.session_id == 0
        assert len(harness.sessions) == 0
        assert not any(harness.manager.partitions.find(key).watchers for key in (T0, T1, T2))

    def test_partitions_that_returned_records_move_behind_the_others(
        self, harness: ReplicaHarness, session: int
    ) -> None:
        for key in (T0, T1, T2):
            harness.produce(harness.batch_of_bytes(1000), key)
            harness.produce(harness.batch_of_bytes(1000), key)
        order = []
        offsets = dict.fromkeys((T0, T1, T2), 0)
        moved: list[FetchTarget] = []
        for epoch in range(1, 7):
            fetched = harness.fetch(*moved, session=(session, epoch), max_bytes=1000)
            (key,) = [key for key, data in fetched.partitions.items() if data.records]
            order.append(key)
            offsets[key] += 1
            moved = [target(key, offsets[key])]
        assert order == [T0, T1, T2, T0, T1, T2]

    def test_another_isolation_level_reads_all_partitions_again(self, harness: ReplicaHarness, session: int) -> None:
        assert harness.fetch(session=(session, 1), isolation_level=1).partitions == {}
        harness.produce(harness.batch(), T1)
        assert list(harness.fetch(session=(session, 2), isolation_level=1).partitions) == [T1]


class TestWaiting:
    @pytest.fixture
    def session(self, harness: ReplicaHarness) -> int:
        for key in KEYS[:3]:
            harness.lead(key)
        return open_session(harness, T0, T1, T2)

    def test_a_quiet_session_waits_and_is_woken_by_any_of_its_partitions(
        self, harness: ReplicaHarness, session: int
    ) -> None:
        fetched = harness.fetch(session=(session, 1), max_wait_ms=500, min_bytes=1)
        assert not fetched.is_answered
        harness.produce(harness.batch(), T2)
        assert list(fetched.partitions) == [T2]

    def test_appends_to_several_partitions_add_up_to_min_bytes(self, harness: ReplicaHarness, session: int) -> None:
        fetched = harness.fetch(session=(session, 1), max_wait_ms=500, min_bytes=4500)
        for key in (T2, T2, T1, T2):
            assert not fetched.is_answered
            harness.produce(harness.batch_of_bytes(1000), key)
        assert not fetched.is_answered
        harness.produce(harness.batch_of_bytes(1000), T0)
        assert {key: len(records_of(data)) for key, data in fetched.partitions.items()} == {
            T2: 3000,
            T1: 1000,
            T0: 1000,
        }

    def test_records_from_before_the_wait_count_towards_min_bytes(self, harness: ReplicaHarness, session: int) -> None:
        harness.produce(harness.batch_of_bytes(1000), T1)
        fetched = harness.fetch(session=(session, 1), max_wait_ms=500, min_bytes=2000)
        assert not fetched.is_answered
        harness.produce(harness.batch_of_bytes(1000), T1)
        assert len(fetched.records) == 2000

    def test_a_waiting_session_fetch_is_answered_empty_at_its_timeout(
        self, harness: ReplicaHarness, session: int
    ) -> None:
        fetched = harness.fetch(session=(session, 1), max_wait_ms=500, min_bytes=1)
        harness.advance(500)
        assert fetched.partitions == {}
        assert harness.fetch(session=(session, 2)).response.error_code == ErrorCode.NONE

    def test_a_stopped_partition_wakes_the_waiting_session(self, harness: ReplicaHarness, session: int) -> None:
        fetched = harness.fetch(session=(session, 1), max_wait_ms=500, min_bytes=1)
        harness.manager.stop_replica(T1, delete=True)
        harness.turn()
        assert fetched.data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_the_slower_of_two_concurrent_fetches_is_refused(self, harness: ReplicaHarness, session: int) -> None:
        slower = harness.fetch(session=(session, 1), max_wait_ms=500, min_bytes=1)
        assert harness.fetch(session=(session, 2)).response.error_code == ErrorCode.NONE
        harness.advance(500)
        assert slower.response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert slower.response.responses == []

    def test_an_abandoned_fetch_leaves_the_session_usable(self, harness: ReplicaHarness, session: int) -> None:
        fetched = harness.fetch(session=(session, 1), max_wait_ms=500, min_bytes=1)
        fetched.abandon()
        kept = harness.sessions.get(session)
        assert kept is not None
        assert kept.parked == 0
        harness.produce(harness.batch(), T1)
        assert list(harness.fetch(session=(session, 2)).partitions) == [T1]


class TestFollowers:
    """More in test_follower_sessions.py."""

    @pytest.fixture
    def session(self, harness: ReplicaHarness) -> int:
        for key in KEYS[:3]:
            harness.lead(key, replicas=(0, 1))
        return open_session(harness, T0, T1, T2, replica_id=1)

    def test_a_followers_empty_fetch_advances_the_high_watermark(self, harness: ReplicaHarness, session: int) -> None:
        harness.produce(harness.batch(3), T1)
        assert harness.fetch(session=(session, 1), replica_id=1).partitions[T1].records
        fetched = harness.fetch(target(T1, 3), session=(session, 2), replica_id=1)
        assert harness.manager.partitions.find(T1).log.state.high_watermark == 3
        assert fetched.partitions == {}  # the read came before the follower's position was recorded
        assert harness.fetch(session=(session, 3), replica_id=1).partitions[T1].high_watermark == 3

    def test_an_append_wakes_a_follower_before_the_high_watermark_advances(
        self, harness: ReplicaHarness, session: int
    ) -> None:
        fetched = harness.fetch(session=(session, 1), replica_id=1, max_wait_ms=500, min_bytes=1)
        harness.produce(harness.batch(3), T2)
        assert list(fetched.partitions) == [T2]
        assert harness.manager.partitions.find(T2).log.state.high_watermark == 0


class TestSize:
    def test_the_size_of_a_session_is_bounded(self, harness: ReplicaHarness) -> None:
        keys = [TopicPartition("many", number) for number in range(10_001)]
        session = harness.fetch(*(target(key) for key in keys[:6000]), session=(0, 0)).response.session_id
        with pytest.raises(ProtocolError) as raised:
            harness.fetch(*(target(key) for key in keys[6000:]), session=(session, 1))
        assert raised.value.code is ErrorCode.POLICY_VIOLATION
        assert harness.sessions.partitions == 6000
        harness.fetch(*(target(key) for key in keys[5000:10_000]), session=(session, 1))
        assert harness.sessions.partitions == 10_000

    def test_the_session_of_another_broker_holds_all_partitions_that_it_follows(self, harness: ReplicaHarness) -> None:
        keys = [TopicPartition("many", number) for number in range(10_001)]
        follower: dict[str, Any] = {"replica_id": 1, "max_partitions": 10_001}
        opened = harness.fetch(*(target(key) for key in keys[:6000]), session=(0, 0), **follower)
        harness.fetch(*(target(key) for key in keys[6000:]), session=(opened.response.session_id, 1), **follower)
        assert harness.sessions.partitions == 10_001


class TestEpochs:
    def test_epochs_count_up_and_wrap_to_1(self) -> None:
        assert [next_epoch(epoch) for epoch in (0, 1, MAX_INT32, -1)] == [1, 2, 1, -1]

    def test_an_unknown_session_is_refused(self, harness: ReplicaHarness) -> None:
        response = harness.fetch(session=(12345, 1)).response
        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert response.session_id == 0

    @pytest.mark.parametrize("epoch", [2, 3, 7])
    def test_an_unexpected_epoch_is_refused(self, harness: ReplicaHarness, epoch: int) -> None:
        harness.lead()
        session = open_session(harness, T0)
        response = harness.fetch(session=(session, epoch)).response
        assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert harness.fetch(session=(session, 1)).response.error_code == ErrorCode.NONE

    def test_epoch_0_with_an_id_replaces_the_session(self, harness: ReplicaHarness) -> None:
        harness.lead()
        session = open_session(harness, T0)
        newer = harness.fetch(target(T0), session=(session, 0)).response.session_id
        assert newer not in (0, session)
        assert len(harness.sessions) == 1

    def test_epoch_minus_1_closes_the_session_and_reads_without_one(self, harness: ReplicaHarness) -> None:
        harness.lead()
        session = open_session(harness, T0)
        fetched = harness.fetch(target(T0), session=(session, -1))
        assert fetched.response.session_id == 0
        assert list(fetched.partitions) == [T0]
        assert len(harness.sessions) == 0

    def test_a_fetch_without_a_session_returns_all_partitions_every_time(self, harness: ReplicaHarness) -> None:
        harness.lead()
        for _ in range(2):
            assert list(harness.fetch(target(T0)).partitions) == [T0]
        assert len(harness.sessions) == 0


class TestCache:
    """Eviction from the session cache."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    def cache(self, clock: ManualClock, slots: int) -> FetchSessionCache:
        return FetchSessionCache(slots, clock, random.Random(1))

    def new(self, cache: FetchSessionCache, size: int, *, privileged: bool = False) -> int:
        """Creates a session of `size` partitions and returns its id, 0 if the cache is full."""
        session = cache.create(size, privileged=privileged, isolation=FetchIsolation.HIGH_WATERMARK)
        if session is None:
            return 0
        keys = [TopicPartition("t", number) for number in range(size)]
        session.update({key: target(key) for key in keys}, [], FetchIsolation.HIGH_WATERMARK, 10_000)
        return session.id

    def use(self, cache: FetchSessionCache, session_id: int) -> None:
        session = cache.get(session_id)
        assert session is not None
        cache.context(session_id, session.epoch, FetchParams(12), {})

    def test_a_young_session_is_not_evicted(self, clock: ManualClock) -> None:
        cache = self.cache(clock, 2)
        ids = [self.new(cache, 2), self.new(cache, 3)]
        clock.advance(120_000)
        assert self.new(cache, 100) == 0
        assert all(cache.get(session_id) is not None for session_id in ids)
        assert cache.evictions == 0

    def test_a_session_unused_for_two_minutes_is_evicted_first(self, clock: ManualClock) -> None:
        cache = self.cache(clock, 2)
        stale, used = self.new(cache, 50), self.new(cache, 1)
        clock.advance(120_001)
        self.use(cache, used)
        assert self.new(cache, 1) != 0
        assert cache.get(stale) is None
        assert cache.get(used) is not None
        assert cache.evictions == 1

    def test_the_smallest_old_session_in_use_is_evicted_for_a_larger_one(self, clock: ManualClock) -> None:
        cache = self.cache(clock, 3)
        ids = [self.new(cache, size) for size in (3, 2, 4)]
        clock.advance(120_001)
        for session_id in ids:
            self.use(cache, session_id)
        assert self.new(cache, 1) == 0
        assert self.new(cache, 2) == 0
        assert self.new(cache, 3) != 0
        assert [cache.get(session_id) is not None for session_id in ids] == [True, False, True]

    def test_a_followers_session_evicts_a_consumers_session_of_any_age(self, clock: ManualClock) -> None:
        cache = self.cache(clock, 2)
        consumer, follower = self.new(cache, 50), self.new(cache, 5, privileged=True)
        assert self.new(cache, 1, privileged=True) != 0
        assert cache.get(consumer) is None
        assert cache.get(follower) is not None

    def test_a_followers_young_session_is_not_evicted(self, clock: ManualClock) -> None:
        cache = self.cache(clock, 1)
        self.new(cache, 1, privileged=True)
        assert self.new(cache, 10, privileged=True) == 0
        assert self.new(cache, 10) == 0

    def test_an_evicted_session_is_removed_from_the_partitions_watch_lists(self, harness: ReplicaHarness) -> None:
        partition = harness.lead()
        session = open_session(harness, T0)
        assert len(partition.watchers) == 1
        harness.sessions.remove(session)
        assert len(partition.watchers) == 0

    def test_a_cache_without_slots_creates_no_sessions(self, harness: ReplicaHarness) -> None:
        harness.lead()
        harness.sessions.max_sessions = 0
        fetched = harness.fetch(target(T0), session=(0, 0))
        assert fetched.response.session_id == 0
        assert fetched.response.error_code == ErrorCode.NONE


class TestCost:
    """A session of a thousand partitions without changes."""

    @pytest.fixture
    def reads(self, harness: ReplicaHarness) -> list[TopicPartition]:
        """Records each access to a partition, for records or for progress."""
        looked: list[TopicPartition] = []
        reader = harness.manager.fetches.reader
        find = reader._partition

        def look(key: TopicPartition) -> Any:
            looked.append(key)
            return find(key)

        reader._partition = look
        return looked

    def test_a_fetch_of_a_thousand_quiet_partitions_returns_few_bytes_and_reads_none(
        self, harness: ReplicaHarness, reads: list[Any]
    ) -> None:
        keys = [TopicPartition("t", number) for number in range(1000)]
        for key in keys:
            harness.lead(key)
        session = open_session(harness, *keys)
        reads.clear()

        waiting = harness.fetch(session=(session, 1), max_wait_ms=500, min_bytes=1)
        harness.advance(500)
        assert waiting.partitions == {}
        assert [len(encode(waiting.response, version)) for version in (7, 11, 12)] == [14, 14, 12]
        assert reads == []

        waiting = harness.fetch(session=(session, 2), max_wait_ms=500, min_bytes=1)
        assert [len(row.keys) for row in harness.manager.fetch_purgatory.waiting()] == [1]
        harness.produce(harness.batch(), keys[500])
        assert list(waiting.partitions) == [keys[500]]
        assert set(reads) == {keys[500]}
        assert len(reads) <= 3

    def test_an_append_to_a_partition_does_not_grow_its_watchers(self, harness: ReplicaHarness) -> None:
        partition = harness.lead()
        session = open_session(harness, T0)
        for epoch in range(1, 20):
            harness.produce()
            harness.fetch(target(T0, epoch), session=(session, epoch))
            assert len(partition.watchers) == 1
