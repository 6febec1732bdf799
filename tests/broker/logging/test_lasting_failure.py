"""A failure that lasts is logged when it begins, and then once a minute."""

from __future__ import annotations

from typing import Any

from odradek.broker.logging.lasting_failure import LastingFailure
from odradek.timer import ManualClock


class Lines:
    def __init__(self) -> None:
        self.clock = ManualClock(now_ms=5000)
        self.failure = LastingFailure(self.clock)
        self.lines: list[dict[str, Any]] = []

    def meet(self, for_s: int, reason: str = "gone") -> list[dict[str, Any]]:
        """Meets the failure every second; returns the lines."""
        self.lines.clear()
        for _ in range(for_s):
            self.failure.met(lambda event, **details: self.lines.append(details), reason, "failed", reason=reason)
            self.clock.advance(1000)
        return list(self.lines)


def test_a_failure_that_lasts_is_logged_once_a_minute_with_since_when() -> None:
    lines = Lines()
    first, *reminders = lines.meet(185)
    assert first == {"reason": "gone"}
    assert [line["for_s"] for line in reminders] == [60, 120, 180]
    (since,) = {line["since"] for line in reminders}
    assert since.endswith("+00:00")


def test_another_reason_is_logged_at_once_and_each_only_once() -> None:
    lines = Lines()
    lines.meet(2)
    assert lines.meet(3, "refused") == [{"reason": "refused"}]
    assert lines.meet(3) == []


def test_a_failure_after_the_end_of_the_last_one_is_a_new_one() -> None:
    lines = Lines()
    lines.meet(100)
    lines.failure.over()
    assert lines.meet(1) == [{"reason": "gone"}]
    assert lines.meet(58) == []
