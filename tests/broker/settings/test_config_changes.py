from __future__ import annotations

import pytest

from odradek.broker.background.stepwise import finished
from odradek.broker.settings import TOPIC
from odradek.broker.settings.config_changes import (
    LONGEST_VALUE_BYTES,
    Item,
    check_items,
    modification,
    replacement,
)
from odradek.protocol.errors import LONGEST_ERROR_MESSAGE, ErrorCode, ProtocolError
from odradek.protocol.wire_codes import ConfigOperation

LIST = "leader.replication.throttled.replicas"
MANY = 20_000


def changed(before: str | None, operation: ConfigOperation, value: str) -> str:
    current = {} if before is None else {LIST: before}
    return finished(modification([Item(LIST, operation, value)], TOPIC.get)(current))[LIST]


def test_append_adds_each_missing_part_once() -> None:
    assert changed("0:1,1:1", ConfigOperation.APPEND, "1:1, 2:1,2:1") == "0:1,1:1,2:1"
    assert changed(None, ConfigOperation.APPEND, "2:1") == "2:1"


def test_subtract_removes_parts_at_any_position() -> None:
    assert changed("0:1,1:1,0:1", ConfigOperation.SUBTRACT, "0:1,7:7") == "1:1"


def test_a_list_may_be_as_long_as_the_longest_string_of_a_response() -> None:
    longest = "*," + "ä" * ((LONGEST_VALUE_BYTES - 2) // 2) + "x"
    assert changed("*", ConfigOperation.APPEND, longest[2:]) == longest
    with pytest.raises(ProtocolError) as caught:
        changed("*", ConfigOperation.APPEND, longest[2:] + "x")
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_changes_of_many_settings_are_checked_and_applied_in_steps() -> None:
    items = [Item(f"plug.in.{number}", ConfigOperation.SET, "x") for number in range(MANY)]
    for steps in (check_items(items), modification(items, TOPIC.get)({}), replacement(items)({})):
        assert len(list(steps)) > 20


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (Item("a", ConfigOperation.SET, "x"), "These settings occur more than once: a"),
        (Item("b", ConfigOperation.SET, None), "These settings have no value: b"),
        (Item("b", 9, "x"), "Unknown operation 9"),
    ],
)
def test_an_invalid_item_refuses_the_request(item: Item, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason) as caught:
        finished(check_items([Item("a", ConfigOperation.SET, "x"), item]))
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_an_error_text_names_only_a_few_of_many_settings() -> None:
    items = [Item("x" * 30_000 + str(number), ConfigOperation.SET, None) for number in range(12)]
    with pytest.raises(ProtocolError) as caught:
        finished(check_items(items))
    assert len(caught.value.error_message or "") == LONGEST_ERROR_MESSAGE + len(" ...")
    with pytest.raises(ProtocolError, match=r"have no value: 0, 1, 10, .* and 1 more$"):
        finished(check_items([Item(str(number), ConfigOperation.SET, None) for number in range(11)]))
