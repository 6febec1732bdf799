"""The invariants of deleted records find a history that breaks them, and accept the nearest one that does not."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.disk import SimulatedDisk
from tests.simulation.final_state import FinalState, ReplicaLog
from tests.simulation.history import Outcome
from tests.simulation.loop import ProcessEnded
from tests.simulation.retention_history import Deletion, Retained, Skipped
from tests.simulation.retention_invariants import only_what_may_go_is_deleted, what_is_deleted_is_deleted_everywhere
from tests.simulation.retention_watch import watch_retention
from tests.simulation.scenes import Scene
from tests.storage.small_logs import append, open_small

P = TopicPartition("readings", 0)


def replica(start: int, broker_id: int = 1) -> ReplicaLog:
    return ReplicaLog(partition=P, broker_id=broker_id, high_watermark=20, log_start_offset=start)


def broken(scene: Scene, *replicas: ReplicaLog) -> list[str]:
    final = FinalState(replicas=replicas, logs={P: replicas[0]} if replicas else {})
    found = [*only_what_may_go_is_deleted(scene.history, final)]
    return [each.invariant for each in [*found, *what_is_deleted_is_deleted_everywhere(scene.history, final)]]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_log_starts_where_retention_or_a_request_has_let_it(scene: Scene) -> None:
    assert broken(scene, replica(0)) == []
    assert broken(scene, replica(1)) == ["retained"]
    scene.add(Retained(process="broker-1", partition=P, start_offset=5))
    assert broken(scene, replica(5)) == []
    assert broken(scene, replica(6)) == ["retained"]
    scene.add(Deletion(process="d", partition=P, before=7), Outcome.UNKNOWN)
    scene.add(Deletion(process="d", partition=P, before=9), Outcome.FAILED)
    assert broken(scene, replica(7)) == []
    assert broken(scene, replica(8)) == ["retained"]


def test_a_request_up_to_the_high_watermark_counts_as_far_as_it_was_answered(scene: Scene) -> None:
    scene.add(Deletion(process="d", partition=P, before=-1, low_watermark=4))
    assert broken(scene, replica(5)) == ["retained"]
    scene.add(Deletion(process="d", partition=P, before=-1), Outcome.UNKNOWN)
    assert broken(scene, replica(20)) == []


def test_a_step_in_which_the_process_ends_has_moved_the_start(scene: Scene) -> None:
    log = open_small(SimulatedDisk())
    append(log)

    def steps(*_: Any) -> Iterator[int]:
        yield 0
        log.state.log_start_offset = 1
        raise ProcessEnded

    manager = SimpleNamespace(_retention_of=steps)
    watch_retention(scene.history, "broker-1", manager)
    with pytest.raises(ProcessEnded):
        list(manager._retention_of(SimpleNamespace(log=log, topic_partition=P), 0))
    assert broken(scene, replica(1)) == []
    assert broken(scene, replica(2)) == ["retained"]


def test_a_step_that_deletes_too_much_is_found(scene: Scene) -> None:
    scene.add(Retained(process="broker-1", partition=P, start_offset=5, reason="up to 5, above the high watermark 4"))
    assert broken(scene) == ["retained"]


def test_a_consumer_skips_only_what_is_deleted(scene: Scene) -> None:
    scene.add(Retained(process="broker-1", partition=P, start_offset=5))
    scene.add(Skipped(process="reader", partition=P, position=2, start_offset=5))
    assert broken(scene, replica(5)) == []
    scene.add(Skipped(process="reader", partition=P, position=5, start_offset=6))
    assert broken(scene, replica(5)) == ["retained"]


def test_no_replica_starts_before_its_leader(scene: Scene) -> None:
    scene.add(Retained(process="broker-1", partition=P, start_offset=5))
    assert broken(scene, replica(3), replica(5, 2)) == []
    assert broken(scene, replica(5), replica(3, 2)) == ["removed"]


def test_a_request_is_confirmed_when_all_replicas_have_followed(scene: Scene) -> None:
    scene.add(Deletion(process="d", partition=P, before=5, low_watermark=5))
    assert broken(scene, replica(5)) == []
    scene.add(Deletion(process="d", partition=P, before=5, low_watermark=4))
    assert broken(scene, replica(5)) == ["removed"]
