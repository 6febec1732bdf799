"""The fetch sessions of followers: which partitions a fetch visits, and what the leader knows of the others."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.replica.fetch.fetch_session import FetchTarget
from odradek.broker.replica.partition.isr import CommittedIsr
from odradek.broker.replica.partition.partition import Partition
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.replica.harness import Fetched, ReplicaHarness, later

MB = 1 << 20
LAG_MS = 30_000
WAIT_MS = 500
KEYS = [TopicPartition("t", number) for number in range(3)]
T0, T1, T2 = KEYS


class Follower:
    """Broker 1, which follows partitions in one session as a real follower does: it names a partition when its position
    has changed.
    """

    def __init__(
        self, harness: ReplicaHarness, keys: list[TopicPartition], *, broker_id: int = 1, epoch: int = 0
    ) -> None:
        self.harness = harness
        self.broker_id = broker_id
        self.leader_epoch = epoch
        self.offsets = dict.fromkeys(keys, 0)
        self.starts = dict.fromkeys(keys, 0)
        self.named = list(keys)
        self.session = (0, 0)

    def send(self, **parameters: Any) -> Fetched:
        """Sends a fetch; `take` takes its response."""
        targets = [
            FetchTarget(
                key,
                self.offsets[key],
                MB,
                current_leader_epoch=self.leader_epoch,
                log_start_offset=self.starts[key],
            )
            for key in self.named
        ]
        self.named = []
        return self.harness.fetch(*targets, session=self.session, replica_id=self.broker_id, **parameters)

    def take(self, fetched: Fetched) -> dict[TopicPartition, Any]:
        """Appends the records of a response; returns its partitions."""
        self.session = (fetched.response.session_id, self.session[1] + 1)
        for key, data in fetched.partitions.items():
            if data.error_code or not data.records:
                continue
            self.offsets[key] = self.harness.manager.partitions.find(key).log.state.log_end_offset
            self.named.append(key)
        return fetched.partitions

    def fetch(self, **parameters: Any) -> dict[TopicPartition, Any]:
        return self.take(self.send(**parameters))

    def settle(self) -> None:
        """Fetches until nothing is new."""
        while self.fetch():
            pass


@pytest.fixture
def partitions(harness: ReplicaHarness) -> list[Partition]:
    return [harness.lead(key, replicas=(0, 1)) for key in KEYS]


@pytest.fixture
def follower(harness: ReplicaHarness, partitions: list[Partition]) -> Follower:
    """Has nothing to fetch."""
    follower = Follower(harness, KEYS)
    follower.settle()
    return follower


@pytest.fixture
def visits(harness: ReplicaHarness, monkeypatch: pytest.MonkeyPatch) -> list[TopicPartition]:
    """Each access to a partition by a fetch, for records or for its progress."""
    seen: list[TopicPartition] = []
    reader = harness.manager.fetches.reader
    find = reader._partition

    def look(key: TopicPartition) -> Partition:
        seen.append(key)
        return find(key)

    monkeypatch.setattr(reader, "_partition", look)
    return seen


class TestVisits:
    def test_with_one_busy_partition_among_a_thousand_a_fetch_visits_only_that_one(
        self, harness: ReplicaHarness, visits: list[TopicPartition]
    ) -> None:
        keys = [TopicPartition("t", number) for number in range(1000)]
        for key in keys:
            harness.lead(key, replicas=(0, 1))
        follower = Follower(harness, keys)
        follower.settle()
        busy = keys[500]
        visits.clear()
        fetches = 50
        for _ in range(fetches):
            waiting = follower.send(max_wait_ms=WAIT_MS, min_bytes=1)
            harness.produce(key=busy)
            assert list(follower.take(waiting)) == [busy]
        assert set(visits) == {busy}
        assert len(visits) <= 4 * fetches
        follower.fetch()
        assert harness.manager.partitions.find(busy).log.state.high_watermark == fetches

        visits.clear()
        follower.settle()
        waiting = follower.send(max_wait_ms=WAIT_MS, min_bytes=1)
        assert [len(row.keys) for row in harness.manager.fetch_purgatory.waiting()] == [1]
        harness.advance(WAIT_MS)
        assert follower.take(waiting) == {}
        assert len(visits) <= 2

    def test_a_named_partition_is_visited(
        self, harness: ReplicaHarness, follower: Follower, visits: list[TopicPartition]
    ) -> None:
        follower.named = [T1]
        assert follower.fetch() == {}
        assert visits == [T1]

    def test_a_follower_outside_the_isr_is_visited_at_every_fetch(
        self, harness: ReplicaHarness, follower: Follower, visits: list[TopicPartition]
    ) -> None:
        harness.lead(T1, replicas=(0, 1), isr=(0,))
        harness.dead.add(1)
        for _ in range(3):
            visits.clear()
            follower.fetch()
            assert visits == [T1]

    def test_a_follower_joins_the_isr_although_another_change_was_under_way_when_it_caught_up(
        self, harness: ReplicaHarness, visits: list[TopicPartition]
    ) -> None:
        partition = harness.lead(T0, replicas=(0, 1, 2), isr=(0,))
        second, first = Follower(harness, [T0], broker_id=2), Follower(harness, [T0])
        first.fetch()
        second.fetch()
        for isr, follower in (((0, 1), second), ((0, 1, 2), first)):
            proposal = partition.isr.proposal
            assert proposal is not None
            assert proposal.isr == isr
            partition.isr_answered(proposal, CommittedIsr(0, isr, partition.partition_epoch + 1))
            follower.fetch()
        second.fetch()
        visits.clear()
        first.fetch()
        second.fetch()
        assert visits == []

    def test_the_high_watermark_reaches_followers_that_have_everything(
        self, harness: ReplicaHarness, partitions: list[Partition], follower: Follower
    ) -> None:
        harness.produce(harness.batch(3), T1)
        assert follower.fetch()[T1].records
        assert follower.fetch() == {}
        assert partitions[1].log.state.high_watermark == 3
        assert follower.fetch()[T1].high_watermark == 3
        assert follower.fetch() == {}

    def test_a_new_leader_epoch_fences_a_follower_that_was_idle(
        self, harness: ReplicaHarness, partitions: list[Partition], follower: Follower
    ) -> None:
        harness.lead(T1, replicas=(0, 1), epoch=1)
        assert follower.fetch()[T1].error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert partitions[1].remote_replicas[1].log_end_offset == 0
        follower.leader_epoch = 1
        follower.named = [T1]
        assert follower.fetch()[T1].error_code == ErrorCode.NONE

    def test_an_idle_follower_learns_that_it_is_no_replica_any_more(
        self, harness: ReplicaHarness, partitions: list[Partition], follower: Follower
    ) -> None:
        harness.lead(T1, replicas=(0, 2), isr=(0,))
        assert follower.fetch()[T1].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


class TestInSync:
    def shrunk(self, harness: ReplicaHarness) -> list[TopicPartition]:
        """Lets the leader look for lagging followers; returns the partitions whose ISR it wants to shrink."""
        list(harness.manager.in_sync_replicas.shrink())
        return [
            partition.topic_partition for partition in harness.manager.partitions if partition.isr.proposal is not None
        ]

    def test_an_idle_follower_that_keeps_fetching_is_caught_up_in_all_partitions(
        self, harness: ReplicaHarness, partitions: list[Partition], follower: Follower
    ) -> None:
        for _ in range(10):
            harness.clock.advance(LAG_MS // 3)
            follower.fetch()
        assert {partition.remote_replicas[1].last_caught_up_ms for partition in partitions} == {harness.clock.now_ms()}
        for key in KEYS:
            harness.produce(key=key)
        harness.clock.advance(LAG_MS)
        assert self.shrunk(harness) == []
        harness.clock.advance(1)
        assert self.shrunk(harness) == KEYS

    def test_an_append_after_a_long_idle_time_does_not_remove_a_follower_that_fetches(
        self, harness: ReplicaHarness, partitions: list[Partition], follower: Follower
    ) -> None:
        for _ in range(100):
            harness.clock.advance(WAIT_MS)
            follower.fetch()
        harness.produce(key=T1)
        assert self.shrunk(harness) == []
        follower.fetch()
        follower.fetch()
        assert partitions[1].log.state.high_watermark == 1

    def test_a_follower_that_stops_is_removed_once_it_lags(
        self, harness: ReplicaHarness, partitions: list[Partition], follower: Follower
    ) -> None:
        harness.clock.advance(LAG_MS - 100)
        harness.produce(key=T1)
        assert self.shrunk(harness) == []
        harness.clock.advance(101)
        assert self.shrunk(harness) == [T1]

    def test_fetches_of_other_partitions_do_not_keep_a_lagging_follower_in_the_isr(
        self, harness: ReplicaHarness, partitions: list[Partition], follower: Follower
    ) -> None:
        """The follower fetches, but its log of one partition does not grow, say because its disk is slow."""
        harness.produce(key=T1)
        for _ in range(10):
            harness.clock.advance(LAG_MS // 9)
            fetched = follower.send()
            assert list(fetched.partitions) == [T1]
            follower.session = (follower.session[0], follower.session[1] + 1)
        assert self.shrunk(harness) == [T1]

    def test_a_closed_session_keeps_no_follower_in_the_isr(
        self, harness: ReplicaHarness, partitions: list[Partition], follower: Follower
    ) -> None:
        harness.clock.advance(100)
        follower.fetch()
        harness.sessions.remove(follower.session[0])
        for partition in partitions:
            assert partition.remote_replicas[1].last_caught_up_ms == harness.clock.now_ms()
        harness.clock.advance(LAG_MS)
        for key in KEYS:
            harness.produce(key=key)
        assert self.shrunk(harness) == []
        harness.clock.advance(1)
        assert self.shrunk(harness) == KEYS

    def test_the_end_of_an_older_session_does_not_end_the_newer_one(
        self, harness: ReplicaHarness, partitions: list[Partition], follower: Follower
    ) -> None:
        newer = Follower(harness, KEYS)
        newer.settle()
        harness.sessions.remove(follower.session[0])
        harness.clock.advance(LAG_MS)
        newer.fetch()
        assert {partition.remote_replicas[1].last_caught_up_ms for partition in partitions} == {harness.clock.now_ms()}

    def test_a_forgotten_partition_is_no_longer_fetched(
        self, harness: ReplicaHarness, partitions: list[Partition], follower: Follower
    ) -> None:
        before = harness.clock.now_ms()
        harness.clock.advance(100)
        session_id, epoch = follower.session
        harness.fetch(session=(session_id, epoch), replica_id=1, forgotten=[T1])
        assert [partition.remote_replicas[1].last_caught_up_ms - before for partition in partitions] == [100, 0, 100]

    def test_a_waiting_fetch_counts_from_its_arrival(
        self, harness: ReplicaHarness, partitions: list[Partition], follower: Follower
    ) -> None:
        arrival = harness.clock.now_ms()
        waiting = follower.send(max_wait_ms=WAIT_MS, min_bytes=1)
        harness.advance(400)
        harness.produce(key=T1)
        assert waiting.is_answered
        assert partitions[1].remote_replicas[1].last_caught_up_ms == arrival

    def test_a_follower_that_becomes_the_leader_and_back_is_known_only_after_its_next_fetch(
        self, harness: ReplicaHarness, partitions: list[Partition], follower: Follower
    ) -> None:
        partition = partitions[1]
        waiting = follower.send(max_wait_ms=WAIT_MS, min_bytes=1)
        partition.make_follower(later(partition, 1, (0, 1), epochs=0))
        partition.make_leader(later(partition, 0, (0, 1), (0, 1), epochs=0))
        harness.manager.wakeups.watermark_moved(partition)
        harness.turn()
        harness.advance(WAIT_MS)
        follower.take(waiting)
        assert partition.remote_replicas[1].log_end_offset == -1
        follower.fetch()
        assert partition.remote_replicas[1].log_end_offset == 0

    def test_a_diverging_follower_is_not_caught_up(
        self, harness: ReplicaHarness, partitions: list[Partition], follower: Follower
    ) -> None:
        partition = partitions[1]
        harness.produce(harness.batch(3), T1)
        follower.settle()
        harness.lead(T1, replicas=(0, 1), epoch=2)
        harness.clock.advance(100)
        targets = [FetchTarget(T1, 3, MB, current_leader_epoch=2, last_fetched_epoch=1, log_start_offset=0)]
        for _ in range(3):
            fetched = harness.fetch(*targets, session=follower.session, replica_id=1)
            assert fetched.partitions[T1].diverging_epoch is not None
            follower.session = (follower.session[0], follower.session[1] + 1)
            targets = []
        assert partition.remote_replicas[1].last_caught_up_ms == harness.clock.now_ms() - 100

    def test_a_follower_that_catches_up_while_its_removal_is_decided_joins_again(
        self, harness: ReplicaHarness, partitions: list[Partition], follower: Follower
    ) -> None:
        partition = partitions[1]
        harness.produce(key=T1)
        harness.clock.advance(LAG_MS + 1)
        assert self.shrunk(harness) == [T1]
        follower.settle()
        proposal = partition.isr.proposal
        assert proposal is not None
        harness.manager.in_sync_replicas._answered(proposal, CommittedIsr(0, (0,), partition.partition_epoch + 1))
        follower.fetch()
        assert partition.isr.maximal == (0, 1)


class TestDeletion:
    def test_deleting_records_waits_for_idle_followers_and_not_for_dead_ones(
        self, harness: ReplicaHarness, partitions: list[Partition], follower: Follower
    ) -> None:
        harness.lead(T1, replicas=(0, 1, 2), isr=(0, 1))
        harness.dead.add(2)
        harness.produce(harness.batch(5), T1)
        follower.settle()
        answers: list[Any] = []
        harness.manager.deletions.delete(1000, {T1: 4}, answers.append)
        harness.turn()
        assert follower.fetch()[T1].log_start_offset == 4
        assert answers == []
        follower.starts[T1] = 4
        follower.named = [T1]
        follower.fetch()
        assert answers == [{T1: (4, ErrorCode.NONE)}]

    def test_deleting_records_no_longer_waits_for_a_follower_whose_broker_has_left(
        self, harness: ReplicaHarness, partitions: list[Partition], follower: Follower
    ) -> None:
        harness.produce(harness.batch(5), T1)
        follower.settle()
        answers: list[Any] = []
        harness.manager.deletions.delete(1000, {T1: 4}, answers.append)
        harness.dead.add(1)
        harness.manager.live_brokers_changed()
        harness.turn()
        assert answers == [{T1: (4, ErrorCode.NONE)}]
