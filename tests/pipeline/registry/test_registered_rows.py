"""Records in a registry's frame become rows: Apicurio has the schemas, and Confluent's serializers made the frames."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.message_factory import GetMessageClass

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs import ingest
from odradek.pipeline.jobs.doctor import examine
from odradek.pipeline.report.findings import OK, PROBLEM
from odradek.pipeline.settings import Settings
from odradek.pipeline.state.places import Places
from odradek.testing import BrokerThread
from tests.pipeline.lake import check_ledger, read_by_arrow
from tests.pipeline.registry.registry_front import RegistryFront

pytestmark = pytest.mark.usefixtures("spark")
UNKNOWN_ID = 999_999


@pytest.fixture(autouse=True)
def _no_second_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.pipeline.registry.client.RETRY_S", 0)


def avro_schema(amount: str, *more: dict[str, Any]) -> str:
    fields = [{"name": "id", "type": "long"}, {"name": "amount", "type": amount}, *more]
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": fields})


def framed(number: int, payload: bytes = b"") -> bytes:
    return b"\0" + struct.pack(">i", number) + payload


def produce(broker: BrokerThread, topic: str, values: Iterable[bytes | None]) -> None:
    """All to one partition, so that their order is known."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def settings_of(orders: Settings, registry: str, form: str, **more: Any) -> Settings:
    return replace(orders, format=form, schema="", schema_registry=registry, event_time="", required=("id",), **more)


def rows_of(settings: Settings, *columns: str) -> list[tuple[Any, ...]]:
    found = read_by_arrow(Places.of(settings).rows, ["_offset", *columns])
    return [tuple(row[name] for name in columns) for row in sorted(found, key=lambda row: row["_offset"])]


def letters_of(settings: Settings) -> list[tuple[str, str]]:
    found = read_by_arrow(Places.of(settings).dead_letters, ["offset", "reason", "detail"])
    return [(row["reason"], row["detail"]) for row in sorted(found, key=lambda row: row["offset"])]


def test_avro_of_two_versions_becomes_rows_with_the_columns_of_both(
    schema_registry: str, broker: BrokerThread, orders: Settings, topic: str
) -> None:
    client = SchemaRegistryClient({"url": schema_registry})
    note = {"name": "note", "type": ["null", "string"], "default": None}
    first = AvroSerializer(client, avro_schema("int"))
    second = AvroSerializer(client, avro_schema("int", note))
    other = client.register_schema(f"{topic}-other", Schema('{"type": "string"}', "AVRO"))
    produce(broker, topic, [first({"id": number, "amount": number}, context(topic)) for number in range(3)])
    settings = settings_of(orders, schema_registry, "avro")
    assert ingest.run(settings) == 0
    assert rows_of(settings, "id", "amount") == [(0, 0), (1, 1), (2, 2)]

    good = second({"id": 7, "amount": 7, "note": "new"}, context(topic))
    broken = [None, b"", b"\0", b"\0\0\0\0", b"\1" + good[1:], framed(UNKNOWN_ID, good[5:]), framed(-2), framed(other)]
    produce(broker, topic, [good, *broken, good[:-1], first({"id": 8, "amount": 8}, context(topic))])
    assert ingest.run(settings) == 0
    assert rows_of(settings, "id", "amount", "note")[3:] == [(7, 7, "new"), (8, 8, None)]
    assert [reason for reason, _ in letters_of(settings)] == [
        *("tombstone", "not_framed", "not_framed", "not_framed", "not_framed"),
        *("unknown_schema", "unknown_schema", "unfit_schema", "not_avro"),
    ]
    details = [detail for _, detail in letters_of(settings)]
    assert details[5] == f"the registry has no schema {UNKNOWN_ID}"
    assert details[7] == f"schema {other}: the Avro schema is not a record"
    assert [(row.rows_in, row.good, row.dead) for row in check_ledger(settings)] == [(3, 3, 0), (11, 2, 9)]


