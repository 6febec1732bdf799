"""A group is what its log says: whole, cut anywhere, compacted, or damaged."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from odradek.broker.background.stepwise import finished
from odradek.broker.coordinator.group.consumer.description import described_steps
from odradek.broker.coordinator.group.consumer.group import ConsumerGroup
from odradek.broker.coordinator.group.consumer.member import ConsumerMember
from odradek.broker.coordinator.group.consumer.records import assignment_record, member_record
from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.protocol.errors import MalformedMessage
from tests.broker.coordinator.group.consumer.group_at_work import GROUP, SETTINGS, GroupAtWork, Table, owned


def busy_group() -> GroupAtWork:
    """Returns a group that has gone through most of what can happen to one."""
    group = GroupAtWork()
    group.join("a", "foo", instance_id="i", rack_id="r")
    group.join("b", "foo", "bar", assignor="uniform")
    group.join("c", regex="b.*")
    group.resolve()
    told = group.beat("a", 2)
    group.beat("a", 2, owned=owned(told))
    group.leave("a", instance="i", epoch=-2)
    group.join("a2", "foo", instance_id="i")
    group.beat("c", group.member("c").epoch, topics=["foo"], regex="")
    group.leave("b")
    group.fence("a2")
    group.beat("c", group.member("c").epoch)
    return group


def contents(group: ConsumerGroup) -> dict[str, Any]:
    return {
        "members": dict(group.members_by_id),
        "targets": group.targets,
        "epochs": (group.epoch, group.target_epoch, group.target_timestamp_ms, group.metadata_hash),
        "resolved": group.subscriptions.resolved,
        "names": group.subscriptions.names(),
        "owners": group.owners,
        "state": group.state,
    }


def test_another_coordinator_loads_the_same_group() -> None:
    group = busy_group()
    assert contents(group.restarted().group) == contents(group.group)


def test_a_compacted_log_gives_the_same_group() -> None:
    group = busy_group()
    last = {record.key: number for number, record in enumerate(group.log)}
    compacted = [record for number, record in enumerate(group.log) if last[record.key] == number]
    assert len(compacted) < len(group.log)
    for kept in (compacted, [record for record in compacted if record.value is not None]):
        other = GroupAtWork(group.topics)
        other.log = kept
        assert contents(other.restarted().group) == contents(group.group)


def test_a_log_that_is_cut_anywhere_gives_a_group_on_which_everything_works() -> None:
    whole = busy_group()
    for count in range(len(whole.log) + 1):
        cut = whole.restarted(count)
        use(cut)


def test_a_log_in_a_wrong_order_gives_a_group_that_comes_to_rest() -> None:
    whole = busy_group()
    random = Random(7)
    for _ in range(200):
        damaged = GroupAtWork(whole.topics)
        damaged.log = random.sample(whole.log, random.randint(0, len(whole.log)))
        loaded = damaged.restarted()
        loaded.is_damaged = True
        use(loaded)


def use(group: GroupAtWork) -> None:
    """Describes the group, and lets its members and two new ones do what they are told, until all is quiet."""
    group.now_ms += 100_000
    finished(described_steps(group.group, group.topics, SETTINGS.assignors))
    for new in ("new", "newer"):
        group.join(new, "foo", "bar")
        for _ in range(8):
            for member in list(group.group.members):
                held = {topic_id: frozenset(each) for topic_id, each in member.assigned.items()}
                if member.epoch <= 0 or not is_named_by_its_instance(group, member):
                    group.fence(member.member_id)
                else:
                    group.beat(member.member_id, member.epoch, instance_id=member.instance_id, owned=held)
    assert group.state == "Stable"


def is_named_by_its_instance(group: GroupAtWork, member: ConsumerMember) -> bool:
    """Whether no other member of a damaged log has the same instance."""
    return member.instance_id is None or group.group.static_member(member.instance_id) is member


def test_a_deleted_group_leaves_nothing() -> None:
    group = busy_group()
    table = Table()
    for record in [*group.log, *group.group.tombstones()]:
        table.apply(record)
    assert table.groups == {}
    for record in group.group.tombstones():
        table.apply(record)
    assert table.groups == {}, "a tombstone creates no group"


def test_tombstones_of_what_is_not_there_change_nothing() -> None:
    group = busy_group()
    before = contents(group.group)
    table = Table()
    for record in group.log:
        table.apply(record)
    for record in (assignment_record(GROUP, ConsumerMember("x")), member_record(GROUP, ConsumerMember("x"))):
        table.apply(record._replace(value=None))
    assert contents(table.groups[GROUP]) == before


def test_a_value_that_does_not_decode_creates_no_group() -> None:
    for record in busy_group().log:
        if record.value is None:
            continue
        table = Table()
        with pytest.raises(MalformedMessage):
            table.apply(CoordinatorRecord(record.key, record.value[:3]))
        with pytest.raises(MalformedMessage):
            table.apply(CoordinatorRecord(record.key[:-1], record.value))
        assert table.groups == {}


def test_who_owns_a_partition_in_a_damaged_log_is_who_has_the_higher_epoch() -> None:
    group = GroupAtWork()
    first = group.join("a", "foo")
    topic_id = next(iter(owned(first)))
    member = group.member("a")
    rival = ConsumerMember("b", epoch=9, assigned={topic_id: {0: 9}})
    group.group.put_member(rival)
    assert group.group.owners.epoch(topic_id, 0) == 9
    group.group.put_member(member._replace(epoch=3))
    assert group.group.owners.epoch(topic_id, 0) == 9
    group.group.remove_member("b")
    assert group.group.owners.epoch(topic_id, 0) == -1
    assert group.group.owners.epoch(topic_id, 1) == 3
