"""Heartbeats of KIP-848 that must be refused: of unknown members, in other epochs than the member's, for an instance
that is there, and with an expression that is none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import Random

from odradek.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from tests.simulation.client.cluster import GROUP, Cluster
from tests.simulation.client.consumer_member import REBALANCE_MS, ConsumerMember
from tests.simulation.client.wire import NotSent, Unanswered
from tests.simulation.history import History, Outcome
from tests.simulation.membership_history import StrayBeat

EVERY_S = 0.8
TO_COME = 1000


class StrayConsumers:
    """`members()` returns those that are there now. `run` returns soon after `is_ending` was set."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        source: Random,
        members: Callable[[], Sequence[ConsumerMember]],
        *,
        name: str,
        group: str,
    ) -> None:
        self.is_ending = False
        self._cluster = cluster
        self._history = history
        self._source = source
        self._members = members
        self._name = name
        self._group = group
        self._kinds: Mapping[str, Callable[[ConsumerMember], ConsumerGroupHeartbeatRequest]] = {
            "a heartbeat of an unknown member": lambda member: self._beat("nobody", member.epoch),
            "a heartbeat in an epoch to come": lambda member: self._of(member, member.epoch + TO_COME),
            "a heartbeat in the epoch before": lambda member: self._of(member, max(member.epoch - 1, 1)),
            "a second member of an instance": self._second,
            "an expression that is none": lambda member: self._joining("nobody", regex="("),
        }

    async def run(self) -> None:
        """One after the other, until the end."""
        while not self.is_ending:
            await asyncio.sleep(self._source.expovariate(1 / EVERY_S))
            what = self._source.choice(list(self._kinds))
            there = [each for each in self._members() if each.epoch > 1 and self._is_certain(each)]
            if what == "a second member of an instance":
                there = [each for each in there if each.instance_id is not None]
            if there:
                member = self._source.choice(there)
                await self._ask(what, member, self._kinds[what](member))

    async def _ask(self, what: str, member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> None:
        beat = self._history.begin(StrayBeat(process=self._name, group=self._group, what=what))
        try:
            answer = await self._cluster.ask_coordinator(GROUP, self._group, request)
        except (NotSent, Unanswered) as error:
            self._history.end(beat, Outcome.UNKNOWN, str(error))
            return
        if answer.error_code:
            self._cluster.forget_coordinator(GROUP, self._group)
            self._history.end(beat, Outcome.FAILED, str(answer.error_code))
        else:
            self._history.end(beat, Outcome.OK if self._is_certain(member) else Outcome.UNKNOWN)

    def _is_certain(self, member: ConsumerMember) -> bool:
        """Whether its coordinator cannot have removed it."""
        now_us = round(asyncio.get_running_loop().time() * 1e6)
        return not member.is_ending and now_us < member.membership.there_until_us

    def _of(self, member: ConsumerMember, epoch: int) -> ConsumerGroupHeartbeatRequest:
        request = self._beat(member.membership.member_id, epoch)
        request.instance_id = member.instance_id
        return request

    def _second(self, member: ConsumerMember) -> ConsumerGroupHeartbeatRequest:
        request = self._joining("second", regex="")
        request.instance_id = member.instance_id
        return request

    def _joining(self, member_id: str, *, regex: str) -> ConsumerGroupHeartbeatRequest:
        request = self._beat(member_id, 0)
        request.rebalance_timeout_ms = REBALANCE_MS
        request.subscribed_topic_names = []
        request.subscribed_topic_regex = regex
        request.topic_partitions = []
        return request

    def _beat(self, member_id: str, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(group_id=self._group, member_id=member_id, member_epoch=epoch)
