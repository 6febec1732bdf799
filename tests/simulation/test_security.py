"""Which seeds have security, and which settings their brokers get."""

from __future__ import annotations

import pytest

from odradek.broker.cluster.first_credentials import parse_first_credentials
from odradek.broker.security.jaas import parse_login_module
from tests.simulation.security import CREDENTIALS, MECHANISMS, PROTOCOL, USERS, Security, security_of
from tests.simulation.world import World


def test_a_third_of_the_seeds_has_security_by_every_mechanism() -> None:
    found = [security for seed in range(1, 301) if (security := security_of(seed)) is not None]
    assert 75 <= len(found) <= 125
    assert {security.mechanism for security in found} == set(MECHANISMS)
    assert len({security.session_ms for security in found}) > 50


def test_security_does_not_shift_what_else_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    secured = next(seed for seed in range(1, 100) if security_of(seed) is not None)
    faults = World(secured).faults
    monkeypatch.setattr("tests.simulation.world.security_of", lambda seed: None)
    assert World(secured).faults == faults


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_all_users_have_passwords(mechanism: str) -> None:
    security = Security(mechanism, 6000)
    jaas = security.settings()[f"listener.name.{PROTOCOL.lower()}.{mechanism.lower()}.sasl.jaas.config"]
    options = parse_login_module(jaas, "the setting").options
    text = security.files().get(CREDENTIALS, b"").decode()
    users = {each.user for each in parse_first_credentials(text, CREDENTIALS)}
    users |= {name.removeprefix("user_") for name in options if name.startswith("user_")}
    assert users == set(USERS)
    assert options["username"] == "brokers"
