"""Arrays of very many elements, the handling or answering of which would take more memory than the elements."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchRequest
from tests.scenarios.sweep import Bounds
from tests.scenarios.watched_broker import WatchedBroker, watched_broker

BOUNDS = Bounds()
MANY_PARTITIONS = 600_000
SETTINGS = {"auto.create.topics.enable": False}


@pytest.fixture(scope="module")
def broker() -> Iterator[WatchedBroker]:
    with watched_broker(SETTINGS) as broker:
        yield broker


def test_more_partitions_than_a_session_holds_cannot_be_forgotten(broker: WatchedBroker) -> None:
    forgotten = FetchRequest.ForgottenTopic(topic="t", partitions=list(range(MANY_PARTITIONS)))
    request = FetchRequest(forgotten_topics_data=[forgotten])
    answer = broker.ask(request, 11)
    assert broker.response(request, 11).error_code == ErrorCode.POLICY_VIOLATION
    assert answer.longest_turn_ms < BOUNDS.turn_ms
    assert broker.memory_of(request, 11).beyond_frame_and_answer < BOUNDS.bytes_per_byte * 4 * MANY_PARTITIONS


def test_topics_without_partitions_to_forget_count_as_well(broker: WatchedBroker) -> None:
    forgotten = [FetchRequest.ForgottenTopic(topic="t", partitions=[]) for _ in range(10_001)]
    assert broker.response(FetchRequest(forgotten_topics_data=forgotten), 11).error_code == ErrorCode.POLICY_VIOLATION
    assert broker.response(FetchRequest(forgotten_topics_data=forgotten[1:]), 11).error_code == ErrorCode.NONE
