"""Produce (key 0): appends the request's batches and responds for each partition.

Before version 3 the log answers batches of message format 0 and 1 with UNSUPPORTED_VERSION; nothing is converted.
From version 10 on the response names the leaders of partitions that other brokers lead (KIP-951), and from version 11
on a batch outside its transaction is TRANSACTION_ABORTABLE instead of INVALID_TXN_STATE (KIP-890, part 1).
acks=0 has no response: if a partition fails, the connection ends, so that the client notices. (Kafka's
KafkaApis.handleProduceRequest)
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.broker.background.tasks import Spawn
from odradek.broker.handlers.current_leaders import CurrentLeaders
from odradek.broker.metadata.metadata_cache import MetadataCache
from odradek.broker.replica.leader.append_result import PartitionAppendResult
from odradek.broker.replica.leader.appends import AppendResults
from odradek.broker.replica.leader.running_produce import Producing, RunningProduce
from odradek.broker.replica.replica_manager import ReplicaManager
from odradek.broker.requests.pending_response import PendingResponse
from odradek.broker.requests.request_context import CloseConnection, RequestContext
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.produce import ProduceRequest, ProduceResponse
from odradek.protocol.records import has_transactional_batch
from odradek.protocol.topic_partition import TopicPartition

FIRST_VERSION_WITH_STORAGE_ERROR = 4
FIRST_VERSION_WITH_LEADERS = 10

_TopicResponse = ProduceResponse.TopicProduceResponse
_PartitionResponse = ProduceResponse.PartitionProduceResponse


class ProduceHandler:
    """Produce (key 0)."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        metadata: MetadataCache,
        leaders: CurrentLeaders,
        spawn: Spawn,
        older_codes: Mapping[int, ErrorCode],
    ) -> None:
        """`older_codes`: what partitions get instead of error codes that the broker's release does not have."""
        self._older_codes = older_codes
        self._metadata = metadata
        self._leaders = leaders
        self._producing = Producing(
            replica_manager.appends,
            replica_manager.verification,
            spawn,
            replica_manager.large_appends.finish,
            self._respond,
        )

    def produce(self, request: ProduceRequest, context: RequestContext) -> ProduceResponse | PendingResponse | None:
        """Appends, and completes at once (acks 0 and 1) or when the batches are replicated (acks all)."""
        entries, refused = self._entries(request.topic_data)
        return self._begin(request, context, entries, refused)

    def produce_permitted(
        self,
        request: ProduceRequest,
        context: RequestContext,
        permitted: list[ProduceRequest.TopicProduceData],
        denied: list[ProduceRequest.TopicProduceData],
    ) -> ProduceResponse | PendingResponse | None:
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
    ) -> ProduceResponse | PendingResponse | None:
        if request.transactional_id is None and any(map(has_transactional_batch, entries.values())):
            if request.acks == 0:
                raise CloseConnection("transactional batch without transactional id", acks=0)
            raise ProtocolError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return RunningProduce(self._producing, request, context, entries, refused).begin()

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

    def _respond(self, produce: RunningProduce) -> ProduceResponse | None:
        results = produce.results
        if produce.refused:
            results |= produce.refused
        if produce.acks == 0:
            _close_if_failed(results)
            return None
        return self._response(results, produce.context)

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


def _replace_codes(response: ProduceResponse, codes: Mapping[int, ErrorCode]) -> None:
    for topic in response.responses:
        for partition in topic.partition_responses:
            partition.error_code = codes.get(partition.error_code, partition.error_code)


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
