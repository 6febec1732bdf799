"""Histories that break the invariants of groups, or nearly do."""

from __future__ import annotations

import pytest

from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.final_state import FinalState
from tests.simulation.group_invariants import (
    CLOCKS_DIFFER_US,
    LONGEST_DELAY_US,
    brief_offsets_expire,
    replaced_members_are_refused,
    strays_are_refused,
)
from tests.simulation.history import Commit, Outcome, Synced
from tests.simulation.proposal_history import StrayRequest
from tests.simulation.scenes import Scene
from tests.simulation.transaction_history import BriefAnswer, BriefCommit, Stray

ORDERS = TopicPartition("orders", 0)
RETENTION_US = 8_000_000


def scene_of(answer: int, after_us: int) -> Scene:
    scene = Scene()
    commit = BriefCommit(process="p", group="brief", partition=ORDERS, offset=3, retention_us=RETENTION_US)
    scene.add(commit)
    scene.now_us += after_us
    scene.add(BriefAnswer(process="p", group="brief", partition=ORDERS, offset=answer, writer="one"))
    return scene


def texts(scene: Scene) -> list[str]:
    return [violation.text for violation in brief_offsets_expire(scene.history, FinalState())]


def test_a_stray_is_refused() -> None:
    scene = Scene()
    scene.add(Stray(process="p", group="g", what="SyncGroup of nobody"), Outcome.FAILED)
    assert list(strays_are_refused(scene.history, FinalState())) == []
    scene.add(Stray(process="p", group="g", what="SyncGroup of nobody"))
    assert len(list(strays_are_refused(scene.history, FinalState()))) == 1
    scene.add(StrayRequest(process="p", what="for producer ids, as nobody"), Outcome.FAILED)
    assert len(list(strays_are_refused(scene.history, FinalState()))) == 1
    scene.add(StrayRequest(process="p", what="for producer ids, as nobody"))
    assert len(list(strays_are_refused(scene.history, FinalState()))) == 2


def test_an_offset_is_there_as_long_as_it_must_be() -> None:
    assert texts(scene_of(3, RETENTION_US - CLOCKS_DIFFER_US - 10)) == []
    assert texts(scene_of(-1, RETENTION_US - CLOCKS_DIFFER_US - 10)) == ["offset 3 has expired too early"]
    assert texts(scene_of(-1, RETENTION_US)) == []


@pytest.mark.parametrize(
    ("between", "after_us", "expected"),
    [
        ((3, Outcome.OK, "one"), LONGEST_DELAY_US - 10, []),
        ((3, Outcome.OK, "one"), LONGEST_DELAY_US + 10, ["offset 3 has not expired"]),
        ((-1, Outcome.UNKNOWN, "one"), LONGEST_DELAY_US + 10, []),
        ((3, Outcome.OK, None), LONGEST_DELAY_US + 10, []),
        ((3, Outcome.OK, "other"), LONGEST_DELAY_US + 10, []),
    ],
    ids=["soon", "late", "no answer", "it could not write", "another coordinator"],
)
def test_an_offset_is_gone_in_the_end(
    between: tuple[int, Outcome, str | None], after_us: int, expected: list[str]
) -> None:
    scene = scene_of(3, RETENTION_US + CLOCKS_DIFFER_US + 10)
    offset, outcome, writer = between
    scene.add(BriefAnswer(process="p", group="brief", partition=ORDERS, offset=offset, writer=writer), outcome)
    scene.now_us += after_us
    scene.add(BriefAnswer(process="p", group="brief", partition=ORDERS, offset=3, writer="one"))
    assert texts(scene) == expected


def test_a_replaced_member_commits_nothing_more() -> None:
    scene = Scene()

    def commit(process: str, outcome: Outcome = Outcome.OK) -> None:
        scene.add(Commit(process=process, group="s", offsets={ORDERS: 1}, generation=2, instance_id="i"), outcome)

    scene.add(Synced(process="i.1", group="s", generation=2, instance_id="i"))
    commit("i.1")
    scene.add(Synced(process="i.2", group="s", generation=2, instance_id="i"))
    commit("i.2")
    commit("i.1", Outcome.FAILED)
    assert list(replaced_members_are_refused(scene.history, FinalState())) == []
    commit("i.1")
    assert len(list(replaced_members_are_refused(scene.history, FinalState()))) == 1
