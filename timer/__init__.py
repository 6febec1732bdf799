"""The hierarchical timing wheel, and the clock that the broker reads.

    timing_wheel.py    add and cancel in O(1); its head has a worked example
    task_list.py       one bucket; task.py: one task
    bucket_queue.py    the buckets in the order of their expiration
    system_timer.py    wheels, queue and clock together
    reaper.py          sleeps until the next bucket expires
    clock.py           time as an argument

Callers: `purgatory`, `storage` and `broker`.
"""

from odradek.timer.bucket_queue import BucketQueue
from odradek.timer.clock import Clock, ManualClock, SystemClock
from odradek.timer.reaper import ExpirationReaper
from odradek.timer.system_timer import DEFAULT_TICK_MS, DEFAULT_WHEEL_SIZE, SystemTimer
from odradek.timer.task import TaskCounter, TimerTask, TimerTaskEntry
from odradek.timer.task_list import TimerTaskList
from odradek.timer.timing_wheel import TimingWheel

__all__ = [
    "DEFAULT_TICK_MS",
    "DEFAULT_WHEEL_SIZE",
    "BucketQueue",
    "Clock",
    "ExpirationReaper",
    "ManualClock",
    "SystemClock",
    "SystemTimer",
    "TaskCounter",
    "TimerTask",
    "TimerTaskEntry",
    "TimerTaskList",
    "TimingWheel",
]
