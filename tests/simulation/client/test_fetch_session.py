from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client.consumer import FetchSession
from tests.simulation.client.requests import FetchFrom, Session

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
START = FetchFrom(0, 100)


def test_a_session_begins_with_all_partitions_and_goes_on_with_what_has_changed() -> None:
    session = FetchSession()
    assert session.next({A: START, B: START}) == ({A: START, B: START}, [], Session(0, 0))
    session.answered(7, ErrorCode.NONE)
    further = FetchFrom(5, 100)
    assert session.next({A: further, B: START}) == ({A: further}, [], Session(7, 1))
    session.answered(7, ErrorCode.NONE)
    assert session.next({A: further}) == ({}, [B], Session(7, 2))


def test_a_refused_session_begins_anew() -> None:
    session = FetchSession()
    session.next({A: START})
    session.answered(7, ErrorCode.NONE)
    session.next({A: START})
    session.answered(0, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert session.next({A: START}) == ({A: START}, [], Session(0, 0))


def test_without_a_session_every_request_names_all_partitions() -> None:
    session = FetchSession()
    session.next({A: START})
    session.answered(0, ErrorCode.NONE)
    assert session.next({A: START}) == ({A: START}, [], Session(0, 0))
