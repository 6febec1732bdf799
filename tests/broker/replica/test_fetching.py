"""Fetches through the replica manager: limits, bounds, errors, waiting, cold reads."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.replica.fetch.fetch_session import FetchTarget
from odradek.broker.replica.partition.offline_replica import OfflineReplica
from odradek.protocol.errors import ErrorCode
from odradek.protocol.records import iter_batches
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.files import OsFile
from tests.broker.replica.harness import T0, Fetched, ReplicaHarness, records_of

MB = 1 << 20
T1 = TopicPartition("t", 1)
U0 = TopicPartition("u", 0)


def sizes(fetched: Fetched) -> dict[TopicPartition, int]:
    return {key: len(records_of(data)) for key, data in fetched.partitions.items()}


class TestWaiting:
    def test_fifteen_new_kilobytes_complete_a_fetch_that_waits_with_two(self, harness: ReplicaHarness) -> None:
        """min_bytes 10 KB, 500 ms: the log has 2 KB and gets 15 KB after 100 ms. All 17 KB are returned at once."""
        harness.lead()
        harness.produce(harness.batch_of_bytes(2048))
        fetched = harness.fetch(FetchTarget(T0, 0, MB), max_wait_ms=500, min_bytes=10 * 1024)
        assert not fetched.is_answered
        assert harness.manager.fetch_purgatory.delayed == 1
        harness.advance(100)
        assert not fetched.is_answered
        harness.produce(harness.batch_of_bytes(15 * 1024))
        assert len(fetched.records) == 17 * 1024
        assert fetched.data.high_watermark == 2
        assert harness.manager.fetch_purgatory.delayed == 0

    def test_at_the_timeout_a_fetch_returns_the_available_records(self, harness: ReplicaHarness) -> None:
        harness.lead()
        harness.produce(harness.batch_of_bytes(2048))
        fetched = harness.fetch(FetchTarget(T0, 0, MB), max_wait_ms=500, min_bytes=10 * 1024)
        harness.advance(499)
        assert not fetched.is_answered
        harness.advance(1)
        assert len(fetched.records) == 2048
        assert harness.manager.fetch_purgatory.expired == 1

    def test_the_partitions_of_a_fetch_add_up_to_min_bytes(self, harness: ReplicaHarness) -> None:
        harness.lead(T0)
        harness.lead(T1)
        fetched = harness.fetch(FetchTarget(T0, 0, MB), FetchTarget(T1, 0, MB), max_wait_ms=500, min_bytes=3000)
        harness.produce(harness.batch_of_bytes(2000), T0)
        assert not fetched.is_answered
        harness.produce(harness.batch_of_bytes(2000), T1)
        assert sizes(fetched) == {T0: 2000, T1: 2000}

    def test_a_partition_counts_at_most_its_own_maximum_towards_min_bytes(self, harness: ReplicaHarness) -> None:
        harness.lead()
        fetched = harness.fetch(FetchTarget(T0, 0, 1000), max_wait_ms=500, min_bytes=3000)
        harness.produce(harness.batch_of_bytes(5000))
        assert not fetched.is_answered
        harness.advance(500)
        assert len(fetched.records) == 5000

    @pytest.mark.parametrize("parameters", [{"max_wait_ms": 0, "min_bytes": 1}, {"max_wait_ms": 500, "min_bytes": 0}])
    def test_a_fetch_that_may_not_wait_is_answered_empty(
        self, harness: ReplicaHarness, parameters: dict[str, Any]
    ) -> None:
        harness.lead()
        fetched = harness.fetch(FetchTarget(T0, 0, MB), **parameters)
        assert fetched.data.records == b""
        assert fetched.data.error_code == ErrorCode.NONE

    def test_a_fetch_with_an_error_in_one_partition_does_not_wait(self, harness: ReplicaHarness) -> None:
        harness.lead()
        fetched = harness.fetch(FetchTarget(T0, 0, MB), FetchTarget(U0, 0, MB), max_wait_ms=500, min_bytes=1)
        assert fetched.partitions[T0].error_code == ErrorCode.NONE
        assert fetched.partitions[U0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_a_stopped_partition_completes_waiting_fetches(self, harness: ReplicaHarness) -> None:
        harness.lead()
        fetched = harness.fetch(FetchTarget(T0, 0, MB), max_wait_ms=500, min_bytes=1)
        harness.manager.stop_replica(T0, delete=True)
        harness.turn()
        assert fetched.data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_a_new_leader_epoch_completes_waiting_fetches_that_name_the_old_one(self, harness: ReplicaHarness) -> None:
        harness.lead(epoch=1)
        fetched = harness.fetch(FetchTarget(T0, 0, MB, current_leader_epoch=1), max_wait_ms=500, min_bytes=1)
        harness.lead(epoch=2)
        harness.turn()
        assert fetched.data.error_code == ErrorCode.FENCED_LEADER_EPOCH

    def test_a_rolled_segment_completes_fetches_that_wait_for_more_than_the_old_one_holds(
        self, harness: ReplicaHarness
    ) -> None:
        partition = harness.lead()
        harness.produce(harness.batch_of_bytes(1000))
        fetched = harness.fetch(FetchTarget(T0, 0, MB), max_wait_ms=500, min_bytes=100_000)
        partition.log.roll()
        harness.produce(harness.batch_of_bytes(1000))
        assert len(fetched.records) == 1000

    def test_a_consumer_waits_for_the_high_watermark_not_for_the_append(self, harness: ReplicaHarness) -> None:
        harness.lead(replicas=(0, 1))
        fetched = harness.fetch(FetchTarget(T0, 0, MB), max_wait_ms=500, min_bytes=1)
        harness.produce(harness.batch_of_bytes(1000))
        assert not fetched.is_answered
        harness.fetch(FetchTarget(T0, 1, MB), replica_id=1)
        assert len(fetched.records) == 1000

    def test_a_follower_waits_for_the_append_alone(self, harness: ReplicaHarness) -> None:
        harness.lead(replicas=(0, 1))
        fetched = harness.fetch(FetchTarget(T0, 0, MB), max_wait_ms=500, min_bytes=1, replica_id=1)
        harness.produce(harness.batch_of_bytes(1000))
        assert len(fetched.records) == 1000

    def test_an_abandoned_fetch_reads_nothing(self, harness: ReplicaHarness) -> None:
        harness.lead()
        fetched = harness.fetch(FetchTarget(T0, 0, MB), max_wait_ms=500, min_bytes=1)
        fetched.abandon()
        harness.produce()
        harness.advance(500)
        assert not fetched.is_answered
        assert harness.manager.fetch_purgatory.delayed == 0
        assert harness.timer.size == 0


class TestLimits:
    def test_the_first_batch_is_returned_whatever_its_size(self, harness: ReplicaHarness) -> None:
        harness.lead()
        harness.produce(harness.batch_of_bytes(5000))
        harness.produce(harness.batch_of_bytes(5000))
        assert len(harness.fetch(FetchTarget(T0, 0, 100)).records) == 5000

    def test_only_the_first_partition_with_records_may_exceed_the_limits(self, harness: ReplicaHarness) -> None:
        for key in (U0, T0, T1):
            harness.lead(key)
        for key in (T0, T1):
            harness.produce(harness.batch_of_bytes(5000), key)
        fetched = harness.fetch(FetchTarget(U0, 0, 100), FetchTarget(T0, 0, 100), FetchTarget(T1, 0, 100))
        assert sizes(fetched) == {U0: 0, T0: 5000, T1: 0}, "no client can read a part of a batch"

    def test_the_request_s_maximum_bounds_all_partitions_together(self, harness: ReplicaHarness) -> None:
        for key in (T0, T1, U0):
            harness.lead(key)
            harness.produce(harness.batch_of_bytes(5000), key)
        targets = [FetchTarget(key, 0, MB) for key in (T0, T1, U0)]
        for limit, found in ((7000, {T0: 5000, T1: 0, U0: 0}), (10_000, {T0: 5000, T1: 5000, U0: 0})):
            fetched = harness.fetch(*targets, max_bytes=limit)
            assert sizes(fetched) == found
            assert fetched.partitions[U0].high_watermark == 1

    def test_the_last_batch_of_a_response_may_be_cut(self, harness: ReplicaHarness) -> None:
        harness.lead()
        for _ in range(2):
            harness.produce(harness.batch_of_bytes(5000))
        assert sizes(harness.fetch(FetchTarget(T0, 0, 7000))) == {T0: 7000}

    def test_a_read_begins_with_the_batch_that_holds_the_offset(self, harness: ReplicaHarness) -> None:
        harness.lead()
        harness.produce(harness.batch(10))
        harness.produce(harness.batch(10))
        data = harness.fetch(FetchTarget(T0, 15, MB)).data
        assert [header.base_offset for _, header in iter_batches(records_of(data))] == [10]

    def test_no_record_beyond_the_high_watermark_is_returned(self, harness: ReplicaHarness) -> None:
        partition = harness.lead(replicas=(0, 1))
        harness.produce(harness.batch(10))
        harness.produce(harness.batch(10))
        partition.update_follower(1, 10, 0)
        data = harness.fetch(FetchTarget(T0, 0, MB)).data
        assert [header.base_offset for _, header in iter_batches(records_of(data))] == [0]
        assert data.high_watermark == 10


class TestErrors:
    @pytest.mark.parametrize("offset", [11, -1, 1 << 40])
    def test_an_unknown_offset_is_out_of_range(self, harness: ReplicaHarness, offset: int) -> None:
        harness.lead()
        harness.produce(harness.batch(10))
        data = harness.fetch(FetchTarget(T0, offset, MB), max_wait_ms=500, min_bytes=1).data
        assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (data.high_watermark, data.last_stable_offset, data.log_start_offset) == (-1, -1, -1)
        assert data.records == b""

    def test_an_offset_below_the_log_start_is_out_of_range(self, harness: ReplicaHarness) -> None:
        partition = harness.lead()
        harness.produce(harness.batch(10))
        partition.delete_records(5)
        assert harness.fetch(FetchTarget(T0, 4, MB)).data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert harness.fetch(FetchTarget(T0, 5, MB)).data.log_start_offset == 5

    @pytest.mark.parametrize(
        ("epoch", "error"), [(0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH), (1, 0), (-1, 0)]
    )
    def test_leader_epochs_are_fenced(self, harness: ReplicaHarness, epoch: int, error: int) -> None:
        harness.lead(epoch=1)
        assert harness.fetch(FetchTarget(T0, 0, MB, current_leader_epoch=epoch)).data.error_code == error

    @pytest.mark.parametrize(("version", "error"), [(9, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (10, 0)])
    def test_a_zstd_topic_is_refused_to_clients_that_do_not_know_zstd(
        self, harness: ReplicaHarness, version: int, error: int
    ) -> None:
        harness.lead(compression_type="zstd")
        assert harness.fetch(FetchTarget(T0, 0, MB), version=version).data.error_code == error

    @pytest.mark.parametrize(
        ("version", "error"), [(5, ErrorCode.NOT_LEADER_OR_FOLLOWER), (6, ErrorCode.KAFKA_STORAGE_ERROR)]
    )
    def test_old_clients_get_another_error_than_the_storage_error(
        self, harness: ReplicaHarness, version: int, error: int
    ) -> None:
        harness.manager.partitions.offline[T0] = OfflineReplica("the disk", 0)
        assert harness.fetch(FetchTarget(T0, 0, MB), version=version).data.error_code == error

    def test_a_log_that_diverges_from_the_clients_returns_the_diverging_epoch(self, harness: ReplicaHarness) -> None:
        harness.lead(epoch=1)
        harness.produce(harness.batch(5))
        harness.lead(epoch=3)
        harness.produce(harness.batch(5))
        data = harness.fetch(FetchTarget(T0, 7, MB, last_fetched_epoch=2), max_wait_ms=500, min_bytes=1).data
        assert data.diverging_epoch is not None
        assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (1, 5)
        assert data.records == b""
        data = harness.fetch(FetchTarget(T0, 7, MB, last_fetched_epoch=3)).data
        assert data.diverging_epoch is None
        assert data.records

    def test_an_unknown_last_fetched_epoch_is_out_of_range(self, harness: ReplicaHarness) -> None:
        harness.lead(epoch=1)
        harness.produce(harness.batch(5))
        data = harness.fetch(FetchTarget(T0, 2, MB, last_fetched_epoch=9)).data
        assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    def test_a_fetch_of_an_unassigned_replica_is_refused(self, harness: ReplicaHarness) -> None:
        harness.lead(replicas=(0, 1))
        assert harness.fetch(FetchTarget(T0, 0, MB), replica_id=5).data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


class TestColdReads:
    """Data outside the page cache is read in a thread."""

    @pytest.fixture
    def cold(self, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
        """While the list holds True, the page cache is empty."""
        state = [True]
        cached = OsFile.read_cached

        def read_cached(file: Any, position: int, length: int) -> Any:
            return None if state[0] else cached(file, position, length)

        monkeypatch.setattr("odradek.storage.files.OsFile.read_cached", read_cached)
        return state

    def test_a_cold_read_is_answered_after_the_disk_read(self, harness: ReplicaHarness, cold: list[bool]) -> None:
        harness.lead()
        harness.produce(harness.batch_of_bytes(3000))
        fetched = harness.fetch(FetchTarget(T0, 0, MB), max_wait_ms=500, min_bytes=1)
        assert not fetched.is_answered
        harness.threads.run()
        assert len(fetched.records) == 3000
        assert harness.manager.fetches.cold_reads == 1

    def test_a_cold_read_that_finds_too_little_keeps_waiting(self, harness: ReplicaHarness, cold: list[bool]) -> None:
        harness.lead()
        harness.produce(harness.batch_of_bytes(3000))
        fetched = harness.fetch(FetchTarget(T0, 0, MB), max_wait_ms=500, min_bytes=5000)
        harness.threads.run()
        assert not fetched.is_answered
        cold[0] = False
        harness.produce(harness.batch_of_bytes(3000))
        assert len(fetched.records) == 6000

    def test_a_parked_fetch_may_end_with_a_disk_read(self, harness: ReplicaHarness, cold: list[bool]) -> None:
        harness.lead()
        fetched = harness.fetch(FetchTarget(T0, 0, MB), max_wait_ms=500, min_bytes=1)
        harness.produce(harness.batch_of_bytes(3000))
        assert not fetched.is_answered
        harness.threads.run()
        assert len(fetched.records) == 3000

    def test_a_client_that_disconnects_during_a_cold_read_is_not_answered(
        self, harness: ReplicaHarness, cold: list[bool]
    ) -> None:
        harness.lead()
        harness.produce()
        fetched = harness.fetch(FetchTarget(T0, 0, MB), max_wait_ms=500, min_bytes=1)
        fetched.abandon()
        harness.threads.run()
        assert not fetched.is_answered

    def test_a_client_that_disconnects_after_a_cold_read_leaves_nothing_in_the_purgatory(
        self, harness: ReplicaHarness, cold: list[bool]
    ) -> None:
        harness.lead()
        harness.produce()
        fetched = harness.fetch(FetchTarget(T0, 0, MB), max_wait_ms=500, min_bytes=5000)
        harness.threads.run()
        assert harness.manager.fetch_purgatory.delayed == 1
        fetched.abandon()
        assert harness.manager.fetch_purgatory.delayed == 0

    def test_no_more_is_read_ahead_than_the_response_may_hold(self, harness: ReplicaHarness, cold: list[bool]) -> None:
        keys = [TopicPartition("t", n) for n in range(10)]
        for key in keys:
            harness.lead(key)
            harness.produce(harness.batch_of_bytes(3000), key)
        fetched = harness.fetch(*(FetchTarget(key, 0, MB) for key in keys), max_bytes=3000)
        harness.threads.run()
        assert harness.threads.calls == 1
        assert sum(sizes(fetched).values()) == 3000
