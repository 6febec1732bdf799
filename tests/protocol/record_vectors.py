"""The record vectors of Apache Kafka 3.9.1 (tests/vectors/records), and our batches in their document format."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from typing import Any

from odradek.protocol.records import (
    BatchHeader,
    Compression,
    ControlType,
    Record,
    check_crc,
    iter_batches,
    read_control_type,
    read_coordinator_epoch,
    read_records,
)
from tests.protocol.vector_files import lines_of

MARKERS = (ControlType.ABORT, ControlType.COMMIT)


@cache
def record_vectors(name: str) -> list[dict[str, Any]]:
    return list(lines_of(f"records/{name}.jsonl"))


def names_of(vectors: list[dict[str, Any]]) -> list[str]:
    return [vector["name"] for vector in vectors]


def as_documents(data: bytes) -> list[dict[str, Any]]:
    """Describes every batch of `data` like the vectors' `batches`."""
    return [_as_document(data, position, header) for position, header in iter_batches(data)]


def _as_document(data: bytes, position: int, header: BatchHeader) -> dict[str, Any]:
    records = [_record_document(record, header) for record in read_records(data, position, header)]
    assert check_crc(data, position, header)
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "sizeInBytes": header.size_in_bytes,
        "magic": header.magic,
        "crc": header.crc,
        "compression": Compression(header.compression).name.lower(),
        "timestampType": "LogAppendTime" if header.timestamp_type else "CreateTime",
        "maxTimestamp": header.max_timestamp,
        "batchLength": header.batch_length,
        "partitionLeaderEpoch": header.partition_leader_epoch,
        "attributes": header.attributes,
        "lastOffsetDelta": header.last_offset_delta,
        "baseTimestamp": header.base_timestamp,
        "rawMaxTimestamp": header.max_timestamp,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "baseSequence": header.base_sequence,
        "recordCount": header.record_count,
        "lastSequence": header.last_sequence,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": header.delete_horizon_ms,
        "records": records,
    }


def _record_document(record: Record, header: BatchHeader) -> dict[str, Any]:
    document: dict[str, Any] = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "sequence": record.sequence,
        "key": _bytes_document(record.key),
        "value": _bytes_document(record.value),
        "headers": [[key, _bytes_document(value)] for key, value in record.headers],
    }
    if header.is_control:
        control_type = read_control_type(record.key)
        document["controlType"] = control_type.name
        if control_type in MARKERS:
            document["coordinatorEpoch"] = read_coordinator_epoch(record.value)
    return document


def _bytes_document(value: bytes | None) -> Any:
    if value is None:
        return None
    if len(value) > 512:
        return {"length": len(value), "sha256": hashlib.sha256(value).hexdigest()}
    return base64.b64encode(value).decode()


def record_of(document: dict[str, Any]) -> Record:
    return Record(
        offset=document["offset"],
        timestamp=document["timestamp"],
        key=_plain(document["key"]),
        value=_plain(document["value"]),
        headers=[(key, _plain(value)) for key, value in document["headers"]],
    )


def _plain(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)
