"""Fetch sessions (KIP-227): incremental responses, epochs, eviction, and the cost of a quiet session."""

from __future__ import annotations

import random
from typing import Any

import pytest

from odradek.broker.replica.fetch_params import FetchIsolation, FetchParams
from odradek.broker.replica.fetch_session import MAX_INT32, FetchTarget, next_epoch
from odradek.broker.replica.fetch_session_cache import FetchSessionCache
from odradek.protocol.compiler import encode
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.timer import ManualClock
from tests.broker.replica.rooms import Room, records_of

MB = 1 << 20
KEYS = [TopicPartition("t", number) for number in range(5)]
T0, T1, T2 = KEYS[:3]


def target(key: TopicPartition, offset: int = 0, **options: int) -> FetchTarget:
    return FetchTarget(key, offset, MB, **options)


def open_session(room: Room, *keys: TopicPartition, **parameters: Any) -> int:
    """Sends a full fetch at offset 0 of each partition and returns the session's id."""
    fetched = room.fetch(*(target(key) for key in keys), session=(0, 0), **parameters)
    assert fetched.response.session_id != 0
    assert list(fetched.partitions) == list(keys)
    return fetched.response.session_id


class TestIncrementalAnswers:
    @pytest.fixture
    def session(self, room: Room) -> int:
        for key in KEYS[:3]:
            room.lead(key)
        return open_session(room, T0, T1, T2)

    def test_an_unchanged_session_gets_an_empty_response(self, room: Room, session: int) -> None:
        fetched = room.fetch(session=(session, 1))
        assert fetched.partitions == {}
        assert fetched.response.session_id == session
        assert fetched.response.error_code == ErrorCode.NONE

    def test_only_partitions_with_new_records_are_returned(self, room: Room, session: int) -> None:
        room.produce(room.batch(3), T1)
        fetched = room.fetch(session=(session, 1))
        assert list(fetched.partitions) == [T1]
        assert fetched.partitions[T1].records

    def test_records_are_returned_again_until_the_client_advances(self, room: Room, session: int) -> None:
        room.produce(room.batch(3), T1)
        for epoch in (1, 2):
            assert room.fetch(session=(session, epoch)).partitions[T1].records
        assert room.fetch(target(T1, 3), session=(session, 3)).partitions == {}
        assert room.fetch(session=(session, 4)).partitions == {}

    def test_a_new_high_watermark_is_returned_once(self, room: Room) -> None:
        partition = room.lead(replicas=(0, 1))
        room.produce(room.batch(5))
        partition.update_follower(1, 2, 0)
        session = open_session(room, T0)
        assert list(room.fetch(target(T0, 5), session=(session, 1)).partitions) == []
        partition.update_follower(1, 4, 0)
        room.manager.fetches.reader._follower_moved(partition)
        fetched = room.fetch(session=(session, 2))
        assert fetched.data.high_watermark == 4
        assert fetched.data.records == b""
        assert room.fetch(session=(session, 3)).partitions == {}

    def test_a_new_log_start_is_returned_once(self, room: Room, session: int) -> None:
        room.produce(room.batch(5), T2)
        room.fetch(target(T2, 5), session=(session, 1))
        room.manager.delete_records(0, {T2: 2}, lambda _: None)
        assert room.fetch(session=(session, 2)).partitions[T2].log_start_offset == 2
        assert room.fetch(session=(session, 3)).partitions == {}

    def test_an_error_is_returned_every_time_and_its_end_once(self, room: Room, session: int) -> None:
        room.manager.stop_replica(T1, delete=True)
        for epoch in (1, 2):
            fetched = room.fetch(session=(session, epoch))
            assert fetched.partitions[T1].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        room.lead(T1)
        assert room.fetch(session=(session, 3)).partitions[T1].error_code == ErrorCode.NONE
        assert room.fetch(session=(session, 4)).partitions == {}

    def test_a_new_leader_epoch_is_an_error_for_fetches_that_name_the_old_one(self, room: Room) -> None:
        room.lead(epoch=1)
        session = room.fetch(target(T0, current_leader_epoch=1), session=(0, 0)).response.session_id
        assert room.fetch(session=(session, 1)).partitions == {}
        room.lead(epoch=2)
        for epoch in (2, 3):
            assert room.fetch(session=(session, epoch)).data.error_code == ErrorCode.FENCED_LEADER_EPOCH
        fetched = room.fetch(target(T0, current_leader_epoch=2), session=(session, 4))
        assert fetched.data.error_code == ErrorCode.NONE

    def test_a_recreated_partition_is_noticed(self, room: Room, session: int) -> None:
        room.manager.stop_replica(T1, delete=True)
        room.lead(T1)
        room.fetch(session=(session, 1))
        room.produce(room.batch(3), T1)
        assert room.fetch(session=(session, 2)).partitions[T1].records

    def test_partitions_are_added_to_and_removed_from_the_session(self, room: Room, session: int) -> None:
        room.lead(KEYS[3])
        room.produce(room.batch(), KEYS[3])
        room.produce(room.batch(), T0)
        fetched = room.fetch(target(KEYS[3]), session=(session, 1), forgotten=[T0])
        assert list(fetched.partitions) == [KEYS[3]]
        assert room.sessions.partitions == 3
        room.produce(room.batch(), T0)
        assert T0 not in room.fetch(session=(session, 2)).partitions

    def test_forgetting_all_partitions_ends_the_session(self, room: Room, session: int) -> None:
        fetched = room.fetch(session=(session, 1), forgotten=[T0, T1, T2])
        assert fetched.response.session_id == 0
        assert len(room.sessions) == 0
        assert not any(room.manager.partition(key).watchers for key in (T0, T1, T2))

    def test_partitions_that_returned_records_move_behind_the_others(self, room: Room, session: int) -> None:
        for key in (T0, T1, T2):
            room.produce(room.batch_of_bytes(1000), key)
            room.produce(room.batch_of_bytes(1000), key)
        order = []
        offsets = dict.fromkeys((T0, T1, T2), 0)
        moved: list[FetchTarget] = []
        for epoch in range(1, 7):
            fetched = room.fetch(*moved, session=(session, epoch), max_bytes=1000)
            (key,) = [key for key, data in fetched.partitions.items() if data.records]
            order.append(key)
            offsets[key] += 1
            moved = [target(key, offsets[key])]
        assert order == [T0, T1, T2, T0, T1, T2]

    def test_another_isolation_level_reads_all_partitions_again(self, room: Room, session: int) -> None:
        assert room.fetch(session=(session, 1), isolation_level=1).partitions == {}
        room.produce(room.batch(), T1)
        assert list(room.fetch(session=(session, 2), isolation_level=1).partitions) == [T1]


