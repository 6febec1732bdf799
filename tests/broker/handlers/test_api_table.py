"""The API table: the served APIs, and the response of each API to a request that fails as a whole."""

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from kafka.protocol.broker_version_data import infer_broker_version_from_api_versions

from odradek.broker.background.stepwise import finished
from odradek.broker.handlers.api_row import ApiRow
from odradek.broker.handlers.api_table import api_table
from odradek.broker.handlers.telemetry_apis import telemetry_rows
from odradek.broker.handlers.version_history import VERSION_HISTORY
from odradek.broker.peers.inter_broker_protocol import INTER_BROKER_VERSIONS
from odradek.broker.requests.answered_later import answered_later
from odradek.broker.requests.endpoint import Endpoint
from odradek.broker.requests.request_context import ConnectionInfo, RequestContext
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compiler import decode, encode
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.registry import codec_versions
from odradek.protocol.schema import NEVER, Message
from tests.patience import until
from tests.protocol.vector_files import message_vectors, table

T = TypeVar("T")

ROWS = api_table().rows()
APIS = {api["key"]: api for api in table("apis.json")}
"""The APIs of Apache Kafka 3.9 with their versions."""
NEWEST = {api["key"]: api for api in table("kafka_4.4/apis.json")}
"""Those of 4.4."""
WITHOUT_ERROR_CODE = {(ApiKey.DESCRIBE_LOG_DIRS, 0), (ApiKey.DESCRIBE_LOG_DIRS, 1), (ApiKey.DESCRIBE_LOG_DIRS, 2)}
"""These have error codes only per directory; their error response is empty, as in Kafka."""


NOT_SERVED = {
    *range(ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN + 1),
    ApiKey.ALTER_CLIENT_QUOTAS,
    *(ApiKey.DESCRIBE_QUORUM, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER),
    *(ApiKey.UNREGISTER_BROKER, ApiKey.UNREGISTER_CONTROLLER),
    *range(ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_ACKNOWLEDGE + 1),
    *range(ApiKey.INITIALIZE_SHARE_GROUP_STATE, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY + 1),
    *range(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, ApiKey.DELETE_SHARE_GROUP_OFFSETS + 1),
    *(ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_DESCRIBE),
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
}
"""What brokers of 4.4 serve to clients and this one does not, as docs/differences.md says."""


def requests_of(row: ApiRow) -> list[tuple[int, Message]]:
    """Returns Kafka's own test documents of the request in every served version."""
    name = row.request_class.__schema__.name
    return [
        (vector["version"], decode(row.request_class, vector["version"], bytes.fromhex(vector["hex"])))
        for vector in message_vectors(name)
        if row.serves(vector["version"])
    ]


def error_codes(value: Any) -> list[int]:
    if isinstance(value, list):
        return [code for element in value for code in error_codes(element)]
    if isinstance(value, Message):
        own = [getattr(value, name) for name in ("error_code", "partition_error_code") if name in value.__slots__]
        return own + [code for name in value.__slots__ for code in error_codes(getattr(value, name))]
    return []


def test_clients_are_served_the_oldest_versions_of_kafka_3_9_and_the_newest_of_4_4() -> None:
    for row in api_table().client_rows():
        newest = NEWEST[row.key]
        older = APIS.get(row.key, newest)
        assert "ZK_BROKER" in older["listeners"] or "BROKER" in newest["listeners"]
        assert row.served.lowest == min(older["minVersion"], newest["minVersion"]), row.key.name
        assert row.served.highest == newest["maxVersion"], row.key.name


def test_what_brokers_of_kafka_4_4_serve_and_this_one_does_not_is_known() -> None:
    theirs = {key for key, api in NEWEST.items() if "BROKER" in api["listeners"]}
    served = {row.key for row in (*api_table().client_rows(), *telemetry_rows())}
    assert theirs - served == NOT_SERVED


def test_kafka_python_infers_one_of_the_releases_with_these_versions() -> None:
    """It derives features from the release."""
    table = {int(row.key): tuple(row.served) for row in api_table().client_rows()}
    assert infer_broker_version_from_api_versions(table) == (4, 3)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.key.name))
def test_a_row_is_for_all_listeners_or_between_brokers_and_known_to_the_codec(row: ApiRow) -> None:
    assert (row.served == NEVER) != (row.between_brokers == NEVER)
    known = codec_versions(row.key)
    for versions in (row.served, row.between_brokers):
        assert versions == NEVER or known.lowest <= versions.lowest <= versions.highest <= known.highest


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.key.name))
def test_the_history_tells_of_each_version_above_those_of_kafka_3_0(row: ApiRow) -> None:
    told = VERSION_HISTORY.get(row.key, {})
    first = min(told, default=row.served.highest + 1)
    assert set(range(first, row.served.highest + 1)) <= told.keys()
    assert all(version in codec_versions(row.key) for version in told)


