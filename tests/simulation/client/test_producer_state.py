from __future__ import annotations

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.records import read_batch_header
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client.producer_state import Batch, Ended, ProducerState
from tests.simulation.history import Outcome, Send

P = TopicPartition("t", 0)
NONE = ErrorCode.NONE


class Sender:
    """A producer with batches of two records for one partition."""

    def __init__(self, *, is_idempotent: bool = True, max_in_flight: int = 3) -> None:
        self.state = ProducerState(is_idempotent=is_idempotent, max_in_flight=max_in_flight)
        if is_idempotent:
            self.state.identify(7, 0)
        self.batches: list[Batch] = []

    def add(self, count: int) -> None:
        for _ in range(count):
            number = len(self.batches)
            send = Send(process="p", partition=P, records=(f"p:{number}", f"p:{number}b"))
            self.batches.append(Batch(send, deadline_us=100))
            self.state.add(self.batches[-1])

    def take(self) -> tuple[int, int]:
        """The number of the batch that is sent next, and its sequence on the wire."""
        batch, data = self.state.take(P)
        return self.batches.index(batch), read_batch_header(data).base_sequence

    def take_all(self) -> list[int]:
        taken = []
        while self.can_send:
            taken.append(self.take()[0])
        return taken

    @property
    def can_send(self) -> bool:
        return bool(list(self.state.sendable(0)))

    def answer(self, number: int, code: ErrorCode) -> Ended | None:
        return self.state.answered(self.batches[number], code, 10 * number, 1)


def test_an_idempotent_producer_sends_nothing_before_it_has_an_id() -> None:
    sender = Sender()
    sender.state = ProducerState(is_idempotent=True, max_in_flight=1)
    sender.add(1)
    assert not sender.can_send
    sender.state.identify(7, 0)
    assert sender.take() == (0, 0)


def test_batches_are_sent_in_order_with_consecutive_sequences_up_to_the_limit() -> None:
    sender = Sender(max_in_flight=3)
    sender.add(5)
    assert [sender.take(), sender.take(), sender.take()] == [(0, 0), (1, 2), (2, 4)]
    assert not sender.can_send
    ended = sender.answer(0, NONE)
    assert ended is not None
    assert ended.outcome is Outcome.OK
    assert sender.take() == (3, 6)


def test_while_a_batch_is_retried_later_ones_wait_and_keep_their_order() -> None:
    sender = Sender()
    sender.add(4)
    assert sender.take_all() == [0, 1, 2]
    assert sender.answer(0, ErrorCode.NOT_LEADER_OR_FOLLOWER) is None
    assert not sender.can_send, "others are in flight"
    assert sender.answer(2, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is None
    assert sender.answer(1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is None
    assert sender.take() == (0, 0)
    assert not sender.can_send, "the next one has been attempted, too"
    sender.answer(0, NONE)
    assert sender.take() == (1, 2)


def test_an_unanswered_batch_is_sent_again_with_its_sequence() -> None:
    sender = Sender()
    sender.add(1)
    sender.take()
    sender.state.unanswered(sender.batches[0])
    assert sender.take() == (0, 0)
    ended = sender.answer(0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert ended is not None
    assert ended.outcome is Outcome.OK


@pytest.mark.parametrize(
    ("code", "outcome"),
    [(ErrorCode.MESSAGE_TOO_LARGE, Outcome.FAILED), (ErrorCode.UNKNOWN_SERVER_ERROR, Outcome.UNKNOWN)],
)
def test_a_refused_batch_has_failed_only_if_no_attempt_can_have_been_appended(
    code: ErrorCode, outcome: Outcome
) -> None:
    sender = Sender()
    sender.add(1)
    sender.take()
    ended = sender.answer(0, code)
    assert ended is not None
    assert ended.outcome is outcome


def test_a_lost_attempt_makes_a_later_refusal_uncertain() -> None:
    sender = Sender()
    sender.add(1)
    sender.take()
    sender.state.unanswered(sender.batches[0])
    sender.take()
    ended = sender.answer(0, ErrorCode.MESSAGE_TOO_LARGE)
    assert ended is not None
    assert ended.outcome is Outcome.UNKNOWN


def test_after_a_gap_the_producer_goes_on_with_a_new_epoch() -> None:
    sender = Sender()
    sender.add(4)
    sender.take_all()
    sender.answer(0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert sender.state.must_renew
    sender.answer(1, ErrorCode.NETWORK_EXCEPTION)
    sender.answer(2, NONE)
    assert not sender.can_send
    ended = sender.state.identify(7, 1)
    assert [(sender.batches.index(each.batch), each.outcome) for each in ended] == [(1, Outcome.UNKNOWN)]
    assert sender.take() == (3, 0)
    assert sender.state.unfinished == 1


def test_a_batch_whose_time_is_up_ends_unless_it_is_in_flight() -> None:
    sender = Sender(max_in_flight=1)
    sender.add(2)
    sender.take()
    assert [each.outcome for each in sender.state.expire(100)] == [Outcome.FAILED]
    sender.state.unanswered(sender.batches[0])
    assert [each.outcome for each in sender.state.expire(100)] == [Outcome.UNKNOWN]
    assert sender.state.must_renew


def test_a_plain_producer_has_no_sequences_and_needs_no_new_epoch() -> None:
    sender = Sender(is_idempotent=False)
    sender.add(1)
    assert sender.take() == (0, -1)
    sender.answer(0, ErrorCode.MESSAGE_TOO_LARGE)
    assert not sender.state.must_renew
