"""The leader's state of one follower.

A follower reports its position with every fetch: its fetch offset is its log end offset. From it the leader derives
when the follower was last caught up, which decides whether it is in sync (replica.lag.time.max.ms).

Source: Kafka's ReplicaState.
"""

from __future__ import annotations

UNKNOWN_OFFSET = -1


class RemoteReplica:
    """One follower of a partition that this broker leads. Offsets are -1 until its first fetch."""

    __slots__ = (
        "broker_id",
        "last_caught_up_ms",
        "last_fetch_leader_log_end_offset",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.log_start_offset = UNKNOWN_OFFSET
        self.log_end_offset = UNKNOWN_OFFSET
        self.last_fetch_leader_log_end_offset = UNKNOWN_OFFSET
        self.last_fetch_ms = 0
        self.last_caught_up_ms = 0

    def update_fetch_state(
        self, fetch_offset: int, log_start_offset: int, fetch_ms: int, leader_log_end_offset: int
    ) -> None:
        """Records a fetch that arrived at `fetch_ms` (monotonic milliseconds), when the leader's log ended at
        `leader_log_end_offset`.

        The follower counts as caught up at this fetch if it has everything the leader has, and at the previous fetch if
        it has everything the leader had then.
        """
        if fetch_offset >= leader_log_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, fetch_ms)
        elif fetch_offset >= self.last_fetch_leader_log_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_start_offset = log_start_offset
        self.log_end_offset = fetch_offset
        self.last_fetch_leader_log_end_offset = max(leader_log_end_offset, self.last_fetch_leader_log_end_offset)
        self.last_fetch_ms = fetch_ms

    def reset(self, now_ms: int, leader_log_end_offset: int, *, is_new_leader: bool, in_sync: bool) -> None:
        """Resets the state when leadership is taken or renewed: a follower in the ISR has `replica.lag.time.max.ms`
        from now to fetch.
        """
        self.last_caught_up_ms = now_ms if in_sync else 0
        if is_new_leader:
            self.log_start_offset = UNKNOWN_OFFSET
            self.log_end_offset = UNKNOWN_OFFSET
            self.last_fetch_leader_log_end_offset = UNKNOWN_OFFSET
            self.last_fetch_ms = 0
        else:
            self.last_fetch_leader_log_end_offset = leader_log_end_offset
            self.last_fetch_ms = now_ms if in_sync else 0

    def is_caught_up(self, leader_log_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        return self.log_end_offset == leader_log_end_offset or now_ms - self.last_caught_up_ms <= max_lag_ms
