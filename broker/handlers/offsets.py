"""OffsetCommit (key 8), OffsetDelete (key 47) and TxnOffsetCommit (key 28). OffsetFetch: see offset_fetch.py.

From version 10 of OffsetCommit and version 6 of TxnOffsetCommit on topics are named by their ids. From version 5 on
TxnOffsetCommit adds the group's partition of `__consumer_offsets` to the transaction (KIP-890).

A partition that does not exist, or whose metadata is too long, has an error of its own; the others are committed. If
the group's membership or its coordinator refuses the request, all partitions that exist have that error.

Version 0 of OffsetCommit stores its offsets elsewhere, see offsets/zookeeper.py.

Source: Kafka's `KafkaApis` (handleOffsetCommitRequest, handleTxnOffsetCommitRequest, handleOffsetDeleteRequest).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.broker.background.tasks import Spawn
from odradek.broker.coordinator.group.coordinator import GroupCoordinator
from odradek.broker.coordinator.group.group import NO_TIMESTAMP, Committer
from odradek.broker.coordinator.group.offsets.commits import (
    CommittingProducer,
    commit_error,
    commit_offsets,
    commit_offsets_in_transaction,
)
from odradek.broker.coordinator.group.offsets.offsets import Commits
from odradek.broker.coordinator.group.offsets.records import NO_TOPIC_ID, NOT_APPENDED, CommittedOffset
from odradek.broker.coordinator.group.offsets.removal import check_may_delete, remove_offsets
from odradek.broker.coordinator.group.offsets.zookeeper import ZooKeeperOffsets
from odradek.broker.handlers.topic_ids import name_topics
from odradek.broker.handlers.transaction_outcomes import once_verified
from odradek.broker.handlers.zookeeper_commits import commit_to_zookeeper
from odradek.broker.metadata.metadata_cache import GROUP_TOPIC, MetadataCache
from odradek.broker.replica.leader.verification import ClientSupport, TransactionVerification, VerificationRequest
from odradek.broker.requests.answered_later import answered_later
from odradek.broker.requests.request_context import Holds, PendingResponse, RequestContext
from odradek.broker.settings.config import BrokerConfig
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
)
from odradek.protocol.messages.transactions import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from odradek.protocol.topic_partition import TopicPartition
from odradek.timer import Clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.broker.coordinator.group.group import Group
    from odradek.broker.coordinator.runtime.shard import OnDone

VERSION_OF_ZOOKEEPER = 0
FIRST_VERSION_WITH_IDS = 10
"""The first version of OffsetCommit and OffsetFetch that names topics by their ids."""
FIRST_TRANSACTIONAL_VERSION_WITH_IDS = 6
"""That of TxnOffsetCommit. (KIP-1319)"""
NO_RETENTION = -1
END_OF_TIME_MS = 2**63 - 1
FIRST_TRANSACTIONAL_VERSION_WITH_LOADING = 2
"""Older producers fail on COORDINATOR_LOAD_IN_PROGRESS. (KAFKA-7296)"""
FIRST_TRANSACTIONAL_VERSION_WITH_ABORTABLE = 4
"""Older producers do not know TRANSACTION_ABORTABLE. (KIP-890)"""
FIRST_TRANSACTIONAL_VERSION_THAT_ADDS = 5
"""Older producers send AddOffsetsToTxn. (KIP-890)"""

R = TypeVar("R")


class OffsetCommitResponseBuilder:
    """The response under construction, and the offsets that can be committed.

    `topics` has the responses of all partitions of the request; `answers`, of those that exist.
    """

    __slots__ = ("answers", "commits", "topics")

    def __init__(self) -> None:
        self.topics: list[Any] = []
        self.answers: list[Any] = []
        self.commits: Commits = {}

    def refuse(self, error: ErrorCode) -> None:
        """Sets the error for all partitions that exist."""
        for answer in self.answers:
            answer.error_code = error

    def fail(self, error: ErrorCode) -> None:
        """Sets the error for the partitions that were to be committed; those with an error of their own keep it."""
        for answer in self.answers:
            if answer.error_code == ErrorCode.NONE:
                answer.error_code = error


class OffsetHandlers:
    """OffsetCommit, TxnOffsetCommit and OffsetDelete (keys 8, 28 and 47)."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        metadata: MetadataCache,
        config: BrokerConfig,
        clock: Clock,
        verification: TransactionVerification,
        zookeeper_offsets: ZooKeeperOffsets,
        spawn: Spawn,
    ) -> None:
        self._coordinator = coordinator
        self._metadata = metadata
        self._config = config
        self._clock = clock
        self._verification = verification
        self._zookeeper_offsets = zookeeper_offsets
        self._spawn = spawn

    def offset_commit(
        self, request: OffsetCommitRequest, context: RequestContext
    ) -> OffsetCommitResponse | PendingResponse:
        """Responds when the offsets are replicated."""
        now_ms = self._clock.wall_ms()
        retention_ms = request.retention_time_ms
        expire_ms = NO_TIMESTAMP if retention_ms == NO_RETENTION else min(now_ms + retention_ms, END_OF_TIME_MS)

        if context.api_version >= FIRST_VERSION_WITH_IDS:
            name_topics(request.topics, self._metadata.topic_name)
        builder = self._check_commits(request.topics, COMMIT_ANSWERS, now_ms, expire_ms, brings_times=True)
        if context.api_version == VERSION_OF_ZOOKEEPER:
            return answered_later(
                commit_to_zookeeper(self._zookeeper_offsets, request.group_id, builder.topics, builder.commits),
                context,
                self._spawn,
            )
        who = _committer(request, context.api_version)

        def act(done: OnDone) -> None:
            shard = self._coordinator.shard_of(request.group_id)
            commit_offsets(shard, who, builder.commits, done, stores_ids=self._coordinator.stores_topic_ids)

        return self._carry_out(builder, act, lambda: OffsetCommitResponse(topics=builder.topics))

    def txn_offset_commit(
        self, request: TxnOffsetCommitRequest, context: RequestContext
    ) -> TxnOffsetCommitResponse | PendingResponse:
        """Responds when the offsets are replicated; they take effect when the transaction commits. (KIP-98, KIP-447)

        While a coordinator is asked about the transaction, later commits of the connection wait, as the last one wins.
        """
        verification, support = self._verification, support_in(context.api_version)
        if context.api_version >= FIRST_TRANSACTIONAL_VERSION_WITH_IDS:
            name_topics(request.topics, self._metadata.topic_name)
        now_ms = self._clock.wall_ms()
        builder = self._check_commits(request.topics, TXN_COMMIT_ANSWERS, now_ms, NO_TIMESTAMP, brings_times=False)
        to_verify = self._needed(request, support) if builder.answers else None
        if to_verify is None:
            return self._commit_in_transaction(request, context, builder, None)
        if verification.is_answered_here(to_verify):
            response = self._commit_in_transaction(request, context, builder, to_verify)
            verification.settle(to_verify)
            return response
        commit = partial(self._commit_in_transaction, request, context, builder, to_verify)
        committing = once_verified(verification, to_verify, commit)
        return answered_later(committing, context, self._spawn, Holds.SAME_API)

    def _needed(self, request: TxnOffsetCommitRequest, support: ClientSupport) -> VerificationRequest | None:
        if not request.group_id:
            return None
        try:
            partition = self._coordinator.shard_of(request.group_id).partition
        except ProtocolError:
            return None  # the commit raises it again
        return self._verification.needed_for_commit(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            TopicPartition(GROUP_TOPIC, partition),
            support,
        )

    def _commit_in_transaction(
        self,
        request: TxnOffsetCommitRequest,
        context: RequestContext,
        builder: OffsetCommitResponseBuilder,
        to_verify: VerificationRequest | None,
    ) -> TxnOffsetCommitResponse | PendingResponse:
        who = _committer(request, context.api_version)
        producer = CommittingProducer(request.producer_id, request.producer_epoch)

        def act(done: OnDone) -> None:
            if not request.group_id:
                raise ProtocolError(ErrorCode.INVALID_GROUP_ID)
            shard = self._coordinator.shard_of(request.group_id)
            self._verify_transaction(request, support_in(context.api_version), shard.partition, to_verify)
            stores_ids = self._coordinator.stores_topic_ids
            commit_offsets_in_transaction(shard, who, producer, builder.commits, done, stores_ids=stores_ids)

        def respond() -> TxnOffsetCommitResponse:
            if context.api_version < FIRST_TRANSACTIONAL_VERSION_WITH_LOADING:
                for answer in builder.answers:
                    if answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                        answer.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return TxnOffsetCommitResponse(topics=builder.topics)

        return self._carry_out(builder, act, respond)

    def _verify_transaction(
        self,
        request: TxnOffsetCommitRequest,
        support: ClientSupport,
        partition: int,
        to_verify: VerificationRequest | None,
    ) -> None:
        """Raises the transaction coordinator's error if the group's partition is not in the transaction. (KIP-890)

        If that coordinator cannot be reached, raises COORDINATOR_LOAD_IN_PROGRESS: all clients try again after it,
        without looking for another group coordinator.
        """
        error = self._verification.verify(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            TopicPartition(GROUP_TOPIC, partition),
            to_verify,
            support,
        )
        if error is ErrorCode.NETWORK_EXCEPTION:
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if error is not ErrorCode.NONE:
            raise ProtocolError(error)

    def _check_commits(
        self,
        topics: list[Any],
        answer_classes: tuple[Any, Any],
        now_ms: int,
        expire_ms: int,
        *,
        brings_times: bool,
    ) -> OffsetCommitResponseBuilder:
        """Checks each partition on its own. `brings_times`: the client may send the time of the commit."""
        builder, find = OffsetCommitResponseBuilder(), self._metadata.topic
        limit = self._config.offset_metadata_max_bytes
        topic_class, partition_class = answer_classes
        for topic in topics:
            name: str | None = topic.name
            metadata = None if name is None else find(name)
            existing: Any = () if metadata is None else metadata.partitions
            topic_id = NO_TOPIC_ID if metadata is None else metadata.topic_id
            answers = []
            commits: dict[int, CommittedOffset] = {}
            for partition in topic.partitions:
                index: int = partition.partition_index
                answer = partition_class(partition_index=index)
                answers.append(answer)
                if index not in existing:
                    known = name is not None
                    answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known else ErrorCode.UNKNOWN_TOPIC_ID
                    continue
                builder.answers.append(answer)
                text: str = partition.committed_metadata or ""
                if 2 * len(text) > limit and _length(text) > limit:
                    answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                    continue
                time_ms: int = partition.commit_timestamp if brings_times else NO_TIMESTAMP
                commits[index] = CommittedOffset(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    text,
                    now_ms if time_ms == NO_TIMESTAMP else time_ms,
                    expire_ms,
                    NOT_APPENDED,
                    topic_id,
                )
            if commits and name is not None:
                earlier = builder.commits.setdefault(name, commits)
                if earlier is not commits:
                    earlier.update(commits)
            if answers:
                builder.topics.append(topic_class(name=name or "", topic_id=topic.topic_id, partitions=answers))
        return builder

    def _carry_out(
        self, builder: OffsetCommitResponseBuilder, act: Callable[[OnDone], None], respond: Callable[[], R]
    ) -> R | PendingResponse:
        """Returns the response if the commit is already replicated or refused; otherwise parks the request."""
        if not builder.answers:
            return respond()
        pending = PendingResponse()

        def done(error: ProtocolError | None) -> None:
            if error is not None:
                builder.fail(commit_error(error))
            else:
                metrics = self._coordinator.offset_metrics
                metrics.commits += sum(map(len, builder.commits.values()))
            pending.complete(respond())

        try:
            act(done)
        except ProtocolError as error:
            builder.refuse(error.code)
            return respond()
        if not pending.settled:
            return pending
        response: R = pending.result()
        return response

    def offset_delete(
        self, request: OffsetDeleteRequest, context: RequestContext
    ) -> OffsetDeleteResponse | PendingResponse:
        """Responds when the deletion is replicated. (KIP-496)"""
        if not request.group_id:
            raise ProtocolError(ErrorCode.INVALID_GROUP_ID)
        coordinator = self._coordinator
        shard = coordinator.shard_of(request.group_id)
        group = check_may_delete(shard, request.group_id)
        response, removable = _deletions(request, group, self._metadata.contains)
        if not removable:
            return response
        pending = PendingResponse()

        def done(error: ProtocolError | None) -> None:
            if error is None:
                pending.complete(response)
            else:
                pending.fail(error)

        coordinator.offset_metrics.deletions += remove_offsets(shard, group, removable, done)
        if not pending.settled:
            return pending
        answered: OffsetDeleteResponse = pending.result()
        return answered


