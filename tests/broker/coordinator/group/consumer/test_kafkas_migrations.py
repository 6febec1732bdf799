"""Scripts of groups that change their kind, which a broker of Apache Kafka 4.4.0 answered (migration_recorder.py)."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random
from typing import Any
from uuid import UUID

import pytest

from odradek.broker.background.stepwise import finished
from odradek.broker.coordinator.group.classic.group import ClassicGroup
from odradek.broker.coordinator.group.classic.state import GroupState
from odradek.broker.coordinator.group.consumer.classic_members import Leaving
from odradek.broker.coordinator.group.consumer.description import described_steps
from odradek.broker.coordinator.group.consumer.group import ConsumerGroup
from odradek.broker.metadata.kafka_uuid import parse_uuid
from odradek.protocol.compiler import decode_versioned, encode_versioned
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from tests.broker.coordinator.group.consumer.group_at_work import SETTINGS, FakeTopics
from tests.broker.coordinator.group.consumer.shard_at_work import ShardAtWork
from tests.broker.coordinator.group.harness import GROUP, SentRequest, owning_subscription
from tests.protocol.vector_files import lines_of

SCRIPTS = list(lines_of("consumer_groups/migrations.jsonl"))
FIRST_WITH_KNOWN_IDS = 4
FIRST_WITH_SKIPPED_ASSIGNMENT = 9
SESSION_MS = 45_000


class RecordedIds(Random):
    """The member ids that the broker made."""

    def __init__(self) -> None:
        super().__init__(0)
        self.following: UUID | None = None

    def getrandbits(self, k: int, /) -> int:
        following, self.following = self.following, None
        return super().getrandbits(k) if following is None else following.int


class Script:
    """A script beside a shard of ours, whose clock stands still."""

    def __init__(self, script: dict[str, Any]) -> None:
        self.shard = ShardAtWork(FakeTopics(**script["topics"]), SETTINGS)
        self.ids = self.shard.random = RecordedIds()
        self.shard.restart()
        self.topics = self.shard.topics
        self.parked: dict[int, tuple[str, SentRequest]] = {}
        self.number = 0
        self.steps = script["steps"]
        self.recorded: dict[int, dict[str, Any]] = {}
        for kind, _, *answers in self.steps:
            if kind != "described":
                self.recorded.update({int(number): answer for number, answer in answers[0].items()})

    def play(self) -> None:
        for step, (kind, fields, *answers) in enumerate(self.steps):
            if kind == "described":
                assert self.described() == fields, f"step {step}"
                continue
            leader, behind = self.leader, self.behind
            number, self.number = self.number, self.number + 1
            found = {}
            answer = getattr(self, kind)(number, fields)
            if answer is not None:
                found[str(number)] = answer
            self.shard.settled()
            found.update(self.answered())
            if fields.get("member") in behind and answers[0] == {str(number): {"error": ErrorCode.ILLEGAL_GENERATION}}:
                answers[0] = {str(number): {"error": ErrorCode.REBALANCE_IN_PROGRESS}}
            assert dict(sorted(found.items(), key=lambda item: int(item[0]))) == answers[0], f"step {step}"
            if self.leader != leader:
                self.follow(number)
            if behind and isinstance(self.shard.shard.groups.get(GROUP), ConsumerGroup):
                return  # Kafka takes for given what these members have not got yet.

    # --- requests -----------------------------------------------------------------------------------------------

    def beat(self, number: int, fields: dict[str, Any]) -> dict[str, Any]:
        names = {"instance": "instance_id", "timeout": "rebalance_timeout_ms", "topics": "topics"}
        given = {name: fields[each] for each, name in names.items() if each in fields}
        if "owned" in fields:
            given["owned"] = {self.topics.topic_id(name): frozenset(each) for name, each in fields["owned"].items()}
        self.shard.waiting_work.clear()
        try:
            response = self.shard.beat(fields["member"], fields["epoch"], **given)
        except ProtocolError as error:
            return {"error": error.code}
        assignment = response.assignment
        return {
            "error": 0,
            "epoch": response.member_epoch,
            "assignment": None if assignment is None else self._named(assignment.topic_partitions),
        }

    def join(self, number: int, fields: dict[str, Any]) -> None:
        made = self.recorded.get(number, {}).get("member", "")
        if not fields["member"] and made:
            self.ids.following = UUID(made[-36:]) if len(made) >= 36 else parse_uuid(made)
        metadata = owning_subscription(fields["topics"], fields["owned"])
        sent = self.shard.join(
            fields["member"],
            instance=fields.get("instance"),
            protocols=dict.fromkeys(fields["protocols"], metadata),
            session_ms=SESSION_MS,
            known_ids=fields["version"] >= FIRST_WITH_KNOWN_IDS,
            can_skip=fields["version"] >= FIRST_WITH_SKIPPED_ASSIGNMENT,
            client_id="classic",
        )
        self.parked[number] = "join", sent

    def sync(self, number: int, fields: dict[str, Any]) -> None:
        assignments = {member_id: _assignment(share) for member_id, share in fields["assignments"].items()}
        sent = self.shard.sync(fields["member"], fields["generation"], assignments, instance=fields.get("instance"))
        self.parked[number] = "sync", sent

    def stay(self, number: int, fields: dict[str, Any]) -> dict[str, Any]:
        return {"error": self.shard.heartbeat(fields["member"], fields["generation"], fields.get("instance"))}

    def leave(self, number: int, fields: dict[str, Any]) -> dict[str, Any]:
        leaving = [Leaving(*row) for row in fields["members"]]
        if isinstance(self.shard.shard.groups.get(GROUP), ConsumerGroup):
            return {"errors": self.shard.leave_together(*leaving)}
        return {"errors": [self.shard.leave(*each) for each in leaving]}

    # --- answers ------------------------------------------------------------------------------------------------

    def answered(self) -> dict[str, dict[str, Any]]:
        ready = {number: each for number, each in self.parked.items() if each[1].is_answered}
        for number in ready:
            del self.parked[number]
        return {str(number): self._answer(kind, sent) for number, (kind, sent) in ready.items()}

    def _answer(self, kind: str, sent: SentRequest) -> dict[str, Any]:
        response = sent.response
        if kind == "sync":
            return {"error": 0, "assignment": _read(response.assignment)} if not sent.error else {"error": sent.error}
        answer = {"error": sent.error, "member": response.member_id}
        if not sent.error:
            answer.update(generation=response.generation_id, protocol=response.protocol_name, leader=response.leader)
        return answer

    def _named(self, topics: Any) -> dict[str, list[int]]:
        return {self.topics.name(each.topic_id) or "": sorted(each.partitions) for each in topics}

    @property
    def behind(self) -> set[str]:
        """Members that had not reached the epoch of their group when it became a classic one. In Kafka they lose their
        generation then, and what they have not committed.
        """
        group = self.shard.shard.groups.get(GROUP)
        if not isinstance(group, ClassicGroup):
            return set()
        return {member.member_id for member in group.members if group.epoch_of(member) != group.generation_id}

    # --- the leader of a classic group --------------------------------------------------------------------------

    @property
    def leader(self) -> str | None:
        group = self.shard.shard.groups.get(GROUP)
        return group.leader_id if isinstance(group, ClassicGroup) else None

    def follow(self, number: int) -> None:
        """Kafka's choice of a leader follows the order of a hash table: takes the one that it has chosen."""
        leaders = (answer.get("leader") for each, answer in sorted(self.recorded.items()) if each > number)
        chosen = next(filter(None, leaders), None)
        group = self.shard.shard.groups.get(GROUP)
        if isinstance(group, ClassicGroup) and chosen is not None and group.member(chosen) is not None:
            group.leader_id = chosen

    # --- descriptions -------------------------------------------------------------------------------------------

    def described(self) -> dict[str, Any]:
        group = self.shard.shard.groups.get(GROUP)
        if isinstance(group, ConsumerGroup):
            return self._described_consumer(group)
        if not isinstance(group, ClassicGroup):
            return {"state": "Dead", "protocol": "", "classic": {}}
        is_stable = group.state is GroupState.STABLE
        return {
            "state": group.state_name,
            "protocol": (group.protocol_name or "") if is_stable else "",
            "classic": {
                member.member_id: _read(member.assignment) if is_stable else {}
                for member in sorted(group.members, key=lambda each: each.member_id)
            },
        }

    def _described_consumer(self, group: ConsumerGroup) -> dict[str, Any]:
        found = finished(described_steps(group, self.topics, SETTINGS.assignors))
        return {
            "error": 0,
            "state": found.group_state,
            "epoch": found.group_epoch,
            "target_epoch": found.assignment_epoch,
            "members": {
                member.member_id: {
                    "instance": member.instance_id,
                    "epoch": member.member_epoch,
                    "assignment": self._named(member.assignment.topic_partitions),
                    "target": self._named(member.target_assignment.topic_partitions),
                    "type": member.member_type,
                }
                for member in found.members
            },
        }


