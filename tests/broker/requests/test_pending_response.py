import pytest

from odradek.broker.requests.request_context import PendingResponse


def test_a_pending_response_is_completed_once() -> None:
    pending = PendingResponse()
    calls: list[str] = []
    pending.when_settled(lambda: calls.append("settled"))
    assert pending.complete("first")
    assert not pending.complete("second")
    assert not pending.fail(ValueError())
    assert calls == ["settled"]
    assert pending.result() == "first"


def test_a_failure_is_raised_to_the_caller_that_takes_the_result() -> None:
    pending = PendingResponse()
    pending.fail(ValueError("why"))
    with pytest.raises(ValueError, match="why"):
        pending.result()


def test_a_callback_on_a_completed_response_is_called_at_once() -> None:
    pending = PendingResponse()
    pending.complete(None)
    calls: list[str] = []
    pending.when_settled(lambda: calls.append("settled"))
    pending.when_abandoned(lambda: calls.append("abandoned"))
    assert calls == ["settled"]


def test_an_abandoned_response_notifies_its_owner_and_ignores_results() -> None:
    pending = PendingResponse()
    calls: list[str] = []
    pending.when_abandoned(lambda: calls.append("abandoned"))
    pending.when_settled(lambda: calls.append("settled"))
    pending.abandon()
    pending.abandon()
    assert not pending.complete("late")
    assert calls == ["abandoned"]
    pending.when_abandoned(lambda: calls.append("called at once"))
    assert calls == ["abandoned", "called at once"]
