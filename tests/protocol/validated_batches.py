"""A leader's validation as one call, done twice: at once, and piece by piece as for a large batch."""

from __future__ import annotations

from typing import Any

from odradek.protocol.append_allowance import AppendAllowance
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.records import BatchValidation, ValidatedBatch


def validate_for_append(
    records: bytes, *, offset: int, partition_leader_epoch: int, items: int = 4, **settings: Any
) -> ValidatedBatch:
    """Returns the placed batch. Raises ProtocolError. Both results must be equal; `items` is the size of a piece."""
    settings["partition_leader_epoch"] = partition_leader_epoch
    in_pieces: ValidatedBatch | None = None
    refusal: tuple[ErrorCode, str | None] | None = None
    try:
        in_pieces = _in_pieces(records, items, settings).place(offset, partition_leader_epoch)
    except ProtocolError as error:
        refusal = error.code, error.error_message
    try:
        batch = BatchValidation(records, **settings).at_once().place(offset, partition_leader_epoch)
    except ProtocolError as error:
        if refusal != (error.code, error.error_message):
            raise AssertionError(f"piece by piece it is refused with {refusal}") from error
        raise
    assert in_pieces is not None
    assert batch.to_bytes() == in_pieces.to_bytes()
    return batch


def _in_pieces(records: bytes, items: int, settings: dict[str, Any]) -> ValidatedBatch:
    validation = BatchValidation(records, **settings)
    validation.check_header()
    validation.read(AppendAllowance(1 << 40))
    while not validation.check_records(items):
        pass
    return validation.settle()
