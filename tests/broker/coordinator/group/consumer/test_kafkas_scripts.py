"""Scripts that a broker of Apache Kafka 4.4.0 answered: equal errors, epochs, states and assignments (recorder.py)."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.background.stepwise import finished
from odradek.broker.coordinator.group.consumer.description import described_steps
from odradek.broker.coordinator.group.consumer.member import Partitions
from odradek.protocol.errors import ErrorCode, ProtocolError
from tests.broker.coordinator.group.consumer.group_at_work import SETTINGS, FakeTopics, GroupAtWork
from tests.protocol.vector_files import lines_of

SCRIPTS = {
    (interval_ms, number): script
    for interval_ms, file in ((0, "at_once"), (1000, "intervals"))
    for number, script in enumerate(lines_of(f"consumer_groups/{file}.jsonl"))
}
"""By the assignment interval in ms, and the number."""
NAMES_IN_REQUESTS = {
    "instance": "instance_id",
    "rack": "rack_id",
    "timeout": "rebalance_timeout_ms",
    "topics": "topics",
    "assignor": "assignor",
}


class Script:
    """A script beside a group of ours."""

    def __init__(self, script: dict[str, Any], interval_ms: int) -> None:
        settings = SETTINGS._replace(assignment_interval_ms=interval_ms)
        self.group = GroupAtWork(FakeTopics(**script["topics"]), settings)
        self.must_resolve = False
        self._names = {self.group.topics.topic_id(name): name for name in script["topics"]}

    def beat(self, request: dict[str, Any], expected: dict[str, Any]) -> None:
        fields = {name: request[each] for each, name in NAMES_IN_REQUESTS.items() if each in request}
        if "regex" in request:
            fields["regex"] = request["regex"].format("")
        if "owned" in request:
            fields["owned"] = self._owned(request["owned"])
        assert self._answer(request["member"], request["epoch"], fields) == expected

    def _answer(self, member_id: str, epoch: int, fields: dict[str, Any]) -> dict[str, Any]:
        self.must_resolve = False
        try:
            response = self.group.beat(member_id, epoch, **fields)
        except ProtocolError as error:
            return {"error": error.code}
        self.must_resolve = bool(self.group.last.resolve)
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
        self.group.now_ms += ms

    def resolved(self) -> None:
        if self.must_resolve:
            self.group.resolve()

    def partitions(self, name: str, count: int) -> None:
        topics = self.group.topics
        if name in topics.counts:
            topics.counts[name] = count
        else:
            topics.create(name, count)
            self._names[topics.topic_id(name)] = name
        self.group.group.refresh_at_ms = 0

    def deleted(self, name: str) -> None:
        self.group.topics.delete(name)
        self.group.group.refresh_at_ms = 0

    def described(self, expected: dict[str, Any]) -> None:
        if not self.group.log:
            assert expected == {"error": ErrorCode.GROUP_ID_NOT_FOUND}
            return
        found = finished(described_steps(self.group.group, self.group.topics, SETTINGS.assignors))
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


@pytest.mark.parametrize(("interval_ms", "number"), SCRIPTS)
def test_a_script(interval_ms: int, number: int) -> None:
    recorded = SCRIPTS[interval_ms, number]
    script = Script(recorded, interval_ms)
    for step, *arguments in recorded["steps"]:
        getattr(script, step)(*arguments)


def test_the_scripts_have_all_that_matters() -> None:
    steps = [step for script in SCRIPTS.values() for step in script["steps"]]
    answers = [step[2] for step in steps if step[0] == "beat"]
    assert {step[0] for step in steps} == {"beat", "resolved", "partitions", "deleted", "wait", "described"}
    assert {each["error"] for each in answers} >= {0, 25, 82, 110, 111}
    states = {step[1].get("state") for step in steps if step[0] == "described"}
    assert states >= {"Empty", "Assigning", "Reconciling", "Stable"}