class TestWaiting:
    @pytest.fixture
    def session(self, room: Room) -> int:
        for key in KEYS[:3]:
            room.lead(key)
        return open_session(room, T0, T1, T2)

    def test_a_quiet_session_waits_and_is_woken_by_any_of_its_partitions(self, room: Room, session: int) -> None:
        fetched = room.fetch(session=(session, 1), max_wait_ms=500, min_bytes=1)
        assert not fetched.is_answered
        room.produce(room.batch(), T2)
        assert list(fetched.partitions) == [T2]

    def test_appends_to_several_partitions_add_up_to_min_bytes(self, room: Room, session: int) -> None:
        fetched = room.fetch(session=(session, 1), max_wait_ms=500, min_bytes=4500)
        for key in (T2, T2, T1, T2):
            assert not fetched.is_answered
            room.produce(room.batch_of_bytes(1000), key)
        assert not fetched.is_answered
        room.produce(room.batch_of_bytes(1000), T0)
        assert {key: len(records_of(data)) for key, data in fetched.partitions.items()} == {
            T2: 3000,
            T1: 1000,
            T0: 1000,
        }

    def test_records_from_before_the_wait_count_towards_min_bytes(self, room: Room, session: int) -> None:
        room.produce(room.batch_of_bytes(1000), T1)
        fetched = room.fetch(session=(session, 1), max_wait_ms=500, min_bytes=2000)
        assert not fetched.is_answered
        room.produce(room.batch_of_bytes(1000), T1)
        assert len(fetched.records) == 2000

    def test_a_waiting_session_fetch_is_answered_empty_at_its_timeout(self, room: Room, session: int) -> None:
        fetched = room.fetch(session=(session, 1), max_wait_ms=500, min_bytes=1)
        room.advance(500)
        assert fetched.partitions == {}
        assert room.fetch(session=(session, 2)).response.error_code == ErrorCode.NONE

    def test_a_stopped_partition_wakes_the_waiting_session(self, room: Room, session: int) -> None:
        fetched = room.fetch(session=(session, 1), max_wait_ms=500, min_bytes=1)
        room.manager.stop_replica(T1, delete=True)
        room.turn()
        assert fetched.data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_the_slower_of_two_concurrent_fetches_is_refused(self, room: Room, session: int) -> None:
        slower = room.fetch(session=(session, 1), max_wait_ms=500, min_bytes=1)
        assert room.fetch(session=(session, 2)).response.error_code == ErrorCode.NONE
        room.advance(500)
        assert slower.response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert slower.response.responses == []

    def test_an_abandoned_fetch_leaves_the_session_usable(self, room: Room, session: int) -> None:
        fetched = room.fetch(session=(session, 1), max_wait_ms=500, min_bytes=1)
        fetched.operation.abandon()
        kept = room.sessions.get(session)
        assert kept is not None
        assert kept.parked == 0
        room.produce(room.batch(), T1)
        assert list(room.fetch(session=(session, 2)).partitions) == [T1]


