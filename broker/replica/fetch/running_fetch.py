"""A Fetch request in progress: it reads, and responds now or when enough data has arrived.

(A) A fetch is answered at once if the request does not wait (max_wait_ms, min_bytes), if there is enough data, or if a
    partition has an error or a diverging epoch.
(B) Otherwise it is parked: under its partitions, or, for an incremental fetch, under its session, which tracks the
    partitions that may have changed (fetch_session.py). Once woken, or at its timeout, it reads again and responds
    with whatever there is.
(C) If the page cache does not have the records, a thread reads them from the disk, so that one consumer that lags far
    behind does not block the others. Then the fetch reads again, and goes on with (A).
(D) Very many targets, as a follower may have, are read in steps.
(E) A follower's fetch is limited by the leader's quota (log_reader.py, F). If that holds partitions back, the fetch is
    parked no longer than until the quota may let them go. What the response contains of throttled partitions counts.
(F) If the client disconnects, the fetch leaves the purgatory, and nothing more is read.

Source: Kafka's ReplicaManager.fetchMessages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING
from uuid import UUID

import structlog
from mypy_extensions import mypyc_attr

from odradek.broker.background.background import each_in_thread
from odradek.broker.background.stepwise import ITEMS_PER_STEP, Steps
from odradek.broker.replica.fetch.fetch_session import FetchResult, FetchTarget
from odradek.broker.replica.fetch.fetch_session_cache import FetchContext
from odradek.broker.replica.fetch.log_reader import FetchParams, FetchRead, LogReader
from odradek.broker.replica.partition.hosted_partitions import HostedPartitions
from odradek.broker.replica.partition.wakeups import Wakeups
from odradek.broker.replica.quota.replication_quota import ReplicationQuota
from odradek.broker.requests.request_context import Holds, PendingResponse, RequestContext
from odradek.protocol.messages.fetch import FetchResponse
from odradek.purgatory import DelayedFetch, FetchExpirations

if TYPE_CHECKING:
    from odradek.broker.background.tasks import ThreadsAndTurns

TARGETS_AT_ONCE = 1000
"""More are read in steps."""
TARGETS_PER_STEP = ITEMS_PER_STEP // 3

log = structlog.get_logger("broker.replica")


class Fetches:
    """What the fetches of a broker share: how they read and wait, and what is counted."""

    def __init__(
        self,
        partitions: HostedPartitions,
        topic_name: Callable[[UUID], str | None],
        wakeups: Wakeups,
        background: ThreadsAndTurns,
        leader_quota: ReplicationQuota,
    ) -> None:
        self.reader = LogReader(partitions.find, topic_name, wakeups.watermark_moved)
        self.purgatory = wakeups.fetch
        self.background = background
        self.leader_quota = leader_quota
        self.expirations = FetchExpirations()
        self.cold_reads = 0
        """The number of times that a fetch was read from the disk."""


@mypyc_attr(allow_interpreted_subclasses=True)
class FetchResponder:
    """Makes the responses: the Fetch handler. A method of a base class is called faster than a closure per request."""

    __slots__ = ()

    def respond(self, fetch: FetchContext, results: list[FetchResult], context: RequestContext) -> FetchResponse:
        """Returns the response. Called once for each fetch."""
        raise NotImplementedError


class ParkedFetch(DelayedFetch[FetchTarget]):
    """The wait for min_bytes (B). A session's fetch checks the targets that are pending at the time."""

    def __init__(
        self,
        fetches: Fetches,
        params: FetchParams,
        context: FetchContext,
        on_response: Callable[[], None],
        max_wait_ms: int,
    ) -> None:
        super().__init__(
            max_wait_ms,
            params.min_bytes,
            () if context.session is not None else tuple(context.wanted.values()),
            partial(fetches.reader.progress, params),
            on_response,
            fetches.expirations,
            params.is_from_follower,
        )
        self._session = context.session
        if self._session is not None:
            self._session.parked += 1
            self._session.settle()

    def keys(self) -> tuple[Hashable, ...]:
        if self._session is not None:
            return (self._session,)
        return tuple([target.topic_partition for target in self.targets])

    def try_complete(self) -> bool:
        if self._session is not None:
            self.targets = tuple(self._session.pending)
        return super().try_complete()

    def on_complete(self) -> None:
        if self._session is not None:
            self._session.parked -= 1
        super().on_complete()

    def abandon(self) -> bool:
        if not super().abandon():
            return False
        if self._session is not None:
            self._session.parked -= 1
        return True


