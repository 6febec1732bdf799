"""Each state change of a group is one log line with the old state, the new state and the reason."""

import json

from structlog.testing import capture_logs

from odradek.broker.coordinator.group.admin import delete_group
from odradek.broker.coordinator.group.classic.state import TRANSITIONS
from tests.broker.coordinator.group.harness import GROUP, SESSION_MS, GroupHarness


def test_every_state_change_of_a_group_is_logged() -> None:
    harness = GroupHarness()
    with capture_logs() as lines:
        (member_id,) = harness.stable()
        harness.leave(member_id)
        delete_group(harness.shard, GROUP, lambda _: None)
    changes = [line for line in lines if line["event"] == "group state changed"]
    moves = [(line["old"], line["new"]) for line in changes]
    assert moves == [
        ("Empty", "PreparingRebalance"),
        ("PreparingRebalance", "CompletingRebalance"),
        ("CompletingRebalance", "Stable"),
        ("Stable", "PreparingRebalance"),
        ("PreparingRebalance", "Empty"),
        ("Empty", "Dead"),
    ]
    assert set(moves) <= {(old.value, new.value) for old, new in TRANSITIONS}
    assert {line["group"] for line in changes} == {GROUP}
    assert [line["generation"] for line in changes] == [0, 1, 1, 1, 2, 2]
    assert [line["members"] for line in changes] == [1, 1, 1, 0, 0, 0]
    assert changes[0]["reason"] == f"{member_id} joins: test"
    json.dumps(changes)


def test_removed_members_are_named_in_the_log() -> None:
    harness = GroupHarness()
    _, silent = harness.stable(2)
    with capture_logs() as lines:
        harness.advance(SESSION_MS)
    removed = [line for line in lines if line["event"] == "group members removed"]
    assert silent in [member for line in removed for member in line["members"]]
    assert {line["reason"] for line in removed} == {"session timed out"}


def test_an_overlong_name_is_cut_in_the_log() -> None:
    harness = GroupHarness()
    with capture_logs() as lines:
        harness.join(group_id="x" * 32_767, client_id="y" * 32_767)
    assert lines
    assert max(len(json.dumps(line)) for line in lines) < 2_000
