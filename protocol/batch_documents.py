"""Record batches as JSON documents, for `odradek show --hex` and the test vectors.

Header fields have Kafka's names: `batchLength` is the length field, `sizeInBytes` is 12 more, `attributes` the raw
int16, `baseTimestamp` the raw field (the delete horizon if that flag is set). A record has `offset`, `timestamp`,
`sequence`, `key` and `value` in base64 (a value above 512 bytes as length and SHA-256, unless whole values are
requested) and `headers` as [key, value] pairs. A record of a control batch also has `controlType`, and a marker has
`coordinatorEpoch`. `crcOk` is present, and false, only if the checksum does not match.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from odradek.protocol.records import (
    BatchHeader,
    ControlType,
    Record,
    check_crc,
    iter_batches,
    read_control_type,
    read_coordinator_epoch,
    read_records,
)

LONGEST_SHOWN_VALUE = 512
_TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def batches_to_documents(data: bytes, *, whole_values: bool = False) -> tuple[list[dict[str, Any]], int]:
    """Returns the documents of all whole batches and their size in bytes; a batch truncated at the end is omitted.

    Raises ProtocolError for bytes that are not a batch, records that cannot be read, and message formats 0 and 1.
    """
    documents = []
    size = 0
    for position, header in iter_batches(data):
        documents.append(_batch_to_document(data, position, header, whole_values))
        size = position + header.size_in_bytes
    return documents, size


def _batch_to_document(data: bytes, position: int, header: BatchHeader, whole_values: bool) -> dict[str, Any]:
    document: dict[str, Any] = {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "sizeInBytes": header.size_in_bytes,
        "magic": header.magic,
        "crc": header.crc,
        "compression": _CODECS[header.compression] if header.compression < len(_CODECS) else header.compression,
        "timestampType": _TIMESTAMP_TYPES[header.timestamp_type],
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
        "deleteHorizonMs": header.base_timestamp if header.has_delete_horizon else None,
    }
    if not check_crc(data, position, header):
        document["crcOk"] = False
    records = read_records(data, position, header)
    document["records"] = [_record_to_document(record, header.is_control, whole_values) for record in records]
    return document


def _record_to_document(record: Record, is_control: bool, whole_values: bool) -> dict[str, Any]:
    document: dict[str, Any] = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "sequence": record.sequence,
        "key": _shown(record.key, whole_values),
        "value": _shown(record.value, whole_values),
        "headers": [[key, _shown(value, whole_values)] for key, value in record.headers],
    }
    if is_control:
        control_type = read_control_type(record.key)
        document["controlType"] = control_type.name
        if control_type in (ControlType.ABORT, ControlType.COMMIT):
            document["coordinatorEpoch"] = read_coordinator_epoch(record.value)
    return document


def _shown(data: bytes | None, whole: bool) -> Any:
    if data is None:
        return None
    if whole or len(data) <= LONGEST_SHOWN_VALUE:
        return base64.b64encode(data).decode("ascii")
    return {"length": len(data), "sha256": hashlib.sha256(data).hexdigest()}
