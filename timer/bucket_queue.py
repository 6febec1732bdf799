"""BucketQueue: buckets in the order of their expiration, including those whose tasks were all canceled.

The queue spares the timer from ticking: instead of looking at every millisecond's bucket, the timer polls the earliest
one. There are at most `wheel_size` buckets per wheel and a handful of wheels, so the heap stays small however many
tasks wait. Buckets that expire together leave in the order in which they came. Kafka: the DelayQueue of SystemTimer.
"""

import heapq
from collections.abc import Callable

from mypy_extensions import i64

from odradek.timer.task_list import TimerTaskList


class BucketQueue:
    """Buckets by expiration. `on_earlier` is called whenever the earliest expiration becomes earlier."""

    __slots__ = ("_heap", "_offers", "on_earlier")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, TimerTaskList]] = []
        self._offers = 0
        self.on_earlier: Callable[[], None] | None = None

    def offer(self, bucket: TimerTaskList) -> None:
        """Queues a bucket whose expiration has just been set."""
        expiration_ms: int = bucket.expiration_ms
        heap = self._heap
        earlier = not heap or expiration_ms < heap[0][0]
        self._offers += 1
        heapq.heappush(heap, (expiration_ms, self._offers, bucket))
        if earlier and self.on_earlier is not None:
            self.on_earlier()

    def poll(self, now_ms: i64) -> TimerTaskList | None:
        """Removes and returns the earliest bucket if it has expired, otherwise None."""
        heap = self._heap
        if not heap or heap[0][0] > now_ms:
            return None
        return heapq.heappop(heap)[2]

    def clear(self) -> None:
        """Removes all buckets."""
        self._heap.clear()

    def check(self, queued: int) -> None:
        """Asserts that each bucket is queued once, with its expiration. `queued` is how many have one."""
        assert len(self._heap) == queued, f"{len(self._heap)} buckets are queued, not {queued}"
        for expiration_ms, _, bucket in self._heap:
            assert expiration_ms == bucket.expiration_ms, "a bucket is queued at another time than its expiration"

    @property
    def next_expiration_ms(self) -> int | None:
        """When the earliest bucket expires; None if the queue is empty."""
        return self._heap[0][0] if self._heap else None

    def __len__(self) -> int:
        return len(self._heap)