class TestFollowers:
    """A follower's session reads every partition each time: its fetches report its log end to the leader."""

    @pytest.fixture
    def session(self, room: Room) -> int:
        for key in KEYS[:3]:
            room.lead(key, replicas=(0, 1))
        return open_session(room, T0, T1, T2, replica_id=1)

    def test_a_followers_empty_fetch_advances_the_high_watermark(self, room: Room, session: int) -> None:
        room.produce(room.batch(3), T1)
        assert room.fetch(session=(session, 1), replica_id=1).partitions[T1].records
        fetched = room.fetch(target(T1, 3), session=(session, 2), replica_id=1)
        assert room.manager.partition(T1).log.high_watermark == 3
        assert fetched.partitions == {}  # the read came before the follower's position was recorded
        assert room.fetch(session=(session, 3), replica_id=1).partitions[T1].high_watermark == 3

    def test_an_append_wakes_a_follower_before_the_high_watermark_advances(self, room: Room, session: int) -> None:
        fetched = room.fetch(session=(session, 1), replica_id=1, max_wait_ms=500, min_bytes=1)
        room.produce(room.batch(3), T2)
        assert list(fetched.partitions) == [T2]
        assert room.manager.partition(T2).log.high_watermark == 0


class TestSize:
    def test_the_size_of_a_session_is_bounded(self, room: Room) -> None:
        keys = [TopicPartition("many", number) for number in range(10_001)]
        session = room.fetch(*(target(key) for key in keys[:6000]), session=(0, 0)).response.session_id
        with pytest.raises(ProtocolError) as raised:
            room.fetch(*(target(key) for key in keys[6000:]), session=(session, 1))
        assert raised.value.code is ErrorCode.POLICY_VIOLATION
        assert room.sessions.partitions == 6000
        room.fetch(*(target(key) for key in keys[5000:10_000]), session=(session, 1))
        assert room.sessions.partitions == 10_000


