"""The handlers that ask before the handlers of the table: of every kind, parked or not; and who counts as a broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from odradek.broker.background.background import Background
from odradek.broker.background.stepwise import ITEMS_PER_STEP, finished
from odradek.broker.handlers.access import AuthorizationDenied, DecidedAccess, brokers_by
from odradek.broker.handlers.api_table import api_table
from odradek.broker.handlers.audit_log import AuditLog
from odradek.broker.handlers.authorization import before, on_cluster, on_each, says_who
from odradek.broker.handlers.error_responses import per_item
from odradek.broker.requests.endpoint import Endpoint
from odradek.broker.requests.request_bound import MAX_PARTITIONS_PER_REQUEST, RequestBound
from odradek.broker.requests.request_context import ConnectionInfo, Holds, PendingResponse, RequestContext
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.group_admin import DeleteGroupsRequest, DeleteGroupsResponse
from odradek.protocol.messages.replica_control import ControlledShutdownRequest
from odradek.protocol.schema import NEVER
from odradek.protocol.wire_codes import AclOperation, AclResourceType
from odradek.timer import ManualClock
from tests.broker.handlers.scripted_authorizer import Question, ScriptedAuthorizer, but, everything, nothing

CLUSTER_ACTION = Question(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, "kafka-cluster")
DENIAL = per_item(DeleteGroupsResponse, ("groups_names", "results"), "group_id")
ON_GROUPS = before(items=on_each(AclOperation.DELETE, AclResourceType.GROUP, "groups_names"))
Result = DeleteGroupsResponse.DeletableGroupResult


def connection(listener: str = "BROKERS") -> ConnectionInfo:
    made = ConnectionInfo(Endpoint(listener, "PLAINTEXT", "", 9092, "", 9092), "127.0.0.1", 5000)
    made.principal = "User:alice"
    return made


CONTEXT = RequestContext(connection(), ApiKey.DELETE_GROUPS, 2, 1, "shop", 0)


def deleting(*names: str) -> Question:
    return Question(AclOperation.DELETE, AclResourceType.GROUP, names[0])


class Guarded:
    """A handler of any kind behind `ON_GROUPS`. `seen` are the groups of the requests that reached it."""

    def __init__(self, background: Background, authorizer: ScriptedAuthorizer) -> None:
        self.background = background
        self.authorizer = authorizer
        self.access = DecidedAccess(authorizer, AuditLog(ManualClock()))
        self.seen: list[list[str]] = []
        self.parked: PendingResponse | None = None

    def guard(self, handler: Any) -> Any:
        return ON_GROUPS.guard(handler, DENIAL, self.access, self.background)

    def _answer(self, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        self.seen.append(list(request.groups_names))
        return DeleteGroupsResponse(results=[Result(group_id=name) for name in request.groups_names])

    def plain(self, request: Any, context: RequestContext) -> Any:
        return self._answer(request)

    def steps(self, request: Any, context: RequestContext) -> Any:
        yield
        return self._answer(request)

    async def task(self, request: Any, context: RequestContext) -> Any:
        return self._answer(request)

    def parking(self, request: Any, context: RequestContext) -> Any:
        self.parked = PendingResponse(holds=Holds.EVERYTHING)
        return self.parked


@asynccontextmanager
async def guarded() -> AsyncIterator[Guarded]:
    background = Background()
    try:
        yield Guarded(background, ScriptedAuthorizer(but(deleting("b"))))
    finally:
        await background.stop()


def results(response: Any) -> dict[str, int]:
    return {each.group_id: each.error_code for each in response.results}


EXPECTED = {"a": ErrorCode.NONE, "c": ErrorCode.NONE, "b": ErrorCode.GROUP_AUTHORIZATION_FAILED}


async def test_a_handler_of_any_kind_does_not_see_what_is_denied() -> None:
    request = DeleteGroupsRequest(groups_names=["a", "b", "c", "b"])
    async with guarded() as one:
        found = [
            one.guard(one.plain)(request, CONTEXT),
            finished(one.guard(one.steps)(request, CONTEXT)),
            await one.guard(one.task)(request, CONTEXT),
        ]
        for response in found:
            assert results(response) == EXPECTED
            assert [each.group_id for each in response.results] == ["a", "c", "b", "b"]
        assert one.seen == [["a", "c"]] * 3
        assert request.groups_names == ["a", "b", "c", "b"]
        assert one.authorizer.asked.count(deleting("b")) == 3


async def test_a_parked_response_gets_the_denials_when_it_is_complete() -> None:
    async with guarded() as one:
        pending = one.guard(one.parking)(DeleteGroupsRequest(groups_names=["a", "b"]), CONTEXT)
        assert isinstance(pending, PendingResponse)
        assert pending.holds == Holds.EVERYTHING
        assert one.parked is not None
        assert not pending.settled
        one.parked.complete(DeleteGroupsResponse(results=[Result(group_id="a")]))
        assert results(pending.result()) == {name: EXPECTED[name] for name in ("a", "b")}


async def test_a_parked_response_fails_and_ends_like_the_handlers() -> None:
    async with guarded() as one:
        guard = one.guard(one.parking)
        failing = guard(DeleteGroupsRequest(groups_names=["a", "b"]), CONTEXT)
        assert one.parked is not None
        one.parked.fail(ProtocolError(ErrorCode.NOT_COORDINATOR))
        with pytest.raises(ProtocolError, match="NOT_COORDINATOR"):
            failing.result()
        abandoned = guard(DeleteGroupsRequest(groups_names=["a", "b"]), CONTEXT)
        ended: list[bool] = []
        one.parked.when_abandoned(lambda: ended.append(True))
        abandoned.abandon()
        assert ended == [True]


async def test_very_many_items_are_decided_in_turns_and_hold_the_next_request_of_the_api() -> None:
    names = [f"group-{number}" for number in range(3 * ITEMS_PER_STEP)]
    async with guarded() as one:
        pending = one.guard(one.plain)(DeleteGroupsRequest(groups_names=names), CONTEXT)
        assert isinstance(pending, PendingResponse)
        assert pending.holds == Holds.SAME_API
        assert 0 < len(one.authorizer.asked) < ITEMS_PER_STEP
        settled = asyncio.Event()
        pending.when_settled(settled.set)
        await settled.wait()
        assert len(one.authorizer.asked) == len(results(pending.result())) == len(names)


async def test_requests_between_brokers_are_denied_as_a_whole_and_name_the_client() -> None:
    async with guarded() as one:
        one.authorizer.change(nothing)
        for row in api_table().rows():
            if row.served == NEVER:
                guard = row.authorization.guard(one.task, row.error_response, one.access, one.background)
                with pytest.raises(AuthorizationDenied, match=r"User:alice from host .* needs CLUSTER_ACTION"):
                    await guard(row.request_class(), CONTEXT)
        assert one.seen == []
        one.authorizer.change(everything)
        assert await guard(DeleteGroupsRequest(groups_names=["a"]), CONTEXT)


@pytest.mark.parametrize("kind", ["plain", "steps", "task"])
async def test_a_handler_of_any_kind_is_not_reached_by_a_request_that_is_denied(kind: str) -> None:
    authorization = before(on_cluster(AclOperation.ALTER, AclOperation.CLUSTER_ACTION, says=says_who))
    async with guarded() as one:
        guard = authorization.guard(getattr(one, kind), DENIAL, one.access, one.background)

        async def call() -> Any:
            answer = guard(ControlledShutdownRequest(), CONTEXT)
            return await answer if kind == "task" else finished(answer) if kind == "steps" else answer

        one.authorizer.change(nothing)
        with pytest.raises(AuthorizationDenied) as denied:
            await call()
        assert denied.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert one.seen == []


# Who counts as a broker


def test_a_follower_may_name_more_partitions_if_it_may_act_as_a_broker() -> None:
    authorizer = ScriptedAuthorizer()
    bound = RequestBound(brokers_by(authorizer, "BROKERS"), lambda: 7)
    follower = FetchRequest(replica_id=5)
    assert bound.of(follower, connection("CLIENTS")) == MAX_PARTITIONS_PER_REQUEST + 7
    assert authorizer.clients == {("User:alice", "127.0.0.1")}
    assert bound.of(FetchRequest(replica_id=-1), connection()) == MAX_PARTITIONS_PER_REQUEST
    authorizer.change(but(CLUSTER_ACTION))
    assert bound.of(follower, connection("BROKERS")) == MAX_PARTITIONS_PER_REQUEST


def test_without_an_authorizer_the_listener_tells_who_is_a_broker() -> None:
    bound = RequestBound(brokers_by(None, frozenset({"BROKERS"})), lambda: 7)
    follower = FetchRequest(replica_id=5)
    assert bound.of(follower, connection("BROKERS")) == MAX_PARTITIONS_PER_REQUEST + 7
    assert bound.of(follower, connection("CLIENTS")) == MAX_PARTITIONS_PER_REQUEST
    alone = RequestBound(brokers_by(None, frozenset()), lambda: 7)
    assert alone.of(follower, connection()) == MAX_PARTITIONS_PER_REQUEST
