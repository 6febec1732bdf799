"""Which clients have closed their side of connections that nobody reads: only polling can tell."""

from __future__ import annotations

import select
from collections.abc import Iterable


def hung_up(descriptors: Iterable[int]) -> list[int]:
    """Returns those whose clients send nothing more. There may be something to read before the end. Empty where the
    system cannot tell."""
    if not hasattr(select, "POLLRDHUP"):
        return []
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLRDHUP)
    return [descriptor for descriptor, _ in poll.poll(0)]
