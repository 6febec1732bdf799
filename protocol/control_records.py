"""Control records, which brokers write among the records of clients, in batches with the control flag.

Key: int16 version, int16 type. Value of a transaction marker: int16 version, int32 coordinator epoch.
Later versions only add fields at the end. (Kafka's ControlRecordType, EndTransactionMarker; KIP-98, KIP-595, KIP-630,
KIP-853.)
"""

import struct
from enum import IntEnum

from odradek.protocol.errors import ErrorCode, ProtocolError

_KEY = struct.Struct(">hh")
_END_TRANSACTION_VALUE = struct.Struct(">hi")


class ControlType(IntEnum):
    """The types of control records; readers skip an unknown type (UNKNOWN)."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1


class Marker:
    """A transaction marker, ABORT or COMMIT. `timestamp`: time of the write, ms since 1970. `transaction_version`: that
    of the transaction, 0 if it is unknown, since no record has it.
    """

    __slots__ = ("aborted", "coordinator_epoch", "timestamp", "transaction_version")

    def __init__(self, aborted: bool, coordinator_epoch: int, timestamp: int, transaction_version: int = 0) -> None:
        self.aborted = aborted
        self.coordinator_epoch = coordinator_epoch
        self.timestamp = timestamp
        self.transaction_version = transaction_version


_BY_NUMBER = {int(control_type): control_type for control_type in ControlType}


def read_control_type(key: bytes | None) -> ControlType:
    """Returns the type in a control record's key.

    Raises INVALID_RECORD for a key that is null, too short or of a negative version.
    """
    if key is None or len(key) < _KEY.size:
        raise ProtocolError(ErrorCode.INVALID_RECORD, f"the key of a control record needs {_KEY.size} bytes")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise ProtocolError(ErrorCode.INVALID_RECORD, f"version {version} of a control record's key is negative")
    return _BY_NUMBER.get(number, ControlType.UNKNOWN)


def read_coordinator_epoch(value: bytes | None) -> int:
    """Returns the coordinator epoch of an ABORT or COMMIT marker.

    Raises INVALID_RECORD for a value that is null, too short or of a negative version.
    """
    if value is None or len(value) < _END_TRANSACTION_VALUE.size:
        raise ProtocolError(
            ErrorCode.INVALID_RECORD, f"the value of a transaction marker needs {_END_TRANSACTION_VALUE.size} bytes"
        )
    version, coordinator_epoch = _END_TRANSACTION_VALUE.unpack_from(value)
    if version < 0:
        raise ProtocolError(ErrorCode.INVALID_RECORD, f"version {version} of a transaction marker is negative")
    return int(coordinator_epoch)


def control_key(control_type: ControlType) -> bytes:
    """Returns the key of a control record of this type, version 0."""
    return _KEY.pack(0, control_type)


def end_transaction_value(coordinator_epoch: int) -> bytes:
    """Returns the value of an ABORT or COMMIT marker, version 0."""
    return _END_TRANSACTION_VALUE.pack(0, coordinator_epoch)
