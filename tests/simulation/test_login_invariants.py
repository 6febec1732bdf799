"""The invariants of a secured cluster: each finds a history that breaks it, and accepts the nearest one that does
not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.protocol.records import Record, build_batch
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.checker import INVARIANTS
from tests.simulation.final_state import FinalState, ReplicaLog, StoredBatch
from tests.simulation.history import Outcome, Read, ReadRecord, Send
from tests.simulation.login_history import Attempt, LoggedIn, Overslept, Unproven
from tests.simulation.scenes import Scene

OK, FAILED, UNKNOWN = Outcome.OK, Outcome.FAILED, Outcome.UNKNOWN
P = TopicPartition("orders", 0)
SECURITY = ("admitted", "proved", "awake", "denied")


def violated(scene: Scene, final: FinalState | None = None) -> list[str]:
    return [each.invariant for name in SECURITY for each in INVARIANTS[name](scene.history, final or FinalState())]


def final_with(text: str) -> FinalState:
    content = build_batch([Record(value=f"{text} ".encode())])
    log = ReplicaLog(partition=P, broker_id=1, high_watermark=1, batches=[StoredBatch(0, 0, 1, content)])
    return FinalState(logs={P: log})


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_right_password_is_never_refused(scene: Scene) -> None:
    scene.add(LoggedIn(process="reader-1", user="clients"), UNKNOWN)
    scene.add(LoggedIn(process="reader-1", user="clients", is_renewal=True))
    assert violated(scene) == []
    scene.add(LoggedIn(process="reader-1", user="clients", is_renewal=True), FAILED)
    assert violated(scene) == ["admitted"]


def test_a_client_is_not_denied_what_it_may_do(scene: Scene) -> None:
    send = Send(process="plain-1", partition=P, records=("plain-1:1",))
    scene.begin(send)
    scene.history.end(send, FAILED, "NOT_LEADER_OR_FOLLOWER")
    assert violated(scene) == []
    send = Send(process="plain-1", partition=P, records=("plain-1:2",))
    scene.begin(send)
    scene.history.end(send, FAILED, "TOPIC_AUTHORIZATION_FAILED")
    assert violated(scene) == ["admitted"]


@pytest.mark.parametrize(
    ("attempt", "invariant"),
    [
        (Unproven(process="impostor", what="be clients with a wrong password"), "proved"),
        (Overslept(process="sleeper", what="ask after the end of its session"), "awake"),
        (Attempt(process="stranger", what="read orders-0"), "denied"),
    ],
)
def test_an_intruder_is_refused(scene: Scene, attempt: Attempt, invariant: str) -> None:
    for outcome, broken in ((FAILED, []), (UNKNOWN, []), (OK, [invariant])):
        scene.add(replace(attempt), outcome)
        assert violated(scene) == broken


def test_nobody_reads_a_record_of_an_intruder(scene: Scene) -> None:
    def read(text: str) -> None:
        scene.add(Read(process="reader-1", partition=P, position=0, next_position=1, records=[ReadRecord(0, 1, text)]))

    read("plain-1:1")
    assert violated(scene) == []
    read("stranger:1")
    assert violated(scene) == ["denied"]


def test_no_log_has_a_record_of_an_intruder(scene: Scene) -> None:
    assert violated(scene, final_with("plain-1:1")) == []
    assert violated(scene, final_with("stranger:1")) == ["denied"]
