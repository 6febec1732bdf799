"""The group against a short reference: after every random step both have the same responses and state.

10,000 steps with one seed; in a soak 100,000 with each of 20 seeds.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any
from uuid import UUID

import pytest
import structlog

from odradek.broker.coordinator.group.admin import delete_group
from odradek.broker.coordinator.group.classic.settings import GroupSettings
from odradek.protocol.errors import ErrorCode, ProtocolError
from tests.broker.coordinator.group.classic.reference_group import JoinRequest, ReferenceGroup
from tests.broker.coordinator.group.harness import GROUP, GroupHarness, SentRequest
from tests.soak import rounds
from tests.table_settings import of_table

STEPS = rounds(10_000, in_soak=100_000)
SEEDS = range(1, 1 + rounds(1, in_soak=20))
INSTANCES = (None, None, None, "one", "two", "three")
PROTOCOLS = (("range",), ("range", "sticky"), ("sticky", "range"), ("range", "sticky", "roundrobin"), ("sticky",), ())
SESSIONS = (6_000, 11_000, 31_000)
REBALANCES = (7_000, 20_000, 45_000)
DELAYS = (0, 3_000)
MAX_SIZE = 5


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    """Switches logging off: a hundred thousand log lines do not help."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


class CountingRandom(Random):
    """Generates numbers as member ids: 1, 2, 3 ..."""

    def __init__(self) -> None:
        super().__init__(0)
        self.given = 0

    def getrandbits(self, k: int) -> int:
        self.given += 1
        return self.given


