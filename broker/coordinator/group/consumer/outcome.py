"""What a request or an event leads to: records, a response, timers, and work to begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from odradek.broker.coordinator.group.consumer.member import ConsumerMember
from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.protocol.schema import Message

TimerKind = Literal["session", "rebalance", "join", "sync"]


class Timer(NamedTuple):
    """Starts a timer of a member, or starts it again. `after_ms` None cancels it.

    `session`: the member is removed at its end. `rebalance`: the member is removed if it still has `epoch` then.
    `join` and `sync`: the member is removed at their end if it speaks the classic protocol. `if_absent`: a timer that
    runs goes on.
    """

    kind: TimerKind
    member_id: str
    after_ms: int | None = None
    epoch: int = -1
    if_absent: bool = False


class Downgrade(NamedTuple):
    """The group becomes a classic one, without the members `leaving`. `joining` takes the place of the static member of
    its instance. `rebalance`: whether the members must rejoin.
    """

    leaving: frozenset[str] = frozenset()
    joining: ConsumerMember | None = None
    rebalance: bool = True


class Outcome(NamedTuple):
    """What must be done, in this order: append `records` as one batch and replay them; then, if that succeeded or there
    were none, set `timers` in their order and the group's `refresh_at_ms`, and begin the work. Send `response` when the
    records are replicated.

    `resolve`: the regular expressions to resolve now, all at once. `assign`: the target assignment is behind the
    group's epoch, so that somebody must compute it: see `due_in_ms`. `downgrade`: after the records, those follow
    that make the group a classic one, and nothing else is done.
    """

    records: Sequence[CoordinatorRecord] = ()
    response: Message | None = None
    timers: Sequence[Timer] = ()
    resolve: frozenset[str] = frozenset()
    assign: bool = False
    refresh_at_ms: int | None = None
    downgrade: Downgrade | None = None

    @property
    def changes_nothing(self) -> bool:
        """Whether there is nothing but a response, and timers to set anew."""
        return not (self.records or self.resolve or self.assign or self.downgrade or self.refresh_at_ms is not None)

    def after(self, before: Outcome) -> Outcome:
        """Returns the outcome with the records and timers of another one before its own."""
        return self._replace(records=[*before.records, *self.records], timers=[*before.timers, *self.timers])


def all_cancelled(member_id: str, *, is_classic: bool) -> list[Timer]:
    """Returns what cancels the timers of a member that is no longer one."""
    kinds: list[TimerKind] = ["session", "rebalance"]
    if is_classic:
        kinds += ["join", "sync"]
    return [Timer(kind, member_id) for kind in kinds]
