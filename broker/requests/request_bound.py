"""Which requests are large, and how many partitions, topics or other items a request may name.

A follower follows all partitions of a leader, so its requests may name as many more as this broker hosts. With an
authorizer, a follower is a client that may act as a broker. Without one, it is any client of the inter-broker listener,
which clients may share; if they claim to be a follower, they gain no more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from odradek.protocol.errors import ErrorCode, ProtocolError

if TYPE_CHECKING:
    from odradek.broker.requests.request_context import ConnectionInfo

MAX_PARTITIONS_PER_REQUEST = 10_000
LARGE_FRAME_BYTES = 64 * 1024
"""A larger frame is read into a buffer of its own and decoded in steps."""


class RequestBound:
    """`is_broker` tells whether a connection may be another broker's. `hosted` returns the number of partitions that
    this broker hosts.
    """

    __slots__ = ("_hosted", "_is_broker")

    def __init__(self, is_broker: Callable[[ConnectionInfo], bool], hosted: Callable[[], int]) -> None:
        self._is_broker = is_broker
        self._hosted = hosted

    def of(self, request: Any, connection: ConnectionInfo) -> int:
        """Returns how many partitions a request of a connection may name."""
        state = getattr(request, "replica_state", None)
        return self.of_replica(getattr(request, "replica_id", -1) if state is None else state.replica_id, connection)

    def of_replica(self, replica_id: int, connection: ConnectionInfo) -> int:
        """Returns how many partitions a request of a follower, or of a client (below 0), may name."""
        if replica_id >= 0 and self._is_broker(connection):
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
