"""One fetcher: it follows partitions that one other broker leads. Synchronous; fetcher_loop.py sends and waits.

`next_action` decides what to do now (fetcher_actions.py); the loop does it and passes the outcome to the method that
the action names. In this order:

(A) Truncate. Logs that diverge are truncated before anything is fetched, all of them together.
(B) Flush. The offset from which a follower fetches acknowledges everything before it, so what `flush.messages` requires
    on disk is flushed before the next fetch.
(C) Wait, after a request without a usable response. Nothing is forgotten meanwhile.
(D) Request the leader's offsets for partitions that are out of its range: first where its logs end. A follower that is
    longer than the leader (after an unclean election) truncates its log to the leader's. Otherwise, where the leader's
    log starts. If that is beyond the follower's end, the follower starts over there; if not, it keeps what it has.
(E) Fetch, in a session (fetch_session_client.py). While the followers' quota (quota/replication_quota.py) is exceeded,
    throttled partitions that lag are left out, and the fetcher waits if nothing else is left. Otherwise a fetch with
    such partitions takes at most a share of the quota.

A response is applied in bounded steps, each partition in one piece: its records are appended, and the high watermark
and the log start offset follow the leader's; or the partition changes its state (fetcher_state.py) by its error code.
Between the steps, partitions may be added and removed.

After an error the partition (or, in (C), the fetcher) waits for 50 ms, doubled with each error in sequence up to
replica.fetch.backoff.ms. In Kafka it always waits for the latter, although the commonest error lasts for milliseconds:
the leader has not yet been told that it leads.

A partition *fails* if its own log fails, if the leader is in a newer epoch (the controller will send it again), or by
an unexpected error. It is then no longer followed, and counted until it is added or removed.

Source: Kafka's AbstractFetcherThread and ReplicaFetcherThread, as with inter.broker.protocol.version 3.0: truncation by
the diverging epoch of a Fetch response (KIP-595), never by OffsetForLeaderEpoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, cast

import structlog

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.replica.follower.fetch_session_client import FetchSessionClient
from odradek.broker.replica.follower.fetcher_actions import (
    Action,
    Fetch,
    FlushLogs,
    FollowerEvents,
    ListOffsets,
    TruncateLogs,
    Wait,
)
from odradek.broker.replica.follower.fetcher_settings import FetcherSettings, FetchLimits
from odradek.broker.replica.follower.fetcher_state import (
    NO_OFFSET,
    UNKNOWN_LAG,
    FetchFrom,
    Followed,
    FollowerState,
    truncation_offset,
)
from odradek.broker.replica.follower.fetcher_stats import FetcherStats
from odradek.broker.replica.follower.follower_requests import fetch_request, list_offsets_request
from odradek.broker.replica.partition.partition_offsets import EARLIEST, LATEST
from odradek.broker.replica.quota.replication_quota import ReplicationQuota
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.fetch import FetchResponse
from odradek.protocol.messages.list_offsets import ListOffsetsResponse
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.log.truncation import StartOver, Target, Truncate

if TYPE_CHECKING:
    from odradek.broker.replica.partition.partition import Partition

FIRST_DELAY_MS = 50
ITEMS_PER_APPEND = 20
BYTES_PER_ITEM = 4096
"""What applying records costs, in items of a step (stepwise.py)."""

log = structlog.get_logger("broker.replica.fetcher")


class Fetcher:
    """See the head of this file. `followed` has every partition, in whatever state."""

    def __init__(
        self,
        leader_id: int,
        settings: FetcherSettings,
        events: FollowerEvents,
        quota: ReplicationQuota,
        stats: FetcherStats | None = None,
    ) -> None:
        self.leader_id = leader_id
        self.stats = stats or FetcherStats()
        self.followed: dict[TopicPartition, Followed] = {}
        self._settings = settings
        self._limits = settings.limits
        self._events = events
        self._session = FetchSessionClient()
        self._delayed: list[tuple[int, int, Followed]] = []  # a heap by time; may have entries that no longer count
        self._delays = 0
        self._out_of_range: dict[TopicPartition, Followed] = {}
        self._truncations: dict[TopicPartition, Target] = {}
        self._unflushed: dict[TopicPartition, Followed] = {}
        self._quota = quota
        self._held: dict[TopicPartition, Followed] = {}
        """Those that the quota leaves out of the fetches (E)."""
        self._resume_ms = 0
        self._failures = 0

    @property
    def is_idle(self) -> bool:
        """Whether it follows no partition."""
        return not self.followed

    @property
    def max_lag(self) -> int:
        """By how many records the slowest partition is behind the leader's high watermark."""
        return max((followed.lag for followed in self.followed.values()), default=UNKNOWN_LAG)

    # Which partitions

    def follow(self, partition: Partition, source: FetchFrom) -> None:
        """Follows a partition from now on. Changes nothing if it already does, in the same epoch of the same topic."""
        key = partition.topic_partition
        followed = self.followed.get(key)
        if followed is not None and followed.partition is partition and followed.source == source:
            return
        self.drop(key)
        followed = self.followed[key] = Followed(partition, source)
        replicated = partition.log.state.high_watermark
        if partition.log.leader_epochs.latest_epoch < 0 and partition.log.state.log_end_offset > replicated:
            # Nothing says where a log without epochs diverges; only what is replicated is safe.
            self._truncate(followed, Truncate(replicated))
        else:
            self._want(followed)

    def drop(self, key: TopicPartition) -> None:
        """Follows the partition no more."""
        if self.followed.pop(key, None) is not None:
            self._out_of_range.pop(key, None)
            self._truncations.pop(key, None)
            self._unflushed.pop(key, None)
            self._held.pop(key, None)
            self._session.drop(key)

    # Decisions

    def next_action(self, now_ms: int) -> Action:
        """Returns what to do now; see the head of this file."""
        self._end_delays(now_ms)
        if self._truncations:
            targets, self._truncations = self._truncations, {}
            return TruncateLogs(targets, {key: self.followed[key] for key in targets})
        if self._unflushed:
            unflushed, self._unflushed = self._unflushed, {}
            return FlushLogs(list(unflushed.values()))
        if now_ms < self._resume_ms:
            return Wait(self._resume_ms)
        if self._out_of_range:
            return self._list_offsets()
        limits = self._throttle() if self._quota.is_limited or self._held else self._limits
        if self._session.is_empty:
            return self._wait(now_ms)
        return self._fetch(limits)

    def _wait(self, now_ms: int) -> Wait:
        first = self._first_delayed()
        until_ms = None if first is None else first.delayed_until_ms
        if self._held:
            held_until_ms = now_ms + self._quota.wait_ms
            until_ms = held_until_ms if until_ms is None else min(until_ms, held_until_ms)
        return Wait(until_ms)

    # The quota (E)

    def _throttle(self) -> FetchLimits:
        """Leaves out what the quota does not allow now, or fetches it on. Returns the limits of the next fetch."""
        max_bytes, max_wait_ms = self._limits
        lagging = [each for each in self.followed.values() if each.lag != 0 and self._is_throttled(each)]
        if lagging and self._quota.is_exceeded:
            for followed in lagging:
                self._held[followed.key] = followed
                self._session.drop(followed.key)
            return FetchLimits(max_bytes, min(max_wait_ms, self._quota.wait_ms))
        held, self._held = self._held, {}
        for followed in held.values():
            if followed.state is FollowerState.FETCHING:
                self._session.want(followed.key, followed.position())
        return FetchLimits(min(max_bytes, self._quota.share) if lagging else max_bytes, max_wait_ms)

    def _is_throttled(self, followed: Followed) -> bool:
        return (
            self._quota.is_limited
            and followed.state is FollowerState.FETCHING
            and self._quota.is_throttled(followed.partition)
        )

    def _end_delays(self, now_ms: int) -> None:
        while (followed := self._first_delayed()) is not None and followed.delayed_until_ms <= now_ms:
            heappop(self._delayed)
            self._fetch_on(followed)

    def _first_delayed(self) -> Followed | None:
        """Returns the partition whose delay ends first."""
        while self._delayed:
            _, _, followed = self._delayed[0]
            if followed.state is FollowerState.DELAYED and self.followed.get(followed.key) is followed:
                return followed
            heappop(self._delayed)
        return None

    def _fetch(self, limits: FetchLimits) -> Fetch:
        self.stats.requests += 1
        return Fetch(fetch_request(self._settings, limits, *self._session.next_request()))

    def _list_offsets(self) -> ListOffsets:
        """Requests the leader's end offsets first, of all partitions where they are not known yet."""
        requested = {key: each for key, each in self._out_of_range.items() if each.leader_end_offset == NO_OFFSET}
        timestamp = LATEST if requested else EARLIEST
        requested = requested or dict(self._out_of_range)
        request = list_offsets_request(self._settings.broker_id, requested, timestamp)
        return ListOffsets(request, timestamp, requested)

    # Fetch responses

    def fetched(self, response: FetchResponse, now_ms: int) -> Steps[None]:
        """Applies a response, in steps."""
        was_full = self._session.is_full
        problem = self._session.answered(response)
        if problem is not None:
            log.info("fetch session ended", leader_id=self.leader_id, reason=problem)
            if was_full:
                self._back_off(now_ms)
            return
        self._failures = 0
        delayed: dict[ErrorCode, list[TopicPartition]] = {}
        pace = Pace()
        for topic in response.responses:
            for data in topic.partitions:
                key = TopicPartition(topic.topic, data.partition_index)
                error = self._apply(key, data, now_ms)
                if error is not ErrorCode.NONE:
                    delayed.setdefault(error, []).append(key)
                size = len(data.records or b"")
                if pace.step_ends(ITEMS_PER_APPEND + size // BYTES_PER_ITEM if size else 1):
                    yield
        self._log_delayed(delayed)

    def failed(self, reason: str, now_ms: int) -> None:
        """A request has no response: opens another session after a while."""
        log.debug("no response from the leader", leader_id=self.leader_id, reason=reason)
        self._session.failed()
        self._back_off(now_ms)

    def _back_off(self, now_ms: int) -> None:
        self._resume_ms = now_ms + self._delay_ms(self._failures)
        self._failures += 1

    def _delay_ms(self, failures: int) -> int:
        """Returns how long to wait after an error that follows this many others."""
        return min(FIRST_DELAY_MS << min(failures, 32), self._settings.replica_fetch_backoff_ms)

    def _apply(self, key: TopicPartition, data: FetchResponse.PartitionData, now_ms: int) -> ErrorCode:
        """Applies one partition's part of a response. Returns the reason if the partition is delayed."""
        followed, sent = self.followed.get(key), self._session.sent(key)
        if followed is None or sent is None or followed.state is not FollowerState.FETCHING:
            return ErrorCode.NONE
        error = ErrorCode.of(data.error_code)
        if not followed.is_at(sent):
            self._session.want(key, followed.position())
            error = ErrorCode.NONE
        elif error is ErrorCode.OFFSET_OUT_OF_RANGE:
            followed.move(FollowerState.OUT_OF_RANGE)
            followed.leader_end_offset = NO_OFFSET
            self._out_of_range[key] = followed
            error = ErrorCode.NONE
        elif error is ErrorCode.NONE:
            error = self._apply_safely(followed, data)
        return self._settle(followed, error, now_ms)

    def _settle(self, followed: Followed, error: ErrorCode, now_ms: int) -> ErrorCode:
        """Delays a partition after an error, or fails it. Returns the reason of the delay."""
        if error is ErrorCode.NONE:
            return error
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            epoch = followed.source.leader_epoch
            log.info("follower fenced", partition=str(followed.key), leader_id=self.leader_id, leader_epoch=epoch)
            self._fail(followed)
        elif followed.partition.has_failed:
            self._fail(followed, by_storage=True)
        else:
            self._delay(followed, now_ms)
            return error
        return ErrorCode.NONE

    def _apply_safely(self, followed: Followed, data: FetchResponse.PartitionData) -> ErrorCode:
        """Takes records, watermarks or a diverging epoch. Returns the error of the follower's own log."""
        try:
            if data.diverging_epoch is not None and data.diverging_epoch.epoch >= 0:
                self._diverged(followed, data.diverging_epoch)
            else:
                self._take(followed, data)
        except Exception as error:
            code = error.code if isinstance(error, ProtocolError) else ErrorCode.UNKNOWN_SERVER_ERROR
            if code is ErrorCode.UNKNOWN_SERVER_ERROR:
                log.exception("follower failed", partition=str(followed.key))
                self._fail(followed)
                return ErrorCode.NONE
            if code is not ErrorCode.KAFKA_STORAGE_ERROR:  # which the log itself reports
                log.error("fetched records refused", partition=str(followed.key), reason=str(error))
            return code
        return ErrorCode.NONE

    def _take(self, followed: Followed, data: FetchResponse.PartitionData) -> None:
        partition = followed.partition
        if data.records:
            if self._quota.is_limited and self._quota.is_throttled(partition):
                self._quota.record(len(data.records))
            info = partition.append_as_follower(cast(bytes, data.records))
            if info is not None:
                self.stats.bytes_in += info.size_in_bytes
                self._events.appended(partition)
                if partition.needs_flush:
                    self._unflushed[followed.key] = followed
        if partition.follow(data.high_watermark, data.log_start_offset):
            self._events.moved(partition)
        followed.lag = max(0, data.high_watermark - partition.log.state.log_end_offset)
        followed.failures = 0
        self._session.want(followed.key, followed.position())

    def _diverged(self, followed: Followed, leader: FetchResponse.EpochEndOffset) -> None:
        """The logs part somewhere. The watermarks of this response are not taken: the log has to be truncated first."""
        own = followed.partition.log
        offset = truncation_offset(own, leader.epoch, leader.end_offset)
        log.info(
            "follower diverges",
            partition=str(followed.key),
            leader_id=self.leader_id,
            log_end_offset=own.state.log_end_offset,
            last_epoch=own.leader_epochs.latest_epoch,
            leader_epoch=leader.epoch,
            leader_end_offset=leader.end_offset,
            truncate_to=offset,
        )
        self._truncate(followed, Truncate(offset))

    # The leader's offsets

    def offsets_found(self, action: ListOffsets, response: ListOffsetsResponse, now_ms: int) -> None:
        """Takes the leader's end or start offsets (D)."""
        found = {
            TopicPartition(topic.name, data.partition_index): data
            for topic in response.topics
            for data in topic.partitions
        }
        delayed: dict[ErrorCode, list[TopicPartition]] = {}
        for key, followed in action.followed.items():
            if self._out_of_range.get(key) is not followed:
                continue
            data = found.get(key)
            error = ErrorCode.UNKNOWN_SERVER_ERROR if data is None else ErrorCode.of(data.error_code)
            if data is not None and error is ErrorCode.NONE:
                if data.offset < 0:
                    error = ErrorCode.OFFSET_NOT_AVAILABLE
                elif action.timestamp == LATEST:
                    self._leader_ends_at(followed, data.offset)
                else:
                    error = self._leader_starts_at(followed, data.offset)
            if error is not ErrorCode.NONE:
                del self._out_of_range[key]
                if self._settle(followed, error, now_ms) is not ErrorCode.NONE:
                    delayed.setdefault(error, []).append(key)
        self._log_delayed(delayed)

    def _leader_ends_at(self, followed: Followed, offset: int) -> None:
        end_offset = followed.partition.log.state.log_end_offset
        if offset >= end_offset:
            followed.leader_end_offset = offset
            return
        log.warning(
            "follower is longer than the leader",
            partition=str(followed.key),
            leader_id=self.leader_id,
            log_end_offset=end_offset,
            truncate_to=offset,
        )
        del self._out_of_range[followed.key]
        self._truncate(followed, Truncate(offset))

    def _leader_starts_at(self, followed: Followed, offset: int) -> ErrorCode:
        end_offset = followed.partition.log.state.log_end_offset
        followed.lag = followed.leader_end_offset - max(offset, end_offset)
        if offset <= end_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE  # no longer, it seems; try again, but not in a hurry
        log.warning(
            "follower starts over",
            partition=str(followed.key),
            leader_id=self.leader_id,
            log_end_offset=end_offset,
            start_at=offset,
        )
        del self._out_of_range[followed.key]
        self._truncate(followed, StartOver(offset))
        return ErrorCode.NONE

    # Truncations and flushes

    def _truncate(self, followed: Followed, target: Target) -> None:
        if target.offset < followed.partition.log.state.high_watermark:
            log.warning(
                "truncation below the high watermark",
                partition=str(followed.key),
                high_watermark=followed.partition.log.state.high_watermark,
                truncate_to=target.offset,
            )
        followed.move(FollowerState.TRUNCATING)
        self._truncations[followed.key] = target

    def truncated(
        self, action: TruncateLogs, results: Mapping[TopicPartition, ProtocolError | None], now_ms: int
    ) -> None:
        """Takes the results of truncations (A): fetches on from the logs' new ends."""
        for key, followed in action.followed.items():
            if self.followed.get(key) is not followed:
                continue
            error = results[key]
            if error is not None:
                log.error("log not truncated", partition=str(key), reason=str(error))
                self._settle(followed, error.code, now_ms)
                continue
            self._events.moved(followed.partition)
            if self._session.sent(key) == followed.position():
                log.warning("nothing to truncate", partition=str(key), leader_id=self.leader_id)
                self._delay(followed, now_ms)
            else:
                self._fetch_on(followed)

    def flushed(self, action: FlushLogs, now_ms: int) -> None:
        """The flushes (B) have ended, successfully or not."""
        for followed in action.followed:
            if self.followed.get(followed.key) is not followed:
                continue
            if followed.partition.has_failed:
                self._fail(followed, by_storage=True)
            elif followed.partition.needs_flush:
                self._delay(followed, now_ms)

    # Moves

    def _fetch_on(self, followed: Followed) -> None:
        followed.move(FollowerState.FETCHING)
        self._want(followed)

    def _want(self, followed: Followed) -> None:
        """Fetches the partition from its log's end. What it has, from an earlier leader say, may need a flush first."""
        if followed.partition.needs_flush:
            self._unflushed[followed.key] = followed
        self._session.want(followed.key, followed.position())

    def _delay(self, followed: Followed, now_ms: int) -> None:
        followed.move(FollowerState.DELAYED)
        followed.delayed_until_ms = now_ms + self._delay_ms(followed.failures)
        followed.failures += 1
        self._delays += 1
        heappush(self._delayed, (followed.delayed_until_ms, self._delays, followed))
        self._session.drop(followed.key)

    def _fail(self, followed: Followed, *, by_storage: bool = False) -> None:
        self.drop(followed.key)
        self._events.failed(followed.partition, by_storage=by_storage)

    def _log_delayed(self, delayed: Mapping[ErrorCode, Sequence[TopicPartition]]) -> None:
        for error, keys in delayed.items():
            log.info(
                "followers delayed",
                leader_id=self.leader_id,
                reason=error.name,
                partitions=len(keys),
                first=str(keys[0]),
            )
