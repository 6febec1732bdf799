from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.background.stepwise import finished
from odradek.broker.handlers.answer_size import AnswerSize, AnswerTooLarge
from odradek.broker.handlers.api_table import api_table
from odradek.broker.handlers.route import Route
from odradek.broker.requests.request_context import RequestContext
from odradek.broker.requests.request_metrics import BrokerMetrics
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.group_admin import ListGroupsResponse
from odradek.storage.files import Buffer

VERSION = 4


def never(request: Any, context: RequestContext) -> None:
    raise AssertionError("no request is handled here")


def route(most_bytes: int) -> Route:
    row = api_table().row(ApiKey.LIST_GROUPS)
    assert row is not None
    return Route(row, never, VERSION, BrokerMetrics().of(ApiKey.LIST_GROUPS, VERSION), most_bytes)


def groups(count: int) -> ListGroupsResponse:
    return ListGroupsResponse(groups=[ListGroupsResponse.ListedGroup(group_id=f"{n:06}") for n in range(count)])


def size(parts: list[Any]) -> int:
    buffers: list[Buffer] = parts
    return sum(map(len, buffers)) - len(buffers[0])


def test_a_response_of_exactly_the_bound_is_written_at_once_or_in_steps() -> None:
    exact = size(route(1 << 30).encode(groups(5000), 1))
    assert size(route(exact).encode(groups(5000), 1)) == exact
    assert size(finished(route(exact).encode_in_steps(groups(5000), 1))) == exact
    with pytest.raises(AnswerTooLarge):
        route(exact - 1).encode(groups(5000), 1)
    with pytest.raises(AnswerTooLarge):
        finished(route(exact - 1).encode_in_steps(groups(5000), 1))


def test_a_long_response_is_abandoned_when_it_exceeds_the_bound() -> None:
    whole = sum(1 for _ in route(1 << 30).encode_in_steps(groups(100_000), 1))
    writing = route(50_000).encode_in_steps(groups(100_000), 1)
    for _ in range(whole // 10):
        try:
            next(writing)
        except AnswerTooLarge:
            return
    pytest.fail("a tenth of it was written")


def test_bytes_are_counted_up_to_the_bound() -> None:
    counted = AnswerSize(100)
    counted.add(60)
    counted.add(40)
    with pytest.raises(AnswerTooLarge, match=r"exceed 100 bytes \(odradek.max.response.bytes\)") as caught:
        counted.add(1)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
