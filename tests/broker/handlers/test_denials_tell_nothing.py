"""A client that may do nothing cannot find out what exists: the denial of a name that exists is that of any other.

Ids of topics are no secret, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odradek.broker.handlers.api_row import ApiRow
from odradek.protocol.compiler import decode
from odradek.protocol.headers import response_header_version
from tests.base_requests import Known
from tests.broker.handlers.scripted_authorizer import nothing
from tests.broker.handlers.test_authorization_of_every_api import ASKING, World, by_name, started, versions
from tests.large_requests import small_request
from tests.wire.blocking_client import RawClient

ABSENT = {
    "topic": "absent",
    "group": "absent-group",
    "joined_group": "absent-joined-group",
    "member_id": "absent-member",
    "transactional_id": "absent-transaction",
}


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with started() as world:
        yield world


def denial(world: World, row: ApiRow, version: int, known: Known) -> str:
    """The answer to a client that may do nothing, with other names in place of those that it has sent."""
    request = small_request(int(row.key), version, known)
    world._authorizer.change(nothing)
    with RawClient(world.broker.bootstrap) as client:
        frame = client.call(request.payload())
    response = decode(row.response_class, version, frame, 4 + (response_header_version(row.key, version) > 0))
    if hasattr(response, "session_id"):
        response.session_id = 0  # random
    text = repr(response)
    for name in ABSENT:
        text = text.replace(repr(getattr(known, name)), f"({name})")
    return text


@pytest.mark.parametrize("row", ASKING, ids=by_name)
def test_a_denial_does_not_tell_whether_what_it_names_exists(world: World, row: ApiRow) -> None:
    for version in versions(row):
        known = world.restore()
        of_absent = denial(world, row, version, known._replace(**ABSENT))  # type: ignore[arg-type]
        assert denial(world, row, version, known) == of_absent, f"version {version}"
