"""A group of clients that change their protocol at random: nobody loses a partition unasked, or has it beside another.

The clients of a run are eager or cooperative as long as they speak the classic protocol. An eager one gives up all that
it has before it joins again; a cooperative one gives up what its next assignment lacks, and joins again then. One of
the newer protocol gives up what it is told to, and says so in its next heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest

from odradek.broker.coordinator.group.classic.group import ClassicGroup
from odradek.broker.coordinator.group.consumer.group import ConsumerGroup
from odradek.protocol.compiler import decode_versioned, encode_versioned
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from tests.broker.coordinator.group.consumer.group_at_work import SETTINGS, FakeTopics
from tests.broker.coordinator.group.consumer.shard_at_work import ShardAtWork
from tests.broker.coordinator.group.harness import GROUP, SentRequest, owning_subscription

STEPS = 400
QUIET_ROUNDS = 60
MOST_CLIENTS = 6
COUNTS = {"foo": 5, "bar": 3}
SESSION_MS = 10**6
Owned = set[tuple[str, int]]
EVERYTHING: Owned = {(name, partition) for name, count in COUNTS.items() for partition in range(count)}


class World:
    """The clients and their group. `lost` counts the partitions that clients have lost unasked."""

    def __init__(self, seed: int, *, is_eager: bool, interval_ms: int) -> None:
        self.random = Random(seed)
        self.is_eager = is_eager
        settings = SETTINGS._replace(assignment_interval_ms=interval_ms, session_timeout_ms=SESSION_MS)
        self.shard = ShardAtWork(FakeTopics(**COUNTS), settings)
        self.clients: list[Client] = []
        self.lost = 0
        self.born = 0
        self.kinds: set[tuple[type, type]] = set()
        self._kind: type = ClassicGroup

    def step(self) -> None:
        random = self.random
        if len(self.clients) < MOST_CLIENTS and random.random() < 0.1:
            self.add(None if random.random() < 0.7 else f"i{random.randint(1, 3)}")
        elif self.clients and random.random() < 0.06:
            client = random.choice(self.clients)
            client.leave()
            self.clients.remove(client)
            if random.random() < 0.5:
                self.add(client.instance)
        elif random.random() < 0.1:
            self.shard.advance(random.choice((1, 50, 500)))
            self.shard.work()
        elif self.clients:
            random.choice(self.clients).act()
        self.check()

    def add(self, instance: str | None) -> None:
        """A static client takes the place of the one of its instance, if that has ended."""
        if instance is None or all(client.instance != instance for client in self.clients):
            self.born += 1
            kind = ClassicClient if self.random.random() < 0.5 else ConsumerClient
            self.clients.append(kind(self, f"m{self.born}", instance))

    def check(self) -> None:
        owned = [each for client in self.clients for each in client.owned]
        assert len(owned) == len(set(owned)), f"shared: {[(client.name, client.owned) for client in self.clients]}"
        group = self.shard.shard.groups.get(GROUP)
        if group is not None:
            group.check()
            if group.size:
                self.kinds.add((self._kind, type(group)))
                self._kind = type(group)

    def quiet(self) -> None:
        """All clients go on until nothing changes any more."""
        for _ in range(QUIET_ROUNDS):
            for client in list(self.clients):
                client.act()
                self.check()
            self.shard.advance(1000)
            self.shard.work()
        assert set().union(*(client.owned for client in self.clients)) == EVERYTHING


class Client:
    """`owned`: what it reads now."""

    def __init__(self, world: World, name: str, instance: str | None) -> None:
        self.world = world
        self.shard = world.shard
        self.name = name
        self.instance = instance
        self.owned: Owned = set()
        self.epoch = 0

    def act(self) -> None: ...

    def leave(self) -> None: ...

    def lose(self) -> None:
        self.world.lost += len(self.owned)
        self.owned = set()


class ConsumerClient(Client):
    def act(self) -> None:
        fields: dict[str, Any] = {"instance_id": self.instance}
        if not self.epoch:
            fields.update(rebalance_timeout_ms=SESSION_MS, topics=tuple(COUNTS), owned={})
        else:
            fields["owned"] = self._by_id()
        try:
            response = self.shard.beat(self.name, self.epoch, **fields)
        except ProtocolError:
            if self.epoch == 0:
                raise
            self.lose()
            self.epoch = 0
            return
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.owned = {
                (self.shard.topics.name(each.topic_id) or "", partition)
                for each in response.assignment.topic_partitions
                for partition in each.partitions
            }

    def _by_id(self) -> dict[Any, frozenset[int]]:
        found: dict[Any, frozenset[int]] = {}
        for name, partition in self.owned:
            topic_id = self.shard.topics.topic_id(name)
            found[topic_id] = found.get(topic_id, frozenset()) | {partition}
        return found

    def leave(self) -> None:
        self.owned = set()
        if self.epoch:
            self.shard.beat(self.name, -1, instance_id=self.instance)


class ClassicClient(Client):
    def __init__(self, world: World, name: str, instance: str | None) -> None:
        super().__init__(world, name, instance)
        self.member_id = ""
        self.parked: SentRequest | None = None
        self.must = "join"
        self.members: dict[str, bytes] = {}
        self.skips = False

    def act(self) -> None:
        if self.parked is not None:
            if self.parked.is_answered:
                self._answered()
            return
        if self.must == "join":
            self._join()
        elif self.must == "sync":
            self._sync()
        else:
            self._heartbeat()

    def _answered(self) -> None:
        assert self.parked is not None
        sent, self.parked = self.parked, None
        if self.must == "join":
            self._joined(sent)
        else:
            self._synced(sent)

    def _refused(self, code: ErrorCode) -> None:
        """Only a generation or an id that is not known any more costs the client what it has."""
        self.must = "join"
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            return
        assert code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID), code
        self.lose()
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    def _join(self) -> None:
        if self.world.is_eager:
            self.owned = set()
        topics: dict[str, list[int]] = {}
        for name, partition in self.owned:
            topics.setdefault(name, []).append(partition)
        self.parked = self.shard.join(
            self.member_id,
            instance=self.instance,
            protocols={"range": owning_subscription(tuple(COUNTS), topics)},
            session_ms=SESSION_MS,
            rebalance_ms=SESSION_MS,
            known_ids=True,
            can_skip=True,
        )

    def _joined(self, sent: SentRequest) -> None:
        response = sent.response
        if sent.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif sent.error is not ErrorCode.NONE:
            self._refused(sent.error)
        else:
            self.member_id, self.epoch, self.must = response.member_id, response.generation_id, "sync"
            self.members = {each.member_id: each.metadata for each in response.members}
            self.skips = response.skip_assignment

    def _sync(self) -> None:
        shares = {} if not self.members or self.skips else self._assigned()
        self.parked = self.shard.sync(
            self.member_id,
            self.epoch,
            {member_id: _assignment(share) for member_id, share in shares.items()},
            instance=self.instance,
        )

    def _assigned(self) -> dict[str, Owned]:
        """Deals the partitions. What another member has is given to nobody until that has given it up."""
        owners = {each: member_id for member_id, data in self.members.items() for each in _owned(data)}
        members = sorted(self.members)
        self.world.random.shuffle(members)
        shares: dict[str, Owned] = {member_id: set() for member_id in members}
        for number, each in enumerate(sorted(EVERYTHING)):
            wanted = members[number % len(members)]
            if owners.get(each, wanted) == wanted:
                shares[wanted].add(each)
        return shares

    def _synced(self, sent: SentRequest) -> None:
        if sent.error is not ErrorCode.NONE:
            self._refused(sent.error)
            return
        _, told = decode_versioned(ConsumerProtocolAssignment, sent.response.assignment)
        given = {(each.topic, partition) for each in told.assigned_partitions for partition in each.partitions}
        gives_up = bool(self.owned - given)
        self.owned = given
        self.must = "join" if gives_up else "stay"

    def _heartbeat(self) -> None:
        code = self.shard.heartbeat(self.member_id, self.epoch, self.instance)
        if code is not ErrorCode.NONE:
            self._refused(code)

    def leave(self) -> None:
        self.owned = set()
        if self.member_id or self.instance is not None:
            self.shard.leave("" if self.instance is not None else self.member_id, self.instance)


def _assignment(share: Iterable[tuple[str, int]]) -> bytes:
    topics: dict[str, list[int]] = {}
    for name, partition in share:
        topics.setdefault(name, []).append(partition)
    assigned = [
        ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=partitions)
        for name, partitions in topics.items()
    ]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=assigned), 1)


def _owned(metadata: bytes) -> Owned:
    _, subscription = decode_versioned(ConsumerProtocolSubscription, metadata)
    return {(each.topic, partition) for each in subscription.owned_partitions for partition in each.partitions}


@pytest.mark.parametrize("interval_ms", [0, 100])
@pytest.mark.parametrize("is_eager", [True, False], ids=["eager", "cooperative"])
def test_clients_that_change_their_protocol_at_random(is_eager: bool, interval_ms: int) -> None:
    changes = set()
    for seed in range(40):
        world = World(seed, is_eager=is_eager, interval_ms=interval_ms)
        for _ in range(STEPS):
            world.step()
        if world.clients:
            world.quiet()
        assert world.lost == 0, f"seed {seed}"
        changes |= world.kinds
    assert changes >= {(ClassicGroup, ConsumerGroup), (ConsumerGroup, ClassicGroup)}
