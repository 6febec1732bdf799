"""Which requests are large, and how many partitions, topics or other items a request may name.

A follower follows all partitions of a leader, so its requests may name as many more as this broker hosts. Clients may
share the inter-broker listener and claim to be a follower; they gain no more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any

from odradek.protocol.errors import ErrorCode, ProtocolError

MAX_PARTITIONS_PER_REQUEST = 10_000
LARGE_FRAME_BYTES = 64 * 1024
"""A larger frame is read into a buffer of its own and decoded in steps."""


class RequestBound:
    """`hosted` returns the number of partitions that this broker hosts. `broker_listeners`: see `Dispatcher`."""

    __slots__ = ("_broker_listeners", "_hosted")

    def __init__(self, broker_listeners: Container[str], hosted: Callable[[], int]) -> None:
        self._broker_listeners = broker_listeners
        self._hosted = hosted

    def of(self, request: Any, listener: str) -> int:
        """Returns how many partitions a request may name that came to a listener."""
        state = getattr(request, "replica_state", None)
        return self.of_replica(getattr(request, "replica_id", -1) if state is None else state.replica_id, listener)

    def of_replica(self, replica_id: int, listener: str) -> int:
        """Returns how many partitions a request of a follower, or of a client (below 0), may name."""
        if replica_id >= 0 and listener in self._broker_listeners:
            return MAX_PARTITIONS_PER_REQUEST + self._hosted()
        return MAX_PARTITIONS_PER_REQUEST


def check_partitions_asked(asked: Iterable[int], most: int = MAX_PARTITIONS_PER_REQUEST) -> None:
    """Raises POLICY_VIOLATION if the request names too many partitions. `asked` yields the count of each topic.

    A topic without partitions costs as much as a topic with one and counts as one. Counting stops at the bound.
    """
    total = 0
    for some in asked:
        total += max(some, 1)
        if total > most:
            raise ProtocolError(ErrorCode.POLICY_VIOLATION, f"The request names more than {most} items")
