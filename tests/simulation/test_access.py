"""Which seeds have access that changes, and that this changes nothing else that is drawn."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.simulation.access import ACCESS_CLIENTS, access_of
from tests.simulation.faults import Fault
from tests.simulation.security import security_of
from tests.simulation.world import Scale, World

SEEDS = range(1, 301)
BRIEF = Scale(brokers=3, faults=6, seconds=1.0, kinds=("slow down the link of", "join unheard"))


def test_more_than_half_of_the_seeds_have_it_among_them_all_with_security() -> None:
    found = {seed: access for seed in SEEDS if (access := access_of(seed, security_of(seed))) is not None}
    assert 170 <= len(found) <= 230
    secured = [seed for seed in SEEDS if security_of(seed) is not None]
    assert [seed for seed, access in found.items() if access.has_security] == secured
    assert 30 <= sum(access.is_open for access in found.values()) <= 70
    assert not any(access.is_open and access.has_security for access in found.values())


def test_one_broker_has_none() -> None:
    seed = next(seed for seed in SEEDS if access_of(seed, security_of(seed)) is not None)
    assert World(seed).access is None


def test_it_does_not_shift_what_else_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(seed: int) -> Sequence[Fault]:
        return World(seed, scale=BRIEF).run().faults

    seed = next(seed for seed in SEEDS if access_of(seed, security_of(seed)) is not None)
    faults = drawn(seed)
    assert not any(fault.other in ACCESS_CLIENTS for fault in faults)
    monkeypatch.setattr("tests.simulation.world.access_of", lambda seed, security: None)
    assert drawn(seed) == faults
