"""The follower's side of a fetch session: what each Fetch request must say. (KIP-227; the leader's side is in
fetch_session.py)

(A) The first request is full: it names every partition. If the response opens a session, the next requests are
    incremental: they name the partitions whose position changed, and those to forget. A request that changes nothing
    names none, and costs nothing per partition.
(B) If the leader opens no session (it has no free slot), every request is full.
(C) After an error of the session, an unexpected response, or a lost connection, the next request is full again and
    closes the old session. No position is lost.
(D) While a request is under way, changes are only collected. `sent` always returns what the leader knew when it
    answered.

Source: Kafka's FetchSessionHandler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from odradek.broker.replica.fetch.fetch_session import INITIAL_EPOCH, INVALID_SESSION_ID, next_epoch
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchResponse
from odradek.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.broker.replica.follower.fetcher_state import Position


class SessionRequest(NamedTuple):
    """The part of a Fetch request that depends on the session: partitions to name, and partitions to forget."""

    session_id: int
    epoch: int
    named: dict[TopicPartition, Position]
    forgotten: tuple[TopicPartition, ...]


class FetchSessionClient:
    """A session with one leader, or the attempt to open one."""

    def __init__(self) -> None:
        self.id = INVALID_SESSION_ID
        self.epoch = INITIAL_EPOCH
        self._sent: dict[TopicPartition, Position] = {}
        self._changed: dict[TopicPartition, Position] = {}
        self._forgotten: dict[TopicPartition, None] = {}

    @property
    def is_empty(self) -> bool:
        """Whether the next request would fetch no partition."""
        return not self._changed and len(self._sent) == len(self._forgotten)

    @property
    def is_full(self) -> bool:
        """Whether the next request is full (A)."""
        return self.epoch == INITIAL_EPOCH

    def want(self, key: TopicPartition, position: Position) -> None:
        """Fetches the partition from this position, from the next request on."""
        self._forgotten.pop(key, None)
        self._changed.pop(key, None)
        if self._sent.get(key) != position:
            self._changed[key] = position

    def drop(self, key: TopicPartition) -> None:
        """Fetches the partition no more, from the next request on."""
        self._changed.pop(key, None)
        if key in self._sent:
            self._forgotten[key] = None

    def sent(self, key: TopicPartition) -> Position | None:
        """Returns the partition's position in the last request; None if that did not fetch it (D)."""
        return self._sent.get(key)

    def next_request(self) -> SessionRequest:
        """Returns the request to send now. Partitions whose position changed stand behind the others, so that a limit
        of the response's size does not starve the last ones.
        """
        changed, forgotten = self._changed, tuple(self._forgotten)
        self._changed, self._forgotten = {}, {}
        for key in forgotten:
            del self._sent[key]
        for key in changed:
            self._sent.pop(key, None)
        self._sent.update(changed)
        if self.is_full:
            return SessionRequest(self.id, self.epoch, self._sent, ())
        return SessionRequest(self.id, self.epoch, changed, forgotten)

    def answered(self, response: FetchResponse) -> str | None:
        """Takes the response to the last request. Returns None, or what is wrong with the response, which must then not
        be applied (C).
        """
        problem = self._problem(response)
        if problem is not None:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.id = INVALID_SESSION_ID
            self.failed()
        elif response.session_id == INVALID_SESSION_ID:
            self.id, self.epoch = INVALID_SESSION_ID, INITIAL_EPOCH
        else:
            self.id, self.epoch = response.session_id, next_epoch(self.epoch)
        return problem

    def failed(self) -> None:
        """The last request has no response (C)."""
        self.epoch = INITIAL_EPOCH

    def _problem(self, response: FetchResponse) -> str | None:
        if response.error_code != ErrorCode.NONE:
            return ErrorCode.of(response.error_code).name
        received = 0
        for topic in response.responses:
            received += len(topic.partitions)
            for data in topic.partitions:
                if TopicPartition(topic.topic, data.partition_index) not in self._sent:
                    return f"a response with {topic.topic}-{data.partition_index}, which was not requested"
        if self.is_full and received != len(self._sent):
            return f"a response with {received} of {len(self._sent)} requested partitions"
        return None
