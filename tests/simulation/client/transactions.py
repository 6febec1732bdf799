"""A transactional producer: whole transactions, each with batches for some partitions, and a group's offsets."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offsets import OffsetCommitRequest
from odradek.protocol.messages.producers import InitProducerIdRequest
from odradek.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client.cluster import GROUP, TRANSACTION, Cluster
from tests.simulation.client.producer import LOOK_S, Producer
from tests.simulation.client.requests import by_topic
from tests.simulation.client.wire import NotSent, Unanswered
from tests.simulation.history import Commit, History, Initialised, Outcome, Transaction

TRANSACTION_TIMEOUT_MS = 10_000
PATIENCE_S = 20.0
AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING})


class Refused(Exception):
    """The cluster refused a step of the transaction for good, or did not answer for too long."""

    def __init__(self, reason: str, code: ErrorCode | None = None) -> None:
        super().__init__(reason)
        self.code = code


class TransactionalProducer(Producer):
    """Start `run` as a task; then call `transact` for one transaction after the other."""

    end_version: int | None = None
    txn_commit_version: int | None = None
    """The versions of EndTxn and TxnOffsetCommit, if they are not the usual ones."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        *,
        name: str,
        transactional_id: str,
        timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    ) -> None:
        super().__init__(cluster, history, name=name, transactional_id=transactional_id, delivery_s=8.0)
        self.transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._transactions = 0
        self._is_initialised = False
        self._last_pending = -math.inf
        """When the coordinator last said that a change of the transaction is under way, in seconds of the loop."""

    @property
    def is_initialised(self) -> bool:
        """Whether it has an epoch that nobody has refused."""
        return self._is_initialised

    async def renew(self) -> None:
        """Within a transaction the epoch stays: `transact` ends it first."""
        self._end(self.state.abandon())

    async def initialise(self) -> None:
        """Gets the producer id and a new epoch, which ends the id's last transaction. Returns when it has."""
        while not self._is_initialised:
            request = InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self._timeout_ms,
                producer_id=-1,
                producer_epoch=-1,
            )
            asked = self.history.begin(Initialised(process=self.name, transactional_id=self.transactional_id))
            try:
                answer = await self.cluster.ask_coordinator(TRANSACTION, self.transactional_id, request)
            except (NotSent, Unanswered) as error:
                self.history.end(asked, Outcome.UNKNOWN, str(error))
                await self.cluster.back_off()
                continue
            asked.producer_id, asked.producer_epoch = answer.producer_id, answer.producer_epoch
            code = ErrorCode.of(answer.error_code)
            if code is ErrorCode.NONE:
                self.history.end(asked, Outcome.OK)
                self._end(self.state.identify(answer.producer_id, answer.producer_epoch))
                self._is_initialised = True
            else:
                self.history.end(asked, Outcome.UNKNOWN, code.name)
                self.cluster.forget_coordinator(TRANSACTION, self.transactional_id)
                await self.cluster.back_off()

    async def begin(self) -> Transaction:
        """Begins a transaction, of which the cluster hears nothing yet."""
        await self.initialise()
        self._transactions += 1
        return self.history.begin(
            Transaction(
                process=self.name,
                transactional_id=self.transactional_id,
                number=self._transactions,
                producer_id=self.state.producer_id,
                producer_epoch=self.state.epoch,
            )
        )

    async def transact(
        self,
        batches: Mapping[TopicPartition, Sequence[str]],
        *,
        commits: bool = True,
        group: str = "",
        offsets: Mapping[TopicPartition, int] | None = None,
    ) -> Transaction:
        """Runs one transaction to its end. One that cannot be finished is aborted, or given up."""
        transaction = await self.begin()
        try:
            is_complete = await self._fill(transaction, batches, group, offsets or {})
            transaction.commits = commits and is_complete
        except Refused as error:
            await self._quiet()
            self.history.end(transaction, Outcome.FAILED, str(error))
            self._is_initialised = False
            return transaction
        await self._finish(transaction)
        return transaction

    async def _fill(
        self,
        transaction: Transaction,
        batches: Mapping[TopicPartition, Sequence[str]],
        group: str,
        offsets: Mapping[TopicPartition, int],
    ) -> bool:
        """Returns whether everything is in the transaction. Raises Refused."""
        await self._add_partitions(list(batches))
        sending = [self.send(partition, texts, transaction) for partition, texts in batches.items()]
        outcomes = await asyncio.gather(*sending)
        is_complete = all(outcome is Outcome.OK for outcome in outcomes)
        if is_complete and offsets:
            await self._add_offsets(transaction, group, offsets)
        await self._quiet()
        return is_complete and not self.state.must_renew

    async def _quiet(self) -> None:
        """Waits until nothing is in flight."""
        while self.state.unfinished:
            self._end(self.state.abandon())
            await asyncio.sleep(LOOK_S)

    async def _finish(self, transaction: Transaction) -> None:
        transaction.end_asked_us = round(asyncio.get_running_loop().time() * 1e6)
        request = end_request(self, committed=transaction.commits)
        try:
            answer = await self._ask(
                TRANSACTION, self.transactional_id, request, lambda answer: [answer.error_code], self.end_version
            )
        except Refused as error:
            self.history.end(transaction, Outcome.UNKNOWN if transaction.commits else Outcome.FAILED, str(error))
            self._is_initialised = False
        else:
            self.history.end(transaction, Outcome.OK)
            self._goes_on(answer)

    def _goes_on(self, answer: Any) -> None:
        """A transaction has ended."""
        if self.state.must_renew:
            self._is_initialised = False

    async def _add_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        request = add_partitions_request(self, partitions)
        await self._ask(TRANSACTION, self.transactional_id, request, add_partitions_codes)

    async def _add_group(self, group: str) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.state.producer_id,
            producer_epoch=self.state.epoch,
            group_id=group,
        )
        await self._ask(TRANSACTION, self.transactional_id, request, lambda answer: [answer.error_code])

    async def _add_offsets(self, transaction: Transaction, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        await self._add_group(group)
        commit = self.history.begin(
            Commit(process=self.name, group=group, offsets=dict(offsets), transaction=transaction)
        )
        request = txn_commit_request(self, group, offsets)
        try:
            await self._ask(GROUP, group, request, commit_codes, self.txn_commit_version)
        except Refused as error:
            self.history.end(commit, Outcome.UNKNOWN, str(error))
            raise
        self.history.end(commit, Outcome.OK)

    async def _ask(
        self, kind: int, key: str, request: Message, codes_of: Callable[[Any], list[int]], version: int | None = None
    ) -> Any:
        """Asks the coordinator until it agrees, and returns its answer. Raises Refused."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + PATIENCE_S
        reason = "no answer"
        while loop.time() < give_up_at:
            try:
                answer = await self.cluster.ask_coordinator(kind, key, request, version=version)
            except (NotSent, Unanswered) as error:
                reason = str(error)
            else:
                codes = [ErrorCode.of(code) for code in codes_of(answer) if code != ErrorCode.NONE]
                if not codes:
                    return answer
                final = [code for code in codes if code not in AGAIN and code is not ErrorCode.OPERATION_NOT_ATTEMPTED]
                if final:
                    raise Refused(final[0].name, final[0])
                reason = codes[0].name
                if ErrorCode.CONCURRENT_TRANSACTIONS in codes:
                    self._last_pending = loop.time()
                else:
                    self.cluster.forget_coordinator(kind, key)
            await self.cluster.back_off()
        raise Refused(reason)


def add_partitions_request(
    producer: TransactionalProducer, partitions: Sequence[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """Adds partitions to the producer's transaction, or begins one with them."""
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.state.producer_id,
        v3_and_below_producer_epoch=producer.state.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=numbers)
            for topic, numbers in by_topic(partitions).items()
        ],
    )


