"""ExpirationReaper: sleeps until the timer's next bucket expires.

It holds at most one scheduled call of the event loop, for the moment at which the earliest bucket expires. An earlier
bucket reschedules that call; a later one never does. When nothing waits there is no call, so an idle broker's timers
cost nothing. (Kafka: SystemTimerReaper and ExpiredOperationReaper, which wake every 200 ms.)

    tasks at 200 and 840 ms, ticks of 1 ms and 20 buckets
    wakes at 200 (runs the first), 800 (840 moves down a wheel), 840 (runs the second): three times, not 840

The clock floors to milliseconds and the loop does not call early, so a wake-up finds its bucket expired. If a loop does
call early, the next call is scheduled at least one millisecond later, so the reaper cannot spin.
"""

import asyncio

from odradek.timer.system_timer import SystemTimer


class ExpirationReaper:
    """Advances a timer on an event loop. The creator calls `start` and `stop`; `wakeups` counts the wake-ups."""

    __slots__ = ("_armed_for_ms", "_handle", "_loop", "_timer", "_waking", "wakeups")

    def __init__(self, timer: SystemTimer) -> None:
        self._timer = timer
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._armed_for_ms = -1
        self._waking = False
        self.wakeups: int = 0

    def start(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Starts on `loop`, or on the running loop. Raises RuntimeError if the reaper is already running."""
        if self._loop is not None:
            raise RuntimeError("the reaper is already running")
        self._loop = loop if loop is not None else asyncio.get_running_loop()
        self._timer.on_earlier(self._arm)
        self._arm()

    def stop(self) -> None:
        """Cancels the scheduled call. Tasks stay in the timer. Idempotent."""
        self._timer.on_earlier(None)
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._loop = None

    def _arm(self) -> None:
        """Schedules the call for the earliest bucket. During a wake-up this is left to the end of the wake-up."""
        expiration_ms = self._timer.next_expiration_ms
        if self._waking or self._loop is None or expiration_ms is None:
            return
        if self._handle is not None:
            if self._armed_for_ms <= expiration_ms:
                return
            self._handle.cancel()
        delay_ms = max(expiration_ms - self._timer.clock.now_ms(), 1)
        self._armed_for_ms = expiration_ms
        self._handle = self._loop.call_later(delay_ms / 1000, self._wake)

    def _wake(self) -> None:
        self.wakeups += 1
        self._handle = None
        self._waking = True
        try:
            self._timer.advance_clock()
        finally:
            self._waking = False
            self._arm()
