"""Histories in which replicas diverge, with real logs: those of KIP-101 and KIP-279, and random ones.

In all of them followers must end with the leader's batches and epochs, and without an unclean election no committed
record may be lost.
"""

from __future__ import annotations

import random

import pytest

from odradek.broker.replica.follower.fetcher_actions import Fetch, TruncateLogs
from odradek.protocol.messages.fetch import FetchResponse
from odradek.storage.files import Buffer
from odradek.storage.log.truncation import Truncate
from tests.broker.replica.replicas import KEY, Replica, same
from tests.soak import seeds


def truncations(replica: Replica) -> list[int]:
    """Returns the offsets to which the replica has truncated its log, in order."""
    offsets = []
    for action in replica.actions:
        if isinstance(action, TruncateLogs):
            target = action.targets[KEY]
            assert isinstance(target, Truncate)
            offsets.append(target.offset)
    return offsets


# KIP-101


def test_kip_101_a_restarted_follower_keeps_what_only_its_high_watermark_does_not_cover() -> None:
    """Scenario 1: A, a follower, has m2 but does not know yet that m2 is committed. If it truncated to its high
    watermark when it restarts, and B failed before A fetched m2 again, m2 would be lost.
    """
    a, b = Replica(1), Replica(2)
    b.lead(0, isr=(1, 2))
    b.produce(b"m1")
    a.follow(b, 0)
    a.replicate()
    assert a.log().state.high_watermark == 1
    b.produce(b"m2")
    a.step()  # A appends m2
    a.step(response_is_lost=True)  # its next fetch makes B commit m2
    assert b.log().state.high_watermark == 2
    assert (a.log().state.high_watermark, a.log().state.log_end_offset) == (1, 2)

    a = a.restarted()
    a.follow(b, 0)
    b.is_down = True
    a.replicate()
    a.lead(1)
    assert a.values() == [b"m1", b"m2"]

    b = b.restarted()
    b.follow(a, 1)
    b.replicate()
    same(a, b)
    assert truncations(b) == []


def test_kip_101_logs_that_diverge_at_the_same_offset_after_hard_failures_become_equal() -> None:
    """Scenario 2: both brokers crash, A has m2 on its disk, B has lost it. B returns first and leads, with m3 where A
    has m2. With the high watermark alone, A would keep m2.
    """
    a, b = Replica(1), Replica(2)
    a.lead(0, isr=(1, 2))
    a.produce(b"m1")
    b.follow(a, 0)
    b.replicate()
    Replica.flush(b.partition())
    a.produce(b"m2")
    b.replicate()
    Replica.flush(a.partition())
    assert a.log().state.high_watermark == b.log().state.high_watermark == 2
    a, b = a.restarted(crashed=True), b.restarted(crashed=True)
    assert (a.values(), b.values()) == ([b"m1", b"m2"], [b"m1"])

    b.lead(1)
    b.produce(b"m3")
    a.follow(b, 1)
    a.replicate()
    assert a.values() == [b"m1", b"m3"]
    assert truncations(a) == [1]
    same(a, b)


def test_kip_101_a_leader_that_returns_loses_what_it_did_not_replicate_and_nothing_else() -> None:
    a, b = Replica(1), Replica(2)
    a.lead(0, isr=(1, 2))
    a.produce(b"m1", b"m2")
    b.follow(a, 0)
    b.replicate()
    a.produce(b"m3")
    b.lead(1)
    b.produce(b"m4")
    a.follow(b, 1)
    a.replicate()
    assert a.values() == [b"m1", b"m2", b"m4"]
    assert truncations(a) == [2]
    same(a, b)


# KIP-279


def test_kip_279_a_follower_whose_last_epoch_the_leader_lacks_truncates_to_the_end_of_the_one_before() -> None:
    """The leader does not have the follower's last epoch, and its epoch before that ends beyond the point where the
    follower's last epoch begins. The leader's offset alone would keep records of the follower's last epoch.
    """
    a, b = Replica(1), Replica(2)
    a.lead(0)
    a.produce(b"m0", b"m1")
    b.follow(a, 0)
    b.replicate()
    a.produce(b"m2", b"m3", b"m4")  # epoch 0 ends at 5 on A, at 2 on B
    b.lead(1)
    b.produce(b"x2", b"x3", b"x4")
    a.lead(2)  # a fast failover: A never followed B in epoch 1
    a.produce(b"m5")
    b.follow(a, 2)
    b.replicate()
    assert b.values() == [b"m0", b"m1", b"m2", b"m3", b"m4", b"m5"]
    assert truncations(b) == [2]
    same(a, b)


def test_kip_279_a_follower_without_the_leaders_epoch_goes_back_to_its_largest_smaller_one_and_fetches_again() -> None:
    """The epochs of both logs interleave: it takes two exchanges to find where the logs part."""
    a, b, c = Replica(1), Replica(2), Replica(3)
    a.lead(1)
    a.produce(b"m0", b"m1")
    for other in (b, c):
        other.follow(a, 1)
        other.replicate()
    a.produce(b"a2", b"a3", b"a4")  # A: epoch 1 up to 5
    c.lead(2)
    c.produce(b"c2", b"c3")  # C: epoch 1 up to 2, then epoch 2
    a.lead(3)
    a.produce(b"a5")  # A: epoch 1 up to 5, then epoch 3
    c.lead(4)
    c.produce(b"c4", b"c5")  # C: epochs 1, 2, 4
    a.follow(c, 4)
    a.replicate()
    assert truncations(a) == [5, 2]
    assert a.values() == [b"m0", b"m1", b"c2", b"c3", b"c4", b"c5"]
    same(a, c)


