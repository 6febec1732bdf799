"""The invariants of the sessions with the metadata store: each finds a history that breaks it, and accepts the nearest
one that does not."""

from __future__ import annotations

import pytest

from odradek.broker.metadata_store.interface import Entry
from tests.simulation.checker import check
from tests.simulation.final_state import FinalState
from tests.simulation.history import Outcome
from tests.simulation.scenes import Scene
from tests.simulation.store_history import (
    ENTRIES,
    NAMES,
    TURNS,
    Applied,
    ClientEntries,
    Named,
    Owned,
    StoreChange,
    StoreRead,
    TooLong,
    Unheard,
)

OK, FAILED, UNKNOWN = Outcome.OK, Outcome.FAILED, Outcome.UNKNOWN
PATH = f"{ENTRIES}/1"


class StoreScene(Scene):
    def read(self, version: int, silent_since: int = -1) -> None:
        self.add(StoreRead(process="a", path=PATH, version=version, silent_since=silent_since))

    def begin_change(self, text: str, version: int = -1) -> StoreChange:
        return self.begin(StoreChange(process="a", path=PATH, text=text, session_id=1, version=version))

    def applied(self, text: str, version: int) -> None:
        self.now_us += 1
        self.history.note(Applied(process="store", path=PATH, text=text, version=version))

    def violated(self) -> list[str]:
        return [violation.invariant for violation in check(self.history, FinalState())]


@pytest.fixture
def scene() -> StoreScene:
    return StoreScene()


def test_a_watch_that_is_not_called_before_the_change_is_read_is_found(scene: StoreScene) -> None:
    scene.read(3)
    assert scene.violated() == []
    scene.read(4, silent_since=3)
    assert scene.violated() == ["watches"]


def test_a_read_that_is_older_than_a_confirmed_change_is_found(scene: StoreScene) -> None:
    change = scene.begin_change("a:1", version=4)
    scene.applied("a:1", 4)
    scene.read(3)
    scene.end(change, OK)
    scene.read(4)
    assert scene.violated() == []
    scene.read(3)
    assert scene.violated() == ["fresh"]


@pytest.mark.parametrize(
    ("outcome", "times", "found"),
    [
        (OK, 1, []),
        (OK, 0, ["confirmed"]),
        (OK, 2, ["confirmed"]),
        (FAILED, 0, []),
        (FAILED, 1, ["confirmed"]),
        (UNKNOWN, 0, []),
        (UNKNOWN, 1, []),
        (UNKNOWN, 2, ["confirmed"]),
    ],
)
def test_a_change_is_as_confirmed(scene: StoreScene, outcome: Outcome, times: int, found: list[str]) -> None:
    change = scene.begin_change("a:1", version=4)
    for number in range(times):
        scene.applied("a:1", 4 + number)
    scene.end(change, outcome)
    assert scene.violated() == found


def test_a_change_that_another_has_followed_may_be_taken_for_refused(scene: StoreScene) -> None:
    change = scene.begin_change("a:1")
    scene.applied("a:1", 4)
    scene.applied("b:1", 5)
    scene.end(change, FAILED)
    assert scene.violated() == []


def test_a_call_in_another_session_is_found(scene: StoreScene) -> None:
    scene.add(Owned(process="store", path=f"{TURNS}/a-1", wanted_id=1, session_id=1))
    assert scene.violated() == []
    scene.add(Owned(process="store", path=f"{TURNS}/a-2", wanted_id=1, session_id=2))
    assert scene.violated() == ["sessions"]


def test_a_name_that_does_not_count_creations_is_found(scene: StoreScene) -> None:
    scene.add(Named(process="store", path=f"{NAMES}/n-0", number=0, created_before=0))
    assert scene.violated() == []
    scene.add(Named(process="store", path=f"{NAMES}/n-2", number=2, created_before=1))
    assert scene.violated() == ["names"]


def test_a_long_change_that_is_not_refused_is_found(scene: StoreScene) -> None:
    scene.add(TooLong(process="a", size=1_200_000, refused=True), FAILED)
    assert scene.violated() == []
    scene.add(TooLong(process="a", size=1_200_000), FAILED)
    assert scene.violated() == ["limits"]


def test_a_controller_that_does_not_hear_of_brokers_is_found(scene: StoreScene) -> None:
    scene.add(Unheard(process="broker-1", known=(1, 2), registered=(1,), seconds=10.0))
    assert scene.violated() == ["heard"]


def test_the_entries_of_clients_say_what_the_store_has_done() -> None:
    entries = ClientEntries()

    def observed(path: str, data: bytes, *, owner: int = 0, is_new: bool = True) -> str | None:
        found = entries.observed(path, Entry(data, 1, 0, owner, 1, 1), is_new=is_new)
        return None if found is None else found.describe()

    assert observed(f"{NAMES}/n-0000000000", b"") == f"creates {NAMES}/n-0000000000 after 0 others"
    assert observed(f"{NAMES}/n-0000000001", b"") == f"creates {NAMES}/n-0000000001 after 1 others"
    assert observed(f"{TURNS}/a-1", b"10", owner=11) == f"creates {TURNS}/a-1 in session 0xb, of a call in session 0xa"
    assert observed(PATH, b"") is None
    assert observed(PATH, b"a:1", is_new=False) == f"sets {PATH} to 'a:1', version 1"
