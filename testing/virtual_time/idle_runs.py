"""Leaves out the runs of periodic work that would do nothing: an idle broker has four of them a second.

While nothing else happens, what a run would do depends on the time alone, and the work says until when that is nothing
(`idle_until_ms` of broker/background/background.py). So its timer is put off, to where the last of the runs that are
left out would have put it:

    sweep every 0.5 s, idle until 600.2 s     next other timer at 7.3 s      the sweep is put off to 7.5 s
                                              no other timer before 3600 s   the sweep is put off to 600.5 s

Timers of one moment run in the order in which they were scheduled. A timer that is put off comes behind those that are
there, and those that are put off together are ordered by the ends of the runs before.
"""

from __future__ import annotations

import asyncio
import math
from typing import NamedTuple

from odradek.broker.background.background import Periodic
from odradek.testing.virtual_time.schedule import Schedule, Timer


class _Idle(NamedTuple):
    """A timer that is put off."""

    timer: Timer
    interval_us: int

    def first_at(self, not_before_us: int) -> int:
        """Returns when its first run from that moment on is due."""
        due_us = self.timer[0]
        left_out = -((due_us - not_before_us) // self.interval_us)
        return due_us + max(left_out, 0) * self.interval_us

    def before(self, not_before_us: int) -> int:
        """Returns when the run before that one is due."""
        return self.first_at(not_before_us) - self.interval_us


def put_off_idle_runs(schedule: Schedule, until_us: int) -> None:
    """Puts off the timers of runs before `until_us` that would do nothing."""
    limit_us = until_us
    idle: list[_Idle] = []
    while (timer := schedule.first()) is not None and timer[0] < limit_us:
        due_us, _, call = timer
        work = _work_of(call)
        idle_until_ms = 0 if work is None else work.idle_until_ms()
        if work is None or due_us // 1000 >= idle_until_ms:
            limit_us = due_us
            break
        schedule.pop()
        found = _Idle(timer, max(round(work.interval_s * 1e6), 1))
        idle.append(found)
        if idle_until_ms * 1000 < limit_us:
            limit_us = min(limit_us, found.first_at(math.ceil(idle_until_ms * 1000)))
    for each in sorted(idle, key=lambda each: (each.before(limit_us), each.timer[1])):
        due_us, _, call = each.timer
        put_off_to_us = each.first_at(limit_us)
        if put_off_to_us > due_us:
            schedule.put(put_off_to_us, call)
        else:
            schedule.put_back(each.timer)


def _work_of(call: asyncio.TimerHandle) -> Periodic | None:
    """A node loop schedules its timers: the periodic work is what such a timer calls."""
    arguments = call._args
    callback = getattr(arguments[0], "_callback", None) if arguments else None
    return callback if isinstance(callback, Periodic) else None