def end_request(producer: TransactionalProducer, *, committed: bool) -> EndTxnRequest:
    """Ends the producer's transaction."""
    return EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.state.producer_id,
        producer_epoch=producer.state.epoch,
        committed=committed,
    )


def txn_commit_request(
    producer: TransactionalProducer,
    group: str,
    offsets: Mapping[TopicPartition, int],
    member_id: str = "",
    generation: int = -1,
) -> TxnOffsetCommitRequest:
    """Commits offsets in the producer's transaction, in the name of a member if it is given."""
    of_partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
    return TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=group,
        producer_id=producer.state.producer_id,
        producer_epoch=producer.state.epoch,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[
            TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    of_partition(
                        partition_index=number,
                        committed_offset=offsets[TopicPartition(name, number)],
                        committed_metadata="",
                    )
                    for number in numbers
                ],
            )
            for name, numbers in by_topic(offsets).items()
        ],
    )


def add_partitions_codes(answer: Any) -> list[int]:
    """The codes of an answer to AddPartitionsToTxn."""
    return [
        partition.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    ]


def commit_codes(answer: Any) -> list[int]:
    """The codes of an answer to OffsetCommit or TxnOffsetCommit."""
    return [partition.error_code for topic in answer.topics for partition in topic.partitions]


def commit_topics(offsets: Mapping[TopicPartition, int]) -> list[OffsetCommitRequest.OffsetCommitRequestTopic]:
    """The offsets as OffsetCommit sends them."""
    partition = OffsetCommitRequest.OffsetCommitRequestPartition
    return [
        OffsetCommitRequest.OffsetCommitRequestTopic(
            name=name,
            partitions=[
                partition(
                    partition_index=number,
                    committed_offset=offsets[TopicPartition(name, number)],
                    committed_metadata="",
                )
                for number in numbers
            ],
        )
        for name, numbers in by_topic(offsets).items()
    ]
