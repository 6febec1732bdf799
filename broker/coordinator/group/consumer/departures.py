"""Departures: the members of consumer groups that go in the same iteration of the event loop go together.

A departure costs a batch of records, a new epoch of the group and a look at its topics, whether one member goes or many
do; and many go at once, when a service stops or its network fails. So they wait for the end of the iteration. A request
that may see the difference has them carried out before. The epoch grows as if they had gone one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from odradek.broker.background.tasks import Soon
from odradek.broker.coordinator.group.consumer.group import ConsumerGroup
from odradek.broker.coordinator.runtime.shard import OnDone
from odradek.protocol.errors import ProtocolError

MOST_AT_ONCE = 50
"""How many members of a group go together: the first get their answers while others are still read."""

Remove = Callable[[ConsumerGroup, Collection[str], OnDone], object]
"""remove(group, member_ids, done): those who are members go, see `fence`. `done`: see `Decision`."""


class Departures:
    """Of one shard."""

    def __init__(self, soon: Soon, remove: Remove) -> None:
        self._soon = soon
        self._remove = remove
        self.going: dict[ConsumerGroup, dict[str, OnDone]] = {}
        """By group and member id."""

    def add(self, group: ConsumerGroup, member_id: str, done: OnDone) -> None:
        """The member goes soon; it is not about to yet. Calls `done` once it is gone, or with the error."""
        if not self.going:
            self._soon(self.carry_out)
        going = self.going.setdefault(group, {})
        going[member_id] = done
        if len(going) >= MOST_AT_ONCE:
            del self.going[group]
            self._end(group, going)

    def includes(self, group: ConsumerGroup, member_id: str) -> bool:
        """Whether the member is about to go."""
        return member_id in self.going.get(group, ())

    def carry_out(self) -> None:
        """Removes all members that are about to go."""
        while self.going:
            self._end(*self.going.popitem())

    def _end(self, group: ConsumerGroup, going: dict[str, OnDone]) -> None:
        def ended(error: ProtocolError | None) -> None:
            for done in going.values():
                done(error)

        self._remove(group, going.keys(), ended)
