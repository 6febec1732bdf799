"""The in-sync replicas of a partition: who joins and leaves, what is proposed, what an answer changes."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.background.stepwise import finished
from odradek.broker.replica.partition.isr import CommittedIsr, IsrProposal
from odradek.broker.replica.partition.partition import Partition
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.replica.harness import T0, ReplicaHarness, later
from tests.storage.small_logs import bytes_of, truncate

LAG_MS = 30_000
T1 = TopicPartition("t", 1)


@pytest.fixture
def proposals(harness: ReplicaHarness, monkeypatch: pytest.MonkeyPatch) -> list[IsrProposal]:
    """The proposals so far, which nobody answers."""
    made: list[IsrProposal] = []
    monkeypatch.setattr(harness.manager._replication, "propose", made.append)
    return made


def answer(partition: Partition, result: CommittedIsr | ErrorCode) -> bool:
    assert partition.isr.proposal is not None
    return partition.isr_answered(partition.isr.proposal, result)


def accept(partition: Partition) -> bool:
    proposal = partition.isr.proposal
    assert proposal is not None
    return answer(partition, CommittedIsr(proposal.leader_epoch, proposal.isr, proposal.partition_epoch + 1))


def lagging(harness: ReplicaHarness, *, records: int = 10, **options: Any) -> Partition:
    """Returns a partition that broker 0 leads with the ISR (0, 1), whose follower has none of the records and lags."""
    partition = harness.lead(replicas=(0, 1), **options)
    partition.update_follower(1, 0, 0)
    harness.produce(harness.batch(records))
    harness.clock.advance(LAG_MS + 1)
    return partition


class TestJoining:
    def test_a_follower_joins_when_it_reaches_the_high_watermark(
        self, harness: ReplicaHarness, proposals: list[IsrProposal]
    ) -> None:
        partition = harness.lead(replicas=(0, 1, 2), isr=(0, 2), epoch=3)
        harness.produce(harness.batch(10))
        partition.update_follower(2, 6, 0)
        assert partition.log.state.high_watermark == 6
        partition.update_follower(1, 5, 0)
        assert proposals == []
        partition.update_follower(1, 6, 0)
        assert proposals == [IsrProposal(T0, 3, (0, 2, 1), 0)]
        assert partition.isr.committed == (0, 2)
        assert partition.isr.maximal == (0, 2, 1)

    def test_a_follower_joins_only_when_it_reaches_the_start_of_the_leaders_epoch(
        self, harness: ReplicaHarness, proposals: list[IsrProposal]
    ) -> None:
        partition = harness.lead(replicas=(0, 1, 2), isr=(0, 2), epoch=1)
        harness.produce(harness.batch(10))
        partition.update_follower(2, 4, 0)
        harness.lead(replicas=(0, 1, 2), isr=(0, 2), epoch=2)
        assert partition.log.state.high_watermark == 4
        partition.update_follower(1, 9, 0)
        assert proposals == []
        partition.update_follower(1, 10, 0)
        assert [proposal.isr for proposal in proposals] == [(0, 2, 1)]

    def test_a_follower_that_is_not_in_the_cluster_does_not_join(
        self, harness: ReplicaHarness, proposals: list[IsrProposal]
    ) -> None:
        partition = harness.lead(replicas=(0, 1), isr=(0,))
        harness.dead.add(1)
        partition.update_follower(1, 0, 0)
        assert proposals == []
        harness.dead.clear()
        partition.update_follower(1, 0, 0)
        assert len(proposals) == 1

    def test_the_high_watermark_waits_for_a_proposed_follower(
        self, harness: ReplicaHarness, proposals: list[IsrProposal]
    ) -> None:
        partition = harness.lead(replicas=(0, 1), isr=(0,))
        partition.update_follower(1, 0, 0)
        harness.clock.advance(LAG_MS + 1)
        harness.produce(harness.batch(10))
        assert partition.log.state.high_watermark == 0
        assert accept(partition) is False
        assert (partition.isr.committed, partition.partition_epoch) == ((0, 1), 1)
        assert partition.update_follower(1, 10, 0)
        assert partition.log.state.high_watermark == 10

    def test_a_proposed_follower_does_not_count_for_min_insync_replicas(
        self, harness: ReplicaHarness, proposals: list[IsrProposal]
    ) -> None:
        partition = harness.lead(replicas=(0, 1), isr=(0,), min_insync_replicas=2)
        partition.update_follower(1, 0, 0)
        assert harness.produce(acks=-1).result.error is ErrorCode.NOT_ENOUGH_REPLICAS
        accept(partition)
        assert not harness.produce(acks=-1, timeout_ms=1).is_answered

    def test_a_second_change_waits_for_the_answer_to_the_first(
        self, harness: ReplicaHarness, proposals: list[IsrProposal]
    ) -> None:
        partition = harness.lead(replicas=(0, 1, 2), isr=(0,))
        partition.update_follower(1, 0, 0)
        partition.update_follower(2, 0, 0)
        assert [proposal.isr for proposal in proposals] == [(0, 1)]
        accept(partition)
        partition.update_follower(2, 0, 0)
        assert proposals[1:] == [IsrProposal(T0, 0, (0, 1, 2), 1)]


class TestLeaving:
    def test_a_follower_that_lags_too_long_leaves(self, harness: ReplicaHarness, proposals: list[IsrProposal]) -> None:
        partition = lagging(harness, epoch=4)
        finished(harness.manager.in_sync_replicas.shrink())
        assert proposals == [IsrProposal(T0, 4, (0,), 0)]
        assert list(partition.isr.committed) == list(partition.isr.maximal) == [0, 1]
        assert partition.log.state.high_watermark == 0
        assert accept(partition) is True
        assert list(partition.isr.committed) == [0]
        assert partition.log.state.high_watermark == 10

    def test_a_follower_that_was_caught_up_in_time_stays(
        self, harness: ReplicaHarness, proposals: list[IsrProposal]
    ) -> None:
        partition = harness.lead(replicas=(0, 1))
        partition.update_follower(1, 0, 0)
        harness.produce(harness.batch(10))
        harness.clock.advance(LAG_MS)
        partition.maybe_shrink_isr()
        assert proposals == []

    def test_a_follower_that_always_has_what_the_previous_fetch_found_stays(
        self, harness: ReplicaHarness, proposals: list[IsrProposal]
    ) -> None:
        partition = harness.lead(replicas=(0, 1))
        partition.update_follower(1, 0, 0)
        for end in range(1, 8):
            harness.produce()
            harness.clock.advance(LAG_MS // 2)
            partition.update_follower(1, end - 1, 0)
            partition.maybe_shrink_isr()
        assert proposals == []

    def test_a_follower_with_everything_stays_without_a_fetch(
        self, harness: ReplicaHarness, proposals: list[IsrProposal]
    ) -> None:
        partition = harness.lead(replicas=(0, 1))
        partition.update_follower(1, 0, 0)
        harness.clock.advance(10 * LAG_MS)
        partition.maybe_shrink_isr()
        assert proposals == []

    def test_after_an_election_a_follower_has_the_lag_time_to_fetch(
        self, harness: ReplicaHarness, proposals: list[IsrProposal]
    ) -> None:
        partition = harness.lead(replicas=(0, 1))
        harness.produce()
        harness.clock.advance(LAG_MS)
        partition.maybe_shrink_isr()
        assert proposals == []
        harness.clock.advance(1)
        partition.maybe_shrink_isr()
        assert len(proposals) == 1

    def test_shortly_after_a_boot_a_follower_that_never_fetched_is_not_caught_up(
        self, harness: ReplicaHarness, proposals: list[IsrProposal]
    ) -> None:
        assert harness.clock.now_ms() < LAG_MS  # as if the machine had just started
        partition = harness.lead(replicas=(0, 1), isr=(0,))
        harness.produce(harness.batch(3))
        assert partition.log.state.high_watermark == 3

    def test_a_follower_that_fetches_but_has_nothing_is_not_caught_up_by_its_first_fetch(
        self, harness: ReplicaHarness, proposals: list[IsrProposal]
    ) -> None:
        partition = harness.lead(replicas=(0, 1), isr=(0,))
        harness.produce(harness.batch(3))
        partition.update_follower(1, 0, 0)
        harness.produce(harness.batch(3))
        assert partition.log.state.high_watermark == 6

    def test_the_leader_alone_is_never_removed(self, harness: ReplicaHarness, proposals: list[IsrProposal]) -> None:
        harness.lead(replicas=(0, 1), isr=(0,))
        harness.clock.advance(LAG_MS + 1)
        finished(harness.manager.in_sync_replicas.shrink())
        assert proposals == []

    def test_isrs_shrink_in_the_order_in_which_the_partitions_came(
        self, harness: ReplicaHarness, proposals: list[IsrProposal]
    ) -> None:
        keys = [TopicPartition("t", number) for number in (3, 1, 2)]
        for key in keys:
            harness.lead(key, replicas=(0, 1))
            harness.produce(key=key)
        harness.clock.advance(LAG_MS + 1)
        finished(harness.manager.in_sync_replicas.shrink())
        assert [proposal.topic_partition for proposal in proposals] == keys

    def test_the_high_watermark_goes_on_without_a_follower_that_failed_to_join(
        self, harness: ReplicaHarness, proposals: list[IsrProposal]
    ) -> None:
        partition = harness.lead(replicas=(0, 1, 2), isr=(0, 2))
        partition.update_follower(1, 0, 0)
        answer(partition, ErrorCode.INELIGIBLE_REPLICA)
        produced = harness.produce(harness.batch(10), acks=-1, timeout_ms=10 * LAG_MS)
        partition.update_follower(2, 10, 0)
        assert partition.log.state.high_watermark == 0
        harness.clock.advance(LAG_MS + 1)
        finished(harness.manager.in_sync_replicas.shrink())
        harness.turn()
        assert produced.result.error is ErrorCode.NONE

    def test_an_isr_that_shrinks_below_the_minimum_fails_the_append_that_it_has(
        self, harness: ReplicaHarness, proposals: list[IsrProposal]
    ) -> None:
        partition = harness.lead(replicas=(0, 1), min_insync_replicas=2)
        produced = harness.produce(acks=-1)
        harness.clock.advance(LAG_MS + 1)
        partition.maybe_shrink_isr()
        partition.update_follower(1, 1, 0)
        accept(partition)
        harness.manager.wakeups.watermark_moved(partition)
        harness.turn()
        assert produced.result.error is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert harness.produce(acks=-1).result.error is ErrorCode.NOT_ENOUGH_REPLICAS


class TestAnswers:
    @pytest.mark.parametrize("error", [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA])
    def test_after_a_refusal_the_isr_is_as_before(
        self, harness: ReplicaHarness, proposals: list[IsrProposal], error: ErrorCode
    ) -> None:
        partition = harness.lead(replicas=(0, 1), isr=(0,))
        partition.update_follower(1, 0, 0)
        answer(partition, error)
        assert partition.isr.proposal is None
        assert partition.isr.committed == partition.isr.maximal == (0,)
        partition.update_follower(1, 0, 0)
        assert len(proposals) == 2

    @pytest.mark.parametrize(
        "error",
        [
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.INVALID_UPDATE_VERSION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.NEW_LEADER_ELECTED,
        ],
    )
    def test_if_the_controller_has_another_state_the_proposal_stands_until_the_next_assignment(
        self, harness: ReplicaHarness, proposals: list[IsrProposal], error: ErrorCode
    ) -> None:
        partition = harness.lead(replicas=(0, 1), isr=(0,))
        partition.update_follower(1, 0, 0)
        answer(partition, error)
        assert partition.isr.maximal == (0, 1)
        assert not partition.is_proposing(proposals[0])
        partition.update_follower(1, 0, 0)
        partition.maybe_shrink_isr()
        assert len(proposals) == 1
        partition.make_leader(later(partition, 0, (0, 1), (0, 1), epochs=0))
        assert partition.isr.proposal is None
        assert partition.isr.committed == partition.isr.maximal == (0, 1)

    def test_an_unknown_partition_is_proposed_again_when_the_next_controller_sends_the_same_assignment(
        self, harness: ReplicaHarness, proposals: list[IsrProposal]
    ) -> None:
        partition = harness.lead(replicas=(0, 1), isr=(0,))
        partition.update_follower(1, 0, 0)
        answer(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        same = later(partition, 0, (0, 1), (0,), epochs=0)._replace(partition_epoch=partition.partition_epoch)
        partition.make_leader(same)
        partition.update_follower(1, 0, 0)
        assert len(proposals) == 2

    @pytest.mark.parametrize("error", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION])
    def test_a_late_repetition_does_not_end_a_proposal_that_the_controller_may_have_applied(
        self, harness: ReplicaHarness, proposals: list[IsrProposal], error: ErrorCode
    ) -> None:
        """The controller has stored (0, 1), and then another state; the answer and that state are still on their way,
        behind a request in which it repeats the state before.
        """
        partition = harness.lead(replicas=(0, 1), isr=(0,))
        partition.update_follower(1, 0, 0)
        harness.clock.advance(LAG_MS + 1)
        answer(partition, error)
        same = later(partition, 0, (0, 1), (0,), epochs=0)._replace(partition_epoch=partition.partition_epoch)
        partition.make_leader(same)
        harness.produce(harness.batch(10))
        assert partition.isr.maximal == (0, 1)
        assert partition.log.state.high_watermark == 0
        partition.make_leader(later(partition, 0, (0, 1), (0,)))
        assert partition.isr.proposal is None
        assert partition.log.state.high_watermark == 10

    def test_the_same_assignment_does_not_end_a_proposal_that_may_still_be_applied(
        self, harness: ReplicaHarness, proposals: list[IsrProposal]
    ) -> None:
        partition = harness.lead(replicas=(0, 1), isr=(0,))
        partition.update_follower(1, 0, 0)
        same = later(partition, 0, (0, 1), (0,), epochs=0)._replace(partition_epoch=partition.partition_epoch)
        partition.make_leader(same)
        assert partition.is_proposing(proposals[0])
        accept(partition)
        assert (partition.isr.committed, partition.partition_epoch) == ((0, 1), 1)

    @pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.REQUEST_TIMED_OUT])
    def test_after_any_other_error_the_proposal_is_to_be_sent_again(
        self, harness: ReplicaHarness, proposals: list[IsrProposal], error: ErrorCode
    ) -> None:
        partition = harness.lead(replicas=(0, 1), isr=(0,))
        partition.update_follower(1, 0, 0)
        answer(partition, error)
        assert partition.is_proposing(proposals[0])

    def test_an_answer_to_an_ended_proposal_changes_nothing(
        self, harness: ReplicaHarness, proposals: list[IsrProposal]
    ) -> None:
        partition = harness.lead(replicas=(0, 1), isr=(0,))
        partition.update_follower(1, 0, 0)
        partition.make_leader(later(partition, 0, (0, 1), (0,)))
        assert partition.isr_answered(proposals[0], CommittedIsr(0, (0, 1), 1)) is False
        assert partition.isr.committed == partition.isr.maximal == (0,)

    @pytest.mark.parametrize("answered", [CommittedIsr(5, (0, 1), 9), CommittedIsr(3, (0, 1), 0)])
    def test_an_answer_of_another_epoch_is_not_believed(
        self, harness: ReplicaHarness, proposals: list[IsrProposal], answered: CommittedIsr
    ) -> None:
        partition = harness.lead(replicas=(0, 1), isr=(0,), epoch=2)
        partition.make_leader(later(partition, 0, (0, 1), (0,)))
        partition.update_follower(1, 0, 0)
        answer(partition, answered)
        assert partition.isr.committed == (0,)
        assert not partition.is_proposing(proposals[0])

    def test_changes_and_failures_are_counted(self, harness: ReplicaHarness, proposals: list[IsrProposal]) -> None:
        partition = harness.lead(replicas=(0, 1), isr=(0,))
        partition.update_follower(1, 0, 0)
        answer(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
        accept(partition)
        harness.produce()
        harness.clock.advance(LAG_MS + 1)
        partition.maybe_shrink_isr()
        accept(partition)
        stats = harness.manager.isr_stats
        assert (stats.expands, stats.shrinks, stats.failed_updates) == (1, 1, 1)


class TestAssignments:
    def test_an_older_leader_epoch_changes_nothing(self, harness: ReplicaHarness) -> None:
        partition = harness.lead(replicas=(0, 1), isr=(0,), epoch=5)
        older = later(partition, 1, (0, 1), (1,), epochs=-1)
        assert partition.is_outdated(older)
        assert partition.make_follower(older) is False
        assert partition.make_leader(older._replace(leader=0)) is False
        assert partition.is_leader
        assert (partition.leader_epoch, partition.isr.committed) == (5, (0,))

    def test_an_older_partition_epoch_changes_nothing(self, harness: ReplicaHarness) -> None:
        partition = harness.lead(replicas=(0, 1), isr=(0,))
        harness.lead(replicas=(0, 1), isr=(0, 1))
        older = later(partition, 0, (0, 1), (0,), epochs=0)._replace(partition_epoch=0)
        partition.make_leader(older)
        assert partition.isr.committed == (0, 1)

    def test_a_leader_that_becomes_a_follower_keeps_nothing_of_the_replicas(self, harness: ReplicaHarness) -> None:
        partition = harness.lead(replicas=(0, 1), isr=(0,))
        harness.produce(harness.batch(5))
        partition.update_follower(1, 5, 0)
        assert partition.make_follower(later(partition, 1, (0, 1), (0, 1))) is True
        assert (partition.leader_id, partition.isr.committed, partition.isr.proposal) == (1, (), None)
        assert partition.remote_replicas == {}
        assert not partition.is_under_replicated
        assert not partition.is_under_min_isr

    def test_a_new_leader_knows_no_offsets_of_its_followers(self, harness: ReplicaHarness) -> None:
        partition = harness.lead(replicas=(0, 1))
        harness.produce(harness.batch(5))
        partition.make_follower(later(partition, 1, (0, 1)))
        partition.make_leader(later(partition, 0, (0, 1), (0, 1)))
        assert partition.remote_replicas[1].log_end_offset == -1
        assert partition.epoch_start_offset == 5

    def test_a_leader_that_is_elected_again_keeps_the_offsets_of_its_followers(self, harness: ReplicaHarness) -> None:
        partition = harness.lead(replicas=(0, 1))
        harness.produce(harness.batch(5))
        partition.update_follower(1, 4, 0)
        assert partition.make_leader(later(partition, 0, (0, 1), (0, 1))) is True
        assert partition.remote_replicas[1].log_end_offset == 4

    def test_a_leader_that_missed_an_epoch_knows_no_offsets_of_its_followers(self, harness: ReplicaHarness) -> None:
        """In the epoch between, the follower may have truncated its log to that of another leader."""
        partition = harness.lead(replicas=(0, 1, 2))
        harness.produce(harness.batch(5))
        partition.update_follower(1, 5, 0)
        assert partition.log.state.high_watermark == 0  # replica 2 has nothing
        partition.make_leader(later(partition, 0, (0, 1, 2), (0, 1), epochs=2))
        assert partition.remote_replicas[1].log_end_offset == -1
        assert partition.log.state.high_watermark == 0

    def test_replicas_that_are_being_added_do_not_make_a_partition_under_replicated(
        self, harness: ReplicaHarness
    ) -> None:
        partition = harness.lead(replicas=(0, 1))
        growing = later(partition, 0, (0, 1, 2), (0, 1), epochs=0)
        partition.make_leader(growing._replace(adding=(2,)))
        assert not partition.is_under_replicated
        partition.make_leader(growing._replace(partition_epoch=growing.partition_epoch + 1))
        assert partition.is_under_replicated

    def test_a_follower_appends_what_the_leader_has(self, harness: ReplicaHarness) -> None:
        leader, partition = harness.lead(T1), harness.lead(replicas=(0, 1))
        harness.produce(harness.batch(3), T1)
        harness.produce(harness.batch(2), T1)
        records = bytes_of(leader.log.reader.read(0, 1 << 20))
        with pytest.raises(ProtocolError) as raised:
            partition.append_as_follower(records)
        assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition.make_follower(later(partition, 1, (0, 1)))
        info = partition.append_as_follower(records)
        assert info is not None
        assert (info.first_offset, info.last_offset) == (0, 4)
        assert bytes_of(partition.log.reader.read(0, 1 << 20)) == records
        assert (partition.log.state.high_watermark, partition.needs_flush) == (0, False)
        assert partition.append_as_follower(b"") is None

    async def test_a_follower_fetches_on_after_the_flush_that_the_policy_requires(
        self, harness: ReplicaHarness
    ) -> None:
        leader, partition = harness.lead(T1), harness.lead(replicas=(0, 1), flush_messages=5)
        partition.make_follower(later(partition, 1, (0, 1)))
        harness.produce(harness.batch(4), T1)
        partition.append_as_follower(bytes_of(leader.log.reader.read(0, 1 << 20)))
        assert harness.manager.flusher.until_flushed(partition) is None
        harness.produce(harness.batch(1), T1)
        partition.append_as_follower(bytes_of(leader.log.reader.read(4, 1 << 20)))
        end = harness.manager.flusher.until_flushed(partition)
        assert end is not None
        harness.threads.run()
        assert end.done()
        assert partition.log.state.recovery_point == 5
        assert not partition.needs_flush

    def test_the_high_watermark_of_a_follower_is_the_leaders_as_far_as_its_log_goes(
        self, harness: ReplicaHarness
    ) -> None:
        partition = harness.lead(replicas=(0, 1))
        harness.produce(harness.batch(5))
        partition.make_follower(later(partition, 1, (0, 1)))
        assert partition.follow(3, 0) is True
        assert partition.log.state.high_watermark == 3
        assert partition.follow(9, 0) is True
        assert partition.log.state.high_watermark == 5

    def test_the_high_watermark_of_a_follower_moves_back_only_with_a_truncation(self, harness: ReplicaHarness) -> None:
        partition = harness.lead(replicas=(0, 1))
        harness.produce(harness.batch(5))
        partition.make_follower(later(partition, 1, (0, 1)))
        partition.follow(5, 0)
        assert partition.follow(2, 0) is False
        assert partition.log.state.high_watermark == 5
        truncate(partition.log, 0)
        assert partition.log.state.high_watermark == 0

    def test_a_followers_own_flush_does_not_move_its_high_watermark(self, harness: ReplicaHarness) -> None:
        partition = harness.lead(replicas=(0, 1), flush_messages=1)
        harness.produce(harness.batch(5), acks=0)
        partition.make_follower(later(partition, 1, (0, 1)))
        harness.threads.run()
        assert (partition.log.state.recovery_point, partition.log.state.high_watermark) == (5, 0)
        harness.manager.update_log_config("t", partition.log.config)
        assert partition.log.state.high_watermark == 0

    def test_a_followers_log_starts_where_the_leaders_does(self, harness: ReplicaHarness) -> None:
        partition = harness.lead(replicas=(0, 1))
        harness.produce(harness.batch(5))
        partition.make_follower(later(partition, 1, (0, 1)))
        assert partition.follow(4, 3) is True
        assert partition.log.state.log_start_offset == 3
        assert partition.follow(4, 2) is False
        assert partition.follow(4, 8) is True
        assert partition.log.state.log_start_offset == 4
