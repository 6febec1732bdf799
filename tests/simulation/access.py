"""Which seeds have access rules and passwords that change during the run: half of those with three brokers, and all
that have security.

(A) The brokers have an authorizer and a listener of its own for guests, who log in by SCRAM. All other clients and the
    brokers are super users if the seed has no security, and have their rights if it has (security.py).
(B) In some of the seeds without security a topic without any rule is open to everybody.
(C) What is drawn here comes from a source of its own, and no fault is aimed at a guest: see security.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import NamedTuple

from odradek.broker.security.jaas import login_module, login_module_class
from odradek.broker.settings.authorizers import CLASSES
from odradek.testing.acls import principal_of
from tests.simulation.access_history import Pattern
from tests.simulation.security import PLAINTEXT, PROTOCOL, Security

SHARE, OPEN_SHARE = 0.5, 0.5
GUESTS, GUESTS_PORT = "GUESTS", 9093
"""The listener."""
MECHANISM = "SCRAM-SHA-256"
KEEPER, GUEST, VISITOR = ACCESS_CLIENTS = ("access-keeper", "guest", "visitor")
"""The clients; the last two are users, too."""
ADDRESSES = {name: f"10.0.4.{number}" for number, name in enumerate(ACCESS_CLIENTS, 1)}
GUARDED = "guarded"
"""The topic that the guest asks for."""
PATTERNS = (
    Pattern(GUARDED),
    Pattern("guard", is_prefixed=True),
    Pattern("*"),
    Pattern(f"{GUARDED}-", is_prefixed=True),
)
"""Those whose rules change. The last one is not about the topic."""
KEYS = (*PATTERNS, GUEST, VISITOR)
BY_NOBODY = "ANONYMOUS"


class Access(NamedTuple):
    """`is_open`: who asks for a topic without any rule gets it (B)."""

    is_open: bool
    has_security: bool

    def settings(self) -> Mapping[str, str]:
        """The settings of all brokers."""
        prefix = f"listener.name.{GUESTS.lower()}."
        settings = {
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}"
                for name, protocol in ((GUESTS, PROTOCOL), (PLAINTEXT, PLAINTEXT), (PROTOCOL, PROTOCOL))
            ),
            f"{prefix}sasl.enabled.mechanisms": MECHANISM,
            f"{prefix}{MECHANISM.lower()}.sasl.jaas.config": login_module(login_module_class(MECHANISM), {}),
        }
        if self.has_security:
            return settings
        return settings | {
            "authorizer.class.name": CLASSES[0],
            "super.users": principal_of(BY_NOBODY),
            "allow.everyone.if.no.acl.found": str(self.is_open).lower(),
        }


def access_of(seed: int, security: Security | None) -> Access | None:
    """Whether access changes in a seed, and how; None: it does not."""
    source = Random(f"{seed} access rules")
    if security is not None:
        return Access(is_open=False, has_security=True)
    if source.random() >= SHARE:
        return None
    return Access(is_open=source.random() < OPEN_SHARE, has_security=False)
