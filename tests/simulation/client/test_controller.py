"""What a client knows of a change that it asked the controller for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.topics import DeleteTopicsRequest
from odradek.protocol.schema import Message
from tests.simulation.client.cluster import Cluster
from tests.simulation.client.controller import Answer, ask_controller
from tests.simulation.client.wire import NotSent, Unanswered
from tests.simulation.history import Outcome

REQUEST = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
NONE, NOT_CONTROLLER, UNKNOWN_TOPIC = ErrorCode.NONE, ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NOT_SENT, UNANSWERED = NotSent("no connection"), Unanswered("no answer")


class ScriptedCluster(Cluster):
    """Answers with these error codes, one after the other."""

    def __init__(self, *answers: Sequence[ErrorCode] | Exception) -> None:
        super().__init__("admin", [], Random(1))
        self.answers = list(answers)

    async def ask_broker(self, broker_id: int, request: Message, **options: object) -> Sequence[ErrorCode]:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def back_off(self) -> None:
        await asyncio.sleep(0)

    async def _refresh(self) -> None:
        pass


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ([[NONE]], Outcome.OK),
        ([[UNKNOWN_TOPIC]], Outcome.FAILED),
        ([[ErrorCode.REQUEST_TIMED_OUT]], Outcome.UNKNOWN),
        ([UNANSWERED], Outcome.UNKNOWN),
        ([NOT_SENT, [NONE]], Outcome.OK),
        ([NOT_SENT, [UNKNOWN_TOPIC]], Outcome.FAILED),
        ([[NOT_CONTROLLER], [NONE]], Outcome.OK),
        ([[NOT_CONTROLLER], [UNKNOWN_TOPIC]], Outcome.UNKNOWN),
        ([[], [UNKNOWN_TOPIC]], Outcome.UNKNOWN),
    ],
)
async def test_a_change_has_failed_only_if_it_had_no_effect_for_certain(
    answers: Sequence[Sequence[ErrorCode] | Exception], outcome: Outcome
) -> None:
    cluster = ScriptedCluster(*answers)
    (answer,) = await ask_controller(cluster, REQUEST, lambda codes: codes, 1)
    assert answer.outcome is outcome
    assert cluster.answers == []


async def test_each_item_of_a_request_has_its_outcome() -> None:
    cluster = ScriptedCluster([NONE, UNKNOWN_TOPIC])
    answers = await ask_controller(cluster, REQUEST, lambda codes: codes, 2)
    assert answers == [Answer(Outcome.OK, ""), Answer(Outcome.FAILED, "UNKNOWN_TOPIC_OR_PARTITION")]
