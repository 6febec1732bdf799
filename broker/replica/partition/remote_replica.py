"""The leader's state of one follower.

A follower reports its position with every fetch: its fetch offset is its log end offset. From it the leader derives
when the follower was last caught up, which decides whether it is in sync (replica.lag.time.max.ms).

A follower that has everything need not name the partition in its next fetches, and the leader does not look at it then
(fetch_session.py). Meanwhile it *attends* the session: each use of the session is a fetch of this partition too, by a
follower that is caught up. As soon as the log grows, it no longer attends: the last use of the session before that was
the last time it was caught up.

Source: Kafka's ReplicaState.
"""

from __future__ import annotations

from typing import Final

UNKNOWN_OFFSET: Final = -1
NEVER_MS: Final = -(1 << 60)
"""A time before all others. The clock is monotonic and may be near 0, so 0 would be just now after a boot."""


class Attended:
    """What a follower attends: a fetch session, last used at `last_used_ms` (monotonic milliseconds)."""

    __slots__ = ("last_used_ms",)

    def __init__(self, now_ms: int) -> None:
        self.last_used_ms = now_ms


class RemoteReplica:
    """One follower of a partition that this broker leads. Offsets are -1 until its first fetch."""

    __slots__ = (
        "_caught_up_ms",
        "_session",
        "broker_id",
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
        self.last_fetch_ms = NEVER_MS
        self._caught_up_ms = NEVER_MS
        self._session: Attended | None = None

    @property
    def last_caught_up_ms(self) -> int:
        """When the follower last had everything that the leader had then."""
        session = self._session
        return self._caught_up_ms if session is None else max(self._caught_up_ms, session.last_used_ms)

    def update_fetch_state(
        self, fetch_offset: int, log_start_offset: int, fetch_ms: int, leader_log_end_offset: int
    ) -> None:
        """Records a fetch that arrived at `fetch_ms` (monotonic milliseconds), when the leader's log ended at
        `leader_log_end_offset`.

        The follower counts as caught up at this fetch if it has everything the leader has, and at the previous fetch if
        it has everything the leader had then.
        """
        if self._session is not None:
            self.leave(self._session)
        if fetch_offset >= leader_log_end_offset:
            self._caught_up_ms = max(self._caught_up_ms, fetch_ms)
        elif fetch_offset >= self.last_fetch_leader_log_end_offset:
            self._caught_up_ms = max(self._caught_up_ms, self.last_fetch_ms)
        self.log_start_offset = log_start_offset
        self.log_end_offset = fetch_offset
        self.last_fetch_leader_log_end_offset = max(leader_log_end_offset, self.last_fetch_leader_log_end_offset)
        self.last_fetch_ms = fetch_ms

    def attend(self, session: Attended) -> None:
        """The follower has everything, and fetches whenever it uses the session, until it leaves."""
        self._session = session

    def leave(self, session: Attended) -> None:
        """The follower attends the session no longer. No effect if it attends another one."""
        if self._session is session:
            self._session = None
            self._caught_up_ms = max(self._caught_up_ms, session.last_used_ms)
            self.last_fetch_ms = max(self.last_fetch_ms, session.last_used_ms)

    def reset(self, now_ms: int, leader_log_end_offset: int, *, is_new_leader: bool, in_sync: bool) -> None:
        """Resets the state when a leader epoch begins: a follower in the ISR has `replica.lag.time.max.ms` from now to
        fetch, any other one was never caught up. Its offsets are unknown to a new leader.
        """
        self._session = None
        self._caught_up_ms = now_ms if in_sync else NEVER_MS
        if is_new_leader:
            self.log_start_offset = UNKNOWN_OFFSET
            self.log_end_offset = UNKNOWN_OFFSET
            self.last_fetch_leader_log_end_offset = UNKNOWN_OFFSET
            self.last_fetch_ms = NEVER_MS
        else:
            self.last_fetch_leader_log_end_offset = leader_log_end_offset
            self.last_fetch_ms = now_ms if in_sync else NEVER_MS

    def is_caught_up(self, leader_log_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """Whether the follower has everything, or had everything at most `max_lag_ms` ago."""
        return self.log_end_offset == leader_log_end_offset or now_ms - self.last_caught_up_ms <= max_lag_ms
