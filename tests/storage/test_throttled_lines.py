"""Repeated failures are logged once per period."""

import errno
import os

from odradek.storage.throttled_lines import MOST_KINDS, PERIOD_MS, ThrottledLines
from odradek.timer import ManualClock
from tests.memory_files import ForgetfulFiles
from tests.storage.small_logs import NOW, append, batch, open_small
from tests.storage.test_full_disk import append_fails


def errors(logged: list[dict[str, object]]) -> list[tuple[object, object]]:
    return [(entry["event"], entry.get("suppressed")) for entry in logged if entry["log_level"] == "error"]


def test_refused_appends_are_logged_once_per_period_with_a_count(logged: list[dict[str, object]]) -> None:
    files, clock = ForgetfulFiles(), ManualClock(wall_ms=NOW)
    log = open_small(files, clock=clock)
    append(log)
    files.room = 10
    for _ in range(500):
        append_fails(log, batch())
    assert errors(logged) == [("append failed", None)]
    clock.advance(PERIOD_MS)
    append_fails(log, batch())
    append_fails(log, batch())
    assert errors(logged) == [("append failed", None), ("append failed", 499)]


def test_another_reason_is_logged_immediately(logged: list[dict[str, object]]) -> None:
    files = ForgetfulFiles()
    log = open_small(files)
    append(log)
    files.room = 10
    append_fails(log, batch())
    log.folder.fail(OSError(errno.EIO, os.strerror(errno.EIO)))
    append_fails(log, batch())
    assert errors(logged)[:2] == [("append failed", None), ("append failed", None)]


def test_the_number_of_kinds_is_limited() -> None:
    messages: list[str] = []
    lines = ThrottledLines(ManualClock())
    for kind in range(10 * MOST_KINDS):
        lines.log(messages.append, kind, "failed")
    assert len(messages) == 10 * MOST_KINDS
    assert len(lines._kinds) <= MOST_KINDS
