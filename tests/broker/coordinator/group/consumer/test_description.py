"""A consumer group as ConsumerGroupDescribe returns it."""

from __future__ import annotations

from uuid import UUID

from odradek.broker.background.stepwise import finished
from odradek.broker.coordinator.group.consumer.description import described_steps
from odradek.broker.coordinator.group.consumer.member import ClassicMemberMetadata
from odradek.broker.coordinator.group.consumer.records import member_record
from odradek.protocol.compiler import encode
from odradek.protocol.messages.consumer_groups import ConsumerGroupDescribeResponse
from tests.broker.coordinator.group.consumer.group_at_work import GROUP, SETTINGS, FakeTopics, GroupAtWork


def described(group: GroupAtWork) -> ConsumerGroupDescribeResponse.DescribedGroup:
    found = finished(described_steps(group.group, group.topics, SETTINGS.assignors))
    for version in (0, 1):
        encode(ConsumerGroupDescribeResponse(groups=[found]), version)
    return found


def partitions(assignment: ConsumerGroupDescribeResponse.Assignment) -> dict[tuple[UUID, str], list[int]]:
    return {(each.topic_id, each.topic_name): each.partitions for each in assignment.topic_partitions}


def test_a_group_with_its_members() -> None:
    group = GroupAtWork()
    group.join("a", "foo", instance_id="i", rack_id="r")
    group.join("b", "foo", "bar", regex="f.*")
    group.beat("a", 2, instance_id="i")
    found = described(group)
    assert (found.group_id, found.group_state, found.group_epoch, found.assignment_epoch) == (
        GROUP,
        "Reconciling",
        3,
        3,
    )
    assert (found.assignor_name, found.error_code) == ("range", 0)
    first, second = found.members
    assert (first.member_id, first.instance_id, first.rack_id, first.member_epoch) == ("a", "i", "r", 2)
    assert (first.client_id, first.client_host, first.member_type) == ("client", "/127.0.0.1", 1)
    foo = UUID(int=1), "foo"
    assert partitions(first.assignment) == {foo: [0, 1, 2, 3, 4, 5]}, "with what it must give up"
    assert partitions(first.target_assignment) == {foo: [0, 1, 2]}
    assert (second.subscribed_topic_names, second.subscribed_topic_regex) == (["bar", "foo"], "f.*")
    assert partitions(second.assignment) == {(UUID(int=2), "bar"): [0, 1, 2]}


def test_a_deleted_topic_has_no_name_and_is_left_out() -> None:
    group = GroupAtWork()
    group.join("a", "foo", "bar")
    group.topics.delete("bar")
    (member,) = described(group).members
    assert [each.topic_name for each in member.assignment.topic_partitions] == ["foo"]
    assert [each.topic_name for each in member.target_assignment.topic_partitions] == ["foo"]


def test_a_member_of_the_classic_protocol_says_so() -> None:
    group = GroupAtWork()
    group.join("a", "foo")
    classic = group.member("a")._replace(classic=ClassicMemberMetadata(10_000, ()))
    group.carry_out(group.last._replace(records=[member_record(GROUP, classic)]))
    assert described(group).members[0].member_type == 0


def test_an_empty_group() -> None:
    group = GroupAtWork()
    group.join("a", "foo")
    group.leave("a")
    found = described(group)
    assert (found.group_state, found.group_epoch, found.assignment_epoch, found.members) == ("Empty", 3, 3, [])


def test_many_members_are_described_in_steps() -> None:
    group = GroupAtWork(FakeTopics(foo=1), SETTINGS._replace(assignment_interval_ms=10**6))
    for number in range(400):
        group.join(f"m{number}", "foo")
    steps = described_steps(group.group, group.topics, SETTINGS.assignors)
    next(steps)
    group.leave("m399")
    assert len(finished(steps).members) == 399
