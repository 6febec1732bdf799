"""What each API asks the authorizer before it does anything: the `authorization` of a row of the API table.

A request may need

    (A) one operation on one resource, or on the cluster: a denial answers the whole request, in its error response;
    (B) an operation on each of its items: those that are denied are answered as the row's error response answers items,
        behind the others. The handler sees a request that does not have them;
    (C) checks in an order, or on names, that depend on more than the request: the handler asks by the row's checks;
    (D) nothing: what a client sends before it is anybody.

(A) and (B) combine. A denied item is answered in the same way whether what it names exists or not. Without an
authorizer the handlers are those of the table, and nothing comes before them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from types import MappingProxyType
from typing import Any, NamedTuple

from odradek.broker.background.background import Background
from odradek.broker.background.stepwise import Pace, Steps, each_in_steps, items_of
from odradek.broker.handlers.access import (
    ASKS_ON,
    DENIALS,
    ITEMS_PER_DECISION,
    Access,
    AuthorizationDenied,
    Check,
    denial_of,
)
from odradek.broker.handlers.config_resources import resource_with_settings
from odradek.broker.handlers.error_responses import RefusedItems
from odradek.broker.handlers.handler_kinds import Handler, HandlerKind, kind_of
from odradek.broker.requests.answered_later import answered_in_steps
from odradek.broker.requests.request_context import Holds, PendingResponse, RequestContext
from odradek.broker.security.authorizer.authorizer import CLUSTER_NAME
from odradek.protocol.errors import ErrorCode
from odradek.protocol.wire_codes import AclOperation, AclResourceType

Resource = tuple[AclResourceType, str]
Says = Callable[[RequestContext, AclOperation, ErrorCode], str | None]
"""The text of a denial, for responses that have one."""


def says_who(context: RequestContext, operation: AclOperation, code: ErrorCode) -> str:
    """Names the client, as Kafka does in requests between brokers, and of ACLs and reassignments."""
    return denial_of(context, operation, code)


def says_what(context: RequestContext, operation: AclOperation, code: ErrorCode) -> str:
    return code.message


def says_nothing(context: RequestContext, operation: AclOperation, code: ErrorCode) -> None:
    return None


class Question(NamedTuple):
    """(A) Any one of the checks is enough. `field`: the request's field with the name; empty for the cluster."""

    checks: tuple[Check, ...]
    field: str = ""
    says: Says = says_what

    def ask(self, request: Any, context: RequestContext, access: Access) -> None:
        """Raises AuthorizationDenied."""
        name = getattr(request, self.field) if self.field else CLUSTER_NAME
        if any(access.allows(context, check, name) for check in self.checks):
            return
        last = self.checks[-1]
        code = DENIALS[last.resource_type]
        raise AuthorizationDenied(code, self.says(context, last.operation, code))


class Items(NamedTuple):
    """(B) `array`: the request's items; `resource_of`: the resource of one, None to leave it to the handler. `denial`
    answers denied ones, by default the row's error response. `unless`: a check on the cluster that is enough.
    """

    operation: AclOperation
    array: str
    resource_of: Callable[[Any], Resource | None]
    by_type: Mapping[AclResourceType, Check]
    says: Says = says_what
    denial: RefusedItems | None = None
    unless: Check | None = None

    def split(
        self, request: Any, context: RequestContext, access: Access
    ) -> Steps[tuple[list[Any], list[tuple[Any, ErrorCode]]]]:
        """Returns the items that are allowed, and the others with their errors. Decides once for each resource."""
        decided: dict[Resource | None, bool] = {None: True}
        allowed, denied = [], []
        pace = Pace()
        for item in getattr(request, self.array) or ():
            resource = self.resource_of(item)
            cost = 1
            if resource is not None and resource not in decided:
                decided[resource] = access.allows(context, self.by_type[resource[0]], resource[1])
                cost = ITEMS_PER_DECISION + items_of(resource[1])
            if resource is None or decided[resource]:
                allowed.append(item)
            else:
                denied.append((item, DENIALS[resource[0]]))
            if pace.step_ends(cost):
                yield
        return allowed, denied

    def checks(self) -> tuple[Check, ...]:
        return (*(() if self.unless is None else (self.unless,)), *self.by_type.values())


