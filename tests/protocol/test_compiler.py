"""Guarantees of the compiled readers and writers beyond the vectors."""

from __future__ import annotations

import inspect
import linecache
import traceback
from typing import Any
from uuid import UUID

import pytest

from odradek.protocol.compiler import decode, encode, encode_parts, reader_of, writer_of
from odradek.protocol.errors import ErrorCode, MalformedMessage, UnwritableMessage
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.produce import ProduceRequest, ProduceResponse
from odradek.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from odradek.protocol.messages.topics import CreateTopicsResponse
from odradek.protocol.schema import Message, array, int8, int32, message, since, string, structure, until


class FileSlice:
    """Records that are sent without being read: only their length is known."""

    def __len__(self) -> int:
        return 5000


def partition_with(records: Any) -> FetchResponse:
    data = FetchResponse.PartitionData(partition_index=3, high_watermark=9, records=records)
    return FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=[data])])


@pytest.mark.parametrize("version", [4, 11, 12])
def test_records_are_written_by_reference(version: int) -> None:
    records = bytes(5000)
    parts: list[Any] = []
    assert encode_parts(partition_with(records), version, parts) == sum(map(len, parts))
    assert any(part is records for part in parts)
    assert b"".join(parts) == encode(partition_with(records), version)


@pytest.mark.parametrize("version", [4, 11, 12])
def test_records_that_are_not_bytes_are_a_part_of_their_own(version: int) -> None:
    records = FileSlice()
    parts: list[Any] = []
    encode_parts(partition_with(records), version, parts)
    place = parts.index(records)
    whole = b"".join([*parts[:place], bytes(5000), *parts[place + 1 :]])
    assert whole == encode(partition_with(bytes(5000)), version)


def test_decoded_records_belong_to_the_message() -> None:
    body = encode(
        ProduceRequest(
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name="t", partition_data=[ProduceRequest.PartitionProduceData(records=b"batch")]
                )
            ]
        ),
        9,
    )
    read = decode(ProduceRequest, 9, body).topic_data[0].partition_data[0].records
    assert type(read) is bytes
    assert read == b"batch"


def test_fields_that_a_version_does_not_have_keep_kafkas_defaults() -> None:
    request = decode(FetchRequest, 0, encode(FetchRequest(max_bytes=5, session_id=7, topics=[]), 0))
    assert request.max_bytes == 0x7FFFFFFF
    assert (request.session_id, request.session_epoch) == (0, -1)
    assert request.forgotten_topics_data == []
    assert request.replica_state is None


def test_two_messages_do_not_share_a_list() -> None:
    FetchRequest().topics.append(FetchRequest.FetchTopic())
    assert FetchRequest().topics == []
    first, second = (decode(FetchRequest, 11, encode(FetchRequest(), 11)) for _ in range(2))
    assert first.topics is not second.topics


