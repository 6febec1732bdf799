"""Which requests are large, and how many partitions, topics or other items a request may name.

A follower follows as many partitions of one leader as there are, so its requests are not bounded. The requests that
brokers send each other are trusted on the inter-broker listener only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from odradek.protocol.errors import ErrorCode, ProtocolError

MAX_PARTITIONS_PER_REQUEST = 10_000
LARGE_FRAME_BYTES = 64 * 1024
"""A larger frame is read into a buffer of its own and decoded in steps."""


def is_of_follower(request: Any, listener: str, inter_broker_listener: str | None) -> bool:
    """Whether a request comes from another broker, which fetches or looks up offsets as a follower."""
    return getattr(request, "replica_id", -1) >= 0 and listener == inter_broker_listener


def check_partitions_asked(asked: Iterable[int]) -> None:
    """Raises POLICY_VIOLATION if the request names too many partitions. `asked` yields the count of each topic.

    A topic without partitions costs as much as a topic with one and counts as one. Counting stops at the bound.
    """
    total = 0
    for some in asked:
        total += max(some, 1)
        if total > MAX_PARTITIONS_PER_REQUEST:
            raise ProtocolError(
                ErrorCode.POLICY_VIOLATION, f"The request names more than {MAX_PARTITIONS_PER_REQUEST} items"
            )
