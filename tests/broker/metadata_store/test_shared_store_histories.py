"""Several sessions change a few entries at random while they are cut off, healed and ended, all from one seed.

Each change also writes a line of the history: a sequential entry with the change's number. So the store itself says
which changes it has applied, and in which order. A simple model applies the same changes in this order; the answers
and the entries must be the model's.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from functools import lru_cache

import pytest

from odradek.broker.metadata_store.interface import (
    ANY_VERSION,
    Check,
    ConnectionLost,
    Create,
    Delete,
    Entry,
    MetadataStore,
    Operation,
    Outcome,
    Result,
    SessionState,
    Set,
)
from odradek.broker.metadata_store.shared.shared_store import SharedStore
from tests.simulation.loop import run_in_virtual_time
from tests.soak import seeds

NAMES = ("1", "2", "3", "4")
KEYS = [f"/keys/{number}" for number in range(5)]
ROUNDS = 60
SEEDS = seeds(5, of=12, in_soak=300)
TIMEOUT_S = 2.0


class Model:
    """Data and version of each key. `apply` raises ValueError for a change that is not possible."""

    def __init__(self) -> None:
        self.keys: dict[str, tuple[bytes | None, int]] = {}

    def apply(self, operations: Iterable[Operation]) -> list[Result]:
        keys, results = dict(self.keys), list[Result]()
        for operation in operations:
            found = keys.get(operation.path)
            if isinstance(operation, Create):
                if found is not None:
                    raise ValueError(f"{operation.path} exists")
                keys[operation.path] = (operation.data, 0)
                results.append(operation.path)
                continue
            if found is None or operation.version not in (ANY_VERSION, found[1]):
                raise ValueError(f"{operation.path} is {found}")
            if isinstance(operation, Set):
                keys[operation.path] = (operation.data, found[1] + 1)
                results.append(found[1] + 1)
            else:
                if isinstance(operation, Delete):
                    del keys[operation.path]
                results.append(None)
        self.keys = keys
        return results


class Run:
    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)
        self.shared = SharedStore(
            session_timeout_ms=int(TIMEOUT_S * 1000), delay=lambda _: self.source.choice([0.0, 0.0, 0.01, 0.1])
        )
        self.changes: dict[bytes, list[Operation]] = {}
        self.outcomes: dict[bytes, Outcome] = {}
        self.states: list[tuple[str, SessionState]] = []
        self.followed: dict[tuple[str, str], Entry | None] = {}
        self.tasks: list[asyncio.Task[None]] = []

    async def all(self) -> None:
        stores = {name: self.shared.session(name) for name in NAMES}
        for name, store in stores.items():
            await store.open()
            store.add_session_listener(lambda state, name=name: self.states.append((name, state)))  # type: ignore[misc]
        await stores["1"].multi([Create("/keys"), Create("/history"), Create("/live")])
        self.tasks = [
            asyncio.ensure_future(self.follow(name, store, key)) for name, store in stores.items() for key in KEYS
        ]
        disturbing = asyncio.ensure_future(self.disturb())
        await asyncio.gather(*(self.change(name, store) for name, store in stores.items()))
        await disturbing
        for name in NAMES:
            self.shared.heal(name)
        await asyncio.sleep(2 * TIMEOUT_S)
        self.history = [
            line.data or b""
            for name in await stores["1"].children("/history")
            if (line := await stores["1"].exists(f"/history/{name}")) is not None
        ]
        self.entries = dict(zip(KEYS, await stores["1"].entries(KEYS), strict=True))
        self.live = [await stores["1"].get(f"/live/{name}") for name in await stores["1"].children("/live")]
        self.session_ids = [store.session_id for store in stores.values()]
        for task in self.tasks:
            assert not task.done() or task.result() is None
            task.cancel()

    async def change(self, name: str, store: MetadataStore) -> None:
        for number in range(ROUNDS):
            groups: dict[bytes, list[Operation]] = {}
            for group in range(self.source.randint(1, 3)):
                marker = f"{name}-{number:03d}-{group}".encode()
                groups[marker] = self.operations(name, marker)
            self.changes.update(groups)
            lines = [Create("/history/n_", marker, sequential=True) for marker in groups]
            live = [Create(f"/live/{name}_", ephemeral=True, sequential=True)] if number % 9 == 0 else []
            outcomes = await store.pipeline(
                [[*operations, line, *live] for operations, line in zip(groups.values(), lines, strict=True)]
            )
            self.outcomes.update(zip(groups, outcomes, strict=True))
            await asyncio.sleep(self.source.choice([0, 0.01, 0.2]))

    def operations(self, name: str, marker: bytes) -> list[Operation]:
        """A change that has some chance of being possible, given what the session has last seen."""
        operations: list[Operation] = []
        for key in self.source.sample(KEYS, self.source.randint(1, 2)):
            seen = self.followed.get((name, key))
            version = ANY_VERSION if seen is None or self.source.random() < 0.1 else seen.version
            kind = self.source.random()
            if seen is None and kind < 0.8:
                operations.append(Create(key, marker))
            elif kind < 0.7:
                operations.append(Set(key, marker, version))
            elif kind < 0.85:
                operations.append(Check(key, version))
            else:
                operations.append(Delete(key, version))
        return operations

    async def follow(self, name: str, store: MetadataStore, key: str) -> None:
        """Keeps `followed` up to date by watches, which are set again in each session, as brokers do."""
        changed = asyncio.Event()
        epoch = store.session_epoch

        def session_changed(_state: SessionState) -> None:
            nonlocal epoch
            if store.session_epoch != epoch:
                epoch = store.session_epoch
                changed.set()

        store.add_session_listener(session_changed)
        last = (0, 0)
        while True:
            changed.clear()
            try:
                entry = await store.exists(key, lambda _: changed.set())
            except ConnectionLost:
                await store.connected()
                continue
            if entry is not None:
                assert (entry.created, entry.version) >= last, "a session never sees an earlier state again"
                last = (entry.created, entry.version)
            self.followed[name, key] = entry
            await changed.wait()

    async def disturb(self) -> None:
        for _ in range(ROUNDS // 2):
            name, what = self.source.choice(NAMES), self.source.random()
            if what < 0.5:
                self.shared.cut(name, lost_answers=self.source.choice([None, self.source]))
                await asyncio.sleep(self.source.choice([0, 0.05, 0.5, 1.5 * TIMEOUT_S]) * self.source.random())
                self.shared.heal(name)
            elif what < 0.65:
                self.shared.expire(name)
            await asyncio.sleep(0.4 * self.source.random())


def ran(seed: int) -> Run:
    run = Run(seed)
    run_in_virtual_time(run.all())
    return run


ran_once = lru_cache(maxsize=5)(ran)


@pytest.mark.soak("300 random histories of a shared store", minutes=1)
@pytest.mark.parametrize("seed", SEEDS)
def test_answers_and_entries_are_those_of_the_model(seed: int) -> None:
    run, model = ran_once(seed), Model()
    assert len(set(run.history)) == len(run.history), "no change is applied twice"
    for name in NAMES:
        own = [marker for marker in run.history if marker.startswith(name.encode())]
        assert own == sorted(own), "a session's changes are applied in order"
    for marker in run.history:
        results = model.apply(run.changes[marker])
        outcome = run.outcomes[marker]
        if isinstance(outcome, list):
            assert outcome[: len(results)] == results
        else:
            assert isinstance(outcome, ConnectionLost), f"{marker!r} was refused and applied"
    for marker, outcome in run.outcomes.items():
        assert not isinstance(outcome, list) or marker in run.history, f"{marker!r} was confirmed and not applied"
    left = {path: (entry.data, entry.version) for path, entry in run.entries.items() if entry is not None}
    assert left == model.keys
    assert {entry.owner for entry in run.live} <= set(run.session_ids), "nothing is left of sessions that have ended"
    for (name, key), seen in run.followed.items():
        assert seen == run.entries[key], f"session {name} missed a change of {key}"


def test_the_seeds_meet_everything() -> None:
    kinds: dict[str, int] = {}
    states: dict[SessionState, int] = {}
    applied_without_answer = 0
    for seed in range(5):
        run = ran_once(seed)
        for outcome in run.outcomes.values():
            kinds[type(outcome).__name__] = kinds.get(type(outcome).__name__, 0) + 1
        for _, state in run.states:
            states[state] = states.get(state, 0) + 1
        applied_without_answer += sum(isinstance(run.outcomes[marker], ConnectionLost) for marker in run.history)
    assert sorted(kinds) == ["BadVersion", "ConnectionLost", "EntryExists", "NoEntry", "list"]
    assert min(kinds.values()) > 20
    assert min(states.get(state, 0) for state in SessionState) > 10
    assert applied_without_answer > 10


def test_a_seed_repeats_its_run() -> None:
    one, again = ran(1), ran(1)
    assert (one.history, one.states, one.entries) == (again.history, again.states, again.entries)
    assert one.history != ran(2).history