class Life:
    """Drives a `GroupHarness` and the reference with the same random requests and compares them."""

    def __init__(self, source: Random, done: Counter[str]) -> None:
        self.random, self.done = source, done
        delay_ms = source.choice(DELAYS)
        self.harness = GroupHarness(of_table(GroupSettings, initial_rebalance_delay_ms=delay_ms, max_size=MAX_SIZE))
        self.harness.random = CountingRandom()
        self.harness.restart()
        self.model = ReferenceGroup(delay_ms, MAX_SIZE)
        self.waiting: dict[int, SentRequest] = {}
        self.requests = 0
        self.story: list[str] = []

    @property
    def order_is_unspecified(self) -> bool:
        """Whether the order of the next events is unspecified."""
        return self.model.tie

    # --- steps ----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        kinds = (self.join, self.sync, self.beat, self.leave, self.wait, self.restart, self.delete, self.disk)
        kind = self.random.choices(kinds, (32, 25, 14, 5, 20, 1, 1, 2))[0]
        kind()
        self.model.advance(0)
        self.compare()

    def join(self) -> None:
        who = self.somebody(newcomers=0.4)
        names = self.random.choices(PROTOCOLS, (8, 8, 4, 4, 2, 1))[0]
        protocols = tuple((name, b"%d" % self.random.randrange(2)) for name in names)
        instance = self.instance_of(who)
        request = JoinRequest(
            instance,
            protocols,
            self.random.choice(SESSIONS),
            self.random.choice(REBALANCES),
            self.random.random() < 0.5,
            self.random.random() < 0.5,
        )
        number = self.log_step("join", who, request)
        self.model.join(number, who, request)
        self.waiting[number] = self.harness.join(
            self.name(who),
            instance=request.instance,
            protocols=dict(request.protocols),
            session_ms=request.session_ms,
            rebalance_ms=request.rebalance_ms,
            known_ids=request.known_ids,
            can_skip=request.can_skip,
        )

    def sync(self) -> None:
        who = self.somebody()
        instance, generation = self.instance_of(who), self.some_generation()
        given = {each: b"%d" % self.requests for each in self.model.members if self.random.random() < 0.9}
        number = self.log_step("sync", who, instance, generation, given)
        self.model.sync(number, who or 0, instance, generation, given)
        assignments = {self.name(each): assignment for each, assignment in given.items()}
        self.waiting[number] = self.harness.sync(self.name(who or 0), generation, assignments, instance=instance)

    def beat(self) -> None:
        who, generation = self.somebody(), self.some_generation()
        instance = self.instance_of(who)
        self.log_step("heartbeat", who, instance, generation)
        expected = self.model.heartbeat(who or 0, instance, generation)
        assert self.harness.heartbeat(self.name(who or 0), generation, instance).name == expected

    def leave(self) -> None:
        who = self.somebody(newcomers=0.1)
        instance = self.instance_of(who)
        self.log_step("leave", who, instance)
        expected = self.model.leave(who, instance)
        assert self.harness.leave(self.name(who), instance).name == expected

    def wait(self) -> None:
        ms = self.random.choice((1, 400, 2_500, 6_000, 40_000)) + self.random.randrange(400)
        self.log_step("wait", ms)
        self.model.advance(ms)
        if not self.model.tie:
            self.harness.advance(ms)

    def restart(self) -> None:
        self.log_step("restart")
        self.model.restart()
        self.harness.restart()

    def disk(self) -> None:
        """Toggles whether the log accepts appends."""
        self.model.fails = not self.model.fails and self.random.random() < 0.3
        self.harness.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS if self.model.fails else None
        self.log_step("the log fails" if self.model.fails else "the log is well")

    def delete(self) -> None:
        self.log_step("delete")
        expected = self.model.delete()
        found: list[ErrorCode] = []
        try:
            delete_group(self.harness.shard, GROUP, found.append)
        except ProtocolError as error:
            found.append(error.code)
        self.harness.settled()
        assert [code.name for code in found] == [expected]

    # --- choosing -------------------------------------------------------------------------------------------------

    def somebody(self, newcomers: float = 0.0) -> int | None:
        """Returns a member, a pending member, seldom a former member, or None for a member without an id."""
        if self.random.random() < newcomers:
            return None
        known = [*self.model.members, *self.model.pending]
        if not known or self.random.random() < 0.03:
            return self.random.randrange(self.model.ids + 1)
        return self.random.choice(known)

    def instance_of(self, who: int | None) -> str | None:
        """Returns mostly the member's own instance id."""
        member = self.model.members.get(who or 0)
        if who is None or self.random.random() < 0.05:
            return self.random.choice(INSTANCES)
        return None if member is None else member.request.instance

    def some_generation(self) -> int:
        return self.model.generation - (self.random.random() < 0.05)

    def name(self, who: int | None) -> str:
        """Returns the member id in the group under test."""
        if who is None:
            return ""
        return self.names.get(who) or f"client-{UUID(int=who, version=4)}"

    @property
    def names(self) -> dict[int, str]:
        return {_number(member.member_id): member.member_id for member in self._members()}

    def _members(self) -> list[Any]:
        group = self.harness.shard.groups.get(GROUP)
        return [] if group is None else list(group.members)

    def log_step(self, *what: object) -> int:
        self.requests += 1
        self.done[str(what[0])] += 1
        self.story.append(f"{self.requests} at {self.model.now}: {what}")
        return self.requests

    # --- comparing ------------------------------------------------------------------------------------------------

    def compare(self) -> None:
        if self.model.tie:
            return
        answered = {number: each for number, each in self.waiting.items() if each.is_answered}
        assert set(answered) == set(self.model.answers) & set(self.waiting), self.history()
        for number, request in answered.items():
            assert _fields_of(request.response) == self.model.answers[number], f"{number}\n{self.history()}"
            self.done[f"answered {request.error.name}"] += 1
            del self.waiting[number]
        assert self._state() == self._expected(), self.history()
        if GROUP in self.harness.shard.groups:
            self.harness.group.check()

    def _state(self) -> tuple[Any, ...]:
        if GROUP not in self.harness.shard.groups:
            return ("none",)
        group = self.harness.group
        members = [(_number(member.member_id), member.assignment) for member in group.members]
        pending = sorted(_number(member_id) for member_id in group.pending)
        leader = None if group.leader_id is None else _number(group.leader_id)
        waits = self.harness.waits.rebalance.delayed
        return (group.state_name, group.generation_id, group.protocol_name, leader, members, pending, waits)

    def _expected(self) -> tuple[Any, ...]:
        model = self.model
        if not model.exists:
            return ("none",)
        members = [(who, member.assignment) for who, member in model.members.items()]
        waits = sum(due is not None for due in (model.join_due, model.sync_due))
        return (model.state, model.generation, model.protocol, model.leader, members, sorted(model.pending), waits)

    def history(self) -> str:
        return "\n".join([*self.story[-40:], f"group {self._state()}", f"model {self._expected()}"])


def _number(member_id: str) -> int:
    """Returns the number in CLIENT-UUID or INSTANCE-UUID: the UUID without its version and variant."""
    return int(member_id[-12:], 16)


def _fields_of(response: Any) -> tuple[Any, ...]:
    error = ErrorCode(response.error_code).name
    if not hasattr(response, "leader"):
        return (error, response.assignment)
    return (
        error,
        response.generation_id,
        response.protocol_name,
        _number(response.leader) if response.leader else None,
        _number(response.member_id) if response.member_id else None,
        tuple((_number(member.member_id), member.metadata) for member in response.members),
        response.skip_assignment,
    )


@pytest.mark.soak("100,000 steps on each of 20 seeds", minutes=1.5)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_steps_match_the_reference_group(seed: int) -> None:
    source, done = Random(seed), Counter[str]()
    life = Life(source, done)
    for _ in range(STEPS):
        life.step()
        if life.order_is_unspecified or life.requests > 5_000:
            done["lives"] += 1
            life = Life(source, done)
    expected = {"NONE", "REBALANCE_IN_PROGRESS", "UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID", "MEMBER_ID_REQUIRED"}
    expected |= {"ILLEGAL_GENERATION", "INCONSISTENT_GROUP_PROTOCOL", "GROUP_MAX_SIZE_REACHED"}
    expected |= {"COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}
    assert expected <= {name.removeprefix("answered ") for name in done}, done
