"""Waiting for a cluster within the process: until a condition holds, or until what was done to it has settled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial

from odradek.broker.logging.quiet_logs import LatestWarnings
from odradek.testing.cluster_view import ClusterView
from odradek.testing.conditions import why_no_leader, why_not_in_sync, why_not_stable
from odradek.testing.failures import NotReached

Condition = Callable[[], object]
"""Whether it holds; it may be a coroutine function."""

SETTLED_WITHIN_S = 20.0
"""How long the waits last at most, unless told otherwise."""
FIRST_POLL_S = 0.001
LONGEST_POLL_S = 0.02
SHOWN_WARNINGS = 20
SHARE_OF_POLLS = 0.3
"""A condition that takes long to evaluate is evaluated less often."""


class ClusterWaits(ClusterView):
    """`warnings` are the latest of the brokers. `within`: seconds of wall time, after which NotReached is raised."""

    warnings: LatestWarnings

    async def wait_until(self, condition: Condition, *, within: float = SETTLED_WITHIN_S, what: str = "") -> None:
        """Waits until `condition()` holds; it may be a coroutine function. `what` names it. Raises NotReached."""

        async def missing() -> str:
            holds = condition()
            if isinstance(holds, Awaitable):
                holds = await holds
            return "" if holds else "the condition does not hold"

        await self.reach(missing, what or getattr(condition, "__name__", "a condition"), within=within)

    async def wait_for_leader(
        self, topic: str, partition: int, leader: int | None = None, *, within: float = SETTLED_WITHIN_S
    ) -> int:
        """Waits until the partition has a leader, or the given one, that knows of it and is known to all brokers in
        touch. Returns the leader. Raises NotReached.
        """
        who = "a leader" if leader is None else f"broker {self.member(leader).broker_id} as the leader"
        why_not = partial(why_no_leader, self, topic, partition, leader)
        await self.reach(why_not, f"{who} of {topic}-{partition}", within=within)
        found = self.leader(topic, partition)
        assert found is not None
        return found

    async def wait_for_isr(
        self, topic: str, partition: int, isr: Collection[int], *, within: float = SETTLED_WITHIN_S
    ) -> None:
        """Waits until these are the in-sync replicas of the partition: for its leader, and for all brokers in touch.
        Raises NotReached.
        """
        expected = {self.member(broker_id).broker_id for broker_id in isr}
        why_not = partial(why_not_in_sync, self, topic, partition, expected)
        await self.reach(why_not, f"ISR {sorted(isr)} of {topic}-{partition}", within=within)

    async def wait_until_stable(self, *, within: float = SETTLED_WITHIN_S) -> None:
        """Waits until nothing is left to be done: there is a controller; all running brokers know it and each other and
        all partitions; each partition that has a running replica has a leader, and all its running replicas are in
        sync; no reassignment is under way. Raises NotReached.
        """
        await self.reach(partial(why_not_stable, self), "a stable cluster", within=within)

    async def reach(
        self, missing: Callable[[], str] | Callable[[], Awaitable[str]], what: str, *, within: float = SETTLED_WITHIN_S
    ) -> None:
        """Waits until `missing()` returns nothing. Returns in the same turn of the event loop. Raises NotReached."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        pause = FIRST_POLL_S
        while True:
            asked = loop.time()
            found = missing()
            reason = found if isinstance(found, str) else await found
            if not reason:
                return
            now = loop.time()
            if now - began >= within:
                raise self.not_reached(what, within, reason)
            pause = min(2 * pause, LONGEST_POLL_S)
            await asyncio.sleep(max(pause, (now - asked) / SHARE_OF_POLLS))

    def not_reached(self, what: str, within: float, reason: str = "") -> NotReached:
        """Returns the error of a wait for `what`: the reason, the state of the cluster, and its latest warnings."""
        because = f": {reason}" if reason else ""
        lines = [f"{what}: not in {within:g} s{because}", self.describe()]
        if latest := list(self.warnings)[-SHOWN_WARNINGS:]:
            lines += ["the latest warnings:", *latest]
        return NotReached("\n".join(lines))
