"""Fetch (key 1): sessions, reading, waiting for min_bytes.

Before version 4 clients know only message formats 0 and 1: every partition is answered with UNSUPPORTED_VERSION and the
connection stays open. (Kafka's KafkaApis.handleFetchRequest)
"""

from __future__ import annotations

from odradek.broker.background.stepwise import ITEMS_PER_STEP
from odradek.broker.replica.fetch_context import fetch_response
from odradek.broker.replica.fetch_params import FetchParams
from odradek.broker.replica.fetch_session import NO_EPOCH, FetchTarget, Targets
from odradek.broker.replica.fetch_session_cache import FetchSessionCache
from odradek.broker.replica.log_reader import failed_partition
from odradek.broker.replica.replica_manager import ReplicaManager
from odradek.broker.requests.pending_response import Holds, PendingResponse
from odradek.broker.requests.request_bound import RequestBound
from odradek.broker.requests.request_context import RequestContext
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse
from odradek.protocol.topic_partition import TopicPartition

FIRST_VERSION_WITH_FORMAT_2 = 4
ISOLATION_LEVELS = (0, 1)


class FetchHandler:
    """Fetch (key 1)."""

    def __init__(self, replica_manager: ReplicaManager, sessions: FetchSessionCache, bound: RequestBound) -> None:
        self._replica_manager = replica_manager
        self._sessions = sessions
        self._bound = bound

    def fetch(self, request: FetchRequest, context: RequestContext) -> FetchResponse | PendingResponse:
        """Returns what is available, or parks the request until there is enough."""
        version = context.api_version
        if request.isolation_level not in ISOLATION_LEVELS:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Unknown isolation level {request.isolation_level}")
        wanted = _wanted(request)
        if version < FIRST_VERSION_WITH_FORMAT_2:
            return fetch_response(
                [
                    (target, failed_partition(key.partition, ErrorCode.UNSUPPORTED_VERSION, version))
                    for key, target in wanted.items()
                ]
            )
        manager = self._replica_manager
        params = FetchParams(
            version,
            replica_id=request.replica_id,
            max_wait_ms=request.max_wait_ms,
            min_bytes=request.min_bytes,
            max_bytes=min(request.max_bytes, manager.settings.fetch_max_bytes),
            isolation_level=request.isolation_level,
            max_partitions=self._bound.of(request, context.listener.name),
        )
        forgotten = _forgotten(request, params.max_partitions)
        fetch = self._sessions.context(request.session_id, request.session_epoch, params, wanted, forgotten)
        pending = PendingResponse(
            holds=Holds.NOTHING if fetch.session is None else Holds.SAME_API, is_long=len(fetch.wanted) > ITEMS_PER_STEP
        )
        outcome = manager.fetch_messages(params, fetch, lambda results: pending.complete(fetch.answer(results)))
        if isinstance(outcome, list):
            return fetch.answer(outcome)
        pending.when_abandoned(outcome.abandon)
        return pending


def _forgotten(request: FetchRequest, most: int) -> list[TopicPartition]:
    """Raises POLICY_VIOLATION for more partitions than a session can hold. A topic without partitions counts as one."""
    forgotten: list[TopicPartition] = []
    left = most
    for topic in request.forgotten_topics_data:
        left -= max(len(topic.partitions), 1)
        if left < 0:
            raise ProtocolError(ErrorCode.POLICY_VIOLATION, f"The request has more than {most} forgotten partitions")
        forgotten += [TopicPartition(topic.topic, partition) for partition in topic.partitions]
    return forgotten


def _wanted(request: FetchRequest) -> Targets:
    """Returns a target for each partition. If a partition is named twice, the last occurrence counts."""
    wanted: Targets = {}
    for topic in request.topics:
        for asked in topic.partitions:
            key = TopicPartition(topic.topic, asked.partition)
            wanted[key] = _target(key, asked)
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
