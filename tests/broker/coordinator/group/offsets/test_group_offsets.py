from random import Random

import pytest

from odradek.broker.coordinator.group.offsets.offsets import GroupOffsets
from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.protocol.errors import ErrorCode, MalformedMessage, ProtocolError
from tests.broker.coordinator.group.offsets.offset_log import OffsetLog, commits, numbers, reference
from tests.soak import seeds


def unstable(log: OffsetLog, group: str, topic: str, partition: int) -> bool:
    found = log.offsets.of_group(group)
    return found is not None and found.is_unstable(topic, partition)


def test_a_commit_takes_effect_once_it_is_replicated() -> None:
    log = OffsetLog()
    log.commit("g", orders={0: 5, 1: 6})
    assert log.numbers("g") == {}
    assert unstable(log, "g", "orders", 0)
    assert log.outcomes == []
    log.safe()
    assert log.numbers("g") == {"orders": {0: 5, 1: 6}}
    assert not unstable(log, "g", "orders", 0)
    assert log.outcomes == [None]
    assert log.offsets.count == 2


def test_a_failed_commit_keeps_the_previous_offset() -> None:
    log = OffsetLog()
    log.commit("g", orders={0: 5})
    log.safe()
    log.fail(log.commit("g", orders={0: 9}))
    assert log.numbers("g") == {"orders": {0: 5}}
    assert not unstable(log, "g", "orders", 0)
    assert isinstance(log.outcomes[1], ProtocolError)
    assert log.outcomes[1].code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_group_whose_only_commit_failed_has_no_offsets() -> None:
    log = OffsetLog()
    log.fail(log.commit("g", orders={0: 9}))
    assert not log.offsets.has_offsets("g")
    assert log.offsets.group_ids() == []


def test_the_last_commit_in_the_log_wins_although_commits_complete_out_of_order() -> None:
    log = OffsetLog()
    first, second = log.commit("g", orders={0: 5}), log.commit("g", orders={0: 6})
    second.done(None)
    first.done(None)
    assert log.numbers("g") == {"orders": {0: 6}}


def test_offsets_of_a_transaction_take_effect_at_its_commit_marker() -> None:
    log = OffsetLog()
    log.commit_in(7, "g", orders={0: 5})
    log.safe()
    assert log.numbers("g") == {}
    assert unstable(log, "g", "orders", 0)
    assert log.offsets.has_offsets("g")
    log.end(7, commit=True)
    assert log.numbers("g") == {"orders": {0: 5}}
    assert not unstable(log, "g", "orders", 0)


def test_offsets_of_an_aborted_transaction_are_discarded() -> None:
    log = OffsetLog()
    log.commit_in(7, "g", orders={0: 5})
    log.safe()
    log.end(7, commit=False)
    assert log.numbers("g") == {}
    assert not log.offsets.has_offsets("g")


def test_a_marker_of_another_producer_changes_nothing() -> None:
    log = OffsetLog()
    log.commit_in(7, "g", orders={0: 5})
    log.safe()
    log.end(8, commit=True)
    assert log.numbers("g") == {}
    assert unstable(log, "g", "orders", 0)


def test_a_plain_commit_after_a_transactional_one_wins_although_the_marker_comes_last() -> None:
    log = OffsetLog()
    log.commit_in(7, "g", orders={0: 5, 1: 5})
    log.commit("g", orders={0: 9})
    log.safe()
    log.end(7, commit=True)
    assert log.numbers("g") == {"orders": {0: 9, 1: 5}}


def test_a_transactional_commit_after_a_plain_one_wins() -> None:
    log = OffsetLog()
    log.commit("g", orders={0: 9})
    log.commit_in(7, "g", orders={0: 5})
    log.safe()
    log.end(7, commit=True)
    assert log.numbers("g") == {"orders": {0: 5}}


def test_the_later_of_two_commits_in_a_transaction_wins() -> None:
    log = OffsetLog()
    log.commit_in(7, "g", orders={0: 5, 1: 5})
    log.commit_in(7, "g", orders={0: 6})
    log.safe()
    log.end(7, commit=True)
    assert log.numbers("g") == {"orders": {0: 6, 1: 5}}


def test_a_failed_commit_in_a_transaction_keeps_the_previous_one() -> None:
    log = OffsetLog()
    log.commit_in(7, "g", orders={0: 5})
    log.safe()
    log.fail(log.commit_in(7, "g", orders={0: 6}))
    log.end(7, commit=True)
    assert log.numbers("g") == {"orders": {0: 5}}


def test_a_marker_also_decides_commits_that_are_not_replicated_yet() -> None:
    log = OffsetLog()
    log.commit_in(7, "g", orders={0: 5})
    log.end(7, commit=True)
    assert log.numbers("g") == {"orders": {0: 5}}
    log.safe()
    assert log.numbers("g") == {"orders": {0: 5}}
    assert not unstable(log, "g", "orders", 0)
    log.commit_in(7, "g", orders={0: 6})
    log.end(7, commit=False)
    log.safe()
    assert log.numbers("g") == {"orders": {0: 5}}


