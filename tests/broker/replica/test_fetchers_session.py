"""The follower's side of fetch sessions, against the leader's own sessions."""

from __future__ import annotations

import random
import uuid

import pytest

from odradek.broker.replica.fetch.fetch_session import FetchTarget, Targets
from odradek.broker.replica.fetch.fetch_session_cache import FetchSessionCache
from odradek.broker.replica.fetch.log_reader import FetchParams
from odradek.broker.replica.follower.fetch_session_client import FetchSessionClient, SessionRequest
from odradek.broker.replica.follower.fetcher_state import Position
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchResponse
from odradek.protocol.topic_partition import TopicPartition
from odradek.timer import ManualClock

MAX_INT32 = 0x7FFFFFFF
TOPIC_ID = uuid.UUID(int=1)


def key(number: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, number)


def at(offset: int, *, epoch: int = 1, topic_id: uuid.UUID = TOPIC_ID) -> Position:
    return Position(topic_id, epoch, offset, epoch, 0)


class SessionsOfALeader:
    """The leader's sessions; all logs are empty, so that a response names the partitions only."""

    def __init__(self, slots: int = 10) -> None:
        self.cache = FetchSessionCache(slots, ManualClock(), random.Random(1))

    def answer(self, request: SessionRequest) -> FetchResponse:
        wanted: Targets = {
            name: FetchTarget(name, place.fetch_offset, 1, place.leader_epoch, place.last_fetched_epoch)
            for name, place in request.named.items()
        }
        params = FetchParams(12, replica_id=2)
        context = self.cache.context(request.session_id, request.epoch, params, wanted, request.forgotten)
        return context.answer(
            [
                (target, FetchResponse.PartitionData(partition_index=target.topic_partition.partition))
                for target in context.targets()
            ]
        )

    def fetched_by(self, session_id: int) -> dict[TopicPartition, int]:
        """Returns the fetch offsets that the session has."""
        session = self.cache.get(session_id)
        assert session is not None
        return {target.topic_partition: target.fetch_offset for target in session.targets.values()}


@pytest.fixture
def leader() -> SessionsOfALeader:
    return SessionsOfALeader()


def opened(leader: SessionsOfALeader, *numbers: int) -> FetchSessionClient:
    """Returns a client whose first request, of these partitions at offset 0, has opened a session."""
    client = FetchSessionClient()
    for number in numbers:
        client.want(key(number), at(0))
    assert client.answered(leader.answer(client.next_request())) is None
    return client


def test_the_first_request_names_every_partition_and_opens_a_session(leader: SessionsOfALeader) -> None:
    client = FetchSessionClient()
    assert client.is_empty
    client.want(key(0), at(5))
    client.want(key(1), at(7))
    request = client.next_request()
    assert (request.session_id, request.epoch) == (0, 0)
    assert request.named == {key(0): at(5), key(1): at(7)}
    assert client.answered(leader.answer(request)) is None
    assert leader.fetched_by(client.id) == {key(0): 5, key(1): 7}


def test_a_request_that_changes_nothing_names_no_partition(leader: SessionsOfALeader) -> None:
    client = opened(leader, *range(1000))
    for number in (3, 4):
        client.want(key(number), at(0))
    assert client.next_request() == (client.id, 1, {}, ())


def test_a_partition_whose_position_changed_is_named_and_stands_behind_the_others(leader: SessionsOfALeader) -> None:
    client = opened(leader, 0, 1, 2)
    client.want(key(1), at(9))
    request = client.next_request()
    assert request.named == {key(1): at(9)}
    assert client.answered(leader.answer(request)) is None
    assert leader.fetched_by(client.id) == {key(0): 0, key(1): 9, key(2): 0}
    client.failed()
    assert list(client.next_request().named) == [key(0), key(2), key(1)]


def test_a_partition_of_another_topic_with_the_same_name_is_named_again(leader: SessionsOfALeader) -> None:
    client = opened(leader, 0, 1)
    client.want(key(1), at(0, topic_id=uuid.UUID(int=2)))
    assert list(client.next_request().named) == [key(1)]


def test_a_dropped_partition_is_forgotten(leader: SessionsOfALeader) -> None:
    client = opened(leader, 0, 1)
    client.drop(key(0))
    request = client.next_request()
    assert request.forgotten == (key(0),)
    assert client.answered(leader.answer(request)) is None
    assert leader.fetched_by(client.id) == {key(1): 0}
    assert client.next_request().forgotten == ()


def test_a_partition_that_is_dropped_and_wanted_again_before_the_next_request_costs_nothing(
    leader: SessionsOfALeader,
) -> None:
    client = opened(leader, 0, 1)
    client.drop(key(0))
    client.want(key(0), at(0))
    assert client.next_request() == (client.id, 1, {}, ())


def test_a_partition_that_was_never_sent_need_not_be_forgotten(leader: SessionsOfALeader) -> None:
    client = opened(leader, 0)
    client.want(key(1), at(0))
    client.drop(key(1))
    client.drop(key(2))
    assert client.next_request() == (client.id, 1, {}, ())


def test_a_session_without_partitions_is_empty(leader: SessionsOfALeader) -> None:
    client = opened(leader, 0)
    client.drop(key(0))
    assert client.is_empty
    client.want(key(0), at(1))
    assert not client.is_empty


