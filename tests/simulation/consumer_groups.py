"""The groups of members of KIP-848, and those that change their protocol.

keen        dynamic members come, leave and desert. Static ones leave for a while: the next one of the instance comes in
            time, too late, or before. All read `orders` and commit
matching    members that are subscribed by regular expressions, by name, and to both, and change that. They fit topics
            that come and go, and read nothing
migrants    members of one process after the other speak the classic or the newer protocol, now and then all of them the
            same. They read `orders` and commit

Some of each group stay until the end: then the group must be settled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from typing import NamedTuple

from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.administration import BRIEF
from tests.simulation.client.cluster import Cluster
from tests.simulation.client.consumer_member import SESSION_MS, ConsumerMember, End, Subscription
from tests.simulation.client.member import REBALANCE_TIMEOUT_MS, Member, Share
from tests.simulation.history import History
from tests.simulation.memberships import Membership, Memberships

KEEN, MATCHING, MIGRANTS = "keen", "matching", "migrants"
CONSUMER_GROUPS = (KEEN, MATCHING, MIGRANTS)
DYNAMIC, STATIC = ("keen-1", "keen-2", "keen-3"), ("instance-1", "instance-2")
MATCHERS, MIGRANT_HOSTS = ("matching-1", "matching-2", "matching-3"), ("migrant-1", "migrant-2", "migrant-3")
GROUP_HOSTS = (*DYNAMIC, *STATIC, *MATCHERS, *MIGRANT_HOSTS)
SETTINGS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "800",
    "group.consumer.regex.refresh.interval.ms": "10000",
}
"""Of all brokers."""
STAYS_S, ABSENT_S = (5.0, 16.0), (0.2, 1.5)
STATIC_STAYS_S, STATIC_ABSENT_S, TOO_LONG_S, OVERLAPS_S = (4.0, 9.0), (0.2, 3.0), (5.5, 7.5), (0.5, 2.0)
SUBSCRIBES_EVERY_S = (2.0, 7.0)
MIGRANT_STAYS_S, ERA_S = (3.0, 8.0), (7.0, 13.0)
ASSIGNORS = (None, None, "uniform", "range")
SESSION_TIMEOUT_MS, REBALANCE_MS = 4000, 3000
"""Of the classic members."""


class Surroundings(NamedTuple):
    """What a member needs from the outside. `cluster` returns the view of a client."""

    history: History
    cluster: Callable[[str], Cluster]
    random: Callable[[str], Random]
    memberships: Callable[[str], Memberships]


class Host:
    """Runs members one after the other; the last one stays. `run` returns soon after `is_ending` was set and `ending`
    is done."""

    def __init__(self, around: Surroundings, ending: asyncio.Future[None], *, name: str) -> None:
        self.is_ending = False
        self.name = name
        self._around = around
        self._ending = ending
        self._source = around.random(name)
        self._numbers = count(1)
        self.current: ConsumerMember | ClassicMigrant | None = None
        """The member that is there."""

    async def run(self) -> None:
        """Does so until the end."""
        raise NotImplementedError

    async def _pause(self, between: tuple[float, float]) -> None:
        await asyncio.wait([self._ending], timeout=self._source.uniform(*between))

    def _begin(self, member: ConsumerMember | Member) -> asyncio.Task[None]:
        """Runs a member. What it raises is reported at once."""
        running = asyncio.get_running_loop().create_task(member.run())
        running.add_done_callback(_report)
        return running

    def _member(
        self, group: str, subscription: Subscription, *, instance_id: str | None = None, reads: bool = True
    ) -> ConsumerMember:
        name = f"{self.name}.{next(self._numbers)}"
        member = self.current = ConsumerMember(
            self._around.cluster(name),
            self._around.history,
            self._source,
            self._around.memberships(group),
            name=name,
            member_id=f"id of {name}",
            subscription=subscription,
            instance_id=instance_id,
            assignor=self._source.choice(ASSIGNORS),
            reads=reads,
        )
        return member


class DynamicMembers(Host):
    """Dynamic members of `keen`."""

    def __init__(self, around: Surroundings, ending: asyncio.Future[None], *, name: str, topic: str) -> None:
        super().__init__(around, ending, name=name)
        self._topic = topic

    async def run(self) -> None:
        """One after the other, until the end."""
        source = self._source
        while True:
            member = self._member(KEEN, Subscription((self._topic,)))
            running = self._begin(member)
            await self._pause(STAYS_S)
            if self.is_ending:
                return
            member.end(End.LEAVES if source.random() < 0.7 else End.DESERTS)
            await running
            await self._pause(ABSENT_S)


class StaticMembers(DynamicMembers):
    """Static members of one instance in `keen`."""

    async def run(self) -> None:
        """One after the other, until the end."""
        source = self._source
        member = self._member(KEEN, Subscription((self._topic,)), instance_id=self.name)
        running = self._begin(member)
        while True:
            await self._pause(STATIC_STAYS_S)
            if self.is_ending:
                return
            chance = source.random()
            if chance < 0.4:
                before, before_running = member, running
                member = self._member(KEEN, Subscription((self._topic,)), instance_id=self.name)
                running = self._begin(member)
                await self._pause(OVERLAPS_S)
                before.end(End.GOES_FOR_A_WHILE)
                await before_running
                continue
            member.end(End.LEAVES if chance < 0.5 else End.GOES_FOR_A_WHILE)
            await running
            await self._pause(TOO_LONG_S if chance > 0.85 else STATIC_ABSENT_S)
            member = self._member(KEEN, Subscription((self._topic,)), instance_id=self.name)
            running = self._begin(member)


class MatchingMembers(Host):
    """Members of `matching`, which change their subscriptions."""

    def __init__(self, around: Surroundings, ending: asyncio.Future[None], *, name: str, topics: Sequence[str]) -> None:
        super().__init__(around, ending, name=name)
        self._topics = topics

    async def run(self) -> None:
        """One after the other, until the end."""
        source = self._source
        while True:
            member = self._member(MATCHING, self._subscription(), reads=False)
            running = self._begin(member)
            for _ in range(source.randint(1, 5)):
                await self._pause(SUBSCRIBES_EVERY_S)
                if self.is_ending:
                    return
                member.subscribe(self._subscription())
            member.end(End.LEAVES if source.random() < 0.6 else End.DESERTS)
            await running
            await self._pause(ABSENT_S)

    def _subscription(self) -> Subscription:
        source = self._source
        named = tuple(source.sample(self._topics, source.randint(0, len(self._topics))))
        regex = source.choice(["", f"{BRIEF}.*", f"{BRIEF}[0-9]*[02468]", f"{BRIEF}.*|{self._topics[0]}", "nothing"])
        return Subscription(named, regex)


def _report(running: asyncio.Task[None]) -> None:
    error = None if running.cancelled() else running.exception()
    if error is not None:
        running.get_loop().call_exception_handler({"message": "a member has failed", "exception": error})


class Era:
    """Which protocol the next members of `migrants` speak: each its own, or all the same."""

    def __init__(self, source: Random, ending: asyncio.Future[None]) -> None:
        self.is_ending = False
        self.is_classic: bool | None = None
        self.changes = asyncio.Event()
        self._source = source
        self._ending = ending

    async def run(self) -> None:
        """One era after the other, until the end."""
        while not self.is_ending:
            self.is_classic = self._source.choice([None, True, False])
            self.changes.set()
            self.changes = asyncio.Event()
            await asyncio.wait([self._ending], timeout=self._source.uniform(*ERA_S))


class MigratingMembers(Host):
    """Members of `migrants`, each of one protocol."""

    def __init__(self, around: Surroundings, ending: asyncio.Future[None], *, name: str, topic: str, era: Era) -> None:
        super().__init__(around, ending, name=name)
        self._topic = topic
        self._era = era

    async def run(self) -> None:
        """One after the other, until the end."""
        source, era = self._source, self._era
        while True:
            is_classic = source.random() < 0.5 if era.is_classic is None else era.is_classic
            if is_classic:
                classic = self._classic()
                running = self._begin(classic)
            else:
                member = self._member(MIGRANTS, Subscription((self._topic,)))
                running = self._begin(member)
            while True:
                await self._pause(MIGRANT_STAYS_S)
                if self.is_ending:
                    return
                if era.is_classic is not is_classic:
                    break
            if is_classic:
                classic.leave()
            else:
                member.end(End.LEAVES if source.random() < 0.7 else End.DESERTS)
            await running

    def _classic(self) -> ClassicMigrant:
        name = f"{self.name}.{next(self._numbers)}"
        member = self.current = ClassicMigrant(
            self._around.cluster(name),
            self._around.history,
            self._source,
            self._around.memberships(MIGRANTS),
            name=name,
            topic=self._topic,
        )
        return member


class ClassicMigrant(Member):
    """A classic member whose group may be one of either kind. Its partitions are its own like any other's."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        source: Random,
        memberships: Memberships,
        *,
        name: str,
        topic: str,
    ) -> None:
        super().__init__(
            cluster,
            history,
            source,
            name=name,
            group=memberships.group,
            topic=topic,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_MS,
        )
        self._memberships = memberships
        self.membership = Membership(
            name, "", min(SESSION_TIMEOUT_MS, REBALANCE_MS) * 1000, REBALANCE_TIMEOUT_MS * 1000
        )
        self.subscription = Subscription((topic,))
        self._asked_us = 0
        self._committed: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        """See Member."""
        while self._topic not in self.cluster.topic_ids:
            await self.cluster.refresh([self._topic])
        await super().run()

    async def _join(self) -> list[TopicPartition] | None:
        self._memberships.gives_up_all(self.membership, "it joins")
        return await super()._join()

    async def _ask(self, request: object, **options: object) -> object:
        """A heartbeat that is answered well keeps what it has."""
        sent_us = round(asyncio.get_running_loop().time() * 1e6)
        answer = await super()._ask(request, **options)  # type: ignore[arg-type]
        self._asked_us = sent_us
        if options.get("purpose") and answer is not None and answer.error_code == 0 and self.membership.since:
            self._memberships.told(self.membership, self.membership.epoch, None, sent_us)
        return answer

    def synced(self, partitions: Sequence[TopicPartition]) -> None:
        """See Member."""
        ids = self.cluster.topic_ids
        self.membership.member_id, epoch = self.identity
        assigned = [(ids[each.topic], each.partition) for each in partitions]
        self._memberships.told(self.membership, epoch, assigned, self._asked_us)

    async def _commit(self, share: Share) -> None:
        """Commits only what is new: it goes on when the others have ended."""
        if share.offsets != self._committed:
            self._committed = dict(share.offsets)
            await super()._commit(share)

    async def _say_goodbye(self) -> None:
        self._memberships.gives_up_all(self.membership, "it leaves")
        await super()._say_goodbye()
