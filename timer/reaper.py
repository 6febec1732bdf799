"""ExpirationReaper: the one thing that sleeps until the next bucket expires.

It holds at most one call of the event loop, for the moment at which the timer's earliest bucket expires. An earlier
bucket moves that call forward; nothing moves it back. When nothing waits there is no call, so an idle broker's timers
cost nothing at all. (Kafka: SystemTimerReaper and ExpiredOperationReaper, which wake every 200 ms.)

    tasks at 200 and 840 ms, ticks of 1 ms and 20 buckets
    wakes at 200 (runs the first), 800 (840 comes down a wheel), 840 (runs the second): three times, not 840

The clock floors to milliseconds and the loop does not call early, so a wake-up finds its bucket expired. Should a
loop call early all the same, it is armed anew for at least one millisecond: it cannot spin.
"""

import asyncio

from odradek.timer.system_timer import SystemTimer


class ExpirationReaper:
    """Advances a timer on an event loop. `start` and `stop` belong to whoever made it; `wakeups` counts."""

    __slots__ = ("_armed_for_ms", "_handle", "_loop", "_timer", "_waking", "wakeups")

    def __init__(self, timer: SystemTimer) -> None:
        self._timer = timer
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._armed_for_ms = -1
        self._waking = False
        self.wakeups: int = 0

    def start(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Begin on `loop`, or on the running one. Raises RuntimeError when it runs already."""
        if self._loop is not None:
            raise RuntimeError("the reaper runs already")
        self._loop = loop if loop is not None else asyncio.get_running_loop()
        self._timer.on_earlier(self._arm)
        self._arm()

    def stop(self) -> None:
        """Sleep no more. Tasks stay in the timer. No effect twice."""
        self._timer.on_earlier(None)
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._loop = None

    def _arm(self) -> None:
        """See to it that a call is under way for the earliest bucket. Within a wake-up its end does that."""
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