class TestEpochs:
    def test_epochs_count_up_and_wrap_to_1(self) -> None:
        assert [next_epoch(epoch) for epoch in (0, 1, MAX_INT32, -1)] == [1, 2, 1, -1]

    def test_an_unknown_session_is_refused(self, room: Room) -> None:
        response = room.fetch(session=(12345, 1)).response
        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert response.session_id == 0

    @pytest.mark.parametrize("epoch", [2, 3, 7])
    def test_an_unexpected_epoch_is_refused(self, room: Room, epoch: int) -> None:
        room.lead()
        session = open_session(room, T0)
        response = room.fetch(session=(session, epoch)).response
        assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert room.fetch(session=(session, 1)).response.error_code == ErrorCode.NONE

    def test_epoch_0_with_an_id_replaces_the_session(self, room: Room) -> None:
        room.lead()
        session = open_session(room, T0)
        newer = room.fetch(target(T0), session=(session, 0)).response.session_id
        assert newer not in (0, session)
        assert len(room.sessions) == 1

    def test_epoch_minus_1_closes_the_session_and_reads_without_one(self, room: Room) -> None:
        room.lead()
        session = open_session(room, T0)
        fetched = room.fetch(target(T0), session=(session, -1))
        assert fetched.response.session_id == 0
        assert list(fetched.partitions) == [T0]
        assert len(room.sessions) == 0

    def test_a_fetch_without_a_session_returns_all_partitions_every_time(self, room: Room) -> None:
        room.lead()
        for _ in range(2):
            assert list(room.fetch(target(T0)).partitions) == [T0]
        assert len(room.sessions) == 0


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
        session.update({key: target(key) for key in keys}, [], FetchIsolation.HIGH_WATERMARK)
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

    def test_an_evicted_session_is_removed_from_the_partitions_watch_lists(self, room: Room) -> None:
        partition = room.lead()
        session = open_session(room, T0)
        assert len(partition.watchers) == 1
        room.sessions.remove(session)
        assert len(partition.watchers) == 0

    def test_a_cache_without_slots_creates_no_sessions(self, room: Room) -> None:
        room.lead()
        room.sessions.max_sessions = 0
        fetched = room.fetch(target(T0), session=(0, 0))
        assert fetched.response.session_id == 0
        assert fetched.response.error_code == ErrorCode.NONE


class TestCost:
    """A session of a thousand partitions without changes."""

    @pytest.fixture
    def reads(self, room: Room) -> list[TopicPartition]:
        """Records each access to a partition, for records or for progress."""
        looked: list[TopicPartition] = []
        reader = room.manager.fetches.reader
        find = reader._partition

        def look(key: TopicPartition) -> Any:
            looked.append(key)
            return find(key)

        reader._partition = look
        return looked

    def test_a_fetch_of_a_thousand_quiet_partitions_returns_few_bytes_and_reads_none(
        self, room: Room, reads: list[Any]
    ) -> None:
        keys = [TopicPartition("t", number) for number in range(1000)]
        for key in keys:
            room.lead(key)
        session = open_session(room, *keys)
        reads.clear()

        waiting = room.fetch(session=(session, 1), max_wait_ms=500, min_bytes=1)
        room.advance(500)
        assert waiting.partitions == {}
        assert [len(encode(waiting.response, version)) for version in (7, 11, 12)] == [14, 14, 12]
        assert reads == []

        waiting = room.fetch(session=(session, 2), max_wait_ms=500, min_bytes=1)
        assert [len(row.keys) for row in room.manager.fetch_purgatory.waiting()] == [1]
        room.produce(room.batch(), keys[500])
        assert list(waiting.partitions) == [keys[500]]
        assert set(reads) == {keys[500]}
        assert len(reads) <= 3

    def test_an_append_to_a_partition_does_not_grow_its_watchers(self, room: Room) -> None:
        partition = room.lead()
        session = open_session(room, T0)
        for epoch in range(1, 20):
            room.produce()
            room.fetch(target(T0, epoch), session=(session, epoch))
            assert len(partition.watchers) == 1
