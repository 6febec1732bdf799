"""An event loop in virtual time: instead of waiting, it advances its clock. A minute takes no time."""

import asyncio
import selectors
from typing import Any


class LoopClock:
    """The loop's time as the timer's Clock."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000 + 1e-6)

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.now_ms()


class JumpingSelector(selectors.DefaultSelector):
    """Never waits. An endless sleep would hang the test, so it is an error."""

    def __init__(self, clock: LoopClock) -> None:
        super().__init__()
        self.clock = clock
        self.sleeps: list[float] = []

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("the loop would sleep for ever")
        if timeout > 0:
            self.sleeps.append(timeout)
            self.clock.seconds += timeout
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop over a JumpingSelector. `sleeps` has the seconds of every wait."""

    def __init__(self) -> None:
        self.clock = LoopClock()
        self.jumps = JumpingSelector(self.clock)
        super().__init__(self.jumps)

    def time(self) -> float:
        return self.clock.seconds

    @property
    def sleeps(self) -> list[float]:
        return self.jumps.sleeps

    def run_for(self, seconds: float) -> Any:
        return self.run_until_complete(asyncio.sleep(seconds))
