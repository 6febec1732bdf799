"""What the records of consumer groups add up to, and what must not be in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from odradek.broker.coordinator.group.consumer.member import ConsumerMember
from odradek.broker.coordinator.group.consumer.member_state import MemberState
from odradek.broker.coordinator.group.consumer.records import (
    assignment_record,
    group_epoch_record,
    member_record,
    member_tombstones,
    regex_record,
    regex_tombstone,
    target_epoch_record,
    target_record,
    tombstones_of_group,
)
from odradek.broker.coordinator.group.consumer.subscriptions import ResolvedRegex
from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.protocol.records import Record
from tests.simulation.consumer_group_differences import different_consumer_groups
from tests.simulation.consumer_group_ledger import ConsumerGroupLedger, Lasting, LoggedConsumerGroup

TOPIC = UUID(int=1)
ONE = ConsumerMember("one", subscribed_topics=frozenset({"t"}), epoch=2, previous_epoch=0, assigned={TOPIC: {0: 2}})
OTHER = ONE._replace(member_id="other", assigned={TOPIC: {1: 2}})


@pytest.fixture
def ledger() -> ConsumerGroupLedger:
    """One group of two members, each with one partition of two."""
    ledger = ConsumerGroupLedger()
    ledger.lasting = {"t": Lasting(TOPIC, 2)}
    take(ledger, member_record("g", ONE), member_record("g", OTHER), group_epoch_record("g", 2, 7))
    take(ledger, *targets({0}, {1}), assignment_record("g", ONE), assignment_record("g", OTHER))
    assert not ledger.found
    return ledger


def targets(*parts: set[int], epoch: int = 2) -> list[CoordinatorRecord]:
    given = [
        target_record("g", member_id, {TOPIC: frozenset(part)})
        for member_id, part in zip(("one", "other"), parts, strict=False)
    ]
    return [*given, target_epoch_record("g", epoch, 1000)]


def take(ledger: ConsumerGroupLedger, *records: CoordinatorRecord) -> Sequence[str]:
    for record in records:
        ledger.take(Record(offset=0, timestamp=0, key=record.key, value=record.value))
    ledger.end_of_batch()
    return [finding.invariant for finding in ledger.found]


def test_what_records_add_up_to(ledger: ConsumerGroupLedger) -> None:
    take(ledger, regex_record("g", "t.*", ResolvedRegex(frozenset({"t"}), 1, 5)))
    group = ledger.groups["g"]
    assert (group.epoch, group.target_epoch) == (2, 2)
    assert group.members["one"].topics == {"t"}
    assert group.targets == {"one": {(TOPIC, 0)}, "other": {(TOPIC, 1)}}
    assert group.assigned["one"].assigned == {(TOPIC, 0): 2}
    assert group.regexes == {"t.*": {"t"}}
    take(ledger, *member_tombstones("g", "one"), regex_tombstone("g", "t.*"))
    assert list(group.members) == list(group.assigned) == list(group.targets) == ["other"]
    assert not group.regexes
    branch = ledger.branch()
    take(branch, *tombstones_of_group("g", ["other"], []))
    assert not branch.groups
    assert list(ledger.groups) == ["g"]


def test_a_group_that_was_classic_begins_with_any_epoch() -> None:
    ledger = ConsumerGroupLedger()
    begun = [member_record("g", ONE), group_epoch_record("g", 0, 7), target_epoch_record("g", 0, 1000)]
    assert take(ledger, *begun, group_epoch_record("g", 1, 7)) == []
    assert take(ledger, group_epoch_record("g", 0, 7)) == ["log epochs"]


@pytest.mark.parametrize("both", [OTHER._replace(assigned={TOPIC: {0: 2}}), OTHER._replace(revoking={TOPIC: {0: 2}})])
def test_a_partition_of_two_members(ledger: ConsumerGroupLedger, both: ConsumerMember) -> None:
    assert take(ledger, assignment_record("g", both)) == ["log owners"]


def test_a_partition_moves_in_one_batch(ledger: ConsumerGroupLedger) -> None:
    without, with_both = ONE._replace(assigned={}), OTHER._replace(assigned={TOPIC: {0: 3, 1: 2}})
    assert take(ledger, assignment_record("g", with_both), assignment_record("g", without)) == []


@pytest.mark.parametrize(
    ("record", "is_wrong"),
    [
        (group_epoch_record("g", 3, 7), False),
        (group_epoch_record("g", 1, 7), True),
        (target_epoch_record("g", 3, 0), True),
        (assignment_record("g", ONE._replace(epoch=1)), True),
        (assignment_record("g", ONE._replace(epoch=-2)), False),
    ],
)
def test_epochs_do_not_fall(ledger: ConsumerGroupLedger, record: CoordinatorRecord, is_wrong: bool) -> None:
    assert bool(take(ledger, record)) is is_wrong


@pytest.mark.parametrize(("parts", "is_wrong"), [(({0, 1}, set()), False), (({0}, set()), True), (({0, 1}, {1}), True)])
def test_targets_are_complete(ledger: ConsumerGroupLedger, parts: tuple[set[int], set[int]], is_wrong: bool) -> None:
    assert take(ledger, *targets(*parts)) == (["targets"] if is_wrong else [])


def test_targets_of_members_that_are_not_subscribed(ledger: ConsumerGroupLedger) -> None:
    """A member is subscribed by name, or by an expression that is resolved."""
    by_regex = OTHER._replace(subscribed_topics=frozenset(), subscribed_regex="t.*")
    resolved = regex_record("g", "t.*", ResolvedRegex(frozenset({"t"}), 1, 5))
    assert take(ledger, member_record("g", by_regex), resolved, *targets({0}, {1})) == []
    assert take(ledger, regex_tombstone("g", "t.*"), *targets({0}, {1})) == ["targets"]


def test_a_target_of_an_earlier_epoch_may_lack_what_has_changed_since(ledger: ConsumerGroupLedger) -> None:
    assert take(ledger, group_epoch_record("g", 3, 7), *targets({0}, set())) == []


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"epoch": 3}, "the epochs of consumer group g"),
        ({"members": {}}, "the members of consumer group g"),
        ({"targets": {}}, "the targets in consumer group g"),
        ({"assigned": {}}, "the assignments in consumer group g"),
        ({"regexes": {"t": frozenset()}}, "the expressions of consumer group g"),
    ],
)
def test_what_differs_is_named(ledger: ConsumerGroupLedger, change: dict[str, Any], what: str) -> None:
    logged = ledger.groups["g"]
    found: LoggedConsumerGroup = replace(logged, **change)
    assert [each[0] for each in different_consumer_groups("g", found, logged)] == [what]
    assert not list(different_consumer_groups("g", logged, logged))


def test_states_have_the_values_of_the_records() -> None:
    ledger = ConsumerGroupLedger()
    waiting = ONE._replace(state=MemberState.UNRELEASED_PARTITIONS)
    take(ledger, member_record("g", ONE), assignment_record("g", waiting))
    assert ledger.groups["g"].assigned["one"].state == MemberState.UNRELEASED_PARTITIONS
