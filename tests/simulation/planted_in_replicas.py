"""Bugs of leaders and of those that follow them: who has what, and on which disk. See planted.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odradek.broker.replica.partition.partition import Partition
from tests.simulation.planted_in_sessions import Replace


def _commit_before_the_flush(replace: Replace) -> None:
    advance = Partition.maybe_increment_high_watermark

    def unflushed(self: Partition) -> bool:
        required, self.required_flush_offset = self.required_flush_offset, 0
        try:
            return advance(self)
        finally:
            self.required_flush_offset = required

    replace(Partition, "maybe_increment_high_watermark", unflushed)


REPLICA_BUGS: Mapping[str, Callable[[Replace], None]] = {
    "a leader commits before its own flush": _commit_before_the_flush,
}
"""How to plant each bug."""
