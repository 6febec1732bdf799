import pytest

from odradek.broker.requests.request_context import PendingResponse


def test_a_pending_response_is_settled_once() -> None:
    pending = PendingResponse()
    calls: list[str] = []
    pending.when_settled(lambda: calls.append("settled"))
    assert pending.complete("first")
    assert not pending.complete("second")
    assert not pending.fail(ValueError())
    assert calls == ["settled"]
    assert pending.result() == "first"


def test_a_failure_is_raised_to_whoever_takes_the_result() -> None:
    pending = PendingResponse()
    pending.fail(ValueError("why"))
    with pytest.raises(ValueError, match="why"):
        pending.result()


def test_one_that_is_settled_already_tells_at_once() -> None:
    pending = PendingResponse()
    pending.complete(None)
    calls: list[str] = []
    pending.when_settled(lambda: calls.append("settled"))
    pending.when_abandoned(lambda: calls.append("abandoned"))
    assert calls == ["settled"]


def test_an_abandoned_one_tells_its_owner_and_takes_no_answer() -> None:
    pending = PendingResponse()
    calls: list[str] = []
    pending.when_abandoned(lambda: calls.append("abandoned"))
    pending.when_settled(lambda: calls.append("settled"))
    pending.abandon()
    pending.abandon()
    assert not pending.complete("late")
    assert calls == ["abandoned"]
    pending.when_abandoned(lambda: calls.append("told at once"))
    assert calls == ["abandoned", "told at once"]
