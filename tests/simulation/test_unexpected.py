"""Exceptions that nothing expects are findings, although the broker goes on."""

from __future__ import annotations

import errno

import structlog

from tests.simulation.missteps import Misstep
from tests.simulation.scenes import Scene
from tests.simulation.unexpected import noted_in

log = structlog.get_logger("broker")


def texts_of(error: Exception, *, is_at_hand: bool = False) -> list[str]:
    """What is noted of an error that a broker logs. `is_at_hand`: it is not being handled, as that of a task."""
    history = Scene().history
    with noted_in(history):
        if is_at_hand:
            log.error("task failed", exc_info=error)
        else:
            try:
                raise error
            except Exception:
                log.exception("event failed")
                log.error("not done", exc_info=True)
                log.error("not done", exc_info=False)
    return [f"{each.finding.invariant}: {each.finding.text}" for each in history.of(Misstep)]


def test_an_exception_that_nothing_expects_is_noted() -> None:
    assert texts_of(KeyError(3)) == ["unexpected: event failed: KeyError(3)", "unexpected: not done: KeyError(3)"]
    assert texts_of(AssertionError("no"), is_at_hand=True) == ["unexpected: task failed: AssertionError('no')"]


def test_errors_that_are_simulated_are_not() -> None:
    assert texts_of(OSError(errno.EIO, "disk")) == []
    assert texts_of(OSError(errno.EIO, "disk"), is_at_hand=True) == []


def test_a_line_without_an_exception_is_not() -> None:
    history = Scene().history
    with noted_in(history):
        log.error("replica offline", reason="disk")
    assert not list(history.of(Misstep))
