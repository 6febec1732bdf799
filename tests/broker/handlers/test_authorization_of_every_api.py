"""Every API, in each version, on a broker whose authorizer denies everything, or allows only what the row names.

The requests are the small ones of `tests/large_requests.py`, which name what exists in the broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from odradek.broker.handlers.access import ON_RESOURCE
from odradek.broker.handlers.api_row import ApiRow, api_row
from odradek.broker.handlers.api_table import api_table
from odradek.broker.server import Broker
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compiler import decode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.headers import response_header_version
from odradek.protocol.schema import NEVER, Message
from odradek.protocol.wire_codes import AclOperation, AclResourceType
from odradek.testing.loop_thread import LoopThread
from tests.base_requests import Known
from tests.broker.handlers.scripted_authorizer import ScriptedAuthorizer, broker_with, everything, nothing, only
from tests.large_requests import LargeRequest, small_request
from tests.scenarios.known_world import SETTINGS, KnownWorld
from tests.wire.blocking_client import RawClient

ROWS = api_table().client_rows()
ASKING = [row for row in ROWS if row.authorization.checks]
NOT_ASKING = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
DENIALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def operations_on(resource_type: AclResourceType) -> set[tuple[AclOperation, AclResourceType]]:
    return {(operation, resource_type) for operation in ON_RESOURCE[resource_type]}


FILTERING = {ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_CLUSTER}
"""These show less instead of an error."""
WITHOUT_A_PLACE = {(ApiKey.DESCRIBE_LOG_DIRS, version) for version in range(3)}
"""The response has no error code: it is empty."""
OPERATIONS_SHOWN = {
    ApiKey.METADATA: operations_on(AclResourceType.TOPIC) | operations_on(AclResourceType.CLUSTER),
    ApiKey.DESCRIBE_CLUSTER: operations_on(AclResourceType.CLUSTER),
    ApiKey.DESCRIBE_GROUPS: operations_on(AclResourceType.GROUP),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: operations_on(AclResourceType.TOPIC),
}
"""Requests for the operations that the client may perform."""
BEFORE_AUTHORIZATION = {ErrorCode.UNKNOWN_TOPIC_ID}
"""DeleteTopics by an id that no topic has."""


def by_name(row: ApiRow) -> str:
    return str(row.key.name)


class World:
    """A broker whose authorizer allows everything while the world is restored, and what requests name in it."""

    def __init__(self, thread: LoopThread[Broker], authorizer: ScriptedAuthorizer) -> None:
        self._thread = thread
        self._authorizer = authorizer
        self.broker = thread.inside
        known = Known(broker_id=self.broker.broker_id, log_dir=self.broker.config.log_dirs[0])
        self._world = KnownWorld(self.broker.bootstrap, known)

    def close(self) -> None:
        self._world.close()

    def restore(self) -> Known:
        self._authorizer.change(everything)
        return self._world.restore()

    def answer(self, row: ApiRow, version: int, rule: Any) -> Message:
        """The response to the small request of this version, decided by `rule`."""
        request = small_request(int(row.key), version, self.restore())
        self.before = self.state()
        self._authorizer.change(rule)
        try:
            return self._send(row, version, request)
        finally:
            self.asked = {question[:2] for question in self._authorizer.asked}

    def _send(self, row: ApiRow, version: int, request: LargeRequest) -> Message:
        with RawClient(self.broker.bootstrap) as client:
            frame = client.call(request.payload())
        start = 4 + (response_header_version(row.key, version) > 0)
        return decode(row.response_class, version, frame, start)

    def state(self) -> dict[str, Any]:
        """What requests may change: the metadata store, the logs, and what groups are."""

        async def look() -> dict[str, Any]:
            broker: Any = self.broker
            partitions = broker.replica_manager.partitions
            return {
                "store": {path: entry.data for path, entry in broker.metadata_store._tree.items()},
                "logs": {
                    str(partition.topic_partition): (
                        partition.log.state.log_start_offset,
                        partition.log.state.log_end_offset,
                    )
                    for partition in partitions
                },
                "groups": sorted(map(repr, broker.coordinators.groups.list_groups([]))),
            }

        return self._thread.call(look())


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with started() as world:
        yield world


@contextmanager
def started() -> Iterator[World]:
    authorizer = ScriptedAuthorizer()
    thread = LoopThread(lambda: broker_with(authorizer, SETTINGS), name="broker with an authorizer")
    thread.start()
    try:
        world = World(thread, authorizer)
        yield world
        world.close()
    finally:
        thread.stop()


def versions(row: ApiRow) -> range:
    return range(row.served.lowest, row.served.highest + 1)


def codes_of(value: Any) -> set[int]:
    """Every error code in a response, but for those of settings, which are of no item."""
    if isinstance(value, list):
        return set().union(*map(codes_of, value))
    if not isinstance(value, Message):
        return set()
    names = ("error_code", "partition_error_code", "topic_config_error_code")
    own = {getattr(value, name) for name in names if name in value.__slots__}
    return own.union(*(codes_of(getattr(value, name)) for name in value.__slots__))


def test_only_what_comes_before_a_login_asks_nothing() -> None:
    assert {row.key for row in api_table().rows() if not row.authorization.checks} == NOT_ASKING


@pytest.mark.parametrize("row", ASKING, ids=by_name)
def test_a_client_that_may_do_nothing_gets_nothing_and_changes_nothing(world: World, row: ApiRow) -> None:
    for version in versions(row):
        response: Any = world.answer(row, version, nothing)
        codes = codes_of(response)
        if row.key in FILTERING:
            assert codes == {ErrorCode.NONE}
            assert not getattr(response, "groups", [])
            assert not getattr(response, "transaction_states", [])
        elif (row.key, version) in WITHOUT_A_PLACE:
            assert response.results == []
        else:
            assert codes & (DENIALS | BEFORE_AUTHORIZATION), f"version {version}: {response!r}"
            assert codes <= DENIALS | BEFORE_AUTHORIZATION | {ErrorCode.NONE}
        assert world.state() == world.before, f"version {version}"


@pytest.mark.parametrize("row", ASKING, ids=by_name)
def test_what_the_row_names_is_enough_and_nothing_else_is_asked(world: World, row: ApiRow) -> None:
    named = {check[:2] for check in row.authorization.checks}
    asked = set()
    for version in versions(row):
        response = world.answer(row, version, only(*named))
        assert not codes_of(response) & DENIALS, f"version {version}: {response!r}"
        asked |= world.asked
        world.answer(row, version, nothing)
        asked |= world.asked
    assert asked <= named | OPERATIONS_SHOWN.get(row.key, set())


@pytest.mark.parametrize("row", [row for row in ROWS if row.key in NOT_ASKING], ids=by_name)
def test_a_client_that_may_do_nothing_may_log_in(world: World, row: ApiRow) -> None:
    for version in versions(row):
        response = world.answer(row, version, nothing)
        assert not codes_of(response) & DENIALS
        assert not world.asked


def test_a_row_without_authorization_is_refused() -> None:
    row: Any = ASKING[0]
    with pytest.raises(TypeError, match="authorization"):
        api_row(row.key, tuple(row.served), row.handler, row.error_response)  # type: ignore[call-arg]


def test_requests_between_brokers_need_cluster_action_and_nothing_else() -> None:
    for row in api_table().rows():
        if row.served == NEVER:
            needed = {check[:2] for check in row.authorization.checks}
            assert needed == {(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER)}, row.key.name
