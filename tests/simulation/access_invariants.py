"""The invariants of access rules and passwords that change during a run.

rules         A broker permits and denies by the rules. They are those that the store had a moment ago: not before
              the broker's process started, nor before a change that this broker has confirmed; and not longer ago
              than LONGEST_NEWS_S, if nothing has kept the news from it.
passwords     In the same way a broker admits who has the password, and nobody else: neither with an earlier one nor
              with one that was deleted.
unwritten     What was denied is in no log, and nobody reads it.
stored        A confirmed change is in the store. The store has no change that nobody has asked for.
known         What each broker knows of rules and passwords is what the store has: within LONGEST_NEWS_S at the
              moment (access_watch.py), and all of it in the end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from tests.simulation.access_history import (
    AccessStored,
    Admission,
    Key,
    PasswordChange,
    Pattern,
    Reach,
    Rule,
    RuleChange,
    Value,
    Visit,
    nothing_for,
)
from tests.simulation.final_state import FinalState
from tests.simulation.history import History, Outcome, Read, Started
from tests.simulation.missteps import no_missteps
from tests.simulation.topic_invariants import LATE_US
from tests.simulation.violation import Violation

LONGEST_NEWS_S = 10.0
"""A broker whose session has ended notices it, and reads everything again, in this time."""

Change = RuleChange | PasswordChange
Effect = tuple[bool, bool, bool]
"""Of the rules of one pattern, for one request: do they deny it, do they allow it, are there any?"""


class Timeline:
    """What the store had for each key, and when."""

    def __init__(self, history: History) -> None:
        self._values: dict[Key, list[tuple[int, Value]]] = defaultdict(list)
        for stored in history.of(AccessStored):
            self._values[stored.key].append((stored.invoked_us, stored.value))

    @property
    def keys(self) -> Iterable[Key]:
        """All keys that the store ever had."""
        return self._values

    def since(self, key: Key, from_us: int) -> Iterator[tuple[int, Value]]:
        """The value that counts at this time, and all later ones, each with the time from which it counts."""
        values = self._values.get(key, [])
        first = bisect_right(values, from_us, key=lambda each: each[0])
        yield from_us, values[first - 1][1] if first else nothing_for(key)
        yield from values[first:]

    def between(self, key: Key, from_us: int, until_us: int) -> list[Value]:
        """The values that count at a time of the span."""
        return [value for at_us, value in self.since(key, from_us) if at_us <= until_us]


class Knowledge:
    """How old what a broker knows may be."""

    def __init__(self, history: History, timeline: Timeline) -> None:
        self._starts: dict[int, list[int]] = defaultdict(list)
        self._reaches: dict[int, list[tuple[int, bool]]] = defaultdict(list)
        self._confirmed: dict[tuple[int, Key], list[tuple[int, int]]] = defaultdict(list)
        """By broker and key: when it has confirmed changes, and since when the store had them."""
        for operation in history.operations:
            if isinstance(operation, Started):
                self._starts[operation.broker_id].append(operation.invoked_us)
            elif isinstance(operation, Reach):
                self._reaches[operation.broker_id].append((operation.invoked_us, operation.is_in_reach))
            elif isinstance(operation, RuleChange | PasswordChange) and operation.outcome is Outcome.OK:
                effect_us = _effect_us(operation, timeline)
                if effect_us is not None:
                    times = (operation.ended_us, effect_us)
                    self._confirmed[operation.broker_id, key_of(operation)].append(times)

    def oldest_us(self, broker_id: int, key: Key, invoked_us: int, ended_us: int) -> int:
        """The time from which on the store had the value by which a broker answers what was asked and answered then."""
        started = self._starts[broker_id]
        number = bisect_right(started, invoked_us)
        oldest_us = started[number - 1] if number else 0
        for confirmed_us, effect_us in self._confirmed[broker_id, key]:
            if confirmed_us <= invoked_us:
                oldest_us = max(oldest_us, effect_us)
        news_us = invoked_us - round(LONGEST_NEWS_S * 1e6)
        if self._is_in_reach(broker_id, news_us, ended_us):
            oldest_us = max(oldest_us, news_us)
        return oldest_us

    def _is_in_reach(self, broker_id: int, from_us: int, until_us: int) -> bool:
        """Whether it was all the time."""
        reaches = self._reaches[broker_id]
        first = bisect_right(reaches, from_us, key=lambda each: each[0])
        return first > 0 and all(is_in for at_us, is_in in reaches[first - 1 :] if at_us <= until_us)


def key_of(change: Change) -> Key:
    """What the change is about."""
    return change.pattern if isinstance(change, RuleChange) else change.user


def access_is_by_the_rules(history: History, final: FinalState) -> Iterator[Violation]:
    """rules"""
    timeline = Timeline(history)
    knowledge = Knowledge(history, timeline)
    patterns = [key for key in timeline.keys if isinstance(key, Pattern)]
    for visit in history.of(Visit):
        if visit.outcome not in (Outcome.OK, Outcome.FAILED):
            continue
        effects: list[dict[Effect, None]] = []
        for pattern in patterns:
            if pattern.matches(visit.topic):
                oldest_us = knowledge.oldest_us(visit.broker_id, pattern, visit.invoked_us, visit.ended_us)
                values = timeline.between(pattern, oldest_us, visit.ended_us)
                effects.append(dict.fromkeys(_effect(visit, rules) for rules in values if not isinstance(rules, str)))
        possible = {_permits(combined, is_open=visit.is_open) for combined in product(*effects)}
        if visit.outcome is Outcome.OK and True not in possible:
            yield Violation("rules", f"{visit.process} was permitted what all rules deny", (visit,))
        elif visit.outcome is Outcome.FAILED and False not in possible:
            yield Violation("rules", f"{visit.process} was denied what all rules permit", (visit,))


def _effect(visit: Visit, rules: Iterable[Rule]) -> Effect:
    rules = list(rules)
    concerning = [
        rule.permission
        for rule in rules
        if rule.principal in (f"User:{visit.user}", "User:*")
        and rule.host in ("*", visit.host)
        and rule.operation in ("ALL", visit.operation)
    ]
    return "DENY" in concerning, "ALLOW" in concerning, bool(rules)


def _permits(effects: Sequence[Effect], *, is_open: bool) -> bool:
    if any(denies for denies, _, _ in effects):
        return False
    return any(allows for _, allows, _ in effects) or (is_open and not any(is_any for _, _, is_any in effects))


def passwords_admit(history: History, final: FinalState) -> Iterator[Violation]:
    """passwords"""
    timeline = Timeline(history)
    knowledge = Knowledge(history, timeline)
    for login in history.of(Admission):
        oldest_us = knowledge.oldest_us(login.broker_id, login.user, login.invoked_us, login.ended_us)
        values = timeline.between(login.user, oldest_us, login.ended_us)
        if login.outcome is Outcome.OK and login.password not in values:
            text = f"{login.user} was admitted with {login.password!r}, which is none of {values}"
            yield Violation("passwords", text, (login,))
        elif login.outcome is Outcome.FAILED and not any(value != login.password for value in values):
            yield Violation("passwords", f"{login.user} was refused with the right password", (login,))


def what_is_denied_is_unwritten(history: History, final: FinalState) -> Iterator[Violation]:
    """unwritten"""
    denied = {
        text: visit
        for visit in history.of(Visit)
        if visit.operation == "WRITE" and visit.outcome is Outcome.FAILED
        for text in visit.records
    }
    for partition, log in final.logs.items():
        for record in log.records if denied else ():
            if record.text in denied:
                text = f"{record.text} was denied, and is in the log of {partition}"
                yield Violation("unwritten", text, (denied[record.text],))
    for read in history.operations:
        if isinstance(read, Visit) and read.operation == "READ":
            texts = read.records
        elif isinstance(read, Read):
            texts = tuple(record.text for record in read.records)
        else:
            continue
        for text in texts:
            if text in denied:
                yield Violation("unwritten", f"{text} was denied, and {read.process} read it", (denied[text], read))


def changes_of_access_are_stored(history: History, final: FinalState) -> Iterator[Violation]:
    """stored"""
    timeline = Timeline(history)
    changes: dict[Key, list[Change]] = defaultdict(list)
    for operation in history.operations:
        if isinstance(operation, RuleChange | PasswordChange):
            changes[key_of(operation)].append(operation)
            if operation.outcome is Outcome.OK and _effect_us(operation, timeline) is None:
                text = f"{operation.process} was told that it was done, and the store does not have it"
                yield Violation("stored", text, (operation,))
    latest: dict[Key, Value] = {}
    for stored in history.of(AccessStored):
        before = latest.get(stored.key, nothing_for(stored.key))
        latest[stored.key] = stored.value
        for new, is_there in _differences(before, stored.value):
            if not any(_explains(change, new, stored.invoked_us, adds=is_there) for change in changes[stored.key]):
                text = f"nobody has asked that {stored.key} {'has' if is_there else 'loses'} {new}"
                yield Violation("stored", text, (stored,))


def _differences(before: Value, after: Value) -> Iterator[tuple[Rule | str, bool]]:
    """What is new, and what is gone (False)."""
    if isinstance(before, str) or isinstance(after, str):
        yield str(after), True
        return
    yield from ((rule, True) for rule in sorted(after - before))
    yield from ((rule, False) for rule in sorted(before - after))


def _explains(change: Change, what: Rule | str, at_us: int, *, adds: bool) -> bool:
    if isinstance(change, RuleChange):
        asks = change.rule == what and change.adds == adds
    else:
        asks = change.password == what
    if change.outcome is Outcome.FAILED or not asks or at_us < change.invoked_us:
        return False
    return change.outcome is Outcome.PENDING or at_us <= change.ended_us + (
        0 if change.outcome is Outcome.OK else LATE_US
    )


def _effect_us(change: Change, timeline: Timeline) -> int | None:
    """Since when the store has had a confirmed change; None: it has not while it was under way."""
    for at_us, value in timeline.since(key_of(change), change.invoked_us):
        if at_us > change.ended_us:
            break
        if isinstance(change, PasswordChange):
            is_so = value == change.password
        else:
            is_so = (change.rule in value) == change.adds
        if is_so:
            return at_us
    return None


def brokers_know_who_has_access(history: History, final: FinalState) -> Iterator[Violation]:
    """known"""
    yield from no_missteps("known")(history, final)
    for broker_id, known in final.access.items():
        for key in dict.fromkeys([*known, *final.stored_access]):
            if known.get(key) != final.stored_access.get(key):
                yield Violation("known", f"broker {broker_id} knows something else of {key} than the store has")