class Authorization(NamedTuple):
    """Without `questions` and `items`, nothing is asked before the handler: (C) and (D)."""

    checks: tuple[Check, ...] = ()
    questions: tuple[Question, ...] = ()
    items: Items | None = None

    def guard(self, handler: Handler, refused_items: Any, access: Access, background: Background) -> Handler:
        """Returns a handler that asks first. `refused_items`: how the row's error response answers items."""
        if self.items is not None:
            denial = self.items.denial or refused_items
            return _Splitting(self.questions, self.items, denial, handler, access, background).handler()
        return _asking(self.questions, handler, access) if self.questions else handler

    def and_in_handler(self, *checks: Check) -> Authorization:
        """Adds what the handler asks besides."""
        return self._replace(checks=self.checks + checks)


def _asking(questions: Sequence[Question], handler: Handler, access: Access) -> Handler:
    """Returns a handler of the same kind that asks the questions first."""

    def ask(request: Any, context: RequestContext) -> None:
        for question in questions:
            question.ask(request, context, access)

    def plain(request: Any, context: RequestContext) -> Any:
        ask(request, context)
        return handler(request, context)

    def steps(request: Any, context: RequestContext) -> Steps[Any]:
        ask(request, context)
        return (yield from handler(request, context))

    async def task(request: Any, context: RequestContext) -> Any:
        ask(request, context)
        return await handler(request, context)

    return {HandlerKind.PLAIN: plain, HandlerKind.STEPS: steps, HandlerKind.TASK: task}[kind_of(handler)]


class _Splitting:
    """Takes denied items out of requests (B)."""

    def __init__(
        self,
        questions: Sequence[Question],
        items: Items,
        denial: RefusedItems,
        handler: Handler,
        access: Access,
        background: Background,
    ) -> None:
        self._questions = questions
        self._items = items
        self._denial = denial
        self._handler = handler
        self._access = access
        self._background = background

    def handler(self) -> Handler:
        """Returns a handler of the same kind. A plain one handles requests in their order also if this takes steps."""
        spawn, turns = self._background.spawn, self._background.turns

        def plain(request: Any, context: RequestContext) -> Any:
            return answered_in_steps(self._handled(request, context), context, spawn, turns, Holds.SAME_API)

        def steps(request: Any, context: RequestContext) -> Steps[Any]:
            return (yield from self._handled(request, context))

        async def task(request: Any, context: RequestContext) -> Any:
            permitted, refused = await turns.take(self._permitted(request, context))
            response = await self._handler(permitted, context)
            return self._completed(response, refused)

        kind = kind_of(self._handler)
        return {HandlerKind.PLAIN: plain, HandlerKind.STEPS: steps, HandlerKind.TASK: task}[kind]

    def _handled(self, request: Any, context: RequestContext) -> Steps[Any]:
        permitted, refused = yield from self._permitted(request, context)
        response = self._handler(permitted, context)
        if kind_of(self._handler) is HandlerKind.STEPS:
            response = yield from response
        if refused and isinstance(response, PendingResponse):
            return self._when_complete(response, refused)
        return self._completed(response, refused)

    def _permitted(self, request: Any, context: RequestContext) -> Steps[tuple[Any, list[Any]]]:
        """Returns the request without its denied items, and the responses to those."""
        for question in self._questions:
            question.ask(request, context, self._access)
        items, access = self._items, self._access
        if items.unless is not None and access.allows(context, items.unless):
            return request, []
        allowed, denied = yield from items.split(request, context, access)
        if not denied:
            return request, []
        permitted = copy(request)
        setattr(permitted, items.array, allowed)
        operation = items.operation

        def refused(item: tuple[Any, ErrorCode]) -> Any:
            return self._denial.refused(item[0], item[1], items.says(context, operation, item[1]))

        return permitted, (yield from each_in_steps(denied, refused))

    def _when_complete(self, response: PendingResponse, refused: list[Any]) -> PendingResponse:
        whole = PendingResponse(holds=response.holds, is_long=response.is_long)
        whole.when_abandoned(response.abandon)

        def settled() -> None:
            try:
                result = response.result()
            except Exception as error:
                whole.fail(error)
            else:
                whole.complete(self._completed(result, refused))

        response.when_settled(settled)
        return whole

    def _completed(self, response: Any, refused: list[Any]) -> Any:
        if refused:
            array = self._denial.response_items
            setattr(response, array, [*getattr(response, array), *refused])
        return response


