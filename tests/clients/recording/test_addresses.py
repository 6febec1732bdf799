"""Every response with addresses names those of the proxy, in every version."""

from __future__ import annotations

import pytest

from odradek.clients.recording.addresses import (
    FIRST_WITH_ADDRESSES,
    addresses_in,
    is_unreadable,
    limit_versions,
    may_have_addresses,
    replace_addresses,
)
from odradek.clients.recording.conversation import Asked
from odradek.clients.recording.decoding import decoded_response
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.api_versions import ApiVersionsResponse
from odradek.protocol.messages.cluster import DescribeClusterResponse
from odradek.protocol.messages.fetch import FetchResponse
from odradek.protocol.messages.find_coordinator import FindCoordinatorResponse
from odradek.protocol.messages.metadata import MetadataResponse
from odradek.protocol.messages.produce import ProduceResponse
from odradek.protocol.messages.registry import API_KEYS, codec_versions, response_class
from odradek.protocol.messages.share_groups import ShareAcknowledgeResponse, ShareFetchResponse
from odradek.protocol.schema import Message
from tests.clients.recording.requests import key_of, response_frame

HOST, PORT = "kafka-1.internal", 9092
RESPONSES: list[Message] = [
    MetadataResponse(brokers=[MetadataResponse.MetadataResponseBroker(node_id=1, host=HOST, port=PORT)]),
    FindCoordinatorResponse(
        host=HOST, port=PORT, coordinators=[FindCoordinatorResponse.Coordinator(key="g", host=HOST, port=PORT)]
    ),
    DescribeClusterResponse(brokers=[DescribeClusterResponse.DescribeClusterBroker(broker_id=1, host=HOST, port=PORT)]),
    ProduceResponse(node_endpoints=[ProduceResponse.NodeEndpoint(node_id=1, host=HOST, port=PORT)]),
    FetchResponse(node_endpoints=[FetchResponse.NodeEndpoint(node_id=1, host=HOST, port=PORT)]),
    ShareFetchResponse(node_endpoints=[ShareFetchResponse.NodeEndpoint(node_id=1, host=HOST, port=PORT)]),
    ShareAcknowledgeResponse(node_endpoints=[ShareAcknowledgeResponse.NodeEndpoint(node_id=1, host=HOST, port=PORT)]),
]
OF_CONTROLLERS = {
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.UPDATE_RAFT_VOTER,
}
OF_APPLICATIONS = {ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_DESCRIBE}


@pytest.mark.parametrize("response", RESPONSES, ids=lambda response: type(response).__name__)
def test_addresses_are_replaced_in_every_version_that_has_them(response: Message) -> None:
    versions = codec_versions(key_of(response))
    first = FIRST_WITH_ADDRESSES[key_of(response)]
    for version in range(versions.lowest, versions.highest + 1):
        frame = response_frame(response, version)
        asked = Asked(key_of(response), version, 1, "tester", 0)
        assert (HOST.encode() in frame) == (version >= first) == may_have_addresses(asked)
        if version < first:
            continue
        decoded = decoded_response(asked, frame)
        assert decoded is not None
        assert addresses_in(decoded.message) == {(HOST, PORT)}
        replace_addresses(decoded.message, {(HOST, PORT): 4711}, "127.0.0.1")
        again = decoded_response(asked, decoded.with_message(decoded.message))
        assert again is not None
        assert addresses_in(again.message) == {("127.0.0.1", 4711)}


def test_no_other_response_names_a_broker() -> None:
    def names_a_host(cls: type[Message]) -> bool:
        fields = cls.__schema__.fields
        return {"Host", "Port"} <= {field.name for field in fields} or any(
            field.struct_class is not None and names_a_host(field.struct_class) for field in fields
        )

    named = {key for key in API_KEYS if names_a_host(response_class(key))}
    assert named == {*FIRST_WITH_ADDRESSES, *OF_CONTROLLERS, *OF_APPLICATIONS}


def test_a_missing_coordinator_has_no_address() -> None:
    assert addresses_in(FindCoordinatorResponse(error_code=15, node_id=-1, host="", port=-1)) == set()


def test_versions_whose_addresses_could_not_be_replaced_are_not_offered() -> None:
    offered = [
        (ApiKey.METADATA, 99),
        (ApiKey.API_VERSIONS, 99),
        (ApiKey.FETCH, 99),
        (ApiKey.HEARTBEAT, 9),
        (ApiKey.SHARE_FETCH, 0),
        (ApiKey.SHARE_ACKNOWLEDGE, 9),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1),
        (999, 5),
    ]
    response = ApiVersionsResponse(
        api_keys=[ApiVersionsResponse.ApiVersion(api_key=key, max_version=highest) for key, highest in offered]
    )
    limit_versions(response)
    assert {entry.api_key: entry.max_version for entry in response.api_keys} == {
        ApiKey.METADATA: codec_versions(ApiKey.METADATA).highest,
        ApiKey.API_VERSIONS: codec_versions(ApiKey.API_VERSIONS).highest,
        ApiKey.FETCH: codec_versions(ApiKey.FETCH).highest,
        ApiKey.HEARTBEAT: 9,
        ApiKey.SHARE_ACKNOWLEDGE: codec_versions(ApiKey.SHARE_ACKNOWLEDGE).highest,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: 1,
        999: 5,
    }


def test_a_request_whose_response_could_not_be_read_is_known() -> None:
    assert is_unreadable(Asked(ApiKey.METADATA, 99, 1, None, 0))
    assert is_unreadable(Asked(ApiKey.SHARE_FETCH, 0, 1, None, 0))
    assert not is_unreadable(Asked(ApiKey.METADATA, 12, 1, None, 0))
    assert not is_unreadable(Asked(ApiKey.HEARTBEAT, 99, 1, None, 0))
    assert not is_unreadable(Asked(ApiKey.API_VERSIONS, 99, 1, None, 0))
    assert not is_unreadable(Asked(999, 0, 1, None, 0))
