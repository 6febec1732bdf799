"""Subscriptions: which topics the members of a group are subscribed to, by name and by regular expression.

A topic is subscribed as long as a member names it or a resolved expression has matched it. Counts make a change of one
member cost what it changes, however many members there are. Members with the same names share one set.

Source: Kafka's ModernGroup (subscribedTopicNames), SubscriptionCount, ConsumerGroup (resolvedRegularExpressions).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Set
from typing import NamedTuple, TypeVar

from odradek.broker.coordinator.group.consumer.member import ConsumerMember

K = TypeVar("K", bound=Hashable)
MOST_NAMED = 20_000
"""How many topics the members of a group may name together: a change of its subscriptions looks at all of them."""


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched at `timestamp_ms` since 1970, among those of `version`."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


def topics_of(member: ConsumerMember, resolved: Mapping[str, ResolvedRegex]) -> frozenset[str]:
    """Returns the topics of a member. An expression that is not resolved matches none."""
    matched = resolved.get(member.subscribed_regex) if member.subscribed_regex else None
    if matched is None or not matched.topics:
        return member.subscribed_topics
    return member.subscribed_topics | matched.topics if member.subscribed_topics else matched.topics


class Subscriptions:
    """`resolved` has the resolved expressions. One may be missing that members already use.

    `version` grows when a topic is subscribed that was not, and when it is no longer.
    """

    __slots__ = ("_by_name", "_by_regex", "_members_by_regex", "_sets", "resolved", "version")

    def __init__(self) -> None:
        self.resolved: dict[str, ResolvedRegex] = {}
        self.version = 0
        self._by_name: Counter[str] = Counter()
        """The number of members that name a topic."""
        self._by_regex: Counter[str] = Counter()
        """The number of resolved expressions that matched a topic."""
        self._members_by_regex: Counter[str] = Counter()
        self._sets: dict[frozenset[str], tuple[frozenset[str], int]] = {}
        """Each set of names in use, and the number of its members."""

    # --- what it knows ------------------------------------------------------------------------------------------

    def __contains__(self, topic: object) -> bool:
        return topic in self._by_name or topic in self._by_regex

    def names(self) -> frozenset[str]:
        """Returns all subscribed topics."""
        return frozenset(self._by_name.keys() | self._by_regex.keys())

    def has_room_for(self, names: Set[str] = frozenset()) -> bool:
        """Whether the members name no more than MOST_NAMED topics, with these names."""
        return len(self._by_name) + len(names - self._by_name.keys()) <= MOST_NAMED

    def regexes(self) -> Collection[str]:
        """Returns the expressions that members use."""
        return self._members_by_regex.keys()

    def members_with(self, regex: str) -> int:
        """Returns the number of members that use the expression."""
        return self._members_by_regex.get(regex, 0)

    def shared(self, names: Iterable[str]) -> frozenset[str]:
        """Returns the set of the names: the one that other members have, if any does."""
        wanted = frozenset(names)
        used = self._sets.get(wanted)
        return wanted if used is None else used[0]

    # --- changes ------------------------------------------------------------------------------------------------

    def move(self, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        """A member changes, comes (`old` None) or goes (`new` None)."""
        old_names = None if old is None else old.subscribed_topics
        new_names = None if new is None else new.subscribed_topics
        if old_names is not new_names:
            if old_names is not None:
                self._drop_set(old_names)
                self._subtract(self._by_name, old_names)
            if new_names is not None:
                self._use_set(new_names)
                self._add(self._by_name, new_names)
        old_regex = "" if old is None else old.subscribed_regex
        new_regex = "" if new is None else new.subscribed_regex
        if old_regex != new_regex:
            if old_regex:
                decrease(self._members_by_regex, old_regex)
            if new_regex:
                self._members_by_regex[new_regex] += 1

    def resolve(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """The expression has been resolved, or (None) is no longer used."""
        old = self.resolved.pop(regex, None)
        if old is not None:
            self._subtract(self._by_regex, old.topics)
        if resolved is not None:
            self.resolved[regex] = resolved
            self._add(self._by_regex, resolved.topics)

    def _add(self, counts: Counter[str], topics: frozenset[str]) -> None:
        if not all(topic in self for topic in topics):
            self.version += 1
        counts.update(topics)

    def _subtract(self, counts: Counter[str], topics: frozenset[str]) -> None:
        for topic in topics:
            decrease(counts, topic)
        if not all(topic in self for topic in topics):
            self.version += 1

    def _use_set(self, names: frozenset[str]) -> None:
        kept, members = self._sets.get(names, (names, 0))
        self._sets[kept] = kept, members + 1

    def _drop_set(self, names: frozenset[str]) -> None:
        kept, members = self._sets[names]
        if members == 1:
            del self._sets[names]
        else:
            self._sets[kept] = kept, members - 1

    # --- what a change would lead to ----------------------------------------------------------------------------

    def after(
        self,
        changes: Iterable[tuple[ConsumerMember | None, ConsumerMember | None]],
        resolutions: Mapping[str, ResolvedRegex | None],
    ) -> frozenset[str] | None:
        """Returns all subscribed topics after the changes of members, (old, new) each, and of resolved expressions.

        Returns None if they are the same as before.
        """
        change: Counter[str] = Counter()
        for old, new in changes:
            before = frozenset() if old is None else old.subscribed_topics
            after = frozenset() if new is None else new.subscribed_topics
            if before is not after:
                change.subtract(before)
                change.update(after)
        for regex, resolved in resolutions.items():
            known = self.resolved.get(regex)
            change.subtract(() if known is None else known.topics)
            change.update(() if resolved is None else resolved.topics)
        added, removed = set(), set()
        for topic, more in change.items():
            count = self._by_name.get(topic, 0) + self._by_regex.get(topic, 0)
            if not count and more > 0:
                added.add(topic)
            elif count and not count + more:
                removed.add(topic)
        return self.names() - removed | added if added or removed else None


def decrease(counts: Counter[K], key: K) -> None:
    """Counts one less; a count of 0 is removed."""
    if counts[key] > 1:
        counts[key] -= 1
    else:
        del counts[key]
