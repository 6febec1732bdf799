"""GET /api/handovers and /api/members: which partitions of a consumer group are on their way, from whom and to whom."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from odradek.broker.background.stepwise import ITEMS_PER_STEP, Pace
from odradek.broker.console.hand_overs import HandOver, hand_overs
from odradek.broker.coordinator.group.consumer.group import ConsumerGroup
from odradek.broker.coordinator.group.consumer.member import ConsumerMember
from odradek.broker.coordinator.group.consumer.member_state import MemberState
from odradek.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from tests.broker.console.test_api import api, broker_with_console, coordinate, purgatory, rows
from tests.broker.console.test_bounds import steps_of
from tests.broker.console.waiters import join_of
from tests.broker.coordinator.group.consumer.group_at_work import NoTimers
from tests.broker.replica.test_over_sockets import client_of, create
from tests.wire.raw_client import RawClient

JOINS: dict[str, Any] = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ["orders"], "topic_partitions": []}
T = UUID(int=7)
MANY = 10_000


class Readers:
    """The members of the group `readers` of a broker."""

    def __init__(self, client: RawClient, port: int) -> None:
        self.client = client
        self.port = port

    async def beat(self, member_id: str, epoch: int, **fields: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(group_id="readers", member_id=member_id, member_epoch=epoch, **fields)
        response = await self.client.call(request, 1, f"client-{member_id}")
        assert response.error_code == 0
        return response

    async def hand_overs(self) -> list[dict[str, Any]]:
        return await rows(self.port, "handovers?name=readers")

    async def members(self) -> dict[str, dict[str, Any]]:
        return {row["member_id"]: row for row in await rows(self.port, "members?name=readers")}


@asynccontextmanager
async def readers(partitions: int = 2) -> AsyncIterator[Readers]:
    settings = {"group.consumer.assignment.interval.ms": 0}
    async with broker_with_console(settings) as (broker, port), client_of(broker) as client:
        await create(client, "orders", partitions)
        await coordinate(client, "readers")
        yield Readers(client, port)


async def test_a_partition_is_followed_from_one_member_to_the_other() -> None:
    async with readers() as group:
        await group.beat("a", 0, **JOINS)
        assert await group.hand_overs() == []
        await group.beat("b", 0, **JOINS)
        [row] = await group.hand_overs()
        given = row["partition"]
        way = {"from_member": "a", "from_client": "client-a", "to_member": "b", "to_client": "client-b"}
        assert row == {"topic": "orders", "partition": given, "state": "not told", "left_ms": None, **way}

        told = (await group.beat("a", 2)).assignment.topic_partitions
        [row] = await group.hand_overs()
        assert 20_000 < row.pop("left_ms") <= 30_000
        assert row == {"topic": "orders", "partition": given, "state": "told", **way}
        members = await group.members()
        assert [members[name]["state"] for name in "ab"] == ["UNREVOKED_PARTITIONS", "UNRELEASED_PARTITIONS"]
        assert [members[name]["partitions"] for name in "ab"] == [[f"orders-{1 - given}"], []]
        assert [members[name]["epoch"] for name in "ab"] == [2, 3]
        assert {members[name]["speaks"] for name in "ab"} == {"consumer"}

        await group.beat("a", 2, topic_partitions=told)
        [row] = await group.hand_overs()
        nobody = {"from_member": None, "from_client": None}
        assert row == {"topic": "orders", "partition": given, "state": "free", "left_ms": None, **way, **nobody}
        await group.beat("b", 3)
        assert await group.hand_overs() == []


async def test_what_a_member_has_that_is_away_for_a_while_is_kept_for_it() -> None:
    async with readers() as group:
        await group.beat("a", 0, instance_id="one", **JOINS)
        await group.beat("b", 0, **JOINS)
        await group.beat("a", -2, instance_id="one")
        [row] = await group.hand_overs()
        assert (row["state"], row["from_member"], row["to_member"], row["left_ms"]) == ("away", "a", "b", None)
        assert (await group.members())["a"]["epoch"] == -2


async def test_a_topic_that_nobody_subscribes_to_any_more_goes_to_nobody() -> None:
    async with readers() as group:
        await create(group.client, "payments")
        await group.beat("a", 0, **{**JOINS, "subscribed_topic_names": ["orders", "payments"]})
        await group.beat("a", 2, subscribed_topic_names=["payments"])
        found = await group.hand_overs()
        assert [(row["topic"], row["partition"], row["to_member"]) for row in found] == [
            ("orders", 0, None),
            ("orders", 1, None),
        ]
        [searched] = await rows(group.port, "handovers?name=readers&limit=1&search=ORDERS-0000000001")
        assert searched["partition"] == 1


async def test_a_classic_member_of_a_consumer_group_is_shown_as_one() -> None:
    async with readers() as group:
        await group.beat("a", 0, **JOINS)
        joined = await group.client.call(join_of("readers"), 3, "classic")
        members = await group.members()
        assert {name: row["speaks"] for name, row in members.items()} == {"a": "consumer", joined.member_id: "classic"}


async def test_a_classic_group_hands_nothing_over_and_its_members_have_no_epochs() -> None:
    settings = {"group.initial.rebalance.delay.ms": 0}
    async with broker_with_console(settings) as (broker, port), client_of(broker) as client:
        await coordinate(client, "g")
        await client.call(join_of("g"), 3, "first")
        found = await api(port, "handovers?name=g")
        assert (found["total"], found["rows"]) == (0, [])
        [member] = await rows(port, "members?name=g")
        assert {member[name] for name in ("speaks", "epoch", "state", "partitions")} == {None}
        [group] = await rows(port, "groups")
        assert (group["type"], group["target_generation"]) == ("classic", None)


async def test_all_who_wait_for_what_a_member_gives_up_are_counted() -> None:
    async with readers(partitions=12) as group:
        await group.beat("a", 0, **JOINS)
        for name in "bcdef":
            await group.beat(name, 0, **JOINS)
        await group.beat("a", 2)
        [row] = (await purgatory(group.port, "Rebalance"))["rows"]
        gives, waits = row["why"].split(", for which ")
        assert gives.endswith("; and 7 more")
        assert waits == "client-b; client-c; client-d; and 2 more wait"


def test_a_large_group_is_looked_at_in_steps() -> None:
    group = ConsumerGroup("g", NoTimers())
    for number in range(MANY):
        member = ConsumerMember(f"m{number}", assigned={T: {number: 2}}, epoch=2)
        group.put_member(member)
        group.set_target(member.member_id, {T: frozenset({(number + 1) % MANY})})
    steps, moves = steps_of(hand_overs(group, Pace()))
    assert steps > MANY / ITEMS_PER_STEP
    assert len(moves) == MANY
    assert all(move.giver is not move.taker is not None for move in moves)


def test_a_partition_that_a_member_gives_up_and_is_to_have_again_is_its_own_twice() -> None:
    """A target changed back before the member gave it up."""
    group = ConsumerGroup("g", NoTimers())
    member = ConsumerMember("m", revoking={T: {0: 2}}, epoch=2, state=MemberState.UNREVOKED_PARTITIONS)
    group.put_member(member)
    group.set_target("m", {T: frozenset({0})})
    assert steps_of(hand_overs(group, Pace()))[1] == [HandOver(T, 0, member, member)]
