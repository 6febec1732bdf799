"""The broker's fetch sessions, and how one request is read and answered: without a session, opening one, or within one.

Letters as in fetch_session.py. Source: Kafka's FetchSessionCache and FetchContext.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from random import Random

from odradek.broker.replica.fetch.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    INVALID_SESSION_ID,
    MAX_INT32,
    FetchIsolation,
    FetchResult,
    FetchSession,
    FetchTarget,
    Targets,
    next_epoch,
)
from odradek.broker.replica.fetch.log_reader import FetchParams, failed_partition
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchResponse
from odradek.timer import Clock

MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS = 120_000


class FetchContext:
    """A fetch without a session, and the base of the other contexts. `session` is the session on which a parked fetch
    may wait.
    """

    def __init__(self, wanted: Targets, session: FetchSession | None = None) -> None:
        self.wanted = wanted
        self.session = session

    def targets(self) -> Collection[FetchTarget]:
        """The targets to read now; called again when a parked fetch completes."""
        return self.wanted.values()

    def answer(self, results: Sequence[FetchResult]) -> FetchResponse:
        return fetch_response(results)


class RestrictedContext(FetchContext):
    """A fetch some of whose targets are refused, with these errors, before they are read."""

    def __init__(self, whole: FetchContext, refused: Mapping[FetchTarget, ErrorCode], version: int) -> None:
        super().__init__(whole.wanted, whole.session)
        self._whole = whole
        self._refused = refused
        self._version = version

    def targets(self) -> Collection[FetchTarget]:
        refused = self._refused
        return [target for target in self._whole.targets() if target not in refused]

    def answer(self, results: Sequence[FetchResult]) -> FetchResponse:
        version = self._version
        failed = [
            (target, failed_partition(target.partition, error, version)) for target, error in self._refused.items()
        ]
        return self._whole.answer([*results, *failed])


class FailedContext(FetchContext):
    """A fetch with an invalid session id or epoch (A): nothing is read."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__({})
        self.error = error

    def answer(self, results: Sequence[FetchResult]) -> FetchResponse:
        return FetchResponse(error_code=self.error, session_id=INVALID_SESSION_ID, responses=[])


class FullContext(FetchContext):
    """A full fetch whose response may open a session."""

    def __init__(self, wanted: Targets, open_session: Callable[[int], FetchSession | None]) -> None:
        """`open_session` creates a session for the given number of partitions, or returns None if there is no slot."""
        super().__init__(wanted)
        self._open_session = open_session

    def answer(self, results: Sequence[FetchResult]) -> FetchResponse:
        response = fetch_response(results)
        session = self._open_session(len(results))
        if session is not None:
            session.open_with(results)
            response.session_id = session.id
        return response


class IncrementalContext(FetchContext):
    """One fetch of an open session."""

    def __init__(self, session: FetchSession, epoch: int) -> None:
        super().__init__(session.targets, session)
        self._session = session
        self._epoch = next_epoch(epoch)

    def targets(self) -> Collection[FetchTarget]:
        return list(self._session.pending)

    def answer(self, results: Sequence[FetchResult]) -> FetchResponse:
        session = self._session
        if session.epoch != self._epoch:
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.id, responses=[])
        response = fetch_response(session.answer(results))
        response.session_id = session.id
        return response


def fetch_response(results: Iterable[FetchResult]) -> FetchResponse:
    """The response with these partitions; adjacent partitions of one topic share its entry."""
    topics: list[FetchResponse.FetchableTopicResponse] = []
    name = ""
    number = -1
    """The topic id as a number; 0 for topics by name."""
    partitions: list[FetchResponse.PartitionData] = []
    for target, data in results:
        topic = target.topic_partition.topic
        if target.topic_id.int != number or (topic != name and not number):
            name = topic
            number = target.topic_id.int
            partitions = []
            topics.append(
                FetchResponse.FetchableTopicResponse(topic=topic, topic_id=target.topic_id, partitions=partitions)
            )
        partitions.append(data)
    return FetchResponse(responses=topics)


class FetchSessionCache:
    """All sessions of the broker (E). `evictions` counts the evicted sessions."""

    def __init__(
        self,
        max_sessions: int,
        clock: Clock,
        random: Random,
        eviction_ms: int = MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS,
    ) -> None:
        self.max_sessions = max_sessions
        self.evictions: int = 0
        self._clock = clock
        self._random = random
        self._eviction_ms = eviction_ms
        self._sessions: dict[int, FetchSession] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """The number of partitions in all sessions (NumIncrementalFetchPartitionsCached)."""
        return sum(len(session.targets) for session in self._sessions.values())

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def context(
        self,
        session_id: int,
        epoch: int,
        params: FetchParams,
        wanted: Targets,
        forgotten: Iterable[Hashable] = (),
    ) -> FetchContext:
        """Returns the context that the request's session id and epoch select."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != INVALID_SESSION_ID:
                self.remove(session_id)
            if epoch == FINAL_EPOCH:
                return FetchContext(wanted)
            return FullContext(
                wanted,
                lambda size: self.create(
                    size,
                    privileged=params.is_from_follower,
                    isolation=params.isolation,
                    uses_topic_ids=params.uses_topic_ids,
                ),
            )
        session = self._sessions.get(session_id)
        if session is None:
            return FailedContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return FailedContext(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids is not params.uses_topic_ids:
            return FailedContext(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(wanted, forgotten, params.isolation, params.max_partitions)
        if not session.targets:
            self.remove(session_id)
            return FetchContext({})
        self._touch(session)
        session.epoch = next_epoch(session.epoch)
        return IncrementalContext(session, epoch)

    def create(
        self, size: int, *, privileged: bool, isolation: FetchIsolation, uses_topic_ids: bool = False
    ) -> FetchSession | None:
        """Creates a session for `size` partitions. Returns None if all slots are taken by sessions of higher value."""
        now = self._clock.now_ms()
        if len(self._sessions) >= self.max_sessions and not self._evict(size, privileged, now):
            return None
        session_id = self._random.randrange(1, MAX_INT32)
        while session_id in self._sessions:
            session_id = self._random.randrange(1, MAX_INT32)
        session = FetchSession(
            session_id, privileged=privileged, isolation=isolation, now_ms=now, uses_topic_ids=uses_topic_ids
        )
        self._sessions[session_id] = session
        return session

    def check(self) -> None:
        """Asserts that the sessions are kept by their ids, and see the check of a session."""
        for session_id, session in self._sessions.items():
            assert session.id == session_id, f"session {session.id} is kept as {session_id}"
            session.check()

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