def test_json_becomes_rows_and_a_type_that_no_column_can_have_is_dead(
    schema_registry: str, broker: BrokerThread, orders: Settings, topic: str
) -> None:
    client = SchemaRegistryClient({"url": schema_registry})
    properties: dict[str, Any] = {"id": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}}

    def schema(**more: Any) -> str:
        return json.dumps({"title": "Order", "type": "object", "properties": {**properties, **more}})

    at, tags = "2024-01-01T10:00:00Z", {"type": ["null", "array"], "items": {"type": "string"}}
    first = JSONSerializer(schema(), client)({"id": 1, "at": at}, context(topic))
    second = JSONSerializer(schema(tags=tags), client)({"id": 2, "at": at, "tags": ["a", "b"]}, context(topic))
    unfit = client.register_schema(f"{topic}-unfit", Schema(schema(id={"type": "string"}), "JSON"))
    assert first is not None
    produce(broker, topic, [first, second, framed(unfit, b'{"id": "three"}'), first[:5] + b"{"])
    settings = replace(settings_of(orders, schema_registry, "json"), event_time="at")
    assert ingest.run(settings) == 0
    assert rows_of(settings, "id", "tags") == [(1, None), (2, ["a", "b"])]
    assert [reason for reason, _ in letters_of(settings)] == ["unfit_schema", "not_json"]
    assert letters_of(settings)[0][1].endswith("id is STRING, but it was LONG")


