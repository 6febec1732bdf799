"""The in-sync replicas of all partitions that this broker leads: sends the proposals of the leaders to the controller,
and gives the answers to the partitions. (AlterPartition, KIP-497)

(A) One request at a time. Proposals that are made meanwhile, or in the same turn of the event loop, go together in the
    next ones, up to 1000 in each, so that neither side is blocked by a request.
(B) A request that fails, or that the controller refuses as a whole, is sent again after a pause; and so is a proposal
    that got no answer, or an error that settles nothing (isr.py, C).
(C) Before each request, the proposals that a new assignment has ended are dropped.

Version 0 of the request: topics by name, no recovery state.

Source: Kafka's DefaultAlterPartitionManager.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

import structlog

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.logging.lasting_failure import LastingFailure
from odradek.broker.replica.partition.hosted_partitions import HostedPartitions
from odradek.broker.replica.partition.isr import CommittedIsr, IsrAnswer, IsrProposal
from odradek.broker.replica.partition.wakeups import Wakeups
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.replica_control import AlterPartitionRequest, AlterPartitionResponse
from odradek.protocol.topic_partition import TopicPartition
from odradek.timer import Clock, TimerTask

if TYPE_CHECKING:
    from odradek.broker.background.tasks import Threads
    from odradek.timer import SystemTimer

FIRST_PAUSE_MS = 50
LONGEST_PAUSE_MS = 1000
PROPOSALS_PER_REQUEST = 1000

log = structlog.get_logger("broker.replica")

SendAlterPartition = Callable[[AlterPartitionRequest], Awaitable[AlterPartitionResponse]]


class RetryTask(TimerTask):
    """The end of the pause of (B)."""

    def __init__(self, delay_ms: int, resume: Callable[[], None]) -> None:
        super().__init__(delay_ms)
        self._resume = resume

    def run(self) -> None:
        self._resume()


class AlterPartitions:
    """`send` sends a request to the controller, whichever broker that is, and may raise any exception. `broker_epoch`
    is that of this broker's registration.
    """

    def __init__(
        self,
        broker_id: int,
        timer: SystemTimer,
        background: Threads,
        partitions: HostedPartitions,
        wakeups: Wakeups,
        *,
        send: SendAlterPartition,
        broker_epoch: Callable[[], int],
        clock: Clock,
    ) -> None:
        self._refusals = LastingFailure(clock)
        self._send = send
        self._broker_epoch = broker_epoch
        self._broker_id = broker_id
        self._timer = timer
        self._background = background
        self._partitions = partitions
        self._wakeups = wakeups
        self._pending: dict[TopicPartition, IsrProposal] = {}
        self._is_sending = False
        self._pause_ms = FIRST_PAUSE_MS
        self._retry: RetryTask | None = None
        self._is_closed = False

    def propose(self, proposal: IsrProposal) -> None:
        """Sends the proposal, instead of an earlier one of the partition, which is outdated."""
        self._pending[proposal.topic_partition] = proposal
        if self._retry is None:
            self._start()

    def close(self) -> None:
        """Sends nothing more."""
        self._is_closed = True
        self._pending.clear()
        self._end_pause()

    @property
    def has_followers(self) -> bool:
        """Whether this broker leads a partition that other brokers replicate."""
        return any(partition.remote_replicas for partition in self._partitions)

    def shrink(self) -> Steps[None]:
        """Proposes to remove lagging followers from the ISRs of the partitions that this broker leads. Due every half
        of `replica.lag.time.max.ms`.

        A follower that was about to join an ISR may lag too: the high watermark no longer waits for it.
        """
        pace = Pace()
        for partition in self._partitions:
            if pace.step_ends():
                yield
            if partition.remote_replicas:
                partition.maybe_shrink_isr()
                if partition.maybe_increment_high_watermark():
                    self._wakeups.watermark_moved(partition)

    def _start(self) -> None:
        if not self._is_sending and not self._is_closed:
            self._is_sending = True
            self._background.spawn(self._send_all(), "alter partitions")

    async def _send_all(self) -> None:
        try:
            while batch := self._current():
                if not await self._exchange(batch):
                    self._pause()
                    return
                self._pause_ms = FIRST_PAUSE_MS
        finally:
            self._is_sending = False

    def _current(self) -> list[IsrProposal]:
        """Drops the outdated proposals (C); returns the oldest of the others."""
        self._pending = {key: proposal for key, proposal in self._pending.items() if self._is_proposing(proposal)}
        batch = list(islice(self._pending.values(), PROPOSALS_PER_REQUEST))
        for proposal in batch:  # if it must be sent again, it stands behind the others
            del self._pending[proposal.topic_partition]
            self._pending[proposal.topic_partition] = proposal
        return batch

    async def _exchange(self, batch: list[IsrProposal]) -> bool:
        """Sends one request and hands out the answers. Returns False if some proposals are to be sent again."""
        try:
            response = await self._send(request_of(self._broker_id, self._broker_epoch(), batch))
        except Exception as error:
            self._refused(
                type(error).__name__, "in-sync replicas not changed: the controller did not answer", repr(error)
            )
            return False
        if response.error_code != ErrorCode.NONE:
            name = ErrorCode.of(response.error_code).name
            self._refused(name, "in-sync replicas not changed", name)
            return False
        self._refusals.over()
        answers = answers_of(response)
        for proposal in batch:
            answer = answers.get(proposal.topic_partition)
            if answer is not None:
                self._answered(proposal, answer)
        return not any(self._is_proposing(proposal) for proposal in batch)

    def _is_proposing(self, proposal: IsrProposal) -> bool:
        """Whether a proposal still needs an answer."""
        partition = self._partitions.get(proposal.topic_partition)
        return partition is not None and partition.is_proposing(proposal)

    def _answered(self, proposal: IsrProposal, answer: IsrAnswer) -> None:
        """Wakes the requests that wait for the high watermark, and the sessions of followers that are no longer in
        sync: their fetches are visited from now on.
        """
        partition = self._partitions.get(proposal.topic_partition)
        if partition is None:
            return
        before = partition.isr.committed
        moved = partition.isr_answered(proposal, answer)
        if moved or partition.isr.committed != before:
            self._wakeups.watermark_moved(partition)
        if partition.isr.committed != before:
            log.info(
                "in-sync replicas changed",
                partition=str(partition.topic_partition),
                isr=partition.isr.committed,
                partition_epoch=partition.partition_epoch,
            )
        elif isinstance(answer, ErrorCode):
            log.info(
                "in-sync replicas not changed",
                partition=str(partition.topic_partition),
                proposed=proposal.isr,
                reason=answer.name,
            )

    def _refused(self, kind: Hashable, event: str, reason: str) -> None:
        """A leader without a session is refused until it has the next one, once a second."""
        self._refusals.met(log.warning, kind, event, reason=reason)

    def _pause(self) -> None:
        if not self._is_closed:
            self._retry = RetryTask(self._pause_ms, self._resume)
            self._timer.add(self._retry)
            self._pause_ms = min(2 * self._pause_ms, LONGEST_PAUSE_MS)

    def _end_pause(self) -> None:
        retry, self._retry = self._retry, None
        if retry is not None:
            retry.cancel()

    def _resume(self) -> None:
        self._retry = None
        self._start()


def request_of(broker_id: int, broker_epoch: int, batch: Iterable[IsrProposal]) -> AlterPartitionRequest:
    topics: dict[str, AlterPartitionRequest.TopicData] = {}
    for proposal in batch:
        name, number = proposal.topic_partition
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = AlterPartitionRequest.TopicData(topic_name=name, partitions=[])
        topic.partitions.append(
            AlterPartitionRequest.PartitionData(
                partition_index=number,
                leader_epoch=proposal.leader_epoch,
                new_isr=list(proposal.isr),
                partition_epoch=proposal.partition_epoch,
            )
        )
    return AlterPartitionRequest(broker_id=broker_id, broker_epoch=broker_epoch, topics=list(topics.values()))


def answers_of(response: AlterPartitionResponse) -> dict[TopicPartition, IsrAnswer]:
    answers: dict[TopicPartition, IsrAnswer] = {}
    for topic in response.topics:
        for data in topic.partitions:
            key = TopicPartition(topic.topic_name, data.partition_index)
            if data.error_code != ErrorCode.NONE:
                answers[key] = ErrorCode.of(data.error_code)
            else:
                answers[key] = CommittedIsr(data.leader_epoch, tuple(data.isr), data.partition_epoch)
    return answers
