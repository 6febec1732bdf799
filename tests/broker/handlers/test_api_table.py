"""The API table: the served APIs, and the response of each API to a request that fails as a whole."""

import json
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.background.stepwise import finished
from odradek.broker.handlers.answered_later import answered_later
from odradek.broker.handlers.api_row import ApiRow
from odradek.broker.handlers.api_table import api_table
from odradek.broker.peers.inter_broker_protocol import INTER_BROKER_VERSIONS
from odradek.broker.requests.endpoint import Endpoint
from odradek.broker.requests.request_context import ConnectionInfo, RequestContext
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compiler import decode, encode
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.registry import codec_versions
from odradek.protocol.schema import NEVER, Message

VECTORS = Path(__file__).parents[2] / "vectors" / "messages"
ROWS = api_table().rows()
KAFKA_3_0 = {
    "PRODUCE": (0, 9),
    "FETCH": (0, 12),
    "LIST_OFFSETS": (0, 7),
    "TXN_OFFSET_COMMIT": (0, 3),
    "OFFSET_DELETE": (0, 0),
    "OFFSET_FETCH": (0, 8),
    "OFFSET_COMMIT": (0, 8),
    "METADATA": (0, 11),
    "FIND_COORDINATOR": (0, 4),
    "SASL_HANDSHAKE": (0, 1),
    "API_VERSIONS": (0, 3),
    "CREATE_TOPICS": (0, 7),
    "DELETE_TOPICS": (0, 6),
    "DELETE_RECORDS": (0, 2),
    "JOIN_GROUP": (0, 7),
    "HEARTBEAT": (0, 4),
    "LEAVE_GROUP": (0, 4),
    "SYNC_GROUP": (0, 5),
    "DESCRIBE_GROUPS": (0, 5),
    "LIST_GROUPS": (0, 4),
    "DELETE_GROUPS": (0, 2),
    "INIT_PRODUCER_ID": (0, 4),
    "ADD_PARTITIONS_TO_TXN": (0, 3),
    "ADD_OFFSETS_TO_TXN": (0, 3),
    "END_TXN": (0, 3),
    "WRITE_TXN_MARKERS": (0, 1),
    "DESCRIBE_TRANSACTIONS": (0, 0),
    "LIST_TRANSACTIONS": (0, 0),
    "OFFSET_FOR_LEADER_EPOCH": (0, 4),
    "ALTER_REPLICA_LOG_DIRS": (0, 2),
    "DESCRIBE_ACLS": (0, 2),
    "CREATE_ACLS": (0, 2),
    "DELETE_ACLS": (0, 2),
    "ELECT_LEADERS": (0, 2),
    "ALTER_PARTITION_REASSIGNMENTS": (0, 0),
    "LIST_PARTITION_REASSIGNMENTS": (0, 0),
    "DESCRIBE_CONFIGS": (0, 4),
    "ALTER_CONFIGS": (0, 2),
    "DESCRIBE_LOG_DIRS": (0, 2),
    "SASL_AUTHENTICATE": (0, 2),
    "CREATE_PARTITIONS": (0, 3),
    "INCREMENTAL_ALTER_CONFIGS": (0, 1),
    "DESCRIBE_CLUSTER": (0, 0),
    "DESCRIBE_PRODUCERS": (0, 0),
}
"""Apache Kafka 3.0's ApiVersions response of a ZooKeeper-mode broker, without APIs that are not served yet."""
WITHOUT_ERROR_CODE = {(ApiKey.DESCRIBE_LOG_DIRS, 0), (ApiKey.DESCRIBE_LOG_DIRS, 1), (ApiKey.DESCRIBE_LOG_DIRS, 2)}
"""These have error codes only per directory; their error response is empty, as in Kafka."""


def requests_of(row: ApiRow) -> list[tuple[int, Message]]:
    """Returns Kafka's own test documents of the request in every served version."""
    name = row.request_class.__schema__.name
    vectors = [json.loads(line) for line in (VECTORS / f"{name}.jsonl").read_text().splitlines()]
    return [
        (vector["version"], decode(row.request_class, vector["version"], bytes.fromhex(vector["hex"])))
        for vector in vectors
        if row.serves(vector["version"])
    ]


def error_codes(value: Any) -> list[int]:
    if isinstance(value, list):
        return [code for element in value for code in error_codes(element)]
    if isinstance(value, Message):
        own = [getattr(value, name) for name in ("error_code", "partition_error_code") if name in value.__slots__]
        return own + [code for name in value.__slots__ for code in error_codes(getattr(value, name))]
    return []


def test_the_advertised_versions_of_served_apis_are_those_of_kafka_3_0() -> None:
    assert {row.key.name: tuple(row.advertised) for row in api_table().client_rows()} == KAFKA_3_0


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.key.name))
def test_advertised_versions_are_served_and_served_versions_are_known_to_the_codec(row: ApiRow) -> None:
    known = codec_versions(row.key)
    if row.served != NEVER:
        assert known.lowest <= row.served.lowest <= row.advertised.lowest
        assert row.advertised.highest <= row.served.highest <= known.highest
    if row.between_brokers != NEVER:
        assert known.lowest <= row.between_brokers.lowest <= row.between_brokers.highest <= known.highest


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.key.name))
def test_another_broker_is_shown_one_range_that_is_served(row: ApiRow) -> None:
    shown = row.advertised_to_brokers
    assert all(row.serves(version) for version in range(shown.lowest, shown.highest + 1))
    assert shown.highest == max(row.advertised.highest, row.between_brokers.highest)


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


class Spawns:
    def __init__(self) -> None:
        self.coroutines: list[Any] = []

    def spawn(self, coroutine: Any, name: str) -> Any:
        self.coroutines.append(coroutine)


async def test_an_asynchronous_handler_completes_its_response_with_its_result_or_exception() -> None:
    async def handler(request: Any, context: RequestContext) -> str:
        if request == "bad":
            raise ProtocolError(ErrorCode.INVALID_REQUEST)
        return f"{request} done"

    spawns = Spawns()
    connection = ConnectionInfo(Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092, "127.0.0.1", 9092))
    context = RequestContext(connection, 3, 1, 1, None, 0)
    good, bad = (answered_later(handler(text, context), context, spawns.spawn) for text in ("good", "bad"))
    assert not good.settled
    for coroutine in spawns.coroutines:
        await coroutine
    assert good.result() == "good done"
    with pytest.raises(ProtocolError):
        bad.result()