COMMIT_ANSWERS = (
    OffsetCommitResponse.OffsetCommitResponseTopic,
    OffsetCommitResponse.OffsetCommitResponsePartition,
)
TXN_COMMIT_ANSWERS = (
    TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic,
    TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition,
)


def _committer(request: OffsetCommitRequest | TxnOffsetCommitRequest, version: int) -> Committer:
    return Committer(
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        version,
    )


def support_in(version: int) -> ClientSupport:
    """Returns what a version of TxnOffsetCommit says of the client."""
    if version >= FIRST_TRANSACTIONAL_VERSION_THAT_ADDS:
        return ClientSupport.ADDS
    knows_abortable = version >= FIRST_TRANSACTIONAL_VERSION_WITH_ABORTABLE
    return ClientSupport.KNOWS_ABORTABLE if knows_abortable else ClientSupport.OLD


def _length(text: str) -> int:
    """Returns the length in UTF-16 code units, which Kafka counts despite the setting's name."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _deletions(
    request: OffsetDeleteRequest, group: Group, contains: Callable[[TopicPartition], bool]
) -> tuple[OffsetDeleteResponse, dict[str, dict[int, None]]]:
    """Returns the response if the deletion succeeds, and the partitions whose offsets can be deleted."""
    response = OffsetDeleteResponse()
    removable: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        answers = []
        for index in dict.fromkeys(partition.partition_index for partition in topic.partitions):
            answer = OffsetDeleteResponse.OffsetDeleteResponsePartition(partition_index=index)
            answers.append(answer)
            if not contains(TopicPartition(topic.name, index)):
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif group.is_subscribed_to(topic.name):
                answer.error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                removable.setdefault(topic.name, {})[index] = None
        if answers:
            response.topics.append(OffsetDeleteResponse.OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
    return response, removable
