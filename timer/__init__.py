"""The hierarchical timing wheel, and the clock that everything is told the time by."""

from timer.bucket_queue import BucketQueue
from timer.clock import Clock, ManualClock, SystemClock
from timer.reaper import ExpirationReaper
from timer.system_timer import DEFAULT_TICK_MS, DEFAULT_WHEEL_SIZE, SystemTimer
from timer.task import TaskCounter, TimerTask, TimerTaskEntry
from timer.task_list import TimerTaskList
from timer.timing_wheel import TimingWheel

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
