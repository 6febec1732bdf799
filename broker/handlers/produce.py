"""Produce (key 0): appends the request's batches and responds for each partition.

(A) If a transaction coordinator on another broker must verify the transaction, or one must add partitions to it, that
    is asked first (verification.py). Unless it answers at once, later Produce requests of the connection wait.
(B) The batches are appended in the order of the request, as far as they fit one turn of the event loop.
    large_appends.py appends the others in further turns. Meanwhile all later requests of the connection wait.
(C) Then the request is answered: with acks=0 and acks=1 at once, with acks=all when the high watermark has passed the
    batches (appends.py). A client that disconnects ends only this wait.

Partitions fail independently; each has its own result.

Before version 3 the log answers batches of message format 0 and 1 with UNSUPPORTED_VERSION; nothing is converted.
From version 10 on the response names the leaders of partitions that other brokers lead (KIP-951), and from version 11
on a batch outside its transaction is TRANSACTION_ABORTABLE instead of INVALID_TXN_STATE (KIP-890, part 1). From version
12 on the first batch in a partition adds it to the transaction (KIP-890, part 2), and from version 13 on topics are
named by their ids (KIP-516).
acks=0 has no response: if a partition fails, the connection ends, so that the client notices.

Releases before 2.1 and 2.4 had other codes for what is wrong with a batch (`odradek.as.version`). Only those are here
that tell a client something else: a producer repeats what is CORRUPT_MESSAGE, and gives up at INVALID_RECORD.

Source: Kafka's KafkaApis.handleProduceRequest and ReplicaManager.appendRecords; of the older codes, running brokers of
1.0, 2.0 and 2.8 (tests/broker/releases), and `Errors` of the released kafka-clients.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any
from uuid import UUID

from odradek.broker.background.tasks import Spawn
from odradek.broker.handlers.current_leaders import CurrentLeaders
from odradek.broker.handlers.transaction_outcomes import Retries, once_verified
from odradek.broker.metadata.metadata_cache import INTERNAL_TOPICS, MetadataCache
from odradek.broker.replica.leader.appends import (
    ACKS_ALL,
    AppendResults,
    Appends,
    ClientAppends,
    PartitionAppendResult,
)
from odradek.broker.replica.leader.large_appends import LargeAppends
from odradek.broker.replica.leader.verification import ClientSupport, TransactionVerification, VerificationRequest
from odradek.broker.requests.answered_later import answered_later
from odradek.broker.requests.request_context import CloseConnection, Holds, PendingResponse, RequestContext
from odradek.broker.settings.odradek import is_before
from odradek.protocol.append_allowance import AppendAllowance, TooMuchForOneTurn
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.produce import ProduceRequest, ProduceResponse
from odradek.protocol.records import has_transactional_batch
from odradek.protocol.topic_partition import TopicPartition

VALID_ACKS = frozenset({ACKS_ALL, 0, 1})
NO_NAME = ""
"""The name of a topic whose id is unknown."""
ADMIN_CLIENT_ID = "__admin_client"
"""Only clients with this id may write to internal topics."""
FIRST_VERSION_WITH_STORAGE_ERROR = 4
FIRST_VERSION_WITH_LEADERS = 10
FIRST_VERSION_WITH_ABORTABLE = 11
FIRST_VERSION_THAT_ADDS = 12
FIRST_VERSION_WITH_IDS = 13
OLDER_CODES = (
    ("2.1", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.UNKNOWN_SERVER_ERROR),  # KIP-110
    ("2.4", ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE),  # KIP-467
)
"""The first release that had an error code, the code, and what the releases before had instead."""

Outcome = ProduceResponse | PendingResponse | None

_TopicResponse = ProduceResponse.TopicProduceResponse
_PartitionResponse = ProduceResponse.PartitionProduceResponse


class ProduceHandler:
    """Produce (key 0)."""

    def __init__(
        self,
        appends: Appends,
        large_appends: LargeAppends,
        verification: TransactionVerification,
        metadata: MetadataCache,
        leaders: CurrentLeaders,
        spawn: Spawn,
        retries: Retries,
        older_codes: Mapping[int, ErrorCode],
    ) -> None:
        """`older_codes`: what partitions get instead of error codes that the broker's release does not have."""
        self.appends = appends
        self.large_appends = large_appends
        self.verification = verification
        self.spawn = spawn
        self.retries = retries
        self._metadata = metadata
        self._leaders = leaders
        self._older_codes = older_codes

    def produce(self, request: ProduceRequest, context: RequestContext) -> Outcome:
        """Appends, and completes at once (acks 0 and 1) or when the batches are replicated (acks all)."""
        topics = request.topic_data
        if context.api_version >= FIRST_VERSION_WITH_IDS:
            topics = self.named_topics(request)
        entries, refused = self._entries(topics)
        return self._begin(request, context, entries, refused)

    def named_topics(self, request: ProduceRequest) -> list[ProduceRequest.TopicProduceData]:
        """Gives the topics of a request, which have ids only, their names. Returns those that exist."""
        topic_name = self._metadata.topic_name
        for topic in request.topic_data:
            topic.name = topic_name(topic.topic_id) or NO_NAME
        return [topic for topic in request.topic_data if topic.name != NO_NAME]

    def produce_permitted(
        self,
        request: ProduceRequest,
        context: RequestContext,
        permitted: list[ProduceRequest.TopicProduceData],
        denied: list[ProduceRequest.TopicProduceData],
    ) -> Outcome:
        """As `produce`, for a client that may not write to some topics of the request."""
        entries, refused = self._entries(permitted)
        for topic in denied:
            for data in topic.partition_data:
                key = TopicPartition(topic.name, data.index)
                refused[key] = PartitionAppendResult(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return self._begin(request, context, entries, refused)

    def _begin(
        self,
        request: ProduceRequest,
        context: RequestContext,
        entries: dict[TopicPartition, bytes],
        refused: AppendResults,
    ) -> Outcome:
        if request.transactional_id is None and any(map(has_transactional_batch, entries.values())):
            if request.acks == 0:
                raise CloseConnection("transactional batch without transactional id", acks=0)
            raise ProtocolError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return RunningProduce(self, request, context, entries, refused).begin()

    def _entries(
        self, topics: list[ProduceRequest.TopicProduceData]
    ) -> tuple[dict[TopicPartition, bytes], AppendResults]:
        """Returns the batches by partition, and the partitions refused outright: with null records or named twice."""
        is_known = self._metadata.contains
        entries: dict[TopicPartition, bytes] = {}
        refused: AppendResults = {}
        for topic in topics:
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

    def respond(self, produce: RunningProduce) -> ProduceResponse | None:
        """Returns the response. Raises CloseConnection."""
        results = produce.results
        if produce.refused:
            results |= produce.refused
        if produce.acks == 0:
            _close_if_failed(results, produce.topic_ids)
            return None
        response = self._response(results, produce.context)
        if produce.topic_ids is not None:
            produce.topic_ids.complete(response, produce.api_version)
        return response

    def _response(self, results: AppendResults, context: RequestContext) -> ProduceResponse:
        response = produce_response(results, context.api_version)
        if context.api_version >= FIRST_VERSION_WITH_LEADERS:
            for result in results.values():
                if result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    self._leaders.name_in_produce(response, context.listener.name)
                    break
        if self._older_codes:
            _replace_codes(response, self._older_codes)
        return response


class TopicIds:
    """The ids that a request has instead of names: of the topics by name, and the partitions of `unknown` ones."""

    __slots__ = ("by_name", "unknown")

    def __init__(self, topics: list[ProduceRequest.TopicProduceData]) -> None:
        self.by_name: dict[str, UUID] = {topic.name: topic.topic_id for topic in topics if topic.name != NO_NAME}
        self.unknown: list[tuple[UUID, list[int]]] = [
            (topic.topic_id, [data.index for data in topic.partition_data]) for topic in topics if topic.name == NO_NAME
        ]

    def complete(self, response: ProduceResponse, version: int) -> None:
        """Sets the topics' ids, and adds those that are unknown."""
        for topic in response.responses:
            topic.topic_id = self.by_name[topic.name]
        refused = PartitionAppendResult(ErrorCode.UNKNOWN_TOPIC_ID)
        for topic_id, partitions in self.unknown:
            failed = [_failed_partition(partition, refused, version) for partition in partitions]
            response.responses.append(_TopicResponse(topic_id=topic_id, partition_responses=failed))


class RunningProduce(ClientAppends):
    """A Produce request in progress, from its first append to its response. `refused` are partitions whose batches are
    not appended.
    """

    __slots__ = (
        "_handler",
        "_support",
        "_timeout_ms",
        "_to_verify",
        "_transactional_id",
        "context",
        "refused",
        "topic_ids",
    )

    def __init__(
        self,
        handler: ProduceHandler,
        request: ProduceRequest,
        context: RequestContext,
        entries: dict[TopicPartition, bytes],
        refused: AppendResults,
    ) -> None:
        allowance = AppendAllowance(handler.appends.max_inflated_bytes)
        super().__init__(request.acks, context.api_version, entries, allowance)
        self._handler = handler
        self._transactional_id: str | None = request.transactional_id
        self._to_verify: VerificationRequest | None = None
        self._support = ClientSupport.OLD
        self._timeout_ms: int = request.timeout_ms
        self.context = context
        self.refused = refused
        has_ids = self.api_version >= FIRST_VERSION_WITH_IDS
        self.topic_ids: TopicIds | None = TopicIds(request.topic_data) if has_ids else None

    def begin(self) -> Outcome:
        """Returns the response if it is available now. Raises ProtocolError and CloseConnection."""
        handler = self._handler
        if self._transactional_id is not None:
            self._support = support_in(self.api_version)
            self._to_verify = handler.verification.needed(self._transactional_id, self.entries, self._support)
            if self._to_verify is not None:
                return self._begin_transaction(self._to_verify)
        self._append()
        if self.entries:
            finishing = handler.large_appends.finish(self, self.end)
            return answered_later(finishing, self.context, handler.spawn, Holds.EVERYTHING)
        return self.end()

    def _begin_transaction(self, to_verify: VerificationRequest) -> Outcome:
        """Asks the coordinator first. If it answers at once and everything is appended in this turn, nobody waits."""
        handler, verification = self._handler, self._handler.verification
        if not verification.is_answered_here(to_verify):
            asking = once_verified(verification, to_verify, self._append_verified, handler.retries)
            return answered_later(asking, self.context, handler.spawn, Holds.SAME_API)
        self._append()
        if self.entries:
            finishing = once_verified(verification, to_verify, partial(handler.large_appends.finish, self, self.end))
            return answered_later(finishing, self.context, handler.spawn, Holds.EVERYTHING)
        verification.settle(to_verify)
        return self.end()

    def _append_verified(self) -> Outcome | Coroutine[Any, Any, Outcome]:
        self._append()
        return self._handler.large_appends.finish(self, self.end) if self.entries else self.end()

    def _append(self) -> None:
        """Appends the batches that fit this turn; `entries` keeps the others."""
        if self._transactional_id is not None:
            self.refused |= self._verified(self._transactional_id, self.entries)
        appends, results = self._handler.appends, self.results
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
        if key.topic not in INTERNAL_TOPICS or key not in self._handler.appends.partitions:
            return None
        return None if self.context.client_id == ADMIN_CLIENT_ID else ErrorCode.INVALID_TOPIC_EXCEPTION

    def refusal(self, key: TopicPartition, records: bytes) -> PartitionAppendResult | None:
        """See ClientAppends."""
        if self._transactional_id is None:
            return None
        return self._verified(self._transactional_id, {key: records}).get(key)

    def _verified(self, transactional_id: str, entries: dict[TopicPartition, bytes]) -> AppendResults:
        """Removes the batches that belong to no open transaction from the entries; returns their errors."""
        refused = self._handler.verification.refused(transactional_id, entries, self._to_verify, self._support)
        for key in refused:
            del entries[key]
        return refused

    def end(self) -> Outcome:
        """All batches are appended: returns the response, or parks the request until they are safe (C)."""
        handler = self._handler
        if not handler.appends.must_wait(self.results, self.acks):
            return handler.respond(self)
        pending = PendingResponse()
        operation = handler.appends.park(
            self._timeout_ms, self.acks, self.results, lambda _: pending.complete(handler.respond(self))
        )
        if pending.settled:  # the high watermark is already high enough
            response: ProduceResponse | None = pending.result()
            return response
        operation.requester = self.context
        pending.when_abandoned(operation.abandon)
        return pending


def _replace_codes(response: ProduceResponse, codes: Mapping[int, ErrorCode]) -> None:
    for topic in response.responses:
        for partition in topic.partition_responses:
            partition.error_code = codes.get(partition.error_code, partition.error_code)


def support_in(version: int) -> ClientSupport:
    """Returns what a version of Produce says of the client."""
    if version >= FIRST_VERSION_THAT_ADDS:
        return ClientSupport.ADDS
    return ClientSupport.KNOWS_ABORTABLE if version >= FIRST_VERSION_WITH_ABORTABLE else ClientSupport.OLD


def _close_if_failed(results: AppendResults, topic_ids: TopicIds | None) -> None:
    failed = {str(key): result.error.name for key, result in results.items() if result.error}
    if topic_ids is not None:
        failed |= {str(topic_id): ErrorCode.UNKNOWN_TOPIC_ID.name for topic_id, _ in topic_ids.unknown}
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


def older_produce_codes(release: str | None) -> dict[int, ErrorCode]:
    """Returns what a release had instead of the error codes that it did not have. None is the newest."""
    return {int(code): older for first, code, older in OLDER_CODES if is_before(release, first)}
