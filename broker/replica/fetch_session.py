"""Fetch sessions: a consumer of a thousand partitions names only those that changed, and is told only of those that
changed. (KIP-227)

A *full* fetch (epoch 0) names all its partitions; if there is room its answer opens a session. *Incremental* fetches
(epoch 1, 2, ...) add, move and forget partitions. Epoch -1 closes the session and reads without one. The rules, by
letter:

(A) An unknown session id is FETCH_SESSION_ID_NOT_FOUND, any epoch but the expected one INVALID_FETCH_SESSION_EPOCH;
    also for the slower of two requests that crossed, when its turn to be answered comes.
(B) An incremental answer carries the partitions with records, an error, a diverging epoch, or a high watermark or log
    start offset that the client was not told. The others cost nothing.
(C) A partition whose records were sent goes behind the others, so that max_bytes does not starve those at the end.
(D) At most `max.incremental.fetch.session.cache.slots` sessions. For a new one goes, in this order: the least
    recently used one if it was not used for two minutes; else the smallest of those that may go, if it is smaller
    than the new one. Followers' sessions go only to followers' until they are two minutes old, and no consumer's
    session younger than that goes to a consumer.

**Cost.** Kafka reads every partition of the session at every fetch. Here a session knows which of its targets may
have news: `pending`. A target that a read found with nothing new (FetchTarget.has_nothing_new) leaves `pending` and
is put among its partition's `watchers`; whatever changes what a fetch can see wakes the watchers, which brings them
back. So a fetch over a thousand quiet partitions reads none and waits on one key, the session itself, and an append
costs one step for each session that had been told everything. Followers' sessions keep all targets pending, since
each of their fetches tells the leader where they stand.

Source: Kafka's FetchSession.scala.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from broker.replica.fetch_target import UNKNOWN_OFFSET, FetchIsolation, FetchParams, FetchTarget
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages.fetch import FetchResponse
from protocol.topic_partition import TopicPartition
from timer import Clock

INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_INT32 = 0x7FFFFFFF
MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS = 120_000
MAX_PARTITIONS = 10_000
"""As many as one request may name: a session is one request that goes on."""

FetchResult = tuple[FetchTarget, FetchResponse.PartitionData]
Targets = dict[TopicPartition, FetchTarget]


def next_epoch(epoch: int) -> int:
    """1, 2, ... and round to 1 again; the final epoch stays. (KIP-227)"""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == MAX_INT32 else epoch + 1


class FetchSession:
    """The partitions one client fetches and what it was told of them."""

    __slots__ = (
        "created_ms",
        "epoch",
        "id",
        "isolation",
        "last_used_ms",
        "parked",
        "pending",
        "privileged",
        "targets",
    )

    def __init__(self, session_id: int, *, privileged: bool, isolation: FetchIsolation, now_ms: int) -> None:
        self.id = session_id
        self.privileged = privileged
        self.isolation = isolation
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.targets: Targets = {}
        self.pending: dict[FetchTarget, None] = {}
        self.parked = 0
        """How many fetches of this session wait."""

    def open_with(self, results: Iterable[FetchResult]) -> None:
        """Takes over the targets of the full fetch that opens the session, with what its answer tells of them."""
        for target, data in results:
            target.session = self
            target.told_high_watermark = data.high_watermark
            target.told_log_start_offset = data.log_start_offset
            self.targets[target.topic_partition] = target
            self.pending[target] = None
        self.settle()

    def update(self, wanted: Targets, forgotten: Iterable[TopicPartition], isolation: FetchIsolation) -> None:
        """Applies an incremental request. Raises POLICY_VIOLATION for one that makes the session too large."""
        if len(self.targets) + len(wanted) > MAX_PARTITIONS and len(self.targets.keys() | wanted) > MAX_PARTITIONS:
            raise ProtocolError(
                ErrorCode.POLICY_VIOLATION, f"a fetch session holds at most {MAX_PARTITIONS} partitions"
            )
        for key, newer in wanted.items():
            target = self.targets.get(key)
            if target is None:
                target = self.targets[key] = newer
                target.session = self
            else:
                target.ask_again(newer)
            self.pending[target] = None
        for key in forgotten:
            gone = self.targets.pop(key, None)
            if gone is not None:
                self._drop(gone)
        if self.privileged or isolation is not self.isolation:
            self.isolation = isolation
            self.pending = dict.fromkeys(self.targets.values())

    def settle(self) -> None:
        """Lets go of the pending targets that have nothing new; their partitions will wake them."""
        if self.privileged:
            return
        for target in list(self.pending):
            if target.has_nothing_new(self.isolation):
                del self.pending[target]
                assert target.hosted is not None
                target.hosted.watchers.add(target)
            elif self.parked and target.hosted is not None:
                target.hosted.watchers.add(target)

    def awaken(self, target: FetchTarget) -> bool:
        """A watched partition changed. True while a fetch waits, which then wants to hear of further changes, too."""
        self.pending[target] = None
        return self.parked > 0

    def answer(self, results: Sequence[FetchResult]) -> list[FetchResult]:
        """(B) and (C): the results that the client must be told, remembered as told."""
        news = []
        for target, data in results:
            if self.targets.get(target.topic_partition) is not target:
                continue
            size = len(data.records or b"")
            if size or data.error_code or self._is_news(target, data):
                news.append((target, data))
                target.told_high_watermark = UNKNOWN_OFFSET if data.error_code else data.high_watermark
                target.told_log_start_offset = data.log_start_offset
            if size and target in self.pending:
                del self.pending[target]
                self.pending[target] = None
        self.settle()
        return news

    @staticmethod
    def _is_news(target: FetchTarget, data: FetchResponse.PartitionData) -> bool:
        return (
            data.high_watermark != target.told_high_watermark
            or data.log_start_offset != target.told_log_start_offset
            or data.preferred_read_replica != -1
            or data.diverging_epoch is not None
        )

    def close(self) -> None:
        """Leaves the watch lists of all partitions."""
        for target in self.targets.values():
            self._drop(target)

    def _drop(self, target: FetchTarget) -> None:
        self.pending.pop(target, None)
        if target.hosted is not None:
            target.hosted.watchers.discard(target)


class FetchContext:
    """How one Fetch request is read and answered; this one knows no session. `session` is what a parked fetch may
    wait on.
    """

    session: FetchSession | None = None

    def __init__(self, wanted: Targets) -> None:
        self.wanted = wanted

    def targets(self) -> Iterable[FetchTarget]:
        """What is to be read now. To be asked again when a parked fetch completes."""
        return self.wanted.values()

    def answer(self, results: Sequence[FetchResult]) -> FetchResponse:
        return fetch_response(results)


class FailedContext(FetchContext):
    """(A): nothing is read."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__({})
        self.error = error

    def answer(self, results: Sequence[FetchResult]) -> FetchResponse:
        return FetchResponse(error_code=self.error, session_id=INVALID_SESSION_ID, responses=[])


