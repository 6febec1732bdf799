"""DelayedFetch: a Fetch request that waits for `min_bytes`, or for its timeout.

The request is answered as soon as one of the following holds. Then every partition's available data is read and sent:

A. This broker no longer leads a requested partition. B. A replica is no longer here. C. A partition is no longer
known. D. A partition's log directory is offline. E. The leader epoch in the request is now fenced. F. The fetch offset
is not in the last segment: there is the rest of an older segment to read, or the log was truncated below the offset.
G. The bytes available in all partitions together reach `min_bytes`. H. The follower's log has diverged from the
leader's: the follower must learn this to truncate.

`progress` checks one partition for A-F and H: it returns ANSWER_NOW for those, else the number of available bytes, at
most the partition's own maximum. G is summed here and stops as soon as it is reached. Kafka: DelayedFetch.
"""

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from mypy_extensions import i64, mypyc_attr

from odradek.purgatory.delayed_operation import DelayedOperation
from odradek.purgatory.expirations import FetchExpirations

ANSWER_NOW: Final = -1

Target = TypeVar("Target")
"""The caller's state of a partition in the fetch; opaque here."""


@mypyc_attr(allow_interpreted_subclasses=True)
class DelayedFetch(DelayedOperation, Generic[Target]):
    """Calls `on_response()` once, which reads the data. `max_wait_ms` and `min_bytes` are the request's."""

    __slots__ = ("expirations", "is_from_follower", "min_bytes", "on_response", "progress", "targets")

    def __init__(
        self,
        max_wait_ms: int,
        min_bytes: int,
        targets: Sequence[Target],
        progress: Callable[[Target], int],
        on_response: Callable[[], None],
        expirations: FetchExpirations | None = None,
        is_from_follower: bool = False,
    ) -> None:
        super().__init__(max_wait_ms)
        self.min_bytes: i64 = min_bytes
        self.targets = targets
        self.progress = progress
        self.on_response = on_response
        self.expirations = expirations
        self.is_from_follower: bool = is_from_follower

    def try_complete(self) -> bool:
        accumulated: i64 = 0
        if accumulated >= self.min_bytes:
            return self.force_complete()
        for target in self.targets:
            found: i64 = self.progress(target)
            accumulated += found
            if found < 0 or accumulated >= self.min_bytes:
                return self.force_complete()
        return False

    def on_complete(self) -> None:
        self.on_response()

    def on_expiration(self) -> None:
        if self.expirations is not None:
            self.expirations.record(self.is_from_follower)

    def __repr__(self) -> str:
        return (
            f"DelayedFetch(max_wait_ms={self.delay_ms}, min_bytes={self.min_bytes}, {len(self.targets)} partitions,"
            f" {'follower' if self.is_from_follower else 'consumer'})"
        )