def order_class(package: str, *more: tuple[str, int]) -> Any:
    """The class of a message with an id, a time and a line, and of more fields."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}/order.proto", package=package, syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.message_type.add(name="Other").field.add(name="x", number=1, type=Field.TYPE_INT32, label=1)
    order = file.message_type.add(name="Order")
    order.nested_type.add(name="Line").field.add(name="item", number=1, type=Field.TYPE_STRING, label=1)
    order.field.add(name="id", number=1, type=Field.TYPE_INT64, label=1)
    order.field.add(name="at", number=2, type=Field.TYPE_MESSAGE, label=1, type_name=".google.protobuf.Timestamp")
    order.field.add(name="lines", number=3, type=Field.TYPE_MESSAGE, label=3, type_name=f".{package}.Order.Line")
    for number, (name, kind) in enumerate(more, 4):
        order.field.add(name=name, number=number, type=kind, label=1)
    descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
    return GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(f"{package}.Order"))


def test_protobuf_of_a_descriptor_and_of_a_text_becomes_rows(
    schema_registry: str, broker: BrokerThread, orders: Settings, topic: str
) -> None:
    client = SchemaRegistryClient({"url": schema_registry})
    package = f"shop{topic.removeprefix('orders-')}"
    kind = order_class(package)
    serializer = ProtobufSerializer(kind, client, {"use.deprecated.format": False})
    message = kind(id=1, at=timestamp_pb2.Timestamp(seconds=1_704_067_200), lines=[{"item": "spool"}])
    first = serializer(message, context(topic))
    text = f"""
        syntax = "proto3";
        package {package};
        import "google/protobuf/timestamp.proto";
        message Other {{ int32 x = 1; }}
        message Order {{
          message Line {{ string item = 1; uint32 count = 2; }}
          int64 id = 1;
          google.protobuf.Timestamp at = 2;
          repeated Line lines = 3;
          string customer = 4;
        }}
    """
    number = client.register_schema(f"{topic}-text", Schema(text, "PROTOBUF"))
    line = b"\x1a\x09\x0a\x05spool\x10\x02"
    assert first[5:7] == b"\x02\x02", "one index, which is 1"
    second = framed(number, b"\x02\x02" + b"\x08\x02" + line + b"\x22\x03ada")
    of_other = framed(number, b"\0\x08\x01")
    produce(broker, topic, [first, second, of_other, second[:-1]])
    settings = settings_of(orders, schema_registry, "protobuf", message_name=f"{package}.Order")
    assert ingest.run(settings) == 0
    assert rows_of(settings, "id", "customer", "lines") == [
        (1, None, [{"item": "spool", "count": None}]),
        (2, "ada", [{"item": "spool", "count": 2}]),
    ]
    assert [str(at) for (at,) in rows_of(settings, "at")] == ["2024-01-01 00:00:00+00:00", "None"]
    assert [reason for reason, _ in letters_of(settings)] == ["not_protobuf", "not_protobuf"]
    assert "its frame names the message [0] of the schema, not [1]" in letters_of(settings)[0][1]


class Killed(BaseException):
    """Stands for a kill of the process: no code handles it."""


def stop_at(settings: Settings, point: str) -> None:
    """Runs an ingest that is killed at the point."""

    def reached(now: str) -> None:
        if now == point:
            raise Killed

    with pytest.raises(Killed):
        ingest.run(settings, reached)


def test_a_type_that_widens_widens_the_tables_and_a_kill_at_any_step_loses_nothing(
    front: RegistryFront, broker: BrokerThread, orders: Settings, topic: str
) -> None:
    client = SchemaRegistryClient({"url": front.url})
    narrow, wide = (AvroSerializer(client, avro_schema(kind)) for kind in ("int", "long"))
    unfit = AvroSerializer(client, avro_schema("double"))
    settings = replace(
        settings_of(orders, front.url, "avro"), window="1 hour", window_by=("id",), window_sums=("amount",)
    )
    produce(broker, topic, [narrow({"id": 1, "amount": 1}, context(topic)), b"\0"])
    assert ingest.run(settings) == 0
    produce(broker, topic, [wide({"id": 2, "amount": 2**40}, context(topic)), b"\0", framed(UNKNOWN_ID)])
    produce(broker, topic, [unfit({"id": 3, "amount": 2.5}, context(topic))])
    for point in ("rows: columns grown", "read", "dead_letters: committed", "windows: committed", "rows: committed"):
        stop_at(settings, point)
    front.down = True
    finished = list(front.asked)
    with pytest.raises(PipelineError, match="does not answer"):
        ingest.run(settings)
    assert [(row.rows_in, row.good, row.dead) for row in check_ledger(settings)] == [(2, 1, 1), (4, 1, 3)], (
        "the batch is finished by its plan, without the registry"
    )
    assert len(front.asked) > len(finished), "and then the registry is asked"
    front.down = False
    assert ingest.run(settings) == 0
    assert rows_of(settings, "id", "amount") == [(1, 1), (2, 2**40)]
    assert [reason for reason, _ in letters_of(settings)] == [
        *("not_framed", "not_framed", "unknown_schema", "unfit_schema")
    ]
    windows = read_by_arrow(Places.of(settings).windows, ["id", "count", "sum_amount"])
    assert sorted(tuple(row.values()) for row in windows) == [(1, 1, 1), (2, 1, 2**40)]


def found_by_the_doctor(settings: Settings, state: str) -> str:
    (found,) = (one.says for one in examine(settings) if (one.subject, one.state) == ("registry", state))
    return found


def test_the_faults_of_a_registry_end_the_job_before_anything_is_written(
    front: RegistryFront, broker: BrokerThread, orders: Settings, topic: str
) -> None:
    client = SchemaRegistryClient({"url": front.url})
    settings = settings_of(orders, front.url, "avro")
    with pytest.raises(PipelineError, match=f"has no subject {topic}-value; register the schema"):
        ingest.run(settings)
    assert f"has no subject {topic}-value" in found_by_the_doctor(settings, PROBLEM)
    first = AvroSerializer(client, avro_schema("int"))
    second = AvroSerializer(client, avro_schema("long"))
    produce(broker, topic, [first({"id": 1, "amount": 1}, context(topic))])
    front.down = True
    with pytest.raises(PipelineError, match="does not answer"):
        ingest.run(settings)
    front.down = False
    assert ingest.run(settings) == 0

    assert found_by_the_doctor(settings, OK) == f"{front.url} has 1 known schema(s) as before"
    new = second({"id": 2, "amount": 2**40}, context(topic))
    produce(broker, topic, [new, framed(UNKNOWN_ID)])
    known, unknown = (f"/schemas/ids/{number}" for number in (struct.unpack(">i", new[1:5])[0], UNKNOWN_ID))
    for path, answer, says in (
        (known, (500, b""), "answers 500"),
        (known, (404, b"<html>"), "answers 404"),
        (unknown, (503, b""), "answers 503"),
    ):
        front.answers = {path: answer}
        with pytest.raises(PipelineError, match=f"{says} to {path}"):
            ingest.run(settings)
    front.answers = {}
    assert [row.rows_in for row in check_ledger(settings)] == [1], "nothing became a dead letter"
    assert ingest.run(settings) == 0
    assert rows_of(settings, "id", "amount") == [(1, 1), (2, 2**40)]
    assert [row.dead for row in check_ledger(settings)] == [0, 1]

    front.answers = {known: (200, json.dumps({"schema": avro_schema("string")}).encode())}
    with pytest.raises(PipelineError, match="has another schema under id"):
        ingest.run(settings)