class FullContext(FetchContext):
    """A full fetch whose answer may open a session."""

    def __init__(self, cache: FetchSessionCache, wanted: Targets, params: FetchParams) -> None:
        super().__init__(wanted)
        self._cache = cache
        self._params = params

    def answer(self, results: Sequence[FetchResult]) -> FetchResponse:
        response = fetch_response(results)
        session = self._cache.create(
            len(results), privileged=self._params.is_from_follower, isolation=self._params.isolation
        )
        if session is not None:
            session.open_with(results)
            response.session_id = session.id
        return response


class IncrementalContext(FetchContext):
    """One fetch of an open session."""

    def __init__(self, session: FetchSession, epoch: int) -> None:
        super().__init__(session.targets)
        self.session: FetchSession = session
        self._epoch = next_epoch(epoch)

    def targets(self) -> Iterable[FetchTarget]:
        return list(self.session.pending)

    def answer(self, results: Sequence[FetchResult]) -> FetchResponse:
        session = self.session
        if session.epoch != self._epoch:
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.id, responses=[])
        response = fetch_response(session.answer(results))
        response.session_id = session.id
        return response


class FetchSessionCache:
    """All sessions of the broker (D). `evictions` counts the sessions that had to make room."""

    def __init__(
        self,
        max_sessions: int,
        clock: Clock,
        random: Random,
        eviction_ms: int = MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS,
    ) -> None:
        self.max_sessions = max_sessions
        self.evictions = 0
        self._clock = clock
        self._random = random
        self._eviction_ms = eviction_ms
        self._sessions: dict[int, FetchSession] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """How many partitions all sessions hold (NumIncrementalFetchPartitionsCached)."""
        return sum(len(session.targets) for session in self._sessions.values())

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def context(
        self,
        session_id: int,
        epoch: int,
        params: FetchParams,
        wanted: Targets,
        forgotten: Iterable[TopicPartition] = (),
    ) -> FetchContext:
        """What the request's session id and epoch mean."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != INVALID_SESSION_ID:
                self.remove(session_id)
            if epoch == FINAL_EPOCH:
                return FetchContext(wanted)
            return FullContext(self, wanted, params)
        session = self._sessions.get(session_id)
        if session is None:
            return FailedContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return FailedContext(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.update(wanted, forgotten, params.isolation)
        if not session.targets:
            self.remove(session_id)
            return FetchContext({})
        self._touch(session)
        session.epoch = next_epoch(session.epoch)
        return IncrementalContext(session, epoch)

    def create(self, size: int, *, privileged: bool, isolation: FetchIsolation) -> FetchSession | None:
        """A new session for `size` partitions, or None where all slots are taken by sessions worth more."""
        now = self._clock.now_ms()
        if len(self._sessions) >= self.max_sessions and not self._evict(size, privileged, now):
            return None
        session_id = self._random.randrange(1, MAX_INT32)
        while session_id in self._sessions:
            session_id = self._random.randrange(1, MAX_INT32)
        session = FetchSession(session_id, privileged=privileged, isolation=isolation, now_ms=now)
        self._sessions[session_id] = session
        return session

    def remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def _touch(self, session: FetchSession) -> None:
        session.last_used_ms = self._clock.now_ms()
        del self._sessions[session.id]
        self._sessions[session.id] = session

    def _evict(self, size: int, privileged: bool, now_ms: int) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        victim = oldest
        if now_ms - oldest.last_used_ms <= self._eviction_ms:
            candidates = [session for session in self._sessions.values() if self._may_go(session, privileged, now_ms)]
            if not candidates:
                return False
            victim = min(candidates, key=_worth)
            if (privileged, size, 0) < _worth(victim):
                return False
        self.remove(victim.id)
        self.evictions += 1
        return True

    def _may_go(self, session: FetchSession, privileged: bool, now_ms: int) -> bool:
        return (privileged and not session.privileged) or now_ms - session.created_ms > self._eviction_ms


def _worth(session: FetchSession) -> tuple[bool, int, int]:
    return (session.privileged, len(session.targets), session.id)


def fetch_response(results: Iterable[FetchResult]) -> FetchResponse:
    """The answer with these partitions; neighbours of one topic share its entry."""
    topics: list[FetchResponse.FetchableTopicResponse] = []
    name: str | None = None
    partitions: list[FetchResponse.PartitionData] = []
    for target, data in results:
        topic = target.topic_partition.topic
        if topic != name:
            name = topic
            partitions = []
            topics.append(FetchResponse.FetchableTopicResponse(topic=topic, partitions=partitions))
        partitions.append(data)
    return FetchResponse(responses=topics)
