"""Odradek, as an older release, answers as running brokers of that release have answered (tests/vectors/releases)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odradek.broker.handlers.releases import versions_in
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.documents import to_document
from odradek.protocol.errors import ErrorCode
from odradek.testing import in_process_broker, replayed
from tests.broker.releases.first_words import Word, answer_of, frames_for, recorded_words, spoken
from tests.broker.releases.recorded_releases import (
    CLIENTS,
    KNOWN,
    REFUSALS,
    RELEASED_SETTINGS,
    explained_by,
    recording_of,
    unexplained,
)
from tests.broker.releases.released_broker import VERSIONS
from tests.clients.recording.proxied import frames_of
from tests.clients.recording.test_recorded_clients import coordinators_serve

RUNS = [(release, client) for release in VERSIONS for client in CLIENTS]
BETWEEN_BROKERS = {
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.ALTER_PARTITION,
}
NOT_SERVED = {
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.ALTER_CLIENT_QUOTAS,
}
"""docs/differences.md lists these APIs."""


@pytest.mark.parametrize("release", VERSIONS)
def test_the_recorded_frames_are_those_of_the_tables(release: str) -> None:
    assert [(word.name, word.send) for word in recorded_words(release)] == list(frames_for(release))


@pytest.mark.parametrize("release", VERSIONS)
def test_a_running_broker_lists_the_versions_of_the_table(release: str) -> None:
    (word,) = (word for word in recorded_words(release) if word.name == "API_VERSIONS 0")
    answer = answer_of(word)
    listed = {ApiKey(api.api_key): (api.min_version, api.max_version) for api in answer.api_keys}
    in_table = versions_in(release)
    assert {key: versions for key, versions in listed.items() if key not in BETWEEN_BROKERS} == in_table


@pytest.mark.parametrize("release", VERSIONS)
async def test_first_frames_are_answered_as_the_release_did(release: str) -> None:
    words = recorded_words(release)
    async with in_process_broker(odradek_as_version=release) as broker:
        found = await asyncio.to_thread(lambda: list(spoken(broker.bootstrap, frames_for(release))))
    assert [_compared(word) for word in found] == [_compared(word) for word in words]


def _compared(word: Word) -> tuple[str, str, bool, Any]:
    """Without the APIs that Odradek does not serve, which only the answers of ApiVersions show."""
    answer: Any = None
    if word.outcome == "answered":
        document = to_document(answer_of(word), word.answered_version)
        answer = {**document, "ApiKeys": [api for api in document["ApiKeys"] if ApiKey(api["ApiKey"]) in SERVED]}
    return word.name, word.outcome, word.afterwards, answer


SERVED = set(ApiKey) - BETWEEN_BROKERS - NOT_SERVED


@pytest.mark.parametrize("release", VERSIONS)
def test_only_api_versions_is_answered_in_a_version_that_the_release_lacks(release: str) -> None:
    highest = versions_in(release)[ApiKey.API_VERSIONS].highest
    for word in recorded_words(release):
        api, version = word.name.rsplit(" ", 1)
        assert (word.outcome == "answered") == (api == "API_VERSIONS"), word.name
        if api == "API_VERSIONS":
            code = ErrorCode.NONE if int(version) <= highest else ErrorCode.UNSUPPORTED_VERSION
            assert answer_of(word).error_code == code


@pytest.mark.parametrize(("release", "client"), [*RUNS, *((release, REFUSALS) for release in VERSIONS)])
async def test_a_recorded_client_gets_the_answers_of_the_release(release: str, client: str) -> None:
    async with in_process_broker({**RELEASED_SETTINGS, "odradek.as.version": release}) as broker:
        await coordinators_serve(broker.bootstrap)
        differences = await asyncio.to_thread(replayed, recording_of(release, client), broker.bootstrap)
    assert not unexplained(release, client, differences), "\n".join(unexplained(release, client, differences))
    met = {known for known in KNOWN if any(known.explains(difference) for difference in differences)}
    assert explained_by(release, client) == met


@pytest.mark.parametrize(("release", "client"), RUNS)
def test_a_recording_has_the_apis_of_a_client_in_versions_of_the_release(release: str, client: str) -> None:
    asked = {one.asked for one in frames_of(recording_of(release, client)) if one.asked is not None}
    assert {"ApiVersions", "Metadata", "Produce", "Fetch", "JoinGroup", "SyncGroup", "OffsetCommit"} <= {
        one.api_name for one in asked
    }
    known = versions_in(release)
    later = {(one.api_name, one.version) for one in asked if one.version not in known[ApiKey(one.api_key)]}
    assert {api for api, _ in later} <= {"ApiVersions"}
