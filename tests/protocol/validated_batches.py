"""A leader's validation as one call, done three times: at once, and step by step as for a large batch, with the
inflated records as a whole and in parts of a few bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

from odradek.protocol import codecs
from odradek.protocol.append_allowance import AppendAllowance
from odradek.protocol.batch_contents import MAX_DECOMPRESSED_BYTES, inflated_pieces
from odradek.protocol.batch_header import BATCH_OVERHEAD, COMPRESSION_MASK, read_batch_header
from odradek.protocol.errors import ProtocolError
from odradek.protocol.records import BatchValidation, ValidatedBatch

LEAST_PART_BYTES = 5
MOST_PARTS = 2000
MANY_BYTES = 1 << 20
"""What inflates to more, inflates beyond the limit."""
BYTES_PER_ITEM = 32


def validate_for_append(
    records: bytes, *, offset: int, partition_leader_epoch: int, items: int = 4, **settings: Any
) -> ValidatedBatch:
    """Returns the placed batch. Raises ProtocolError. All results must be equal; `items` is the work of a turn,
    more for a batch that inflates to megabytes."""
    settings["partition_leader_epoch"] = partition_leader_epoch
    part_bytes = _part_bytes(records)
    items = max(items, part_bytes // BYTES_PER_ITEM)
    whole = _result(partial(validate_step_by_step, records, items, settings), offset, partition_leader_epoch)
    with patch.multiple(codecs, CHUNK=part_bytes, _SNAPPY_FEED=part_bytes):
        in_parts = _result(
            partial(validate_step_by_step, records, items, settings, part_bytes), offset, partition_leader_epoch
        )
    at_once = _result(lambda: BatchValidation(records, **settings).at_once(), offset, partition_leader_epoch)
    assert _essence(whole) == _essence(in_parts) == _essence(at_once)
    if isinstance(at_once, ProtocolError):
        raise at_once
    return at_once


def _part_bytes(records: bytes) -> int:
    """A few bytes, more for a batch that inflates to megabytes."""
    try:
        header = read_batch_header(records)
        pieces = inflated_pieces(memoryview(records)[BATCH_OVERHEAD:], header.attributes & COMPRESSION_MASK)
        size = 0
        for piece in pieces:
            size += len(piece)
            if size > MANY_BYTES:
                return MAX_DECOMPRESSED_BYTES // MOST_PARTS
        return max(LEAST_PART_BYTES, size // MOST_PARTS)
    except ProtocolError:
        return LEAST_PART_BYTES


def _result(validate: Callable[[], ValidatedBatch], offset: int, epoch: int) -> ValidatedBatch | ProtocolError:
    try:
        batch = validate()
    except ProtocolError as error:
        return error
    return batch.place(offset, epoch)


def _essence(result: ValidatedBatch | ProtocolError) -> object:
    if isinstance(result, ProtocolError):
        return result.code, result.error_message, getattr(result, "record_errors", None)
    return result.to_bytes(), result.max_timestamp, result.offset_of_max_timestamp


def validate_step_by_step(
    records: bytes, items: int, settings: dict[str, Any], part_bytes: int = 1 << 30
) -> ValidatedBatch:
    validation = BatchValidation(records, **settings)
    validation.check_header()
    validation.read(AppendAllowance(1 << 40), part_bytes)
    check(validation, items)
    return validation.settle()


def check(validation: BatchValidation, items: int) -> None:
    """Checks the records after `read`."""
    while not validation.check_records(items):
        pass
    while validation.has_more:
        validation.read_on()
        while not validation.check_records(items):
            pass