def test_changes_while_a_request_is_under_way_do_not_change_what_was_sent(leader: SessionsOfALeader) -> None:
    client = opened(leader, 0, 1)
    request = client.next_request()
    client.want(key(0), at(5))
    client.drop(key(1))
    client.want(key(2), at(0))
    assert (client.sent(key(0)), client.sent(key(1)), client.sent(key(2))) == (at(0), at(0), None)
    assert client.answered(leader.answer(request)) is None
    request = client.next_request()
    assert (request.named, request.forgotten) == ({key(0): at(5), key(2): at(0)}, (key(1),))


def test_a_leader_without_a_free_slot_gets_full_requests() -> None:
    leader = SessionsOfALeader(slots=0)
    client = opened(leader, 0, 1)
    for _ in range(3):
        request = client.next_request()
        assert (request.session_id, request.epoch, list(request.named)) == (0, 0, [key(0), key(1)])
        assert client.answered(leader.answer(request)) is None


def test_a_session_that_the_leader_no_longer_has_is_opened_again(leader: SessionsOfALeader) -> None:
    client = opened(leader, 0, 1)
    leader.cache.remove(client.id)
    assert client.answered(leader.answer(client.next_request())) == "FETCH_SESSION_ID_NOT_FOUND"
    request = client.next_request()
    assert (request.session_id, request.epoch, list(request.named)) == (0, 0, [key(0), key(1)])
    assert client.answered(leader.answer(request)) is None
    assert leader.fetched_by(client.id) == {key(0): 0, key(1): 0}


def test_after_a_lost_request_a_full_one_closes_the_old_session(leader: SessionsOfALeader) -> None:
    client = opened(leader, 0, 1)
    old = client.id
    client.want(key(0), at(3))
    client.drop(key(1))
    client.next_request()
    client.failed()
    request = client.next_request()
    assert (request.session_id, request.epoch, request.named) == (old, 0, {key(0): at(3)})
    assert client.answered(leader.answer(request)) is None
    assert client.id != old
    assert leader.cache.get(old) is None


def test_a_session_of_another_epoch_is_replaced(leader: SessionsOfALeader) -> None:
    client = opened(leader, 0)
    old = client.id
    leader.answer(SessionRequest(old, 1, {}, ()))  # a request whose response was lost
    assert client.answered(leader.answer(client.next_request())) == "INVALID_FETCH_SESSION_EPOCH"
    request = client.next_request()
    assert (request.session_id, request.epoch) == (old, 0)
    assert client.answered(leader.answer(request)) is None


def test_a_session_that_the_leader_closes_is_opened_again(leader: SessionsOfALeader) -> None:
    client = opened(leader, 0)
    client.next_request()
    assert client.answered(FetchResponse(session_id=0)) is None
    request = client.next_request()
    assert (request.session_id, request.epoch, list(request.named)) == (0, 0, [key(0)])


def test_a_full_response_must_have_every_partition_of_the_request(leader: SessionsOfALeader) -> None:
    client = FetchSessionClient()
    client.want(key(0), at(0))
    client.want(key(1), at(0))
    response = leader.answer(client.next_request())
    del response.responses[0].partitions[1]
    assert client.answered(response) == "a response with 1 of 2 requested partitions"
    assert client.is_full


def test_a_response_must_not_have_partitions_that_were_not_requested(leader: SessionsOfALeader) -> None:
    client = opened(leader, 0)
    client.next_request()
    data = FetchResponse.PartitionData(partition_index=4)
    response = FetchResponse(
        session_id=client.id, responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=[data])]
    )
    assert client.answered(response) == "a response with t-4, which was not requested"
    assert client.is_full


def test_an_error_of_the_whole_request_is_a_problem(leader: SessionsOfALeader) -> None:
    client = opened(leader, 0)
    client.next_request()
    refused = FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert client.answered(refused) == "CLUSTER_AUTHORIZATION_FAILED"
    assert client.is_full


def test_the_epoch_after_the_largest_is_one(leader: SessionsOfALeader) -> None:
    client = opened(leader, 0)
    client.epoch = MAX_INT32
    client.next_request()
    assert client.answered(FetchResponse(session_id=client.id)) is None
    assert client.epoch == 1


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_the_leader_fetches_what_the_follower_wants(seed: int) -> None:
    source = random.Random(seed)
    leader = SessionsOfALeader(slots=source.choice((0, 1, 10)))
    client = FetchSessionClient()
    wanted: dict[TopicPartition, Position] = {}
    for _ in range(300):
        for _ in range(source.randrange(4)):
            name = key(source.randrange(6), source.choice("ab"))
            if source.random() < 0.3:
                wanted.pop(name, None)
                client.drop(name)
            else:
                wanted[name] = at(source.randrange(3))
                client.want(name, wanted[name])
        assert client.is_empty == (not wanted)
        if client.is_empty:
            continue
        request = client.next_request()
        outcome = source.randrange(10)
        if outcome == 0:
            client.failed()  # the request was lost
            continue
        response = leader.answer(request)
        if outcome == 1:
            client.failed()  # the response was lost
            continue
        if outcome == 2 and client.id:
            leader.cache.remove(client.id)  # evicted
        if client.answered(response) is None:
            session = leader.cache.get(client.id)
            expected = {name: place.fetch_offset for name, place in wanted.items()}
            if session is not None:
                assert leader.fetched_by(client.id) == expected
            elif request.epoch == 0:
                assert {name: place.fetch_offset for name, place in request.named.items()} == expected
