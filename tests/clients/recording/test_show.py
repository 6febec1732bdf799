"""Frames are found by the topics that they are about."""

from __future__ import annotations

from odradek.clients.recording.recording_file import Entry, Kind
from odradek.clients.recording.show import Filters, as_document, as_lines, frames
from odradek.protocol.messages.acls import DescribeAclsRequest
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse
from odradek.protocol.messages.topics import DeleteTopicsRequest
from odradek.protocol.schema import Message
from tests.clients.recording.requests import request_frame, response_frame


def shown_of(topic: str, *entries: Entry) -> list[Kind]:
    opened = Entry(Kind.OPENED, 1, 0, b"{}")
    found = frames([opened, *entries])
    return [one.entry.kind for one in found if Filters(topics=[topic]).pass_on(one)]


def request(message: Message, version: int, number: int = 1) -> Entry:
    return Entry(Kind.REQUEST, 1, 0, request_frame(message, version, number))


def test_a_request_that_lists_names_is_about_these_topics() -> None:
    asked = request(DeleteTopicsRequest(topic_names=["orders", "bills"]), 5)
    assert shown_of("orders", asked) == shown_of("bills", asked) == [Kind.REQUEST]
    assert shown_of("others", asked) == []


def test_a_filter_of_acls_is_about_its_topic() -> None:
    assert shown_of("orders", request(DescribeAclsRequest(resource_name_filter="orders"), 1)) == [Kind.REQUEST]


def fetch(session_id: int, epoch: int, *topics: str) -> FetchRequest:
    return FetchRequest(
        session_id=session_id, session_epoch=epoch, topics=[FetchRequest.FetchTopic(topic=name) for name in topics]
    )


def test_a_fetch_of_a_session_is_about_the_topics_of_the_session() -> None:
    empty = Entry(Kind.RESPONSE, 1, 0, response_frame(FetchResponse(session_id=7), 11, 2))
    asked = [request(fetch(0, 0, "orders"), 11, 1), request(fetch(7, 1), 11, 2), empty]
    asked += [request(fetch(7, 2, "bills"), 11, 3), request(fetch(0, -1, "others"), 11, 4)]
    assert shown_of("orders", *asked) == [Kind.REQUEST, Kind.REQUEST, Kind.RESPONSE, Kind.REQUEST]
    assert shown_of("bills", *asked) == [Kind.REQUEST]
    assert shown_of("others", *asked) == [Kind.REQUEST]


def test_frames_that_are_malformed_are_shown_as_bytes() -> None:
    asked = request_frame(FetchRequest(), 11)[:-3]
    answer = response_frame(FetchResponse(), 11)[:-3]
    entries = [Entry(Kind.OPENED, 1, 0, b"{}"), Entry(Kind.REQUEST, 1, 0, asked), Entry(Kind.RESPONSE, 1, 0, answer)]
    shown = list(frames(entries))
    assert [one.decoded for one in shown] == [None, None]
    for one, data in zip(shown, (asked, answer), strict=True):
        assert as_document(one, 0)["hex"] == data.hex()
        assert list(as_lines(one, brief=False, records=True))[1] == f"    not decoded: {data.hex()}"
