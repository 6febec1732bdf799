"""Produce (key 0): appends the request's batches and responds for each partition.

Before version 3 the log answers batches of message format 0 and 1 with UNSUPPORTED_VERSION; nothing is converted.
From version 10 on the response names the leaders of partitions that other brokers lead (KIP-951), and from version 11
on a batch outside its transaction is TRANSACTION_ABORTABLE instead of INVALID_TXN_STATE (KIP-890, part 1).
acks=0 has no response: if a partition fails, the connection ends, so that the client notices. (Kafka's
KafkaApis.handleProduceRequest)
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from odradek.broker.background.tasks import Spawn
from odradek.broker.handlers.answered_later import answered_later
from odradek.broker.handlers.current_leaders import CurrentLeaders
from odradek.broker.handlers.once_verified import once_verified
from odradek.broker.metadata.metadata_cache import MetadataCache
from odradek.broker.replica.leader.append_result import PartitionAppendResult
from odradek.broker.replica.leader.appends import UnfinishedAppends
from odradek.broker.replica.leader.verification import Question
from odradek.broker.replica.replica_manager import ReplicaManager
from odradek.broker.requests.pending_response import Holds, PendingResponse
from odradek.broker.requests.request_context import CloseConnection, RequestContext
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.produce import ProduceRequest, ProduceResponse
from odradek.protocol.records import has_transactional_batch
from odradek.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.broker.replica.leader.appends import AppendResults
    from odradek.purgatory import DelayedProduce

ADMIN_CLIENT_ID = "__admin_client"
"""Only clients with this id may write to internal topics."""
FIRST_VERSION_WITH_STORAGE_ERROR = 4
FIRST_VERSION_WITH_LEADERS = 10
FIRST_VERSION_WITH_ABORTABLE = 11

_TopicResponse = ProduceResponse.TopicProduceResponse
_PartitionResponse = ProduceResponse.PartitionProduceResponse


class ProduceHandler:
    """Produce (key 0)."""

    def __init__(
        self, replica_manager: ReplicaManager, metadata: MetadataCache, leaders: CurrentLeaders, spawn: Spawn
    ) -> None:
        self._replica_manager = replica_manager
        self._metadata = metadata
        self._leaders = leaders
        self._spawn = spawn

    def produce(self, request: ProduceRequest, context: RequestContext) -> ProduceResponse | PendingResponse | None:
        """Appends, and completes at once (acks 0 and 1) or when the batches are replicated (acks all).

        Appends that take too long for one turn of the event loop continue in further turns. They hold back later
        requests of the connection.
        """
        entries, refused = self._entries(request)
        transactional_id = request.transactional_id
        if transactional_id is not None:
            question = self._replica_manager.verification.question(transactional_id, entries)
            if question is not None:
                return self._append_once_verified(request, entries, refused, question, context)
            refused |= self._verified(transactional_id, entries, context)
        elif any(map(has_transactional_batch, entries.values())):
            if request.acks == 0:
                raise CloseConnection("transactional batch without transactional id", acks=0)
            raise ProtocolError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        pending = PendingResponse()
        outcome = self._append(request, entries, refused, context, pending)
        if isinstance(outcome, UnfinishedAppends):
            finishing = self._finish(outcome, transactional_id, refused, context)
            return answered_later(finishing, context, self._spawn, Holds.EVERYTHING)
        return self._answer(outcome, request.acks, refused, context, pending)

    def _append_once_verified(
        self,
        request: ProduceRequest,
        entries: dict[TopicPartition, bytes],
        refused: AppendResults,
        question: Question,
        context: RequestContext,
    ) -> PendingResponse:
        """Asks the transaction coordinator on another broker first. Later Produce requests of the connection wait."""

        def append() -> Any:
            verified = refused | self._verified(question.transactional_id, entries, context, question)
            pending = PendingResponse()
            outcome = self._append(request, entries, verified, context, pending)
            if isinstance(outcome, UnfinishedAppends):
                entries.clear()  # the appends free the batches one by one
                request.topic_data = []
                return self._finish(outcome, question.transactional_id, verified, context, question)
            return self._answer(outcome, request.acks, verified, context, pending)

        asking = once_verified(self._replica_manager.verification, question, append)
        return answered_later(asking, context, self._spawn, Holds.SAME_API)

    def _append(
        self,
        request: ProduceRequest,
        entries: dict[TopicPartition, bytes],
        refused: AppendResults,
        context: RequestContext,
        pending: PendingResponse,
    ) -> AppendResults | DelayedProduce | UnfinishedAppends:
        return self._replica_manager.append_records(
            request.timeout_ms,
            request.acks,
            entries,
            context.api_version,
            lambda results: pending.complete(self._response(results | refused, context)),
            internal_topics_allowed=context.client_id == ADMIN_CLIENT_ID,
        )

    def _finish(
        self,
        unfinished: UnfinishedAppends,
        transactional_id: str | None,
        refused: AppendResults,
        context: RequestContext,
        question: Question | None = None,
    ) -> Coroutine[Any, Any, ProduceResponse | PendingResponse | None]:
        """Appends the rest of a large request in further turns."""
        replica_manager = self._replica_manager

        def refusal(key: TopicPartition, records: bytes) -> PartitionAppendResult | None:
            if transactional_id is None:
                return None
            return self._verified(transactional_id, {key: records}, context, question).get(key)

        def answer(results: AppendResults) -> ProduceResponse | PendingResponse | None:
            pending = PendingResponse()
            outcome = replica_manager.appends.await_all(
                unfinished.timeout_ms,
                unfinished.acks,
                results,
                lambda results: pending.complete(self._response(results | refused, context)),
            )
            return self._answer(outcome, unfinished.acks, refused, context, pending)

        return replica_manager.large_appends.finish(unfinished, refusal, answer)

    def _entries(self, request: ProduceRequest) -> tuple[dict[TopicPartition, bytes], AppendResults]:
        """Returns the batches by partition, and the partitions refused outright: with null records or named twice."""
        is_known = self._metadata.contains
        entries: dict[TopicPartition, bytes] = {}
        refused: AppendResults = {}
        for topic in request.topic_data:
            for data in topic.partition_data:
                key = TopicPartition(topic.name, data.index)
                if data.records is None:
                    refused[key] = (
                        PartitionAppendResult(ErrorCode.INVALID_RECORD, error_message="the records are null")
                        if is_known(key)
                        else PartitionAppendResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                    )
                elif key in entries or key in refused:
                    refused[key] = PartitionAppendResult(
                        ErrorCode.INVALID_REQUEST, error_message="the partition is named twice"
                    )
                else:
                    entries[key] = data.records
        for key in refused:
            entries.pop(key, None)
        return entries, refused

    def _verified(
        self,
        transactional_id: str,
        entries: dict[TopicPartition, bytes],
        context: RequestContext,
        question: Question | None = None,
    ) -> AppendResults:
        """Removes the batches that belong to no open transaction from the entries; returns their errors."""
        refused = self._replica_manager.verification.refused(
            transactional_id, entries, question, knows_abortable=context.api_version >= FIRST_VERSION_WITH_ABORTABLE
        )
        for key in refused:
            del entries[key]
        return refused

    def _answer(
        self,
        outcome: AppendResults | DelayedProduce,
        acks: int,
        refused: AppendResults,
        context: RequestContext,
        pending: PendingResponse,
    ) -> ProduceResponse | PendingResponse | None:
        """Returns the response, or `pending`, which a parked operation completes."""
        if not isinstance(outcome, dict):
            if pending.settled:  # acks=all, and the high watermark is already high enough
                answer: ProduceResponse = pending.result()
                return answer
            pending.when_abandoned(outcome.abandon)
            return pending
        if refused:
            outcome |= refused
        if acks == 0:
            _close_if_failed(outcome)
            return None
        return self._response(outcome, context)

    def _response(self, results: AppendResults, context: RequestContext) -> ProduceResponse:
        response = produce_response(results, context.api_version)
        if context.api_version >= FIRST_VERSION_WITH_LEADERS:
            for result in results.values():
                if result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    self._leaders.name_in_produce(response, context.listener.name)
                    break
        return response


def _close_if_failed(results: AppendResults) -> None:
    failed = {str(key): result.error.name for key, result in results.items() if result.error}
    if failed:
        raise CloseConnection("produce with acks=0 failed", partitions=failed)


def produce_response(results: AppendResults, version: int) -> ProduceResponse:
    """Returns the response: partitions in the order of `results`, consecutive ones of a topic in one entry."""
    topics: list[ProduceResponse.TopicProduceResponse] = []
    name: str | None = None
    partitions: list[ProduceResponse.PartitionProduceResponse] = []
    for key, result in results.items():
        if key.topic != name:
            name = key.topic
            partitions = []
            topics.append(_TopicResponse(name=name, partition_responses=partitions))
        if result.error:
            partitions.append(_failed_partition(key.partition, result, version))
        else:
            partitions.append(
                _PartitionResponse(
                    index=key.partition,
                    base_offset=result.base_offset,
                    log_append_time_ms=result.log_append_time_ms,
                    log_start_offset=result.log_start_offset,
                )
            )
    return ProduceResponse(responses=topics)


def _failed_partition(
    partition: int, result: PartitionAppendResult, version: int
) -> ProduceResponse.PartitionProduceResponse:
    error = result.error
    if error is ErrorCode.KAFKA_STORAGE_ERROR and version < FIRST_VERSION_WITH_STORAGE_ERROR:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    return _PartitionResponse(
        index=partition,
        error_code=error,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
        record_errors=[
            ProduceResponse.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in result.record_errors
        ],
        error_message=result.error_message,
    )
