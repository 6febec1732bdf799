"""DelayedFetch: a Fetch request that waits for `min_bytes`, or for its time-out.

It is answered as soon as one of these is so; then whatever there is of every partition is read and sent:

A. This broker no longer leads a partition that it asks for. B. A replica is no longer here. C. A partition is no
longer known. D. A partition's log directory is offline. E. The leader epoch that the request names is fenced by now.
F. The fetch offset is not in the last segment: there is a whole segment's rest to read, or the log was truncated
below it. G. The bytes that all partitions together have to give reach `min_bytes`. H. The follower's log has parted
from the leader's: it must hear of that to truncate.

`progress` looks at one partition for A-F and H: ANSWER_NOW for those, else how many bytes it would give, at most the
partition's own maximum. G is summed here, and looks no further than it must. Kafka: DelayedFetch.
"""

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from mypy_extensions import i64, mypyc_attr

from odradek.purgatory.delayed_operation import DelayedOperation
from odradek.purgatory.expirations import FetchExpirations

ANSWER_NOW: Final = -1

Target = TypeVar("Target")
"""What the broker remembers of a partition that a fetch asks for; nothing here looks into it."""


@mypyc_attr(allow_interpreted_subclasses=True)
class DelayedFetch(DelayedOperation, Generic[Target]):
    """Calls `on_response()` once, which reads what there is. `max_wait_ms` and `min_bytes` are the request's."""

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
