"""One fault: which requests it selects, what it does to them, and how often it was hit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from odradek.protocol.errors import ErrorCode
from odradek.testing.calls import Calls, noted
from odradek.testing.failures import NotReached
from odradek.testing.faults.arguments import Change, Respond, When
from odradek.testing.faults.selector import Selector


@dataclass(frozen=True, slots=True)
class Action:
    """What a fault does, in this order: it waits, then fails the request or leaves it to the broker, then changes the
    response, or the connection ends. The fields are what is made of the arguments with these names.
    """

    delay: float = 0.0
    hold: bool = False
    in_order: bool = True
    respond: Respond | None = None
    error: ErrorCode | None = None
    error_message: str | None = None
    handled: bool = False
    close: When | None = None
    drop: When | None = None
    change: Change | None = None
    throttle_ms: int = 0
    corrupt: bool = False
    cut: int | None = None
    disk: str | None = None

    @property
    def waits(self) -> bool:
        """Whether the request is parked. A client that has not logged in yet cannot wait."""
        return self.hold or self.delay > 0

    @property
    def changes_answers(self) -> bool:
        return (
            self.change is not None
            or self.throttle_ms > 0
            or self.corrupt
            or self.cut is not None
            or "after" in (self.close, self.drop)
        )


@noted
class Fault:
    """Made by `Faults.add`. `hits` counts the requests (or accesses to the disk) that it was applied to. What is here
    may be called from any thread.
    """

    def __init__(
        self,
        number: int,
        description: Mapping[str, Any],
        selector: Selector,
        action: Action,
        *,
        nth: int | None,
        times: int | None,
        optional: bool,
        remove: Callable[[Fault], None],
        calls: Calls,
    ) -> None:
        self.calls = calls
        self.number = number
        self.description = description
        """The arguments of `add`."""
        self.selector = selector
        self.action = action
        self.optional = optional
        self.hits = 0
        self._first = nth or 1
        self._last = None if times is None else self._first + times - 1
        self._matched = 0
        self._remove = remove
        self._is_released = False
        self._lock = threading.Lock()
        """Requests are held in the broker's thread, and released in that of the test."""
        self._held: dict[Callable[[], None], asyncio.AbstractEventLoop | None] = {}
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    @property
    def held(self) -> int:
        """How many requests it holds now."""
        return len(self._held)

    def remove(self) -> None:
        """Ends the fault: later requests are not hit, held ones go on. May be called again."""
        self._remove(self)

    def release(self) -> None:
        """Lets all held requests go on. Later requests are not held any more."""
        with self._lock:
            self._is_released = True
            held, self._held = self._held, {}
        for go_on, loop in held.items():
            if loop is None:
                go_on()
            else:
                loop.call_soon_threadsafe(go_on)

    async def wait(self, hits: int, within: float) -> None:
        """Waits until it was hit so many times. Raises NotReached after `within` seconds."""
        if hits < 1:
            raise ValueError(f"hits={hits}: must be at least 1")
        changed = asyncio.Event()
        self._waiting[changed] = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(within):
                while self.hits < hits:
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            raise NotReached(f"{self!r} was hit {self.hits} times within {within:g} s, not {hits}") from None
        finally:
            del self._waiting[changed]

    def document(self) -> dict[str, Any]:
        """Returns its arguments and counts."""
        return {"id": self.number, **self.description, "hits": self.hits, "held": self.held}

    def __repr__(self) -> str:
        return f"add({', '.join(f'{name}={value!r}' for name, value in self.description.items())})"

    # --- for the broker -----------------------------------------------------------------------------------------

    def takes(self) -> bool:
        """Counts a request that it selects. Returns whether the fault is applied to it."""
        self._matched += 1
        return self._matched >= self._first and (self._last is None or self._matched <= self._last)

    def count_hit(self) -> None:
        """It is applied to a request, or to an access to the disk."""
        self.hits += 1
        for changed, loop in list(self._waiting.items()):
            loop.call_soon_threadsafe(changed.set)

    def hold(self, go_on: Callable[[], None], loop: asyncio.AbstractEventLoop | None) -> None:
        """Calls `go_on`, in its loop, once it is released."""
        with self._lock:
            if not self._is_released:
                self._held[go_on] = loop
                return
        go_on()

    def let_go(self, go_on: Callable[[], None]) -> None:
        """Nobody waits for it any more."""
        self._held.pop(go_on, None)
