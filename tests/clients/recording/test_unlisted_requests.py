"""What a target does not list is not sent to it: one difference for each such request, and the connection goes on."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from odradek.clients.recording.recording_file import Entry, Kind, RecordingError
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compiler import encode
from odradek.protocol.headers import RequestHeader
from odradek.testing import in_process_broker
from tests.clients.recording.proxied import entries_of
from tests.clients.recording.workloads import SETTINGS, create, fresh, recording_of, replay_entries, transactions

UNLISTED = "not sent: it does not list this API"
FLEXIBLE = 2


def header(api_key: int, version: int, correlation_id: int) -> bytes:
    """Of a request whose body does not matter: it is never sent."""
    request = RequestHeader(
        request_api_key=api_key, request_api_version=version, correlation_id=correlation_id, client_id="adminclient-1"
    )
    return encode(request, FLEXIBLE)


def with_requests(entries: list[Entry], api_key: int, version: int, *, are_answered: bool = True) -> list[Entry]:
    """The recording of a client that sends such a request between any two others, as if the cluster had answered it."""
    made, number = [], 0
    for entry, following in pairwise([*entries, entries[-1]]):
        made.append(entry)
        if entry.kind is Kind.RESPONSE and following.kind is not Kind.CLOSED:
            number -= 1
            made.append(entry._replace(kind=Kind.REQUEST, data=header(api_key, version, number)))
            if are_answered:
                made.append(entry._replace(data=number.to_bytes(4, "big", signed=True) + bytes(9)))
    return made


async def test_an_api_that_the_target_does_not_list_is_one_difference_each(tmp_path: Path) -> None:
    """As a Java client asks Kafka for DescribeQuorum. Brokers end a connection with it."""
    entries = entries_of(await recording_of(transactions, tmp_path / "file"))
    more = with_requests(entries, ApiKey.DESCRIBE_QUORUM, 0)
    async with fresh() as target:
        differences, summary = await replay_entries(lambda: more, target)
    async with fresh() as target:
        _, without = await replay_entries(lambda: entries, target)
    assert len(differences) == summary.unlisted == (len(more) - len(entries)) // 2 > 20
    assert {difference.line("recorded", "target").split(" ", 2)[2] for difference in differences} == {
        f"DescribeQuorum 0: recorded 'sent', target '{UNLISTED}'"
    }
    assert (summary.requests, summary.responses) == (without.requests, without.responses)


async def test_a_version_that_the_target_does_not_list_is_one_difference(tmp_path: Path) -> None:
    """Also of a request that has no answer."""
    entries = entries_of(await recording_of(lambda servers: create(servers, "orders", 1), tmp_path / "file"))
    more = with_requests(entries, ApiKey.PRODUCE, 31, are_answered=False)
    async with in_process_broker(SETTINGS) as target:
        differences, summary = await replay_entries(lambda: more, target.bootstrap)
    assert len(differences) == summary.unlisted == len(more) - len(entries) > 0
    (place,) = {(difference.where, difference.expected, difference.found) for difference in differences}
    assert place == ("Produce 31", "sent", "not sent: it lists versions 0 to 13")


async def test_versions_are_compared_with_those_that_an_older_target_lists(tmp_path: Path) -> None:
    entries = entries_of(await recording_of(lambda servers: create(servers, "orders", 1), tmp_path / "file"))
    more = with_requests(entries, ApiKey.DESCRIBE_CLUSTER, 0)
    async with in_process_broker(SETTINGS, odradek_as_version="2.0") as old, fresh() as new:
        to_old, _ = await replay_entries(lambda: more, old.bootstrap)
        between, _ = await replay_entries(lambda: more, new, old.bootstrap)
    expected = {("DescribeCluster 0", "sent", UNLISTED)}
    for differences in (to_old, between):
        assert {tuple(each[2:]) for each in differences if each.where.startswith("DescribeCluster")} == expected


async def test_what_neither_of_two_clusters_lists_is_no_difference(tmp_path: Path) -> None:
    entries = entries_of(await recording_of(transactions, tmp_path / "file"))
    more = with_requests(entries, ApiKey.DESCRIBE_QUORUM, 0)
    async with fresh() as one, fresh() as other:
        differences, summary = await replay_entries(lambda: more, one, other)
    assert differences == []
    assert summary.unlisted == (len(more) - len(entries)) // 2


async def test_a_recording_of_nothing_but_unlisted_requests_is_compared() -> None:
    opened = Entry(Kind.OPENED, 1, 0, b"{}")
    request = Entry(Kind.REQUEST, 1, 0, header(ApiKey.DESCRIBE_QUORUM, 0, 1))
    async with fresh() as target:
        differences, _ = await replay_entries(lambda: [opened, request], target)
        with pytest.raises(RecordingError, match="no request that can be sent"):
            await replay_entries(lambda: [opened], target)
    assert [difference.found for difference in differences] == [UNLISTED]