def _assignment(share: dict[str, list[int]]) -> bytes:
    topics = [ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=each) for name, each in share.items()]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=topics), 1)


def _read(assignment: bytes) -> dict[str, list[int]]:
    if not assignment:
        return {}
    _, message = decode_versioned(ConsumerProtocolAssignment, assignment)
    return {each.topic: sorted(each.partitions) for each in message.assigned_partitions}


@pytest.mark.parametrize("number", range(len(SCRIPTS)))
def test_a_script(number: int) -> None:
    Script(SCRIPTS[number]).play()


def test_the_scripts_have_all_that_matters() -> None:
    steps = [step for script in SCRIPTS for step in script["steps"]]
    answers = [(step[0], answer) for step in steps if step[0] != "described" for answer in step[2].values()]
    assert {step[0] for step in steps} == {"beat", "join", "sync", "stay", "leave", "described"}
    assert {answer["error"] for _, answer in answers if "error" in answer} >= {0, 22, 25, 27, 79, 82, 111}
    assert ErrorCode.NONE in {code for _, answer in answers for code in answer.get("errors", ())}
    changes = Counter(change for script in SCRIPTS for change in pairwise(_kinds(script)))
    assert changes["classic", "consumer"] >= 20
    assert changes["consumer", "classic"] >= 3


def _kinds(script: dict[str, Any]) -> list[str]:
    """Returns the kinds of the group, one after the other, as far as answers show them."""
    kinds = []
    for kind, _, answers in (step for step in script["steps"] if step[0] != "described"):
        for answer in answers.values():
            if kind == "beat" and not answer["error"] and answer["epoch"] > 0:
                kinds.append("consumer")
            elif answer.get("leader"):
                kinds.append("classic")
    return kinds
