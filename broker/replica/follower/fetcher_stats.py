"""What the fetchers of a broker count. A broker that follows nobody imports nothing else of them."""

from __future__ import annotations


class FetcherStats:
    """What all fetchers together count for the metrics since the start: bytes appended, Fetch requests sent."""

    __slots__ = ("bytes_in", "requests")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.requests = 0
