"""What becomes of access rules and passwords, and of those who ask for admission: operations of the history.

Rules and passwords have keys. The rules of a pattern have the pattern as their key; a password has its user.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tests.simulation.history import Operation


class Pattern(NamedTuple):
    """The topics that rules are about: the one of this name, all (`*`), or those whose names begin so."""

    name: str
    is_prefixed: bool = False

    def matches(self, topic: str) -> bool:
        """Whether it is about the topic."""
        return topic.startswith(self.name) if self.is_prefixed else self.name in ("*", topic)

    def __str__(self) -> str:
        return f"{self.name}..." if self.is_prefixed else self.name


class Rule(NamedTuple):
    """Who may (ALLOW) or may not (DENY) do what, from where. The names are Kafka's, in capitals without underscores."""

    principal: str
    host: str
    operation: str
    permission: str

    def __str__(self) -> str:
        return f"{self.permission} {self.principal} from {self.host} {self.operation}"


Key = Pattern | str
Value = frozenset[Rule] | str
"""The rules of a pattern, or the password of a user; an empty one: there is none."""
NO_RULES: frozenset[Rule] = frozenset()


def nothing_for(key: Key) -> Value:
    """The value of a key that the store does not have."""
    return NO_RULES if isinstance(key, Pattern) else ""


@dataclass(slots=True, kw_only=True, eq=False)
class RuleChange(Operation):
    """A rule is added, or removed (not `adds`), by one broker."""

    pattern: Pattern
    rule: Rule
    adds: bool
    broker_id: int

    def describe(self) -> str:
        """See Operation."""
        what = f"add to the rules of {self.pattern}" if self.adds else f"remove from the rules of {self.pattern}"
        return f"{what} by broker {self.broker_id}: {self.rule}"


@dataclass(slots=True, kw_only=True, eq=False)
class PasswordChange(Operation):
    """A user gets a password, or loses it (an empty one), by one broker."""

    user: str
    password: str
    broker_id: int

    def describe(self) -> str:
        """See Operation."""
        return f"give {self.user} the password {self.password!r} by broker {self.broker_id}"


@dataclass(slots=True, kw_only=True, eq=False)
class AccessStored(Operation):
    """The store has another value for a key from now on."""

    key: Key
    value: Value

    def describe(self) -> str:
        """See Operation."""
        shown = repr(self.value) if isinstance(self.value, str) else "; ".join(map(str, sorted(self.value))) or "none"
        return f"has for {self.key} from now on: {shown}"


@dataclass(slots=True, kw_only=True, eq=False)
class Visit(Operation):
    """A guest asks a broker to write to a topic or to read it. OK: it is permitted, whatever comes of it. FAILED: it is
    denied. UNKNOWN: no answer. `records`: what it wants to write, or has read. `is_open`: see Access."""

    user: str
    host: str
    broker_id: int
    operation: str
    topic: str
    records: tuple[str, ...] = ()
    is_open: bool = False

    def describe(self) -> str:
        """See Operation."""
        return f"{self.operation} {self.topic} at broker {self.broker_id}: {', '.join(self.records) or 'nothing'}"


@dataclass(slots=True, kw_only=True, eq=False)
class Admission(Operation):
    """Somebody logs in at a broker, with a password that may be right. FAILED: it is refused."""

    user: str
    password: str
    broker_id: int

    def describe(self) -> str:
        """See Operation."""
        return f"log in as {self.user} with {self.password!r} at broker {self.broker_id}"


@dataclass(slots=True, kw_only=True, eq=False)
class Reach(Operation):
    """Whether a broker is at work and news can reach it from the store, from now on."""

    broker_id: int
    is_in_reach: bool

    def describe(self) -> str:
        """See Operation."""
        return f"broker {self.broker_id} is {'' if self.is_in_reach else 'not '}in reach of the store"
