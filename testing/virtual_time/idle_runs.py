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

import heapq
import math
from collections.abc import Callable
from typing import NamedTuple

from odradek.testing.virtual_time.call import Call

Timer = tuple[int, int, Call]
"""When it is due, in microseconds; its number, in the order in which timers were scheduled; what it calls."""


class _Idle(NamedTuple):
    """A timer that is put off."""

    due_us: int
    number: int
    call: Call
    interval_us: int

    def first_at(self, not_before_us: int) -> int:
        """Returns when its first run from that moment on is due."""
        left_out = -((self.due_us - not_before_us) // self.interval_us)
        return self.due_us + max(left_out, 0) * self.interval_us

    def before(self, not_before_us: int) -> int:
        """Returns when the run before that one is due."""
        return self.first_at(not_before_us) - self.interval_us


def put_off_idle_runs(timers: list[Timer], first: Callable[[], Timer | None], until_us: int, number: int) -> int:
    """Puts off the timers of runs before `until_us` that would do nothing. `timers` is a heap, `first()` returns its
    first one that is not cancelled, and `number` is that of the newest. Returns the new one.
    """
    limit_us = until_us
    idle: list[_Idle] = []
    while (timer := first()) is not None and timer[0] < limit_us:
        due_us, its_number, call = timer
        work = call.work
        idle_until_ms = 0 if work is None else work.idle_until_ms()
        if work is None or due_us // 1000 >= idle_until_ms:
            limit_us = due_us
            break
        heapq.heappop(timers)
        found = _Idle(due_us, its_number, call, max(round(work.interval_s * 1e6), 1))
        idle.append(found)
        if idle_until_ms * 1000 < limit_us:
            limit_us = min(limit_us, found.first_at(math.ceil(idle_until_ms * 1000)))
    for before_us, its_number, each in sorted((each.before(limit_us), each.number, each) for each in idle):
        due_us = before_us + each.interval_us
        if due_us > each.due_us:
            number += 1
            its_number = number
        heapq.heappush(timers, (due_us, its_number, each.call))
    return number