def test_one_producer_can_have_offsets_of_several_groups_pending() -> None:
    log = OffsetLog()
    log.commit_in(7, "g", orders={0: 5})
    log.commit_in(7, "h", orders={0: 6})
    log.safe()
    log.end(7, commit=True)
    assert (log.numbers("g"), log.numbers("h")) == ({"orders": {0: 5}}, {"orders": {0: 6}})


def test_a_deletion_removes_committed_and_pending_offsets() -> None:
    log = OffsetLog()
    log.commit("g", orders={0: 5, 1: 5})
    log.safe()
    log.commit_in(7, "g", orders={0: 6})
    log.safe()
    decision = log.delete("g", orders=[0, 2])
    assert len(decision.records) == 1, "there is nothing to delete for partition 2"
    log.safe()
    log.end(7, commit=True)
    assert log.numbers("g") == {"orders": {1: 5}}
    assert numbers(log.reloaded(), "g") == {"orders": {1: 5}}


def test_a_commit_appended_after_a_deletion_survives_it() -> None:
    log = OffsetLog()
    log.commit("g", orders={0: 5})
    log.safe()
    log.delete("g", orders=[0])
    log.commit("g", orders={0: 6})
    log.waiting.reverse()
    log.safe()
    assert log.numbers("g") == {"orders": {0: 6}} == numbers(log.reloaded(), "g")


def test_deleting_offsets_of_a_topic_keeps_those_of_other_topics() -> None:
    log = OffsetLog()
    log.commit("g", orders={0: 5}, payments={0: 6})
    log.safe()
    assert log.offsets.remove("g", {"orders": [0, 1, 2]}) == 1
    assert log.numbers("g") == {"payments": {0: 6}}
    assert log.offsets.remove("g", {"payments": [0]}) == 1
    assert not log.offsets.has_offsets("g")


def test_an_undecodable_record_changes_nothing() -> None:
    log = OffsetLog()
    key = log.commit("g", orders={0: 5}).records[0].key
    fresh = GroupOffsets()
    for broken in (
        CoordinatorRecord(key[:-1], b"\0\3"),
        CoordinatorRecord(key, b""),
        CoordinatorRecord(key, b"\0\3\0"),
        CoordinatorRecord(key, b"\0\x63" + bytes(30)),
    ):
        with pytest.raises(MalformedMessage):
            fresh.replay(broken, offset=0)
    assert fresh.group_ids() == []


def test_metadata_leader_epochs_and_times_survive_a_restart() -> None:
    log = OffsetLog()
    given = commits(orders={0: 5, 1: 6})
    one, other = given["orders"][0], given["orders"][1]
    one.metadata, one.leader_epoch, one.commit_timestamp = "bis hierher, und nicht weiter: \u2713", 4, 1_700_000_000_000
    other.commit_timestamp, other.expire_timestamp = 1_600_000_000_000, 1_600_000_900_000
    log.append(log.offsets.commit("g", given, log.outcomes.append))
    log.safe()
    loaded = log.reloaded().committed("g")["orders"]
    assert (loaded[0].offset, loaded[0].metadata, loaded[0].leader_epoch) == (5, one.metadata, 4)
    assert (loaded[0].commit_timestamp, loaded[0].expire_timestamp) == (1_700_000_000_000, -1)
    assert (loaded[1].commit_timestamp, loaded[1].expire_timestamp) == (1_600_000_000_000, 1_600_000_900_000)


@pytest.mark.parametrize("seed", seeds(6, of=30))
def test_a_restart_restores_the_live_state_after_random_steps(seed: int) -> None:
    """In any order of steps: once all appends have completed, live state, replay and the rules agree."""
    source, log = Random(seed), OffsetLog()
    groups, topics = ("g", "h", "i"), ("orders", "payments")

    def step() -> None:
        group, topic = source.choice(groups), source.choice(topics)
        partitions = source.sample(range(4), source.randint(1, 3))
        action = source.random()
        if action < 0.35:
            log.commit(group, **{topic: {partition: source.randrange(100) for partition in partitions}})
        elif action < 0.6:
            producer = source.randrange(3)
            log.commit_in(producer, group, **{topic: {partition: source.randrange(100) for partition in partitions}})
        elif action < 0.8:
            log.end(source.randrange(3), commit=source.random() < 0.6)
        elif action < 0.9:
            log.delete(group, **{topic: partitions})
        elif log.waiting:
            log.waiting.pop(source.randrange(len(log.waiting))).done(None)

    for _ in range(400):
        step()
    log.safe()
    for live, check in ((True, "while transactions are open"), (False, "when they have ended")):
        reloaded = log.reloaded()
        assert sorted(log.offsets.group_ids()) == sorted(reloaded.group_ids()), check
        for group in groups:
            assert log.numbers(group) == numbers(reloaded, group) == reference(log.entries, group), check
        assert log.offsets.count == reloaded.count == sum(len(p) for g in groups for p in log.numbers(g).values())
        if live:
            for producer in range(3):
                log.end(producer, commit=True)
