"""Fetch (key 1): sessions, reading, waiting for min_bytes.

Before version 4 clients know only message formats 0 and 1: every partition is answered with UNSUPPORTED_VERSION and the
connection stays open. From version 13 on a request names topics by their ids (KIP-516), and an error of the whole
request stands in the response's own field only. From version 16 on the response names the leaders of partitions that
other brokers lead (KIP-951). (Kafka's KafkaApis.handleFetchRequest)
"""

from __future__ import annotations

from collections.abc import Container, Hashable

from odradek.broker.background.stepwise import Steps
from odradek.broker.handlers.current_leaders import CurrentLeaders
from odradek.broker.handlers.error_responses import per_partition
from odradek.broker.replica.fetch.fetch_session import NO_EPOCH, UNRESOLVED, FetchResult, FetchTarget, Targets
from odradek.broker.replica.fetch.fetch_session_cache import FetchContext, FetchSessionCache, fetch_response
from odradek.broker.replica.fetch.log_reader import FetchParams, failed_partition
from odradek.broker.replica.fetch.running_fetch import Fetches, FetchResponder, RunningFetch
from odradek.broker.requests.request_bound import MAX_PARTITIONS_PER_REQUEST, RequestBound
from odradek.broker.requests.request_context import PendingResponse, RequestContext
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse
from odradek.protocol.topic_partition import TopicPartition

FIRST_VERSION_WITH_FORMAT_2 = 4
FIRST_VERSION_WITH_LEADERS = 16
ISOLATION_LEVELS = (0, 1)


class FetchHandler(FetchResponder):
    """Fetch (key 1)."""

    def __init__(
        self,
        fetches: Fetches,
        sessions: FetchSessionCache,
        leaders: CurrentLeaders,
        bound: RequestBound,
        max_bytes: int,
    ) -> None:
        """`max_bytes` is the broker's fetch.max.bytes."""
        self._fetches = fetches
        self._max_bytes = max_bytes
        self._sessions = sessions
        self._leaders = leaders
        self._bound = bound

    def fetch(self, request: FetchRequest, context: RequestContext) -> FetchResponse | PendingResponse:
        """Returns what is available, or parks the request until there is enough."""
        if context.api_version < FIRST_VERSION_WITH_FORMAT_2:
            return unsupported(request, context.api_version)
        params = self.params_of(request, context)
        return self.begin(params, self.context_of(request, params), context)

    def params_of(self, request: FetchRequest, context: RequestContext) -> FetchParams:
        """Raises INVALID_REQUEST."""
        if request.isolation_level not in ISOLATION_LEVELS:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Unknown isolation level {request.isolation_level}")
        state = request.replica_state
        replica_id = request.replica_id if state is None else state.replica_id
        return FetchParams(
            context.api_version,
            replica_id=replica_id,
            max_wait_ms=request.max_wait_ms,
            min_bytes=request.min_bytes,
            max_bytes=min(request.max_bytes, self._max_bytes),
            isolation_level=request.isolation_level,
            max_partitions=(
                MAX_PARTITIONS_PER_REQUEST if replica_id < 0 else self._bound.of_replica(replica_id, context.connection)
            ),
        )

    def context_of(self, request: FetchRequest, params: FetchParams) -> FetchContext:
        """Returns what the request reads and how it is answered. Raises POLICY_VIOLATION."""
        wanted = _wanted_by_id(request) if params.uses_topic_ids else _wanted(request)
        forgotten = _forgotten(request, params)
        return self._sessions.context(request.session_id, request.session_epoch, params, wanted, forgotten)

    def begin(
        self, params: FetchParams, fetch: FetchContext, context: RequestContext
    ) -> FetchResponse | PendingResponse:
        return RunningFetch(self._fetches, params, fetch, context, self).begin()

    def respond(self, fetch: FetchContext, results: list[FetchResult], context: RequestContext) -> FetchResponse:
        response = fetch.answer(results)
        if context.api_version >= FIRST_VERSION_WITH_LEADERS:
            refused = [result for result in results if result[0].hosted is None]
            if refused:
                self._leaders.name_in_fetch(response, refused, context.listener.name)
        return response


def unsupported(request: FetchRequest, version: int, denied: Container[str] = ()) -> FetchResponse:
    """Returns the response to a version below 4. `denied`: the topics that the client may not read."""
    return fetch_response(
        [
            (target, failed_partition(target.partition, _unsupported(target, denied), version))
            for target in _wanted(request).values()
        ]
    )


def _unsupported(target: FetchTarget, denied: Container[str]) -> ErrorCode:
    is_denied = target.topic_partition.topic in denied
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_denied else ErrorCode.UNSUPPORTED_VERSION


def _forgotten(request: FetchRequest, params: FetchParams) -> list[Hashable]:
    """Returns the keys of the forgotten targets. Raises POLICY_VIOLATION for more partitions than a session can hold. A
    topic without partitions counts as one.
    """
    forgotten: list[Hashable] = []
    left = most = params.max_partitions
    for topic in request.forgotten_topics_data:
        left -= max(len(topic.partitions), 1)
        if left < 0:
            raise ProtocolError(ErrorCode.POLICY_VIOLATION, f"The request has more than {most} forgotten partitions")
        for partition in topic.partitions:
            if params.uses_topic_ids:
                forgotten.append((topic.topic_id.int, partition))
            else:
                forgotten.append(TopicPartition(topic.topic, partition))
    return forgotten


def _wanted(request: FetchRequest) -> Targets:
    """Returns a target for each partition. If a partition is named twice, the last occurrence counts."""
    wanted: Targets = {}
    for topic in request.topics:
        for asked in topic.partitions:
            key = TopicPartition(topic.topic, asked.partition)
            wanted[key] = _target(key, asked)
    return wanted


def _wanted_by_id(request: FetchRequest) -> Targets:
    """As `_wanted`, for topics named by id."""
    wanted: Targets = {}
    for topic in request.topics:
        topic_id = topic.topic_id
        for asked in topic.partitions:
            target = _target(UNRESOLVED, asked)
            target.identify(topic_id, asked.partition)
            wanted[target.key] = target
    return wanted


def _target(key: TopicPartition, asked: FetchRequest.FetchPartition) -> FetchTarget:
    return FetchTarget(
        key,
        asked.fetch_offset,
        asked.partition_max_bytes,
        asked.current_leader_epoch if asked.current_leader_epoch >= 0 else NO_EPOCH,
        asked.last_fetched_epoch if asked.last_fetched_epoch >= 0 else NO_EPOCH,
        asked.log_start_offset,
    )


_ERROR_BY_NAME = per_partition(
    FetchResponse, ("topics", "responses"), "topic", "partitions", ("partition", "partition_index"), high_watermark=-1
)


def fetch_error(request: FetchRequest, code: ErrorCode, message: str | None) -> Steps[FetchResponse]:
    """Returns the error for each partition; only in the response's own field if the request names topics by id."""
    if request.topics and request.topics[0].topic_id.int:
        return FetchResponse(error_code=code, session_id=request.session_id, responses=[])
    response = yield from _ERROR_BY_NAME(request, code, message)
    assert isinstance(response, FetchResponse)
    response.session_id = request.session_id
    return response
