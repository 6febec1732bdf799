"""How one Fetch request is read and answered: without a session, opening a session, or within a session. Letters as in
fetch_session.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from odradek.broker.replica.fetch.fetch_session import (
    INVALID_SESSION_ID,
    FetchResult,
    FetchSession,
    FetchTarget,
    Targets,
    next_epoch,
)
from odradek.broker.replica.fetch.log_reader import failed_partition
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchResponse


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
