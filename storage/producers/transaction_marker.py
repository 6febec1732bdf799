"""Reading the record of a control batch that ends a transaction."""

from odradek.protocol.batch_header import BatchHeader
from odradek.protocol.control_records import ControlType, Marker, read_control_type, read_coordinator_epoch
from odradek.protocol.records import Buffer, read_records


def read_marker(data: Buffer, position: int, header: BatchHeader) -> Marker | None:
    """Returns the COMMIT or ABORT marker of a control batch; None for an empty batch or other control records."""
    records = read_records(data, position, header)
    if not records:
        return None
    control_type = read_control_type(records[0].key)
    if control_type not in (ControlType.COMMIT, ControlType.ABORT):
        return None
    return Marker(control_type is ControlType.ABORT, read_coordinator_epoch(records[0].value), records[0].timestamp)
