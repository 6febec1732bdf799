"""A limit of the bytes per second that throttled replicas exchange: what this broker sends as a leader, or what it
receives as a follower.

(A) A replica is throttled if its topic's `leader.` or `follower.replication.throttled.replicas` lists it for this
    broker, or is `*`. All its bytes count. But only a replica that is not in sync waits: the callers see to that, since
    leader and follower know it in different ways.
(B) The limit is exceeded while the rate of the last windows (sampled_rate.py) is above it. As in Kafka, what is left
    over within these eleven seconds may still be used.
(C) It is also exceeded while more than half a window's bytes were used ahead of their time. In Kafka, all that the
    windows have left may be used at once: ten seconds' worth within one second.
(D) A throttled fetch gets at most `share` bytes, a hundredth of what the windows allow, though at least one batch. In
    Kafka it gets up to `replica.fetch.response.max.bytes`, ten seconds' worth for a limit of 1 MB/s. With (C), the
    average over ten seconds exceeds the limit by a twentieth and a share per fetch under way, however slow the limit
    is and however large fetches are; only a single batch that is larger than a share goes beyond.
(E) Without a limit nothing is counted, and nothing costs anything.

Source: Kafka's ReplicationQuotaManager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from odradek.broker.replica.quota.sampled_rate import SampledRate
from odradek.timer import Clock

if TYPE_CHECKING:
    from odradek.broker.replica.partition.partition import Partition
    from odradek.storage.log_config import LogConfig

UNLIMITED = 0x7FFFFFFFFFFFFFFF
SHARES = 100
SHORTEST_WAIT_MS, LONGEST_WAIT_MS = 10, 500
ALL = "*"


class ReplicationQuota:
    """`listed` returns a topic's list of throttled replicas. `windows` and `window_ms` are replication.quota.window.*.
    `limit` is in bytes per second.
    """

    def __init__(
        self,
        clock: Clock,
        broker_id: int,
        listed: Callable[[LogConfig], list[str]],
        *,
        windows: int,
        window_ms: int,
    ) -> None:
        self.limit = UNLIMITED
        self.is_limited = False
        self._clock = clock
        self._broker_id = broker_id
        self._listed = listed
        self._rate = SampledRate(windows, window_ms)
        self._ahead = 0.0
        """The bytes that were used ahead of their time, at `_ahead_ms` (C)."""
        self._ahead_ms = clock.now_ms()
        self._numbers: dict[str, tuple[list[str], frozenset[int] | None]] = {}
        """By topic: a list, and the partitions that it throttles on this broker (None: all)."""

    def set_limit(self, limit: int) -> None:
        """Applies to what is used from now on. What was used before counts."""
        self._ahead, self._ahead_ms = self._ahead_at(self._clock.now_ms()), self._clock.now_ms()
        self._numbers.clear()
        self.limit = limit
        self.is_limited = limit < UNLIMITED

    def is_throttled(self, partition: Partition) -> bool:
        """Whether the partition's replica on this broker is throttled (A)."""
        listed = self._listed(partition.log.config)
        if not listed:
            return False
        topic, number = partition.topic_partition
        known = self._numbers.get(topic)
        if known is None or (known[0] is not listed and known[0] != listed):
            known = self._numbers[topic] = listed, throttled_partitions(listed, self._broker_id)
        return known[1] is None or number in known[1]

    def record(self, size: int) -> None:
        """Counts the bytes of throttled replicas."""
        now_ms = self._clock.now_ms()
        self._rate.record(size, now_ms)
        most = self.limit * self._rate.windows * self._rate.window_ms / 1000
        self._ahead = min(self._ahead_at(now_ms) + size, max(most, size))
        self._ahead_ms = now_ms

    @property
    def is_exceeded(self) -> bool:
        """Whether throttled replicas that are not in sync have to wait (B, C)."""
        return self.is_limited and self._excess_ms() > 0

    @property
    def wait_ms(self) -> int:
        """How long to wait before asking again, while the limit is exceeded."""
        return round(min(max(self._excess_ms(), SHORTEST_WAIT_MS), LONGEST_WAIT_MS))

    @property
    def share(self) -> int:
        """The most bytes that one fetch may take (D)."""
        return max(1, self.limit * self._rate.windows * self._rate.window_ms // (1000 * SHARES))

    @property
    def byte_rate(self) -> float:
        """The measured rate, in bytes per second."""
        return self._rate.per_second(self._clock.now_ms()) if self.is_limited else 0.0

    def _excess_ms(self) -> float:
        """By how many milliseconds the limit is used up, both ways; at most 0 if it is not."""
        now_ms = self._clock.now_ms()
        used, elapsed_ms = self._rate.measured(now_ms)
        if not self.limit:
            return LONGEST_WAIT_MS if used else 0
        ahead_ms = self._ahead_at(now_ms) * 1000 / self.limit
        return max(used * 1000 / self.limit - elapsed_ms, ahead_ms - self._rate.window_ms / 2)

    def _ahead_at(self, now_ms: int) -> float:
        return max(0.0, self._ahead - self.limit * (now_ms - self._ahead_ms) / 1000)


def throttled_partitions(listed: Sequence[str], broker_id: int) -> frozenset[int] | None:
    """Returns the numbers of the partitions that a list of throttled replicas names for a broker; None for all."""
    if "".join(listed) == ALL:
        return None
    pairs = [part.split(":") for part in listed if part]
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == broker_id)
