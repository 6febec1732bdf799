"""Arrays of very many elements whose handling or responses would take more memory than the elements."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.group_admin import DescribeGroupsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.offsets import OffsetFetchRequest
from tests.scenarios.sweep import Bounds
from tests.scenarios.watched_broker import WatchedBroker, watched_broker
from tests.soak import rounds

pytestmark = pytest.mark.soak("hostile arrays", minutes=1)
BOUNDS = Bounds()
MANY_PARTITIONS = rounds(75_000, in_soak=600_000)
LARGEST_ACCEPTED = 60_000
SHORT_NAMES = rounds(LARGEST_ACCEPTED // 2, in_soak=LARGEST_ACCEPTED)
SETTINGS = {"auto.create.topics.enable": False}


@pytest.fixture(scope="module")
def broker() -> Iterator[WatchedBroker]:
    with watched_broker(SETTINGS) as broker:
        yield broker


def short_names(count: int) -> list[str]:
    """Of six characters."""
    return [f"{number:06x}" for number in range(count)]


def test_more_partitions_than_a_session_holds_cannot_be_forgotten(broker: WatchedBroker) -> None:
    forgotten = FetchRequest.ForgottenTopic(topic="t", partitions=list(range(MANY_PARTITIONS)))
    request = FetchRequest(forgotten_topics_data=[forgotten])
    answer = broker.ask(request, 11)
    assert broker.response(request, 11).error_code == ErrorCode.POLICY_VIOLATION
    assert answer.turns.are_short()
    assert broker.memory_of(request, 11).beyond_frame_and_answer < BOUNDS.bytes_per_byte * 4 * MANY_PARTITIONS


def test_forgotten_topics_without_partitions_count_as_well(broker: WatchedBroker) -> None:
    forgotten = [FetchRequest.ForgottenTopic(topic="t", partitions=[]) for _ in range(10_001)]
    assert broker.response(FetchRequest(forgotten_topics_data=forgotten), 11).error_code == ErrorCode.POLICY_VIOLATION
    assert broker.response(FetchRequest(forgotten_topics_data=forgotten[1:]), 11).error_code == ErrorCode.NONE


def test_an_error_response_for_very_many_partitions_takes_no_extra_memory(broker: WatchedBroker) -> None:
    """An int32 takes ten times its size in memory."""
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=list(range(MANY_PARTITIONS)))
    memory = broker.memory_of(OffsetFetchRequest(group_id="g", topics=[topic]), 5)
    assert memory.answer > MANY_PARTITIONS * 10
    assert memory.beyond_frame_and_answer < 15 * memory.request


def test_names_whose_responses_would_take_too_much_memory_are_refused(broker: WatchedBroker) -> None:
    request = DescribeGroupsRequest(groups=short_names(150_000))
    with pytest.raises(ConnectionError):
        broker.ask(request, 5)


@pytest.mark.long
def test_the_largest_accepted_number_of_short_names_stays_within_the_bound(broker: WatchedBroker) -> None:
    """Or a half of them within a half of it."""
    request = DescribeGroupsRequest(groups=short_names(SHORT_NAMES))
    free_bytes = BOUNDS.free_bytes * SHORT_NAMES / LARGEST_ACCEPTED
    memory = broker.memory_of(request, 5)
    assert memory.beyond_frame_and_answer < free_bytes + BOUNDS.bytes_per_byte * memory.request


@pytest.mark.parametrize("length", [10, 30])
def test_ten_thousand_names_of_usual_length_are_accepted(broker: WatchedBroker, length: int) -> None:
    names = [f"{number:0{length}d}" for number in range(10_000)]
    assert len(broker.response(DescribeGroupsRequest(groups=names), 5).groups) == len(names)
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    assert len(broker.response(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9).topics) == len(names)
