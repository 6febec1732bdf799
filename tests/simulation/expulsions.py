"""An administrator that removes static members from their group by their instance ids, which join again. Now and then
all members stand still meanwhile: the group then waits for members none of which joins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from odradek.protocol.messages.groups import LeaveGroupRequest
from tests.simulation.client.cluster import GROUP, Cluster
from tests.simulation.client.wire import NotSent, Unanswered

EXPEL_EVERY_S = 7.0
STILL_FOR_S = (3.0, 5.0)
"""Longer than a rebalance of static members, shorter than their sessions."""


class Expulsions:
    """`pause` and `resume` let all members stand still and go on. `run` returns after `is_ending` was set."""

    def __init__(
        self,
        cluster: Cluster,
        source: Random,
        pause: Callable[[], object],
        resume: Callable[[], object],
        *,
        group: str,
        instances: Sequence[str],
    ) -> None:
        self.is_ending = False
        self._cluster = cluster
        self._source = source
        self._pause = pause
        self._resume = resume
        self._group = group
        self._instances = instances

    async def run(self) -> None:
        """One after the other, until the end."""
        while not self.is_ending:
            await asyncio.sleep(self._source.expovariate(1 / EXPEL_EVERY_S))
            stand_still = self._source.random() < 0.4
            if stand_still:
                self._pause()
            await self._expel(self._source.choice(self._instances))
            if stand_still:
                await asyncio.sleep(self._source.uniform(*STILL_FOR_S))
                self._resume()

    async def _expel(self, instance_id: str) -> None:
        identity = LeaveGroupRequest.MemberIdentity(member_id="", group_instance_id=instance_id)
        try:
            await self._cluster.ask_coordinator(
                GROUP, self._group, LeaveGroupRequest(group_id=self._group, members=[identity])
            )
        except (NotSent, Unanswered):
            await self._cluster.back_off()
        self._cluster.forget_coordinator(GROUP, self._group)
