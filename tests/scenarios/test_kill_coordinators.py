"""kill -9 of the broker at each step of groups and transactions: it reloads what its last answers acknowledged.

Each step is killed twice: while its request is in flight, and right after its answer. What was promised in one round
is checked after each of the following rounds, too.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.messages.groups import JoinGroupResponse
from odradek.protocol.records import Record, build_batch
from odradek.protocol.schema import Message
from tests.clients.members.watch import until
from tests.clients.transactions import read_committed
from tests.scenarios.coordinator_promises import NOBODY, GroupPromise, Members, OffsetPromise, Promise, Transaction
from tests.soak import rounds
from tests.spawned_broker import SpawnedBroker, free_port, start_broker
from tests.wire import requests as ask
from tests.wire.blocking_client import Client
from tests.wire.coordinators import described, end_offset, field_of, find_coordinators, until_loaded

ROUNDS = rounds(1, in_soak=12)
"""How many times each step is killed in both ways."""
STEPS_OF_TRANSACTIONS = ("init", "add", "write", "add offsets", "send offsets", "commit it", "abort it")
STEPS = ("join", "sync", "leave", "commit", *STEPS_OF_TRANSACTIONS)
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}
TOPIC, PARTITIONS = "t", 16
RECORDS = 3


class Killed(Exception):
    """The broker was killed at the intended step."""


class World:
    """A broker, its promises, and the step at which it is killed next."""

    def __init__(self, data_dir: Path, chance: random.Random) -> None:
        self.data_dir, self.chance, self.port = data_dir, chance, free_port()
        self.promises: list[Promise] = []
        self.transactions: list[Transaction] = []
        self.target, self.is_answered = "", False
        self._start()
        find_coordinators(self.connection)
        created = self.connection.ask(ask.create_topics(TOPIC, partitions=PARTITIONS))
        assert field_of(created, "topics.error_code") == 0

    def _start(self) -> None:
        self.broker: SpawnedBroker = start_broker(self.data_dir, SETTINGS, port=self.port)
        self.connection = Client(self.broker.bootstrap)

    def kill(self) -> None:
        self.connection.close()
        self.broker.kill()
        self.broker.close()

    def restart(self) -> None:
        self.kill()
        self._start()

    def step(self, name: str, request: Message, error: str, may: Callable[[], None] = lambda: None) -> Any:
        """Returns the answer. If the broker is killed before it, `may` records what may have changed."""
        if name == self.target and not self.is_answered:
            may()
            self.connection.send(request)
            time.sleep(self.chance.choice((0, 0.0003, 0.001, 0.003)))
            raise Killed
        return until_loaded(self.connection, request, error)

    def after(self, name: str) -> None:
        """Called after the promise of a step's answer was recorded."""
        if name == self.target:
            raise Killed

    def check(self) -> None:
        for promise in [*self.promises, *self.transactions]:
            promise.check(self.connection)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "data", random.Random(8))
    yield world
    world.kill()


def live_in_a_group(world: World, name: str) -> None:
    """Two members join and get an assignment, then another one, during which a kill may come; then they leave."""
    promise = GroupPromise(name, {NOBODY: -1})
    world.promises.append(promise)
    ids = [world.connection.ask(ask.join(name, "")).member_id for _ in range(2)]
    assert world.connection.ask(ask.join(name, ids[0])).error_code == 0
    with Client(world.broker.bootstrap) as other:
        for prefix in ("first ", ""):
            joined = join_both(world, f"{prefix}join", other, name, ids)
            world.after(f"{prefix}join")
            sync_both(world, f"{prefix}sync", other, promise, joined)
            world.after(f"{prefix}sync")
    request = ask.leave(name, ids)
    world.step("leave", request, "error_code", lambda: promise.allowed.update({NOBODY: -1}))
    promise.allowed = {NOBODY: -1}
    world.after("leave")


