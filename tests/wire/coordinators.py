"""Questions to the coordinators, which are asked again while they load, and what a broker knows."""

from __future__ import annotations

import time
from typing import Any

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.group_admin import DescribeGroupsRequest, DescribeGroupsResponse
from odradek.protocol.schema import Message
from tests.wire.blocking_client import Client
from tests.wire.requests import fetch_offsets, list_offsets

GIVE_UP_S = 30
LOADING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
)


def until_loaded(client: Client, request: Message, error: str) -> Any:
    """Retries until the field `error` of the response (see `field_of`) is no error of a loading coordinator."""
    give_up = time.monotonic() + GIVE_UP_S
    while True:
        response = client.ask(request)
        code = field_of(response, error)
        if code not in LOADING:
            return response
        assert time.monotonic() < give_up, f"{ErrorCode.of(code).name} for {GIVE_UP_S} s"
        time.sleep(0.01)


def field_of(response: object, path: str) -> int:
    """A number in a response; arrays on its path have one item each."""
    for name in path.split("."):
        response = getattr(response, name)
        if isinstance(response, list):
            assert len(response) == 1, response
            response = response[0]
    assert isinstance(response, int)
    return response


def find_coordinators(client: Client) -> None:
    for key_type in range(2):
        until_loaded(client, FindCoordinatorRequest(key="k", key_type=key_type), "error_code")


def described(client: Client, group: str) -> DescribeGroupsResponse.DescribedGroup:
    response: DescribeGroupsResponse = until_loaded(client, DescribeGroupsRequest(groups=[group]), "groups.error_code")
    return response.groups[0]


def committed(client: Client, group: str, topic: str, partition: int) -> int:
    """The committed offset, -1 if there is none."""
    response = until_loaded(client, fetch_offsets(group, topic, partition), "error_code")
    return field_of(response, "topics.partitions.committed_offset")


def end_offset(client: Client, topic: str, partition: int = 0, isolation_level: int = 0) -> int:
    response = client.ask(list_offsets(topic, partition, isolation_level=isolation_level))
    assert field_of(response, "topics.partitions.error_code") == 0
    return field_of(response, "topics.partitions.offset")
