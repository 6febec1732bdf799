"""A Produce request in progress: from its first append to its response.

(A) If a transaction coordinator on another broker must verify the transaction, it is asked first (verification.py).
    Meanwhile later Produce requests of the connection wait.
(B) The batches are appended in the order of the request, as far as they fit one turn of the event loop.
    large_appends.py appends the others in further turns. Meanwhile all later requests of the connection wait.
(C) Then the request is answered: with acks=0 and acks=1 at once, with acks=all when the high watermark has passed the
    batches. If `flush.messages` requires an append on disk, acks=1 waits for the flushed offset; acks=all does so
    implicitly (partition.py, D). A client that disconnects ends only this wait.

Partitions fail independently; each has its own result.

Source: Kafka's ReplicaManager.appendRecords.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from odradek.broker.background.tasks import Spawn
from odradek.broker.metadata.metadata_cache import INTERNAL_TOPICS
from odradek.broker.replica.leader.append_result import PartitionAppendResult
from odradek.broker.replica.leader.appends import ACKS_ALL, AppendResults, Appends
from odradek.broker.replica.leader.once_verified import once_verified
from odradek.broker.replica.leader.verification import Question, TransactionVerification
from odradek.broker.requests.answered_later import answered_later
from odradek.broker.requests.pending_response import Holds, PendingResponse
from odradek.broker.requests.request_context import RequestContext
from odradek.protocol.append_allowance import AppendAllowance, TooMuchForOneTurn
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.produce import ProduceRequest, ProduceResponse
from odradek.protocol.topic_partition import TopicPartition

VALID_ACKS = frozenset({ACKS_ALL, 0, 1})
ADMIN_CLIENT_ID = "__admin_client"
"""Only clients with this id may write to internal topics."""
FIRST_VERSION_WITH_ABORTABLE = 11

Outcome = ProduceResponse | PendingResponse | None


class Producing:
    """What the Produce requests of a broker share. `finish` appends the batches that take further turns (B), and ends
    the request. `respond` makes the response; it may raise CloseConnection.
    """

    __slots__ = ("appends", "finish", "respond", "spawn", "verification")

    def __init__(
        self,
        appends: Appends,
        verification: TransactionVerification,
        spawn: Spawn,
        finish: Callable[[RunningProduce], Coroutine[Any, Any, Outcome]],
        respond: Callable[[RunningProduce], ProduceResponse | None],
    ) -> None:
        self.appends = appends
        self.verification = verification
        self.spawn = spawn
        self.finish = finish
        self.respond = respond


class RunningProduce:
    """`entries` are the batches that have not been appended yet, in their order, and `results` those of the others;
    `refused` are partitions whose batches are not appended. `allowance` is the rest of the request's allowance.
    """

    __slots__ = (
        "_producing",
        "_question",
        "_transactional_id",
        "acks",
        "allowance",
        "context",
        "entries",
        "refused",
        "results",
        "timeout_ms",
    )

    def __init__(
        self,
        producing: Producing,
        request: ProduceRequest,
        context: RequestContext,
        entries: dict[TopicPartition, bytes],
        refused: AppendResults,
    ) -> None:
        self._producing = producing
        self._transactional_id: str | None = request.transactional_id
        self._question: Question | None = None
        self.acks: int = request.acks
        self.timeout_ms: int = request.timeout_ms
        self.context = context
        self.entries = entries
        self.refused = refused
        self.results: AppendResults = {}
        self.allowance = AppendAllowance(producing.appends.max_inflated_bytes)

    @property
    def api_version(self) -> int:
        return self.context.api_version

    def begin(self) -> Outcome:
        """Returns the response if it is available now. Raises ProtocolError, and what `respond` raises."""
        producing = self._producing
        if self._transactional_id is not None:
            self._question = producing.verification.question(self._transactional_id, self.entries)
            if self._question is not None:
                asking = once_verified(producing.verification, self._question, self._append_verified)
                return answered_later(asking, self.context, producing.spawn, Holds.SAME_API)
        self._append()
        if self.entries:
            return answered_later(producing.finish(self), self.context, producing.spawn, Holds.EVERYTHING)
        return self.end()

    def _append_verified(self) -> Outcome | Coroutine[Any, Any, Outcome]:
        self._append()
        return self._producing.finish(self) if self.entries else self.end()

    def _append(self) -> None:
        """Appends the batches that fit this turn; `entries` keeps the others."""
        if self._transactional_id is not None:
            self.refused |= self._verified(self._transactional_id, self.entries)
        appends, results = self._producing.appends, self.results
        unfinished: dict[TopicPartition, bytes] = {}
        for key, records in self.entries.items():
            error = self._error_of(key)
            if error is not None:
                results[key] = PartitionAppendResult(error)
            elif unfinished:
                unfinished[key] = records
            else:
                try:
                    results[key] = appends.append_one(
                        key, records, self.acks, self.api_version, allowance=self.allowance
                    )
                except TooMuchForOneTurn:
                    unfinished[key] = records
        self.entries = unfinished

    def _error_of(self, key: TopicPartition) -> ErrorCode | None:
        if self.acks not in VALID_ACKS:
            return ErrorCode.INVALID_REQUIRED_ACKS
        if key.topic not in INTERNAL_TOPICS or key not in self._producing.appends.partitions:
            return None
        return None if self.context.client_id == ADMIN_CLIENT_ID else ErrorCode.INVALID_TOPIC_EXCEPTION

    def refusal(self, key: TopicPartition, records: bytes) -> PartitionAppendResult | None:
        """Returns why a batch may not be appended in this turn, regardless of its records; None if it may."""
        if self._transactional_id is None:
            return None
        return self._verified(self._transactional_id, {key: records}).get(key)

    def _verified(self, transactional_id: str, entries: dict[TopicPartition, bytes]) -> AppendResults:
        """Removes the batches that belong to no open transaction from the entries; returns their errors."""
        refused = self._producing.verification.refused(
            transactional_id,
            entries,
            self._question,
            knows_abortable=self.api_version >= FIRST_VERSION_WITH_ABORTABLE,
        )
        for key in refused:
            del entries[key]
        return refused

    def end(self) -> Outcome:
        """All batches are appended: returns the response, or parks the request until they are safe (C)."""
        producing = self._producing
        if not producing.appends.must_wait(self.results, self.acks):
            return producing.respond(self)
        pending = PendingResponse()
        operation = producing.appends.park(
            self.timeout_ms, self.acks, self.results, lambda _: pending.complete(producing.respond(self))
        )
        if pending.settled:  # the high watermark is already high enough
            response: ProduceResponse | None = pending.result()
            return response
        operation.requester = self.context
        pending.when_abandoned(operation.abandon)
        return pending