def join_both(world: World, step: str, other: Client, name: str, ids: list[str]) -> JoinGroupResponse:
    """The leader's JoinGroup response when both have joined: one has new metadata, which starts a rebalance."""
    news = ask.join(name, ids[1], metadata=world.chance.randbytes(10))
    other.send(news)
    until(lambda: described(world.connection, name).group_state, "PreparingRebalance".__eq__, "rebalance")
    answer = world.step(step, ask.join(name, ids[0]), "error_code")
    answers = (answer, other.receive())
    assert [each.error_code for each in answers] == [0, 0]
    leaders: JoinGroupResponse = max(answers, key=lambda each: len(each.members))
    return leaders


def sync_both(world: World, step: str, other: Client, promise: GroupPromise, joined: JoinGroupResponse) -> None:
    given = {member.member_id: world.chance.randbytes(20) for member in joined.members}
    members: Members = frozenset(given.items())

    def may() -> None:
        promise.allowed[members] = joined.generation_id

    request = ask.sync(promise.group, joined.generation_id, joined.leader, given)
    answer = world.step(step, request, "error_code", may)
    assert answer.error_code == 0
    promise.allowed = {members: joined.generation_id}
    for member_id in given:
        follower = ask.sync(promise.group, joined.generation_id, member_id, {})
        assert other.ask(follower).assignment == given[member_id]


def commit_offsets(world: World, name: str) -> None:
    promise = OffsetPromise(name, TOPIC, 1, {-1})
    world.promises.append(promise)
    for _ in range(world.chance.randrange(1, 4)):
        commit_one(world, promise, world.chance.randrange(1 << 40))
    world.after("commit")


def commit_one(world: World, promise: OffsetPromise, offset: int) -> None:
    request = ask.commit(promise.group, TOPIC, 1, offset)
    answer = world.step("commit", request, "topics.partitions.error_code", lambda: promise.allowed.add(offset))
    assert field_of(answer, "topics.partitions.error_code") == 0
    promise.allowed = {offset}


def transact(world: World, name: str, is_committed: bool) -> None:
    """A transaction of a few records and an offset, in a partition where no other is open."""
    transaction = Transaction(name, TOPIC, free_partition(world))
    initialize(world, transaction)
    add_partition(world, transaction)
    write(world, transaction)
    send_offsets(world, transaction)
    end(world, transaction, is_committed)


def free_partition(world: World) -> int:
    """A partition to which no open transaction writes."""
    taken = {one.partition for one in world.transactions if "Ongoing" in one.states}
    free = next(partition for partition in range(PARTITIONS) if partition not in taken)
    for one in world.transactions:
        one.has_the_log &= one.partition != free
    return free


def initialize(world: World, transaction: Transaction) -> None:
    """Initializes twice, so that there is a promise before the call that is killed."""
    request = ask.init(transaction.name)
    for step in ("first init", "init"):
        answer = world.step(step, request, "error_code", lambda: transaction.epochs.add(1))
        assert answer.error_code == 0
        transaction.producer = (answer.producer_id, answer.producer_epoch)
        transaction.epochs = {answer.producer_epoch}
        if step == "first init":
            world.transactions.append(transaction)
    world.after("init")


def add_partition(world: World, transaction: Transaction) -> None:
    added = frozenset({(TOPIC, transaction.partition)})

    def may() -> None:
        transaction.states.add("Ongoing")
        transaction.partitions.add(added)

    request = ask.add_partition(transaction.name, transaction.producer, TOPIC, transaction.partition)
    error = "results_by_topic_v3_and_below.results_by_partition.partition_error_code"
    assert field_of(world.step("add", request, error, may), error) == 0
    transaction.states, transaction.partitions = {"Ongoing"}, {added}
    world.after("add")