def test_the_versions_of_requests_between_brokers_are_served() -> None:
    for row in ROWS:
        if row.key in INTER_BROKER_VERSIONS:
            assert row.serves(INTER_BROKER_VERSIONS[row.key])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.key.name))
def test_a_request_that_fails_as_a_whole_is_answered_in_every_version(row: ApiRow) -> None:
    requests = requests_of(row)
    known = codec_versions(row.key)
    assert {version for version, _ in requests} == set(filter(row.serves, range(known.lowest, known.highest + 1)))
    for version, request in requests:
        response = finished(row.error_response(request, ErrorCode.POLICY_VIOLATION, "why"))
        read_again = decode(row.response_class, version, encode(response, version))
        codes = set(error_codes(read_again)) - {0}
        if (row.key, version) in WITHOUT_ERROR_CODE:
            assert codes == set()
        elif names_something(row, request):
            assert codes == {ErrorCode.POLICY_VIOLATION}
        else:
            assert codes <= {ErrorCode.POLICY_VIOLATION}


def names_something(row: ApiRow, request: Any) -> bool:
    """Whether the request contains an item that an error can be returned for."""
    if row.partitions_asked is not None and row.bound_from_bytes:
        return sum(row.partitions_asked(request)) > 0
    arrays = [field.attribute for field in request.__schema__.fields if field.type == "array"]
    return not arrays or any(getattr(request, name) for name in arrays)


@pytest.mark.parametrize("row", [row for row in ROWS if row.partitions_asked], ids=lambda row: str(row.key.name))
def test_a_short_request_cannot_name_too_many_partitions(row: ApiRow) -> None:
    """Requests below `bound_from_bytes` are not counted, so the table's minimum size per partition must be right."""
    assert row.partitions_asked is not None
    for version, request in requests_of(row):
        if row.bound_from_bytes:
            assert sum(row.partitions_asked(request)) * 4 <= len(encode(request, version))


def test_too_many_new_partitions_are_refused_whatever_the_request_size() -> None:
    table = api_table()
    create = table.row(ApiKey.CREATE_TOPICS)
    add = table.row(ApiKey.CREATE_PARTITIONS)
    assert create is not None
    assert add is not None
    assert create.bound_from_bytes == add.bound_from_bytes == 0
    topic: Any = next(
        field for field in create.request_class.__schema__.fields if field.attribute == "topics"
    ).structure
    for count, refused in ((10_000, False), (10_001, True)):
        request: Any = create.request_class(topics=[topic(name="t", num_partitions=count)])
        if refused:
            with pytest.raises(ProtocolError) as caught:
                create.check_bound(request)
            assert caught.value.code is ErrorCode.POLICY_VIOLATION
        else:
            create.check_bound(request)


def spawn(coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    return asyncio.get_running_loop().create_task(coroutine, name=name)


def spawn_and_cancel(coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    task = spawn(coroutine, name)
    task.cancel()
    return task


CONNECTION = ConnectionInfo(Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092, "127.0.0.1", 9092))
CONTEXT = RequestContext(CONNECTION, 3, 1, 1, None, 0)


async def test_an_asynchronous_handler_completes_its_response_with_its_result_or_exception() -> None:
    async def handler(request: Any, context: RequestContext) -> str:
        if request == "bad":
            raise ProtocolError(ErrorCode.INVALID_REQUEST)
        return f"{request} done"

    good, bad = (answered_later(handler(text, CONTEXT), CONTEXT, spawn) for text in ("good", "bad"))
    assert not good.settled
    await until(lambda: all(pending.settled for pending in (good, bad)))
    assert good.result() == "good done"
    with pytest.raises(ProtocolError):
        bad.result()


async def test_a_handler_whose_task_is_canceled_before_it_begins_leaves_nothing_behind() -> None:
    """A broker that stops cancels the tasks of the requests that have just come."""
    begun: list[bool] = []

    async def handler() -> None:
        begun.append(True)

    handling = handler()
    pending = answered_later(handling, CONTEXT, spawn_and_cancel)
    await until(lambda: inspect.getcoroutinestate(handling) == inspect.CORO_CLOSED)
    assert not begun
    assert not pending.settled
