"""The metadata hash of a group after a change: computed again only if its topics are others, or have changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from odradek.broker.coordinator.group.consumer.group import ConsumerGroup
from odradek.broker.coordinator.group.consumer.member import ConsumerMember
from odradek.broker.coordinator.group.consumer.subscriptions import ResolvedRegex
from odradek.broker.coordinator.group.consumer.topic_hash import group_hash
from odradek.broker.coordinator.group.consumer.topics import Topics

AT_ONCE = 0
"""The `refresh_at_ms` of a group after one of its topics changed, and after it was loaded."""
REFRESH_INTERVAL_MS = 2**31 - 1


def hash_after(
    group: ConsumerGroup,
    topics: Topics,
    changes: Iterable[tuple[ConsumerMember | None, ConsumerMember | None]],
    resolutions: Mapping[str, ResolvedRegex | None],
    *,
    is_due: bool = False,
) -> int:
    """Returns the hash after the changes of members and of resolved expressions, see `Subscriptions.after`.

    `is_due`: whether it is computed even if the topics are the same.
    """
    names = group.subscriptions.after(changes, resolutions)
    if names is None:
        if not is_due and group.refresh_at_ms != AT_ONCE and group.has_hash_of_its_topics:
            return group.metadata_hash
        names = group.subscriptions.names()
    return hash_of(names, topics)


def hash_of(names: Set[str], topics: Topics) -> int:
    """Returns the hash of a group that is subscribed to these topics. Those that do not exist cost little."""
    return group_hash(topics.names() & names, topics.hash_of)