class RunningFetch:
    """`context` is how the request is read and answered; `request` is its header and connection."""

    __slots__ = (
        "_again",
        "_context",
        "_fetches",
        "_may_block",
        "_may_wait",
        "_params",
        "_pending",
        "_request",
        "_responder",
    )

    def __init__(
        self,
        fetches: Fetches,
        params: FetchParams,
        context: FetchContext,
        request: RequestContext,
        responder: FetchResponder,
    ) -> None:
        self._fetches = fetches
        self._params = params
        self._context = context
        self._request = request
        self._responder = responder
        self._pending: PendingResponse | None = None
        self._may_wait = True
        """Whether the request may be parked if there is too little data: it was not parked before."""
        self._again = False
        self._may_block = False
        """See FetchRead."""

    def begin(self) -> FetchResponse | PendingResponse:
        """Returns the response if it is available now."""
        targets = self._context.targets()
        read: FetchRead | None = None
        if len(targets) <= TARGETS_AT_ONCE:
            read = self._read(targets)
            if self._is_enough(read):
                return self._response(read)
        session = self._context.session
        pending = self._pending = PendingResponse(
            holds=Holds.NOTHING if session is None else Holds.SAME_API,
            is_long=len(self._context.wanted) > ITEMS_PER_STEP,
        )
        if read is None:
            self._read_in_steps(targets)
        else:
            self._was_read(read)
        return pending

    def _new_read(self) -> FetchRead:
        quota: ReplicationQuota | None = None
        if self._params.is_from_follower and self._fetches.leader_quota.is_limited:
            quota = self._fetches.leader_quota
        return FetchRead(self._params, self._again, self._may_block, quota)

    def _read(self, targets: Collection[FetchTarget]) -> FetchRead:
        read = self._new_read()
        self._fetches.reader.read(read, targets)
        return read

    def _read_in_steps(self, targets: Collection[FetchTarget]) -> None:
        background = self._fetches.background
        assert self._pending is not None
        reading = background.turns.take_then(self._steps(targets), self._was_read, self._pending.fail)
        background.spawn(reading, "long fetch")

    def _steps(self, targets: Collection[FetchTarget]) -> Steps[FetchRead]:
        """Reads each target in one piece; the others may change meanwhile."""
        read = self._new_read()
        rest = iter(targets)
        while some := list(islice(rest, TARGETS_PER_STEP)):
            self._fetches.reader.read(read, some)
            yield
        return read

    def _is_enough(self, read: FetchRead) -> bool:
        if read.cold:
            return False
        if not self._may_wait or read.answer_now:
            return True
        params = self._params
        return params.max_wait_ms <= 0 or read.size >= params.min_bytes or not self._context.wanted

    def _response(self, read: FetchRead) -> FetchResponse:
        for target, data in read.results:
            if data.records and target.hosted is not None:
                target.hosted.stats.bytes_out += len(data.records)
        if read.quota is not None:
            self._count_throttled(read.quota, read.results)
        return self._responder.respond(self._context, read.results, self._request)

    @staticmethod
    def _count_throttled(quota: ReplicationQuota, results: list[FetchResult]) -> None:
        size = 0
        for target, data in results:
            if data.records and target.hosted is not None and quota.is_throttled(target.hosted):
                size += len(data.records)
        if size:
            quota.record(size)

    def _was_read(self, read: FetchRead) -> None:
        pending = self._pending
        assert pending is not None
        if pending.settled:
            return  # the client has disconnected
        if self._is_enough(read):
            pending.complete(self._response(read))
        elif read.cold:
            self._fetches.cold_reads += 1
            background = self._fetches.background
            reads = [cold.run for cold in read.cold]
            background.spawn(each_in_thread(background, reads, _cold_read_failed, self._on_disk_read), "cold read")
        else:
            self._park(pending, read)

    def _park(self, pending: PendingResponse, read: FetchRead) -> None:
        fetches = self._fetches
        max_wait_ms = self._params.max_wait_ms
        if read.is_throttled and read.quota is not None:
            max_wait_ms = min(max_wait_ms, read.quota.wait_ms)
        operation = ParkedFetch(fetches, self._params, self._context, self._woken, max_wait_ms)
        operation.requester = self._request
        fetches.purgatory.try_complete_else_watch(operation, operation.keys())
        pending.when_abandoned(operation.abandon)

    def _woken(self) -> None:
        self._may_wait = False
        self._again = True
        self._may_block = False
        self._go_on()

    def _on_disk_read(self) -> None:
        self._again = True
        self._may_block = True
        self._go_on()

    def _go_on(self) -> None:
        assert self._pending is not None
        if self._pending.settled:
            return  # the client has disconnected
        targets = self._context.targets()
        if len(targets) > TARGETS_AT_ONCE:
            self._read_in_steps(targets)
        else:
            self._was_read(self._read(targets))


def _cold_read_failed(error: OSError) -> None:
    """The repeated read returns KAFKA_STORAGE_ERROR."""
    log.warning("cold read failed", error=str(error))
