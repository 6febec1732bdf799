"""The invariants of leaders and in-sync replicas: each finds a change that breaks it, and accepts the nearest one that
does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from odradek.broker.metadata.metadata_cache import PartitionState
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.disk import SimulatedDisk, kept_of_log
from tests.simulation.isr_invariants import Facts, wrong_in
from tests.simulation.proposal_history import Proposal

P = TopicPartition("t", 0)
FACTS = Facts(replicas=(1, 2, 3), controller_epoch=7, electable=(1, 2, 3))
BEFORE = PartitionState(0, 1, 4, (), (1, 2), controller_epoch=7, partition_epoch=9)
ELECTED = BEFORE._replace(leader=2, leader_epoch=5)
PROPOSED = BEFORE._replace(isr=(1, 2, 3))


def found(before: PartitionState | None, after: PartitionState, facts: Facts = FACTS) -> list[str]:
    return [finding.invariant for finding in wrong_in(before, after, facts)]


def test_a_leader_was_in_sync() -> None:
    assert found(BEFORE, ELECTED) == []
    assert found(BEFORE, ELECTED._replace(leader=3)) == ["leaders"]
    assert found(BEFORE, ELECTED._replace(leader=3, isr=(3,))) == ["leaders"]
    assert found(BEFORE, ELECTED._replace(leader=-1)) == []


def test_a_new_leader_is_alive() -> None:
    facts = FACTS._replace(electable=(1, 3))
    assert found(BEFORE, ELECTED, facts) == ["leaders"]
    assert found(BEFORE, ELECTED._replace(leader=1, isr=(1,)), facts) == []
    assert found(BEFORE, ELECTED, FACTS._replace(electable=None)) == []


def test_an_unclean_leader_leads_alone_and_where_nobody_else_can() -> None:
    unclean, facts = ELECTED._replace(leader=3, isr=(3,)), FACTS._replace(electable=(3,), allows_unclean=True)
    assert found(BEFORE, unclean, facts) == []
    assert found(BEFORE, unclean, facts._replace(allows_unclean=False)) == ["leaders"]
    assert found(BEFORE, unclean, facts._replace(electable=(2, 3))) == ["leaders"]
    assert found(BEFORE, unclean._replace(isr=(3, 2)), facts) == ["leaders"]


def test_epochs_rise() -> None:
    assert found(BEFORE, ELECTED._replace(leader_epoch=3)) == ["epochs"]
    assert found(BEFORE, ELECTED._replace(leader_epoch=4)) == ["epochs"]
    assert found(BEFORE, ELECTED._replace(controller_epoch=6)) == ["epochs"]
    assert found(None, ELECTED._replace(controller_epoch=6)) == ["epochs"]
    assert found(None, ELECTED) == []


def test_only_replicas_are_in_sync() -> None:
    assert found(BEFORE, BEFORE._replace(isr=(1,))) == []
    assert found(BEFORE, BEFORE._replace(isr=(), leader=-1, leader_epoch=5)) == ["members"]
    assert found(BEFORE, PROPOSED, FACTS._replace(replicas=(1, 2))) == ["members"]


def test_who_joins_is_alive_and_proposed_by_the_leader() -> None:
    facts = FACTS._replace(proposed=(3, 1, 2))
    assert found(BEFORE, PROPOSED, facts) == []
    assert found(BEFORE, PROPOSED, facts._replace(electable=(1, 2))) == ["members"]
    assert found(BEFORE, PROPOSED, facts._replace(alive=(1, 2, 3), electable=(1, 2))) == ["members"]
    assert found(BEFORE, PROPOSED, facts._replace(alive=(1, 2), electable=(1, 2))) == ["members"]
    assert found(BEFORE, PROPOSED, facts._replace(proposed=(1, 2))) == ["members"]
    assert found(BEFORE, BEFORE._replace(isr=(1,)), facts) == ["members"]
    assert found(BEFORE, PROPOSED._replace(leader_epoch=5), facts) == ["leaders"]


def test_what_is_wrong_with_a_proposal_is_named() -> None:
    right = Proposal(
        process="late", partition=P, in_sync=(1,), broker_id=1, broker_epoch=30, leader_epoch=4, partition_epoch=9
    )

    def why(**wrong: Any) -> str:
        facts = FACTS._replace(proposed=(1, 2), late=replace(right, **wrong), registration=30)
        (finding,) = wrong_in(BEFORE, BEFORE._replace(isr=(1,)), facts)
        return finding.text.partition(" in sync, ")[2]

    assert why(leader_epoch=3) == "proposed in leader epoch 3, which is 4"
    assert why(broker_id=2) == "proposed by broker 2, and 1 leads"
    assert why(broker_epoch=29) == "proposed in registration 29, which is 30"
    assert why(partition_epoch=8) == "proposed in partition epoch 8, which is 9"
    facts = FACTS._replace(proposed=(1, 2))
    (finding,) = wrong_in(BEFORE, BEFORE._replace(isr=(1,)), facts)
    assert finding.text == "(1,) are in sync, which the leader does not propose"


def test_what_a_log_keeps_is_what_was_synced() -> None:
    disk = SimulatedDisk()
    disk.make_directories("/data/a-0")
    file = disk.open("/data/a-0/00000000000000000000.log", create=True)
    batches = [offset.to_bytes(8, "big") + b"batch" for offset in (0, 5, 9)]
    file.write([batches[0]], 0)
    assert kept_of_log(disk, "/data/a-0", 5) == 0
    file.sync()
    assert kept_of_log(disk, "/data/a-0", 5) == 5
    file.write([batches[1]], 13)
    assert kept_of_log(disk, "/data/a-0", 9) == 5
    file.sync()
    file.truncate(13)
    file.write([batches[2]], 13)
    assert kept_of_log(disk, "/data/a-0", 12) == 9