def test_kip_279_three_epochs_of_fast_failovers_are_undone_one_after_the_other() -> None:
    a, b = Replica(1), Replica(2)
    a.lead(0)
    a.produce(b"m0")
    b.follow(a, 0)
    b.replicate()
    for epoch in (1, 3, 5, 7):
        b.lead(epoch)
        b.produce(b"b%d" % epoch)
        a.lead(epoch + 1)
        a.produce(b"a%d" % epoch, b"a%d" % epoch)
    b.follow(a, 8)
    b.replicate()
    assert truncations(b) == [4, 3, 2, 1]
    same(a, b)


# More


def test_an_epoch_without_records_at_the_end_of_the_log_is_forgotten() -> None:
    a, b = Replica(1), Replica(2)
    a.lead(0)
    a.produce(b"m0")
    b.follow(a, 0)
    b.replicate()
    b.lead(1)  # and appends nothing
    a.lead(2)
    a.produce(b"m1")
    b.follow(a, 2)
    b.replicate()
    same(a, b)
    assert b.log().leader_epochs.entries == [(0, 0), (2, 1)]


def test_a_follower_whose_epochs_are_all_unknown_to_the_leader_starts_again_from_nothing() -> None:
    a, b = Replica(1), Replica(2)
    b.lead(3)
    b.produce(b"b0", b"b1")
    a.lead(5)
    a.produce(b"a0", b"a1", b"a2")
    b.follow(a, 5)
    b.replicate()
    assert b.values() == [b"a0", b"a1", b"a2"]
    same(a, b)


def test_a_new_follower_copies_the_whole_log() -> None:
    a, b = Replica(1), Replica(2)
    a.lead(0)
    for number in range(30):
        a.produce(b"m%d" % number)
    b.follow(a, 0)
    b.replicate()
    assert b.log().state.high_watermark == 30
    same(a, b)


def test_the_followers_high_watermark_is_the_leaders_up_to_its_own_end() -> None:
    a, b = Replica(1), Replica(2)
    a.lead(0)
    a.produce(b"m0")
    a.produce(b"m1")

    def cut(response: FetchResponse) -> None:
        ((data,),) = [topic.partitions for topic in response.responses]
        assert isinstance(data.records, Buffer)
        data.records = data.records[:-1]

    a.tamper = cut
    b.follow(a, 0)
    b.step()  # the second batch is cut off
    assert (b.log().state.log_end_offset, b.log().state.high_watermark) == (1, 1)
    assert a.log().state.high_watermark == 2


def test_truncation_lowers_the_followers_high_watermark() -> None:
    a, b = Replica(1), Replica(2)
    a.lead(0)
    a.produce(b"m0")
    b.lead(1)
    b.produce(b"b0")
    b.produce(b"b1")
    assert b.log().state.high_watermark == 2
    a.lead(2)
    b.follow(a, 2)
    b.step()
    b.step()
    assert truncations(b) == [0]
    assert b.log().state.high_watermark == 0
    b.replicate()
    same(a, b)


@pytest.mark.parametrize("seed", seeds(8, of=25))
def test_after_any_history_of_clean_elections_no_committed_record_is_lost(seed: int) -> None:
    """Only replicas with everything committed are elected; brokers restart, crash and lose responses on the way."""
    source = random.Random(seed)
    replicas = {number: Replica(number) for number in (1, 2, 3)}
    committed: list[bytes] = []
    leader, produced = replicas[1], 0
    leader.lead(0, isr=(1, 2, 3))
    for epoch in range(1, 25):
        for other in replicas.values():
            if other is not leader:
                other.follow(leader, epoch - 1)
        for _ in range(source.randrange(6)):
            if source.random() < 0.5:
                values = [b"%d" % (produced + number) for number in range(source.randrange(1, 4))]
                produced += len(values)
                leader.produce(*values)
            for other in replicas.values():
                if other is not leader and source.random() < 0.7:
                    for _ in range(source.randrange(4)):
                        other.step()
        high_watermark = leader.log().state.high_watermark
        assert leader.values()[: len(committed)] == committed
        committed = leader.values()[:high_watermark]
        _some_restart(replicas, source)
        able = [each for each in replicas.values() if each.values()[: len(committed)] == committed]
        leader = source.choice([each for each in able if each.log().state.log_end_offset >= high_watermark])
        leader.lead(epoch, isr=(1, 2, 3))
    for other in replicas.values():
        if other is not leader:
            other.follow(leader, 24)
            other.replicate()
    assert leader.values()[: len(committed)] == committed
    same(*replicas.values())


@pytest.mark.parametrize("seed", seeds(8, of=25))
def test_after_any_history_of_unclean_elections_the_replicas_become_equal(seed: int) -> None:
    source = random.Random(seed)
    replicas = {number: Replica(number) for number in (1, 2, 3)}
    for epoch in range(15):
        leader = replicas[source.randrange(1, 4)]
        leader.lead(epoch)
        for number in range(source.randrange(4)):
            leader.produce(*[b"%d.%d" % (epoch, number)] * source.randrange(1, 4))
        for other in replicas.values():
            if other is not leader and source.random() < 0.6:
                other.follow(leader, epoch)
                for _ in range(source.randrange(5)):
                    other.step()
        _some_restart(replicas, source)
    for other in replicas.values():
        if other is not leader:
            other.follow(leader, epoch)
    leader = replicas[leader.broker_id]
    leader.lead(15)
    for other in replicas.values():
        if other is not leader:
            other.follow(leader, 15)
            assert any(isinstance(action, Fetch) for action in other.replicate())
    same(*replicas.values())


def _some_restart(replicas: dict[int, Replica], source: random.Random) -> None:
    for number, replica in list(replicas.items()):
        if source.random() < 0.2:
            replicas[number] = replica.restarted()
