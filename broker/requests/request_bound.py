"""How many partitions, topics or other items one request may name: MAX_PARTITIONS_PER_REQUEST."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.protocol.errors import ErrorCode, ProtocolError

MAX_PARTITIONS_PER_REQUEST = 10_000


def check_partitions_asked(asked: Iterable[int]) -> None:
    """Raises POLICY_VIOLATION if the request names too many partitions; `asked` has their number topic by topic.

    A topic without partitions is as much work as one with a single one, and counts as one. Stops counting at the bound.
    """
    total = 0
    for some in asked:
        total += max(some, 1)
        if total > MAX_PARTITIONS_PER_REQUEST:
            raise ProtocolError(
                ErrorCode.POLICY_VIOLATION, f"The request names more than {MAX_PARTITIONS_PER_REQUEST} items"
            )