def write(world: World, transaction: Transaction) -> None:
    values = [f"{transaction.name}/{number}".encode() for number in range(RECORDS)]
    batch = build_batch(
        [Record(number, 1_700_000_000_000, b"k", value) for number, value in enumerate(values)],
        producer_id=transaction.producer[0],
        producer_epoch=transaction.producer[1],
        base_sequence=0,
        is_transactional=True,
    )
    request = ask.produce(TOPIC, batch, transaction.partition, transactional_id=transaction.name)
    transaction.first_offset = end_offset(world.connection, TOPIC, transaction.partition)
    transaction.records_may_be_missing = True
    answer = world.step("write", request, "responses.partition_responses.error_code")
    assert field_of(answer, "responses.partition_responses.error_code") == 0
    assert field_of(answer, "responses.partition_responses.base_offset") == transaction.first_offset
    transaction.records_may_be_missing = False
    world.after("write")


def send_offsets(world: World, transaction: Transaction) -> None:
    group, offset = f"{transaction.name}-group", world.chance.randrange(1 << 40)
    (before,) = transaction.partitions
    group_partition = java_hash(group) % int(SETTINGS["offsets.topic.num.partitions"])
    added = before | {("__consumer_offsets", group_partition)}
    request = ask.add_offsets(transaction.name, transaction.producer, group)
    answer = world.step("add offsets", request, "error_code", lambda: transaction.partitions.add(added))
    assert answer.error_code == 0
    transaction.partitions = {added}
    world.after("add offsets")
    transaction.offset = (group, -1)
    send = ask.commit_offset(transaction.name, transaction.producer, group, TOPIC, 0, offset)
    error = "topics.partitions.error_code"
    assert field_of(world.step("send offsets", send, error), error) == 0
    transaction.offset = (group, offset)
    world.after("send offsets")


def end(world: World, transaction: Transaction, is_committed: bool) -> None:
    name, state = ("commit it", "CompleteCommit") if is_committed else ("abort it", "CompleteAbort")
    request = ask.end(transaction.name, transaction.producer, is_committed)
    answer = world.step(name, request, "error_code", lambda: transaction.states.add(state))
    assert answer.error_code == 0
    transaction.states = {state}
    world.after(name)


def java_hash(text: str) -> int:
    """String.hashCode of ASCII, without its sign."""
    value = 0
    for character in text.encode():
        value = (31 * value + character) & 0xFFFFFFFF
    return min(value, (1 << 32) - value)


LIVES: dict[str, Callable[[World, str], None]] = {
    **dict.fromkeys(("join", "sync", "leave"), live_in_a_group),
    "commit": commit_offsets,
    **dict.fromkeys(STEPS_OF_TRANSACTIONS, lambda world, name: transact(world, name, world.target != "abort it")),
}


@pytest.mark.long
@pytest.mark.soak("12 kills at each step, answered or not", minutes=3)
@pytest.mark.timeout(900)
def test_a_broker_killed_at_any_step_keeps_what_it_acknowledged(world: World) -> None:
    kills = [(step, is_answered) for step in STEPS for is_answered in (False, True)] * ROUNDS
    world.chance.shuffle(kills)
    for number, (world.target, world.is_answered) in enumerate(kills):
        with pytest.raises(Killed):
            LIVES[world.target](world, f"{world.target.replace(' ', '-')}-{number}")
        world.restart()
        world.check()
        abort_what_is_open(world)
    world.check()
    seen = read_committed(world.broker.bootstrap, TOPIC, PARTITIONS)
    visible = {value for values in seen.values() for value in values}
    assert visible == {
        f"{one.name}/{number}"
        for one in world.transactions
        if one.states == {"CompleteCommit"}
        for number in range(RECORDS)
    }
    assert sum(map(len, seen.values())) == len(visible), "nothing twice"


def abort_what_is_open(world: World) -> None:
    """Frees partitions for others: aborts half of the open transactions, chosen at random."""
    for transaction in world.transactions:
        if transaction.states == {"Ongoing"} and world.chance.random() < 0.5:
            (epoch,) = transaction.epochs
            request = ask.end(transaction.name, (transaction.producer[0], epoch), False)
            answer = until_loaded(world.connection, request, "error_code")
            assert answer.error_code == 0
            transaction.states = {"CompleteAbort"}
