"""What the fetchers count for the metrics."""

from __future__ import annotations


class FetcherStats:
    """Counts since the start, of all fetchers together: bytes appended, Fetch requests sent."""

    __slots__ = ("bytes_in", "requests")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.requests = 0
