"""Members of consumer groups that subscribe to very much, by expressions that take long, or come and die in crowds: the
other clients are served, in bounded memory.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any
from uuid import UUID, uuid4

import pytest

from odradek.broker.coordinator.group.consumer.embedded_protocol import MOST_TOPICS
from odradek.broker.coordinator.group.consumer.group import ConsumerGroup
from odradek.broker.coordinator.group.consumer.member import ConsumerMember
from odradek.broker.coordinator.group.consumer.subscriptions import MOST_NAMED
from odradek.protocol.compiler import decode, encode_versioned
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from odradek.protocol.messages.groups import JoinGroupResponse
from tests.patience import block_until
from tests.scenarios.sweep import Bounds
from tests.scenarios.turns_of_a_loop import PROMISED_MS, EachTurn
from tests.scenarios.watched_broker import WatchedBroker, watched_broker
from tests.soak import rounds
from tests.wire import requests
from tests.wire.blocking_client import Client
from tests.wire.coordinators import find_coordinators

pytestmark = pytest.mark.soak("hostile members of groups", minutes=4)
BOUNDS = Bounds()
MEMBERS = rounds(400, in_soak=10_000)
SESSION_MS = rounds(6_000, in_soak=30_000)
CONNECTIONS, IN_FLIGHT = 8, 25
FLOODED, FLOOD = 40, 50
"""Connections that each send so many heartbeats at once."""
TOPICS = rounds(200, in_soak=2_000)
"""That there are, of the longest names."""
LONGEST_NAME, LONGEST_TEXT = 249, 32_767
VERSION = 1
ACCEPTED = (ErrorCode.NONE, ErrorCode.INVALID_REGULAR_EXPRESSION)
SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.assignment.interval.ms": "100",
    "offsets.topic.num.partitions": "1",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[WatchedBroker]:
    with watched_broker(SETTINGS) as broker:
        with Client(broker.thread.bootstrap) as client:
            find_coordinators(client)
            client.create("t", 10)
            for first in range(0, TOPICS, 100):
                longest = (filled("ab", f"{number:04d}x", LONGEST_NAME) for number in range(first, first + 100))
                client.ask(requests.create_topics(*longest))
        yield broker


def joining(group: str, member_id: str = "m", **more: Any) -> ConsumerGroupHeartbeatRequest:
    fields: dict[str, Any] = {"member_epoch": 0, "rebalance_timeout_ms": 60_000, "topic_partitions": []}
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, **{**fields, **more})


def group_of(broker: WatchedBroker, name: str) -> ConsumerGroup:
    group = broker.thread.broker.coordinators.groups.group(name)
    assert isinstance(group, ConsumerGroup)
    return group


def filled(unit: str, prefix: str = "", length: int = LONGEST_TEXT) -> str:
    return prefix + unit * ((length - len(prefix)) // len(unit))


EXPRESSIONS: Mapping[str, str] = {
    "everything": ".*",
    "10 KB of alternatives": "|".join("abcdefghij" * 500),
    "10 KB of names": "|".join(f"{number:04d}.*" for number in range(1500)),
    "exponential for others": "(a*)*b|(a+)+b|(x+x+)+y",
    "counted": "(a?){1000}a{1000}",
    "many states": "(?:[ab]*[ac]*[ad]*){900}z",
    "as many threads as parts": filled("a*b*", "[0-9]*"),
    "classes of Unicode": filled(r"\PL", "(?i)"),
    "a large program": r"\pL" * 30 + ".*",
    "nested": "(" * 900 + "a" + ")*" * 900,
    "no expression": "(?=a)[",
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_no_expression_takes_a_long_turn(broker: WatchedBroker, name: str) -> None:
    turns = EachTurn()
    broker.thread.call(_started(turns))
    answer = broker.response(joining(f"group of {name}", subscribed_topic_regex=EXPRESSIONS[name]), VERSION)
    assert answer.error_code in ACCEPTED
    if answer.error_code == ErrorCode.NONE:
        block_until(lambda: not group_of(broker, f"group of {name}").is_resolving)
    broker.thread.call(_stopped(turns))
    assert turns.are_short(), turns
    if name == "everything":
        assert len(group_of(broker, f"group of {name}").subscriptions.names()) >= TOPICS


async def _started(turns: EachTurn) -> None:
    turns.start()


async def _stopped(turns: EachTurn) -> None:
    turns.stop()


def names(count: int, prefix: str = "") -> list[str]:
    return [f"{prefix}{number:06x}" for number in range(count)]


def test_a_million_topics_are_refused_before_they_are_read(broker: WatchedBroker) -> None:
    with pytest.raises(ConnectionError):
        broker.ask(joining("million", subscribed_topic_names=names(1_000_000)), VERSION)


def test_a_group_of_many_topics_stops_nobody(broker: WatchedBroker) -> None:
    """Each member names as many as it may. Another one, of one topic, looks at all of them."""
    codes = []
    for member in range(3):
        topics = [*names(9_999, f"{member}-"), "t"]
        answer = broker.ask(joining("many", f"m{member}", subscribed_topic_names=topics), VERSION)
        assert answer.turns.are_short(), answer.turns
        codes.append(decode(ConsumerGroupHeartbeatResponse, VERSION, answer.body).error_code)
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]
    assert len(group_of(broker, "many").subscriptions.names()) <= MOST_NAMED
    small = joining("many", "small", subscribed_topic_names=["t"])
    assert broker.ask(small, VERSION).turns.are_short()
    memory = broker.memory_of(joining("memory", subscribed_topic_names=names(9_999)), VERSION)
    assert memory.beyond_frame_and_answer < BOUNDS.free_bytes + BOUNDS.bytes_per_byte * memory.request


def owned(topics: Iterable[tuple[UUID, Iterable[int]]]) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
    return [
        ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=list(partitions))
        for topic_id, partitions in topics
    ]


def test_partitions_that_nobody_has_are_read_in_short_turns(broker: WatchedBroker) -> None:
    broker.response(joining("owners", subscribed_topic_names=["t"]), VERSION)
    one = uuid4()
    cases: list[list[tuple[UUID, Iterable[int]]]] = [
        [(one, [number]) for number in range(4_999)],
        [(uuid4(), [0]) for _ in range(4_999)],
        [(one, range(9_998))],
    ]
    for case in cases:
        request = ConsumerGroupHeartbeatRequest(
            group_id="owners", member_id="m", member_epoch=2, topic_partitions=owned(case)
        )
        answer = broker.ask(request, VERSION)
        assert decode(ConsumerGroupHeartbeatResponse, VERSION, answer.body).error_code == ErrorCode.NONE
        assert answer.turns.are_short(), answer.turns


SHARE = ConsumerProtocolSubscription.TopicPartition(topic="t", partitions=[0])
SUBSCRIPTIONS: Mapping[str, ConsumerProtocolSubscription] = {
    "topics": ConsumerProtocolSubscription(topics=names(MOST_TOPICS)),
    "too many topics": ConsumerProtocolSubscription(topics=names(MOST_TOPICS + 1)),
    "one topic again and again": ConsumerProtocolSubscription(topics=["t"], owned_partitions=[SHARE] * 17_000),
    "partitions": ConsumerProtocolSubscription(
        topics=["t"],
        owned_partitions=[ConsumerProtocolSubscription.TopicPartition(topic="t", partitions=list(range(45_000)))],
    ),
}


@pytest.mark.parametrize("name", SUBSCRIPTIONS)
def test_a_classic_member_with_a_large_subscription_stops_nobody(broker: WatchedBroker, name: str) -> None:
    group = f"classic {name}"
    broker.response(joining(group, subscribed_topic_names=["t"]), VERSION)
    metadata = encode_versioned(SUBSCRIPTIONS[name], 1)
    answer = broker.ask(requests.join(group, "", metadata), 2)
    code = decode(JoinGroupResponse, 2, answer.body).error_code
    assert code in (ErrorCode.NONE, ErrorCode.INCONSISTENT_GROUP_PROTOCOL), ErrorCode.of(code)
    assert answer.turns.are_short(), answer.turns


@pytest.mark.parametrize("groups", ["of one group", "of many groups"])
def test_heartbeats_on_many_connections_stop_nobody(broker: WatchedBroker, groups: str) -> None:
    """Members join all at once, and leave all at once."""
    turns = EachTurn()
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(broker.thread.bootstrap)) for _ in range(FLOODED)]
        broker.thread.call(_started(turns))
        for epoch in (0, -1):
            for number, client in enumerate(clients):
                group = groups if groups == "of one group" else f"{groups} {number}"
                for member in range(FLOOD):
                    request = joining(group, f"{number}-{member}", subscribed_topic_names=["t"], member_epoch=epoch)
                    client.send(request, VERSION)
            for client in clients:
                codes = {client.receive().error_code for _ in range(FLOOD)}
                gone = {ErrorCode.UNKNOWN_MEMBER_ID} if epoch else set()  # sessions end on a busy machine
                assert codes <= {ErrorCode.NONE} | gone
        broker.thread.call(_stopped(turns))
    assert turns.are_short() or turns.longest_ms < PROMISED_MS, turns  # a clock ends them: fast machines call more


class Crowd:
    """Members of one group on few connections. `owned` has what each was told last."""

    def __init__(self, broker: WatchedBroker, group: str) -> None:
        self.epochs: Counter[int] = Counter()
        self.owned: dict[int, list[ConsumerGroupHeartbeatRequest.TopicPartitions]] = {}
        self._group = group
        self._clients = [Client(broker.thread.bootstrap) for _ in range(CONNECTIONS)]

    def close(self) -> None:
        for client in self._clients:
            client.close()

    @staticmethod
    def member_id(member: int) -> str:
        return f"member-{member}"

    def beat(self, members: range, *, leave: bool = False) -> None:
        """Each sends a heartbeat, and does what it is told."""
        at_once = CONNECTIONS * IN_FLIGHT
        for first in range(0, len(members), at_once):
            some = members[first : first + at_once]
            for number, member in enumerate(some):
                self._clients[number % CONNECTIONS].send(self._request(member, leave), VERSION)
            for number, member in enumerate(some):
                self._heard(member, self._clients[number % CONNECTIONS].receive())

    def _request(self, member: int, leave: bool) -> ConsumerGroupHeartbeatRequest:
        member_id = self.member_id(member)
        if not self.epochs[member]:
            return joining(self._group, member_id, subscribed_topic_names=["crowded"])
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=member_id,
            member_epoch=-1 if leave else self.epochs[member],
            topic_partitions=self.owned.get(member, []),
        )

    def _heard(self, member: int, answer: Any) -> None:
        if answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self.epochs[member], self.owned[member] = 0, []
            return
        assert answer.error_code == 0, ErrorCode.of(answer.error_code)
        self.epochs[member] = answer.member_epoch
        if answer.assignment is not None:
            told = ((each.topic_id, each.partitions) for each in answer.assignment.topic_partitions)
            self.owned[member] = owned(told)

    def partitions(self, members: range) -> list[int]:
        """What the members have together."""
        return sorted(n for member in members for each in self.owned.get(member, []) for n in each.partitions)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_crowd_that_joins_at_once_and_half_of_which_dies_is_served_in_short_turns(broker: WatchedBroker) -> None:
    partitions = MEMBERS // 10
    with Client(broker.thread.bootstrap) as client:
        client.create("crowded", partitions)
    crowd = Crowd(broker, "crowd")
    turns = EachTurn()
    broker.thread.call(_started(turns))
    everybody, survivors = range(MEMBERS), range(0, MEMBERS, 2)
    _beat_until_all_is_assigned(crowd, everybody, partitions)
    group = group_of(broker, "crowd")
    assert _members_in_memory() >= group.size
    while group.size < MEMBERS:  # on a busy machine sessions end before all have joined
        crowd.beat(everybody)
    give_up = time.monotonic() + 20 * SESSION_MS / 1000
    while group.size > len(survivors):
        assert time.monotonic() < give_up, group
        crowd.beat(survivors)
        time.sleep(SESSION_MS / 20_000)
    _beat_until_all_is_assigned(crowd, survivors, partitions)
    with Client(broker.thread.bootstrap) as client:
        answer = client.ask(requests.leave("crowd", [crowd.member_id(each) for each in survivors[::2]]))
    assert {each.error_code for each in answer.members} == {0}
    crowd.beat(survivors[1::2], leave=True)
    assert group.state_name == "Empty"
    broker.thread.call(_stopped(turns))
    crowd.close()
    assert turns.are_short(), turns
    assert _members_in_memory() < MEMBERS // 10


def _members_in_memory() -> int:
    """Returns how many members there are."""
    gc.collect()
    return sum(isinstance(each, ConsumerMember) for each in gc.get_objects())


def _beat_until_all_is_assigned(crowd: Crowd, members: range, partitions: int) -> None:
    give_up = time.monotonic() + 60
    while crowd.partitions(members) != list(range(partitions)):
        assert time.monotonic() < give_up, crowd.partitions(members)
        crowd.beat(members)
