"""Which seeds have security, and how: a listener SASL_PLAINTEXT for clients and brokers, and an authorizer.

(A) The brokers are a super user. The others have the rights that they need, and no more; strangers have none.
(B) Sessions end after some seconds, so clients and brokers log in again and again.
(C) What is drawn here comes from a source of its own: a seed without security does not change, and one with it
    has the same faults as without.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import NamedTuple

from odradek.broker.security.jaas import USER_OPTION, login_module, login_module_class
from odradek.broker.security.sasl.client import ClientCredentials
from odradek.broker.settings.authorizers import CLASSES
from odradek.broker.settings.sasl_listeners import SCRAM
from odradek.testing.acls import Acls, allow, principal_of

SHARE = 1 / 3
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LIFETIMES_MS = (6_000, 15_000)
PLAINTEXT, PROTOCOL = "PLAINTEXT", "SASL_PLAINTEXT"
CREDENTIALS = "/credentials"
BROKERS, CLIENTS, ADMINISTRATORS, STRANGERS = "brokers", "clients", "administrators", "strangers"
USERS = (BROKERS, CLIENTS, ADMINISTRATORS, STRANGERS)


class Security(NamedTuple):
    """How a seed is secured."""

    mechanism: str
    session_ms: int

    def settings(self) -> dict[str, str]:
        """The settings of all brokers."""
        own = credentials_of(self, BROKERS)
        options = {"username": own.username, "password": own.password}
        if self.mechanism not in SCRAM:
            options |= {f"{USER_OPTION}{user}": credentials_of(self, user).password for user in USERS}
        prefix = f"listener.name.{PROTOCOL.lower()}.{self.mechanism.lower()}."
        settings = {
            "security.inter.broker.protocol": PROTOCOL,
            "sasl.enabled.mechanisms": self.mechanism,
            "sasl.mechanism.inter.broker.protocol": self.mechanism,
            "connections.max.reauth.ms": str(self.session_ms),
            f"{prefix}sasl.jaas.config": login_module(login_module_class(self.mechanism), options),
            "authorizer.class.name": CLASSES[0],
            "super.users": principal_of(BROKERS),
        }
        return settings | ({"odradek.scram.credentials.file": CREDENTIALS} if self.mechanism in SCRAM else {})

    def files(self) -> dict[str, bytes]:
        """The files that an operator gives each broker."""
        if self.mechanism not in SCRAM:
            return {}
        lines = (f"{self.mechanism}=[name={user},password={credentials_of(self, user).password}]\n" for user in USERS)
        return {CREDENTIALS: "".join(lines).encode()}


def security_of(seed: int) -> Security | None:
    """How a seed is secured; None: it is not (C)."""
    source = Random(f"{seed} security protocol")
    if source.random() >= SHARE:
        return None
    return Security(source.choice(MECHANISMS), source.randrange(*LIFETIMES_MS))


def credentials_of(security: Security, user: str) -> ClientCredentials:
    """With what a user logs in."""
    return ClientCredentials(security.mechanism, user, f"{user}-secret")


def rights(
    *,
    topics: Iterable[str],
    changing: Iterable[str],
    shrinking: Iterable[str],
    brief: str,
    groups: Iterable[str],
    transactional_ids: Iterable[str],
) -> Acls:
    """The ACLs (A). `topics` are those of the clients; `changing` those whose settings change; `shrinking` those
    whose records are deleted; `brief` is how the names
    of the topics begin that come and go.
    """
    topics, groups = list(topics), list(groups)
    found = [
        *(allow(CLIENTS, "READ", "WRITE", topic=topic) for topic in topics),
        allow(CLIENTS, "READ", "WRITE", topic=brief, prefixed=True),
        *(allow(CLIENTS, "READ", "DELETE", group=group) for group in groups),
        *(allow(CLIENTS, "WRITE", transactional_id=each) for each in transactional_ids),
        *(allow(ADMINISTRATORS, "CREATE", "DESCRIBE", topic=topic) for topic in topics),
        *(allow(ADMINISTRATORS, "ALTER_CONFIGS", topic=topic) for topic in changing),
        *(allow(ADMINISTRATORS, "DELETE", topic=topic) for topic in shrinking),
        *(allow(ADMINISTRATORS, "DESCRIBE", group=group) for group in groups),
        allow(ADMINISTRATORS, "CREATE", "ALTER", "ALTER_CONFIGS", "DELETE", topic=brief, prefixed=True),
        allow(ADMINISTRATORS, "DESCRIBE", "ALTER", "ALTER_CONFIGS", cluster=True),
    ]
    return tuple(acl for each in found for acl in each)
