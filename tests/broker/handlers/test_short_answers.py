from __future__ import annotations

from odradek.broker.background.stepwise import ITEMS_PER_STEP, is_short
from odradek.protocol.messages.configs import DescribeConfigsResponse
from odradek.protocol.messages.group_admin import ListGroupsResponse

Result = DescribeConfigsResponse.DescribeConfigsResult
Config = DescribeConfigsResponse.DescribeConfigsResourceResult


def test_a_response_is_short_while_its_arrays_together_fit_one_step() -> None:
    groups = [ListGroupsResponse.ListedGroup() for _ in range(ITEMS_PER_STEP)]
    assert is_short(None)
    assert is_short(ListGroupsResponse(groups=groups))
    assert not is_short(ListGroupsResponse(groups=[*groups, groups[0]]))


def test_nested_arrays_count_towards_the_length_of_a_response() -> None:
    def answer(results: int, configs: int) -> DescribeConfigsResponse:
        each = [Config(synonyms=[]) for _ in range(configs)]
        return DescribeConfigsResponse(results=[Result(configs=each) for _ in range(results)])

    assert is_short(answer(1, ITEMS_PER_STEP - 1))
    assert not is_short(answer(1, ITEMS_PER_STEP))
    assert not is_short(answer(10, ITEMS_PER_STEP // 10))
