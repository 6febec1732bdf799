"""Scripts that a broker of Apache Kafka 4.4.0 answered: equal errors, epochs, states and assignments (recorder.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pytest

from odradek.broker.background.stepwise import finished
from odradek.broker.coordinator.group.consumer.description import described_steps
from odradek.broker.coordinator.group.consumer.group import FIRST_EPOCH, ConsumerGroup
from odradek.broker.coordinator.group.consumer.member import Partitions
from odradek.broker.coordinator.group.consumer.outcome import Outcome
from odradek.broker.coordinator.group.consumer.settings import ConsumerGroupSettings
from odradek.protocol.errors import ErrorCode, ProtocolError
from tests.broker.coordinator.group.consumer.group_at_work import SETTINGS, FakeTopics, GroupAtWork
from tests.broker.coordinator.group.consumer.recorder import INTERVAL_MS, KINDS, SHORT_SESSION_MS
from tests.broker.coordinator.group.consumer.shard_at_work import ShardAtWork
from tests.protocol.vector_files import lines_of

SCRIPTS = {
    (kind, number): script for kind in KINDS for number, script in enumerate(lines_of(f"consumer_groups/{kind}.jsonl"))
}
SETTINGS_OF = {
    "intervals": SETTINGS._replace(assignment_interval_ms=INTERVAL_MS),
    "timeouts": SETTINGS._replace(session_timeout_ms=SHORT_SESSION_MS),
}
NAMES_IN_REQUESTS = {
    "instance": "instance_id",
    "rack": "rack_id",
    "timeout": "rebalance_timeout_ms",
    "topics": "topics",
    "assignor": "assignor",
}


class Played(Protocol):
    """A group of ours beside which a script is played."""

    topics: FakeTopics

    def beat(self, member_id: str, epoch: int, **fields: Any) -> Any: ...

    def resolve(self) -> None:
        """Resolves what the last heartbeat asked for, if it did."""

    def wait(self, ms: int) -> None: ...

    @property
    def group(self) -> ConsumerGroup: ...


class PlayedGroup(GroupAtWork):
    """The functions alone."""

    def resolve(self, is_visible: Callable[[str], bool] = lambda _: True) -> None:
        if self.last.resolve:
            super().resolve(is_visible)
            self.last = Outcome()

    def beat(self, member_id: str, epoch: int, **fields: Any) -> Any:
        self.last = Outcome()
        return super().beat(member_id, epoch, **fields)

    def wait(self, ms: int) -> None:
        self.now_ms += ms


class PlayedShard(ShardAtWork):
    """A shard. Kafka assigns in the next heartbeat after the interval, and so does a shard whose wheel stands still."""

    def beat(self, member_id: str, epoch: int, **fields: Any) -> Any:
        self.waiting_work.clear()
        self.consumer_group.is_resolving = False
        return super().beat(member_id, epoch, **fields)

    def resolve(self) -> None:
        self.work()

    def wait(self, ms: int) -> None:
        if self.consumer_settings.assignment_interval_ms:
            self.clock.advance(ms)
        else:
            self.advance(ms)

    @property
    def group(self) -> ConsumerGroup:  # type: ignore[override]
        return self.consumer_group


class Script:
    """A script beside a group of ours."""

    def __init__(self, script: dict[str, Any], played: Played) -> None:
        self.played = played
        self._names = {played.topics.topic_id(name): name for name in script["topics"]}

    def beat(self, request: dict[str, Any], expected: dict[str, Any]) -> None:
        fields = {name: request[each] for each, name in NAMES_IN_REQUESTS.items() if each in request}
        if "regex" in request:
            fields["regex"] = request["regex"].format("")
        if "owned" in request:
            fields["owned"] = self._owned(request["owned"])
        assert self._answer(request["member"], request["epoch"], fields) == expected

    def _answer(self, member_id: str, epoch: int, fields: dict[str, Any]) -> dict[str, Any]:
        try:
            response = self.played.beat(member_id, epoch, **fields)
        except ProtocolError as error:
            return {"error": error.code}
        assignment = response.assignment
        return {
            "error": 0,
            "epoch": response.member_epoch,
            "assignment": None if assignment is None else self._partitions(assignment.topic_partitions),
        }

    def _owned(self, owned: dict[str, list[int]]) -> Partitions:
        ids = {name: topic_id for topic_id, name in self._names.items() if topic_id is not None}
        return {ids[name]: frozenset(partitions) for name, partitions in owned.items()}

    def _partitions(self, topics: Any) -> dict[str, list[int]]:
        return {self._names[each.topic_id]: sorted(each.partitions) for each in topics}

    def wait(self, ms: int) -> None:
        self.played.wait(ms)

    def resolved(self) -> None:
        self.played.resolve()

    def partitions(self, name: str, count: int) -> None:
        topics = self.played.topics
        if name in topics.counts:
            topics.counts[name] = count
        else:
            topics.create(name, count)
            self._names[topics.topic_id(name)] = name
        self.played.group.refresh_at_ms = 0

    def deleted(self, name: str) -> None:
        self.played.topics.delete(name)
        self.played.group.refresh_at_ms = 0

    def described(self, expected: dict[str, Any]) -> None:
        if not self.played.group.epoch > FIRST_EPOCH:
            assert expected == {"error": ErrorCode.GROUP_ID_NOT_FOUND}
            return
        found = finished(described_steps(self.played.group, self.played.topics, SETTINGS.assignors))
        assert expected == {
            "error": 0,
            "state": found.group_state,
            "epoch": found.group_epoch,
            "target_epoch": found.assignment_epoch,
            "members": {
                member.member_id: {
                    "instance": member.instance_id,
                    "epoch": member.member_epoch,
                    "assignment": self._partitions(member.assignment.topic_partitions),
                    "target": self._partitions(member.target_assignment.topic_partitions),
                }
                for member in found.members
            },
        }


@pytest.mark.parametrize(("kind", "number"), SCRIPTS)
def test_a_script(kind: str, number: int) -> None:
    recorded, settings = SCRIPTS[kind, number], SETTINGS_OF.get(kind, SETTINGS)
    played_by: list[Callable[[FakeTopics, ConsumerGroupSettings], Played]] = [PlayedShard]
    if kind != "timeouts":
        played_by.append(PlayedGroup)
    for played in played_by:
        script = Script(recorded, played(FakeTopics(**recorded["topics"]), settings))
        for step, *arguments in recorded["steps"]:
            getattr(script, step)(*arguments)


def test_the_scripts_have_all_that_matters() -> None:
    steps = [step for script in SCRIPTS.values() for step in script["steps"]]
    answers = [step[2] for step in steps if step[0] == "beat"]
    assert {step[0] for step in steps} == {"beat", "resolved", "partitions", "deleted", "wait", "described"}
    assert {each["error"] for each in answers} >= {0, 25, 82, 110, 111}
    states = {step[1].get("state") for step in steps if step[0] == "described"}
    assert states >= {"Empty", "Assigning", "Reconciling", "Stable"}
