"""Honest clients in random order, with lost responses, crashes and restarts of the coordinator.

At all times no partition is owned by two clients, by what they have acknowledged. Once faults end, the group is stable,
every partition of a subscribed topic is owned, and only legal transitions have been seen.
"""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from odradek.broker.coordinator.group.consumer import member_state
from odradek.broker.coordinator.group.consumer.member import AWAY, LEAVING, Partitions
from odradek.broker.coordinator.group.consumer.state import TRANSITIONS
from odradek.protocol.errors import ErrorCode, ProtocolError
from tests.broker.coordinator.group.consumer.group_at_work import (
    REBALANCE_MS,
    SETTINGS,
    FakeTopics,
    GroupAtWork,
    owned,
)

TOPICS = ("foo", "bar", "baz")
REGEXES = ("f.*", "ba.", ".*")


REJOINS = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNRELEASED_INSTANCE_ID)
"""The errors after which a client begins again."""


class Client:
    """A consumer. It gives up at once what it is told to, and takes what it is given."""

    def __init__(self, name: str, random: Random, instance: str | None) -> None:
        self.name = name
        self.instance = instance
        self.epoch = 0
        self.owned: Partitions = {}
        self.must_say_all = True
        self._random = random
        self._subscribe()

    def _subscribe(self) -> None:
        random = self._random
        self.topics = random.sample(TOPICS, random.randint(0, len(TOPICS)))
        self.regex = random.choice(REGEXES) if random.random() < 0.3 else ""

    def resubscribe(self) -> None:
        self._subscribe()
        self.must_say_all = True

    def beat(self, group: GroupAtWork, *, is_lost: bool = False) -> None:
        everything = {
            "rebalance_timeout_ms": REBALANCE_MS,
            "topics": self.topics,
            "regex": self.regex,
            "owned": self.owned,
        }
        fields = everything if self.must_say_all or not self.epoch else {"owned": self.owned}
        try:
            response = group.beat(self.name, self.epoch, instance_id=self.instance, **fields)
        except ProtocolError as error:
            if error.code not in REJOINS:
                raise
            self.epoch, self.owned, self.must_say_all = 0, {}, True
            return
        if group.last.resolve:
            group.resolve()
        if is_lost:
            self.must_say_all = True
            return
        self.must_say_all = False
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.owned = owned(response)

    def holds(self) -> set[tuple[UUID, int]]:
        return {(topic_id, each) for topic_id, partitions in self.owned.items() for each in partitions}


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        topics = FakeTopics(**{name: self.random.randint(1, 5) for name in TOPICS[: self.random.randint(1, 3)]})
        interval_ms = self.random.choice((0, 1000))
        assignors = self.random.choice((("range", "uniform"), ("uniform", "range")))
        settings = SETTINGS._replace(assignment_interval_ms=interval_ms, assignors=assignors, max_size=100)
        self.group = GroupAtWork(topics, settings)
        self.clients: list[Client] = []
        self.fenced: list[Client] = []
        self._names = 0

    def step(self) -> None:
        """Does one thing at random."""
        random, clients = self.random, self.clients
        self.group.now_ms += random.choice((0, 300, 1500, 11_000))
        deed = random.random()
        if not clients or (deed < 0.08 and len(clients) < 6):
            self._names += 1
            instance = f"i{self._names}" if random.random() < 0.3 else None
            clients.append(Client(f"c{self._names}", random, instance))
        elif deed < 0.75:
            random.choice(clients).beat(self.group, is_lost=random.random() < 0.1)
        elif deed < 0.8:
            random.choice(clients).resubscribe()
        elif deed < 0.84:
            self._leave(random.choice(clients))
        elif deed < 0.88:
            self._expire(random.choice(clients))
        elif deed < 0.92:
            self._change_topics()
        elif deed < 0.94:
            self.group = self._restarted()
        else:
            self._assign()
        self._check()

    def _leave(self, client: Client) -> None:
        if not client.epoch:
            return
        epoch = AWAY if client.instance is not None and self.random.random() < 0.6 else LEAVING
        try:
            self.group.leave(client.name, instance=client.instance, epoch=epoch)
        except ProtocolError as error:
            if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
                raise
        client.epoch, client.owned, client.must_say_all = 0, {}, True
        if epoch == LEAVING:
            self.clients.remove(client)
        elif self.random.random() < 0.5:
            client.name += "'"

    def _expire(self, client: Client) -> None:
        """Its session expires: it gives up all, as its own clock tells it to."""
        if self.group.group.member(client.name) is not None:
            self.group.fence(client.name)
        client.owned = {}

    def _change_topics(self) -> None:
        topics, random = self.group.topics, self.random
        name = random.choice(TOPICS)
        if name not in topics.counts:
            topics.create(name, random.randint(1, 5))
        elif random.random() < 0.3:
            topics.delete(name)
        else:
            topics.counts[name] += 1
        self.group.group.refresh_at_ms = 0

    def _restarted(self) -> GroupAtWork:
        assert self.group.restarted().group.members_by_id == self.group.group.members_by_id
        return self.group.restarted()

    def _assign(self) -> None:
        group = self.group.group
        if group.epoch > group.target_epoch and group.size:
            self.group.now_ms += 1000
            self.group.assign()

    def _check(self) -> None:
        seen: set[tuple[UUID, int]] = set()
        for client in self.clients:
            assert seen.isdisjoint(client.holds()), "two clients own a partition"
            seen |= client.holds()

    def come_to_rest(self) -> None:
        """Sessions without a client expire, and all others send heartbeats."""
        joined = {client.name for client in self.clients if client.epoch}
        self.group.fence(*(self.group.group.members_by_id.keys() - joined))
        for _ in range(40):
            for client in self.clients:
                self.group.now_ms += 2000
                client.beat(self.group)
                self._check()


@pytest.mark.parametrize("seed", range(60))
def test_honest_clients_never_share_a_partition_and_come_to_rest(seed: int) -> None:
    world = World(seed)
    for _ in range(150):
        before = world.group.group
        old = before.state, dict(before.members_by_id)
        world.step()
        after = world.group.group
        assert after.state is old[0] or (old[0], after.state) in TRANSITIONS
        for name, member in after.members_by_id.items():
            known = old[1].get(name)
            if known is not None and known.epoch >= 0 and member.epoch > 0:
                assert known.state is member.state or (known.state, member.state) in member_state.TRANSITIONS
    world.come_to_rest()
    group = world.group.group
    assert group.state_name == ("Stable" if world.clients else "Empty")
    for client in world.clients:
        assert client.owned == group.target_of(client.name)
    topics = world.group.topics
    held = set().union(*(client.holds() for client in world.clients))
    subscribed = [name for name in topics.names() if name in group.subscriptions]
    expected = {
        (topic_id, each)
        for topic_id in map(topics.topic_id, subscribed)
        if topic_id is not None
        for each in range(topics.partition_count(topic_id) or 0)
    }
    assert held == expected
