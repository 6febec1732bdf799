"""`/api/wheel`: the levels of the timing wheel and their buckets. timer/timing_wheel.py explains them."""

from __future__ import annotations

from odradek.broker.background.stepwise import Steps
from odradek.broker.console.queries import Query
from odradek.broker.console.selection import Row
from odradek.broker.metrics.sources import MetricSources
from odradek.timer import TimingWheel

MOST_COUNTED = 10_000
"""A bucket with more tasks is shown with this number of them."""
MOST_BUCKETS = 256
"""Of each level (odradek.timer.wheel.size)."""
COUNTED_PER_STEP = 10_000


def wheel(sources: MetricSources, _query: Query) -> Steps[Row]:
    timer = sources.timer
    levels = []
    level: TimingWheel | None = timer.wheel
    while level is not None:
        levels.append((yield from _level(level)))
        level = level.overflow_wheel
    return {
        "now_ms": timer.clock.now_ms(),
        "tasks": timer.size,
        "queued_buckets": timer.queued_buckets,
        "next_expiration_ms": timer.next_expiration_ms,
        "wakeups": sources.reaper.wakeups,
        "levels": levels,
    }


def _level(level: TimingWheel) -> Steps[Row]:
    """`hand`: the index of the bucket of the current time. It changes when a bucket expires, and only then."""
    counts = []
    counted = 0
    for bucket in level.buckets[:MOST_BUCKETS]:
        count = bucket.count(MOST_COUNTED)
        counts.append(count)
        counted += 1 + count
        if counted >= COUNTED_PER_STEP:
            counted = 0
            yield
    return {
        "tick_ms": level.tick_ms,
        "interval_ms": level.interval_ms,
        "buckets": level.wheel_size,
        "buckets_left_off": max(level.wheel_size - MOST_BUCKETS, 0),
        "time_ms": level.current_time_ms,
        "hand": level.current_time_ms // level.tick_ms % level.wheel_size,
        "tasks": counts,
    }
