"""Record batches of message format 2. The parts live in separate files; other packages import them from here.

* `batch_header`: the 61-byte header of a batch, iteration over batches, checksums
* `record`, `batch_contents`: reads and writes the records in a batch
* `control_records`: the records that brokers write
* `record_validation`, `leader_assignment`: what a leader does with a client's batch before it reaches the log
"""

from odradek.protocol.batch_contents import (
    MAX_DECOMPRESSED_BYTES,
    build_batch,
    build_end_transaction_marker,
    each_record,
    plain_records,
    read_records,
)
from odradek.protocol.batch_header import (
    BATCH_OVERHEAD,
    CURRENT_MAGIC,
    LOG_OVERHEAD,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    Compression,
    CorruptBatch,
    TimestampType,
    UnsupportedMessageFormat,
    check_crc,
    compute_crc,
    increment_sequence,
    iter_batches,
    next_batch_size,
    read_batch_header,
)
from odradek.protocol.control_records import (
    ControlType,
    control_key,
    end_transaction_value,
    read_control_type,
    read_coordinator_epoch,
)
from odradek.protocol.leader_assignment import ValidatedBatch
from odradek.protocol.record import Record
from odradek.protocol.record_rules import InvalidRecord, UnfitRecords
from odradek.protocol.record_validation import (
    TARGET_COMPRESSIONS,
    AppendOrigin,
    BatchValidation,
    has_transactional_batch,
)

__all__ = [
    "BATCH_OVERHEAD",
    "CURRENT_MAGIC",
    "LOG_OVERHEAD",
    "MAX_DECOMPRESSED_BYTES",
    "NO_PARTITION_LEADER_EPOCH",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "TARGET_COMPRESSIONS",
    "AppendOrigin",
    "BatchHeader",
    "BatchValidation",
    "Buffer",
    "Compression",
    "ControlType",
    "CorruptBatch",
    "InvalidRecord",
    "Record",
    "TimestampType",
    "UnfitRecords",
    "UnsupportedMessageFormat",
    "ValidatedBatch",
    "build_batch",
    "build_end_transaction_marker",
    "check_crc",
    "compute_crc",
    "control_key",
    "each_record",
    "end_transaction_value",
    "has_transactional_batch",
    "increment_sequence",
    "iter_batches",
    "next_batch_size",
    "plain_records",
    "read_batch_header",
    "read_control_type",
    "read_coordinator_epoch",
    "read_records",
]
