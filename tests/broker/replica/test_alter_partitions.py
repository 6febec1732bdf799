"""AlterPartition requests: which proposals go together, when they are sent again, what the answers change."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from odradek.broker.replica.leader import isr_proposals as alter_partitions
from odradek.broker.replica.leader.isr_proposals import FIRST_PAUSE_MS, LONGEST_PAUSE_MS
from odradek.broker.replica.partition.partition import Partition
from odradek.protocol.compiler import decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.replica_control import AlterPartitionRequest, AlterPartitionResponse
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.replica.harness import T0, ReplicaHarness, later

T1, U0 = TopicPartition("t", 1), TopicPartition("u", 0)


class Controller:
    """Accepts every proposal, or answers as `errors` say; `error` is that of the whole request. `requests` have passed
    through version 0 of the wire format. A request waits until `harness.threads` run.
    """

    def __init__(self, harness: ReplicaHarness) -> None:
        self.harness = harness
        self.requests: list[AlterPartitionRequest] = []
        self.failure: Exception | None = None
        self.error = ErrorCode.NONE
        self.errors: dict[TopicPartition, ErrorCode] = {}
        self.silent: set[TopicPartition] = set()

    async def send(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        response: AlterPartitionResponse = await self.harness.threads.run_in_thread(self.answer, request)
        return decode(AlterPartitionResponse, 0, encode(response, 0))

    def answer(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        self.requests.append(decode(AlterPartitionRequest, 0, encode(request, 0)))
        if self.failure is not None:
            raise self.failure
        topics = [
            AlterPartitionResponse.TopicData(
                topic_name=topic.topic_name,
                partitions=[
                    AlterPartitionResponse.PartitionData(
                        partition_index=data.partition_index,
                        error_code=self.errors.get(
                            TopicPartition(topic.topic_name, data.partition_index), ErrorCode.NONE
                        ),
                        leader_id=request.broker_id,
                        leader_epoch=data.leader_epoch,
                        isr=data.new_isr,
                        partition_epoch=data.partition_epoch + 1,
                    )
                    for data in topic.partitions
                    if TopicPartition(topic.topic_name, data.partition_index) not in self.silent
                ],
            )
            for topic in request.topics
        ]
        return AlterPartitionResponse(error_code=self.error, topics=topics)

    @property
    def proposed(self) -> list[list[TopicPartition]]:
        """The partitions of each request."""
        return [
            [
                TopicPartition(topic.topic_name, data.partition_index)
                for topic in request.topics
                for data in topic.partitions
            ]
            for request in self.requests
        ]


@pytest.fixture
def controller(harness: ReplicaHarness) -> Controller:
    controller = Controller(harness)
    harness.controller = controller.send
    return controller


def joining(harness: ReplicaHarness, *keys: TopicPartition) -> list[Partition]:
    """Returns partitions whose follower, broker 1, has caught up and is proposed for the ISR."""
    partitions = [harness.lead(key, replicas=(0, 1), isr=(0,), epoch=4) for key in keys]
    for partition in partitions:
        partition.update_follower(1, 0, 0)
    return partitions


def test_a_proposal_is_sent_and_its_answer_applied(harness: ReplicaHarness, controller: Controller) -> None:
    (partition,) = joining(harness, T0)
    harness.threads.run()
    (request,) = controller.requests
    assert (request.broker_id, request.broker_epoch) == (0, 77)
    ((topic,),) = (request.topics,)
    assert topic.topic_name == "t"
    (data,) = topic.partitions
    assert (data.partition_index, data.leader_epoch, data.new_isr, data.partition_epoch) == (0, 4, [0, 1], 0)
    assert (partition.isr.committed, partition.partition_epoch) == ((0, 1), 1)


def test_proposals_made_during_a_request_go_together_in_the_next(
    harness: ReplicaHarness, controller: Controller
) -> None:
    partitions = joining(harness, T0, U0, T1)
    harness.threads.run()
    assert controller.proposed == [[T0], [U0, T1]]
    assert all(partition.isr.committed == (0, 1) for partition in partitions)


def test_a_shrunk_isr_moves_the_high_watermark_and_completes_what_waits_for_it(
    harness: ReplicaHarness, controller: Controller
) -> None:
    partition = harness.lead(replicas=(0, 1))
    produced = harness.produce(acks=-1, timeout_ms=100_000)
    harness.clock.advance(30_001)
    list(harness.manager.in_sync_replicas.shrink())
    harness.turn()
    assert not produced.is_answered
    harness.threads.run()
    harness.turn()
    assert partition.isr.committed == (0,)
    assert produced.result.error is ErrorCode.NONE


def test_a_request_without_an_answer_is_sent_again_after_growing_pauses(
    harness: ReplicaHarness, controller: Controller
) -> None:
    controller.failure = ConnectionResetError("the controller is gone")
    (partition,) = joining(harness, T0)
    harness.threads.run()
    pause = FIRST_PAUSE_MS
    for number in range(1, 8):
        assert len(controller.requests) == number
        harness.advance(pause - 1)
        harness.threads.run()
        assert len(controller.requests) == number
        harness.advance(1)
        harness.threads.run()
        pause = min(2 * pause, LONGEST_PAUSE_MS)
    controller.failure = None
    harness.advance(LONGEST_PAUSE_MS)
    harness.threads.run()
    assert partition.isr.committed == (0, 1)
    assert not harness.timer.size


@pytest.mark.parametrize("error", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NOT_CONTROLLER])
def test_a_request_that_is_refused_as_a_whole_is_sent_again(
    harness: ReplicaHarness, controller: Controller, error: ErrorCode
) -> None:
    controller.error = error
    (partition,) = joining(harness, T0)
    harness.threads.run()
    assert list(partition.isr.committed) == [0]
    controller.error = ErrorCode.NONE
    harness.advance(FIRST_PAUSE_MS)
    harness.threads.run()
    assert list(partition.isr.committed) == [0, 1]


def test_a_leader_that_is_refused_for_long_says_so_once_a_minute(
    harness: ReplicaHarness, controller: Controller
) -> None:
    """One whose session has ended is refused every second until it has the next one."""
    controller.error = ErrorCode.STALE_BROKER_EPOCH
    with capture_logs() as logs:
        joining(harness, T0)
        for _ in range(150):
            harness.threads.run()
            harness.advance(1000)
        controller.error = ErrorCode.NONE
        harness.threads.run()
    assert len(controller.requests) > 100
    lines = [line for line in logs if line["event"] == "in-sync replicas not changed"]
    assert [line.get("for_s", 0) // 60 for line in lines] == [0, 1, 2]
    assert {line["reason"] for line in lines} == {"STALE_BROKER_EPOCH"}


def test_many_proposals_are_sent_in_several_requests_and_those_to_be_repeated_stand_behind(
    harness: ReplicaHarness, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alter_partitions, "PROPOSALS_PER_REQUEST", 2)
    first, *others = (TopicPartition("t", number) for number in range(6))
    controller.silent = set(others[:2])
    joining(harness, first, *others)
    harness.threads.run()
    harness.advance(FIRST_PAUSE_MS)
    controller.silent = set()
    harness.threads.run()
    assert controller.proposed == [[first], others[:2], others[2:4], [others[4], others[0]], others[1:2]]


def test_only_unsettled_proposals_are_sent_again(harness: ReplicaHarness, controller: Controller) -> None:
    controller.silent = {U0}
    controller.errors = {T1: ErrorCode.UNKNOWN_SERVER_ERROR}
    joining(harness, T0, U0, T1)
    harness.threads.run()
    controller.silent, controller.errors = set(), {}
    harness.advance(FIRST_PAUSE_MS)
    harness.threads.run()
    assert controller.proposed == [[T0], [U0, T1], [U0, T1]]
    harness.advance(LONGEST_PAUSE_MS)
    assert not harness.threads.waiting


@pytest.mark.parametrize("error", [ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.INELIGIBLE_REPLICA])
def test_a_settled_proposal_is_not_sent_again(
    harness: ReplicaHarness, controller: Controller, error: ErrorCode
) -> None:
    controller.errors = {T0: error}
    joining(harness, T0)
    harness.threads.run()
    harness.advance(LONGEST_PAUSE_MS)
    assert controller.proposed == [[T0]]
    assert not harness.timer.size


def test_a_proposal_that_an_assignment_has_ended_is_dropped(harness: ReplicaHarness, controller: Controller) -> None:
    controller.failure = ConnectionResetError()
    (partition,) = joining(harness, T0)
    harness.threads.run()
    partition.make_follower(later(partition, 1, (0, 1)))
    controller.failure = None
    harness.advance(FIRST_PAUSE_MS)
    harness.threads.run()
    assert len(controller.requests) == 1


def test_a_newer_proposal_is_sent_when_the_answer_to_the_outdated_one_arrives(
    harness: ReplicaHarness, controller: Controller
) -> None:
    (partition,) = joining(harness, T0)
    partition.make_leader(later(partition, 0, (0, 1), (0,)))
    partition.update_follower(1, 0, 0)
    harness.threads.run()
    assert [request.topics[0].partitions[0].leader_epoch for request in controller.requests] == [4, 5]
    assert (partition.isr.committed, partition.partition_epoch) == ((0, 1), 2)


def test_a_stopping_broker_sends_nothing_more(harness: ReplicaHarness, controller: Controller) -> None:
    controller.failure = ConnectionResetError()
    joining(harness, T0)
    harness.threads.run()
    harness.manager.shutdown()
    joining(harness, T1)
    harness.advance(LONGEST_PAUSE_MS)
    assert len(controller.requests) == 1
    assert not harness.timer.size


def test_while_no_controller_is_reached_proposals_wait(harness: ReplicaHarness) -> None:
    (partition,) = joining(harness, T0)
    assert partition.isr.proposal is not None
    controller = Controller(harness)
    harness.controller = controller.send
    harness.advance(FIRST_PAUSE_MS)
    harness.threads.run()
    assert partition.isr.committed == (0, 1)
