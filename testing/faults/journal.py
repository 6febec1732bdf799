"""The latest requests of a broker or cluster, and waiting for one.

A journal is off until it is first used, or asked for by an argument, and costs nothing until then. It keeps
the latest `MOST_REQUESTS`, and of these as many as have `MOST_BYTES` with their responses.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterator
from typing import overload

from odradek.testing.faults.request import Request
from odradek.testing.faults.selector import Selector

MOST_REQUESTS = 1000
MOST_BYTES = 64 << 20
MOST_SHOWN = 10
BEGAN_NOW = ". It began with this call; it has earlier requests if the broker is started with journal=True"


class NoSuchRequest(AssertionError):
    """No such request came in time. The message shows which came instead."""


class Journal:
    """The latest requests, oldest first. May be read from any thread."""

    def __init__(self, *, is_on: bool = False) -> None:
        self.is_on = is_on
        self._starts_on = is_on
        self._requests: deque[Request] = deque()
        self._bytes = 0
        self._count = 0
        self._returned: set[int] = set()
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def __iter__(self) -> Iterator[Request]:
        return iter(list(self._requests))

    def __len__(self) -> int:
        return len(self._requests)

    @overload
    def __getitem__(self, index: int) -> Request: ...

    @overload
    def __getitem__(self, index: slice) -> list[Request]: ...

    def __getitem__(self, index: int | slice) -> Request | list[Request]:
        return list(self._requests)[index]

    def clear(self) -> None:
        """Forgets all requests."""
        self._requests.clear()
        self._returned.clear()
        self._bytes = 0

    def start_over(self) -> None:
        """Is as at its start: empty, and off unless it was on then."""
        self.clear()
        self.is_on = self._starts_on

    def find(self, selector: Selector, after: int = 0) -> list[Request]:
        """Returns the requests that are selected, of those with numbers above `after`."""
        later = (request for request in self if request.number > after)
        return [request for request in later if selector.split(request, request.body) is not None]

    async def wait(self, selector: Selector, within: float, what: str, *, answered: bool = False) -> Request:
        """Returns the next selected request, each once: the oldest that no earlier call has returned, or else the next
        one to come. `answered`: and waits for its response. Raises NoSuchRequest after `within` seconds.
        """
        began_before, self.is_on = self.is_on, True
        changed = asyncio.Event()
        found: list[Request] = []
        last = 0
        self._waiting[changed] = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(within):
                while True:
                    changed.clear()
                    found += self.find(selector, after=last)
                    last = self._count
                    for request in found:
                        is_due = not answered or request.answered_ms is not None
                        if is_due and request.number not in self._returned:
                            self._returned.add(request.number)
                            return request
                    await changed.wait()
        except TimeoutError:
            raise NoSuchRequest(self._not_found(what, within, began_before=began_before)) from None
        finally:
            del self._waiting[changed]

    def _not_found(self, what: str, within: float, *, began_before: bool) -> str:
        seen = Counter(f"{request.api} of {request.client_id!r}" for request in self)
        instead = ", ".join(f"{count} {name}" for name, count in seen.most_common(MOST_SHOWN)) or "none"
        returned = f"; {len(self._returned)} of them were returned before" if self._returned else ""
        found = f"no request({what}) within {within} s. The journal has {len(self)} requests: {instead}{returned}"
        return found if began_before else found + BEGAN_NOW

    # --- for the dispatch ---------------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """A request has been received."""
        self._count += 1
        request.number = self._count
        self._requests.append(request)
        self._grows_by(len(request.frame))

    def answered(self, request: Request, now_ms: int) -> None:
        """A request has been answered, or never will be."""
        request.answered_ms = now_ms
        is_kept = bool(self._requests) and request.number >= self._requests[0].number
        self._grows_by(len(request.answer or b"") if is_kept else 0)

    def _grows_by(self, size: int) -> None:
        self._bytes += size
        while len(self._requests) > MOST_REQUESTS or (self._bytes > MOST_BYTES and len(self._requests) > 1):
            oldest = self._requests.popleft()
            self._returned.discard(oldest.number)
            self._bytes -= _size(oldest)
        for changed, loop in list(self._waiting.items()):
            loop.call_soon_threadsafe(changed.set)


def _size(request: Request) -> int:
    return len(request.frame) + len(request.answer or b"")