# --- what the rows say ----------------------------------------------------------------------------------------------

NOTHING_ASKED = Authorization()
"""(D)"""
PRODUCE_IN_TRANSACTION = Check(
    AclOperation.WRITE,
    AclResourceType.TRANSACTIONAL_ID,
    "transactional_id, if a batch is transactional",
    "each partition",
)
PRODUCE_TO_TOPIC = Check(AclOperation.WRITE, AclResourceType.TOPIC, "topic_data.name", "each partition")
FETCH_AS_FOLLOWER = Check(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, "of a follower", "each partition")
FETCH_AS_CONSUMER = Check(AclOperation.READ, AclResourceType.TOPIC, "topics.topic, of a consumer", "each partition")


def in_handler(*checks: Check) -> Authorization:
    """(C)"""
    return Authorization(checks)


def before(*questions: Question, items: Items | None = None) -> Authorization:
    """(A), one question after the other, and then (B)."""
    checks = [check for question in questions for check in question.checks]
    return Authorization((*checks, *(() if items is None else items.checks())), questions, items)


def on_cluster(operation: AclOperation, *or_else: AclOperation, says: Says = says_what) -> Question:
    """One operation on the cluster (A). `or_else`: any one of these is enough, too; only the last denial is one."""
    *others, last = [
        Check(each, AclResourceType.CLUSTER, "or else" if each in or_else else "") for each in (operation, *or_else)
    ]
    ask_on = (check._replace(denied=ASKS_ON, is_audited=False) for check in others)
    return Question((*ask_on, last), says=says)


def on_group(operation: AclOperation) -> Question:
    """One operation on the request's group (A)."""
    return Question((Check(operation, AclResourceType.GROUP, "group_id"),), "group_id")


def on_transactional_id(operation: AclOperation) -> Question:
    """One operation on the request's transactional id (A)."""
    return Question((Check(operation, AclResourceType.TRANSACTIONAL_ID, "transactional_id"),), "transactional_id")


def on_each(
    operation: AclOperation,
    resource_type: AclResourceType,
    array: str,
    field: str | None = None,
    *,
    says: Says = says_what,
    denial: RefusedItems | None = None,
    unless: AclOperation | None = None,
) -> Items:
    """An operation on each item of an array (B). `field`: the items' field with the name, None if they are names.
    `unless`: an operation on the cluster that is enough.
    """

    def resource_of(item: Any) -> Resource | None:
        """A topic whose id is unknown has no name."""
        name = item if field is None else getattr(item, field)
        return None if name is None else (resource_type, name)

    names = array if field is None else f"{array}.{field}"
    enough = None
    if unless is not None:
        enough = Check(unless, AclResourceType.CLUSTER, "instead of all others", ASKS_ON, is_audited=False)
    return Items(operation, array, resource_of, _by_type(operation, {resource_type: names}), says, denial, enough)


def on_each_with_settings(operation: AclOperation, array: str) -> Items:
    """As `on_each`, for resources with settings: those that are neither topics nor groups belong to the cluster."""

    def resource_of(item: Any) -> Resource | None:
        return resource_with_settings(item.resource_type, item.resource_name)

    of_topic, of_group = AclResourceType.TOPIC, AclResourceType.GROUP
    names = dict.fromkeys((of_topic, of_group), f"{array}.resource_name")
    names[AclResourceType.CLUSTER] = "any other resource"
    return Items(operation, array, resource_of, _by_type(operation, names))


def _by_type(operation: AclOperation, names: Mapping[AclResourceType, str]) -> Mapping[AclResourceType, Check]:
    return MappingProxyType({each: Check(operation, each, text, "each item") for each, text in names.items()})