def test_an_attribute_that_does_not_exist_is_refused() -> None:
    with pytest.raises(AttributeError):
        FetchRequest().max_wait = 5  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        FetchRequest(max_wait=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        FetchRequest(5)  # type: ignore[misc, arg-type]


def test_messages_are_equal_if_all_their_fields_are_equal() -> None:
    assert partition_with(b"x") == partition_with(b"x")
    assert partition_with(b"x") != partition_with(b"y")
    tagged = partition_with(b"x")
    tagged.unknown_tagged_fields = [(9, b"z")]
    assert tagged != partition_with(b"x")
    assert FetchRequest() != FetchResponse()
    assert "high_watermark=9" in repr(partition_with(b"x"))


def test_a_tagged_structure_with_its_default_is_never_written() -> None:
    nothing = FetchResponse.PartitionData()
    default = FetchResponse.PartitionData(diverging_epoch=FetchResponse.EpochEndOffset())
    other = FetchResponse.PartitionData(diverging_epoch=FetchResponse.EpochEndOffset(epoch=4, end_offset=2))
    written = [
        encode(FetchResponse(responses=[FetchResponse.FetchableTopicResponse(partitions=[data])]), 12)
        for data in (nothing, default, other)
    ]
    assert written[0] == written[1] != written[2]
    partition = decode(FetchResponse, 12, written[2]).responses[0].partitions[0]
    assert partition == other


def test_known_and_unknown_tags_are_written_in_ascending_order() -> None:
    request = FetchRequest(cluster_id="c", replica_state=FetchRequest.ReplicaState(replica_id=4))
    request.unknown_tagged_fields = [(2, b"two"), (300, b"far")]
    again = decode(FetchRequest, 15, encode(request, 15))
    assert again == request
    request.unknown_tagged_fields = [(1, b"this one is known")]
    with pytest.raises(UnwritableMessage, match="ascend"):
        encode(request, 15)


@pytest.mark.parametrize(
    "message",
    [
        SaslHandshakeRequest(mechanism=None),  # type: ignore[arg-type]
        SaslHandshakeRequest(mechanism=5),  # type: ignore[arg-type]
        SaslHandshakeRequest(mechanism="x" * 32768),
        SaslHandshakeRequest(mechanism="\ud800"),
        MetadataRequest(topics=None),
        FetchRequest(max_wait_ms=1 << 31),
        FetchRequest(max_wait_ms="5"),  # type: ignore[arg-type]
        FetchRequest(topics=5),  # type: ignore[arg-type]
        FetchRequest(topics=[5]),  # type: ignore[list-item]
    ],
)
def test_values_that_the_wire_cannot_represent_are_refused(message: Message) -> None:
    with pytest.raises(UnwritableMessage, match=f"^{type(message).__name__} v0: "):
        encode(message, 0)


def test_strings_are_limited_to_32767_bytes_in_every_version() -> None:
    longest = "x" * 32767
    for version in (0, 5):
        assert len(
            encode(CreateTopicsResponse(topics=[CreateTopicsResponse.CreatableTopicResult(name=longest)]), version)
        )
        with pytest.raises(UnwritableMessage):
            encode(
                CreateTopicsResponse(topics=[CreateTopicsResponse.CreatableTopicResult(name=longest + "x")]), version
            )


def test_bytes_can_be_longer_than_strings() -> None:
    for version in (0, 2):
        body = encode(SaslAuthenticateRequest(auth_bytes=bytes(3_000_000)), version)
        assert len(decode(SaslAuthenticateRequest, version, body).auth_bytes) == 3_000_000


def test_an_error_code_is_written_as_its_number() -> None:
    response = ProduceResponse.PartitionProduceResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    body = encode(ProduceResponse(responses=[ProduceResponse.TopicProduceResponse(partition_responses=[response])]), 9)
    assert decode(ProduceResponse, 9, body).responses[0].partition_responses[0].error_code == 6


def test_topic_ids_are_uuids() -> None:
    topic_id = UUID("6d2a0d8e-95ea-4d4a-a1f0-000000000001")
    body = encode(FetchRequest(topics=[FetchRequest.FetchTopic(topic_id=topic_id)]), 13)
    assert decode(FetchRequest, 13, body).topics[0].topic_id == topic_id
    assert isinstance(decode(FetchRequest, 13, body).topics[0].topic_id, UUID)


def test_compiled_source_can_be_inspected() -> None:
    reader, writer = reader_of(FetchRequest, 11), writer_of(FetchRequest, 11)
    linecache.checkcache()
    assert "unpack_from" in inspect.getsource(reader)
    assert inspect.getsource(writer).startswith("def writer(")
    with pytest.raises(MalformedMessage) as refused:
        reader(b"", 0)
    assert "raise cut_short" in "".join(traceback.format_exception(refused.value))


def test_a_reader_is_compiled_once() -> None:
    assert reader_of(FetchRequest, 4) is reader_of(FetchRequest, 4)
    assert writer_of(FetchRequest, 4) is writer_of(FetchRequest, 4)


@message(kind="data", versions=(0, 2), flexible=1)
class Plant(Message):
    """Shapes that no message of Kafka 3.9's client has: nullable structures, in the body and tagged."""

    class Leaf(Message):
        length: int = int32(default=7)

    stem: Leaf | None = structure(default=None, nullable=since(0))
    bud: Leaf | None = structure(default=None, versions=since(1), nullable=since(1), tag=0)
    names: list[str] | None = array(string, default=None, versions=since(1), nullable=since(1), tag=4)
    old: int = int8(default=3, versions=until(0))


def test_a_nullable_structure_begins_with_a_marker_byte() -> None:
    assert encode(Plant(), 0) == b"\xff\x03"
    assert encode(Plant(stem=Plant.Leaf()), 0) == b"\x01\x00\x00\x00\x07\x03"
    assert encode(Plant(stem=Plant.Leaf(length=1)), 1) == b"\x01\x00\x00\x00\x01\x00\x00"
    assert decode(Plant, 0, b"\xff\x03") == Plant()
    assert decode(Plant, 0, b"\x00\x00\x00\x00\x09\x03") == Plant(stem=Plant.Leaf(length=9))


def test_a_nullable_tagged_structure_begins_with_a_varint() -> None:
    plant = Plant(bud=Plant.Leaf(length=2), names=["a", "bc"])
    data = encode(plant, 1)
    assert data == b"\xff\x02\x00\x06\x01\x00\x00\x00\x02\x00\x04\x06\x03\x02a\x03bc"
    assert decode(Plant, 1, data) == plant
    assert decode(Plant, 1, b"\xff\x01\x00\x01\x00") == Plant()
