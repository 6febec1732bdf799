"""A broker's requests to the active controller: on this broker, on another one, and nowhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from odradek.broker.cluster.active_controller import ActiveController, NoController
from odradek.broker.metadata.metadata_cache import MetadataCache
from odradek.clients.network_errors import NodeUnreachable
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.producers import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from odradek.protocol.messages.replica_control import AlterPartitionRequest, AlterPartitionResponse
from odradek.timer import SystemClock

OWN, OTHER, NOBODY = 1, 2, -1
BLOCK = AllocateProducerIdsResponse(producer_id_start=7000, producer_id_len=1000)
NOT_CONTROLLER = AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER)
PATIENCE_MS = 5000


class Scripted:
    """Gives its answers one after the other, the last one again and again: the own controller, or other brokers.
    After each answer, `controllers` says which broker this one believes to be the controller.
    """

    def __init__(self, metadata: MetadataCache, *answers: object, controllers: tuple[int, ...] = ()) -> None:
        self.asked: list[tuple[int, Any]] = []
        self._metadata = metadata
        self._answers = list(answers)
        self._controllers = list(controllers)

    async def answer(self, request: Any) -> Any:
        return self._next(OWN, request)

    def peer(self, broker_id: int, _purpose: str) -> Any:
        return ScriptedPeer(lambda request: self._next(broker_id, request))

    def _next(self, broker_id: int, request: Any) -> Any:
        self.asked.append((broker_id, request))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if self._controllers:
            self._metadata.controller_id = self._controllers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class ScriptedPeer:
    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self._answer = answer

    async def send(self, request: Any, *, timeout_ms: int) -> Any:
        return self._answer(request)


def asking(first: int, *answers: object, controllers: tuple[int, ...] = ()) -> tuple[ActiveController, Scripted]:
    metadata = MetadataCache("", OWN)
    metadata.controller_id = first
    scripted: Any = Scripted(metadata, *answers, controllers=controllers)
    return ActiveController(metadata, scripted, own=scripted, broker_epoch=lambda: 77, clock=SystemClock()), scripted


@pytest.mark.parametrize("controller", [OWN, OTHER])
async def test_the_controller_is_asked_wherever_it_is(controller: int) -> None:
    active, scripted = asking(controller, BLOCK)
    assert await active.allocate_producer_ids(PATIENCE_MS) == range(7000, 8000)
    ((broker_id, request),) = scripted.asked
    assert broker_id == controller
    assert isinstance(request, AllocateProducerIdsRequest)
    assert (request.broker_id, request.broker_epoch) == (OWN, 77)


async def test_a_request_is_sent_again_until_a_controller_answers() -> None:
    answers = (NodeUnreachable("down"), NOT_CONTROLLER, ProtocolError(ErrorCode.NOT_CONTROLLER), BLOCK)
    active, scripted = asking(OTHER, *answers, controllers=(3, OWN, OTHER))
    assert await active.allocate_producer_ids(PATIENCE_MS) == range(7000, 8000)
    assert [broker_id for broker_id, _ in scripted.asked] == [OTHER, 3, OWN, OTHER]


@pytest.mark.parametrize("first", [NOBODY, OWN, OTHER])
async def test_without_a_controller_a_request_fails_when_its_time_is_over(first: int) -> None:
    refusal = ProtocolError(ErrorCode.NOT_CONTROLLER) if first == OWN else NOT_CONTROLLER
    active, scripted = asking(first, refusal)
    with pytest.raises(NoController, match="no controller answered in 250 ms: "):
        await active.allocate_producer_ids(250)
    assert bool(scripted.asked) == (first != NOBODY)


@pytest.mark.parametrize(
    ("controller", "refusal"),
    [
        (OWN, ProtocolError(ErrorCode.STALE_BROKER_EPOCH)),
        (OTHER, AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)),
    ],
)
async def test_a_refusal_is_final(controller: int, refusal: object) -> None:
    active, scripted = asking(controller, refusal)
    with pytest.raises(ProtocolError) as caught:
        await active.allocate_producer_ids(PATIENCE_MS)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    assert len(scripted.asked) == 1


async def test_the_answer_to_a_proposal_is_returned_even_if_it_is_a_refusal() -> None:
    refused = AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    active, _ = asking(OTHER, refused)
    request = AlterPartitionRequest(broker_id=OWN, broker_epoch=77, topics=[])
    assert await active.alter_partition(request) is refused
