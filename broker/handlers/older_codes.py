"""What older releases of Kafka answered to Produce instead of error codes that came later (`odradek.as.version`).

Only codes are here that tell a client something else: a producer repeats what is CORRUPT_MESSAGE, and gives up at
INVALID_RECORD.

Source: running brokers of 1.0, 2.0 and 2.8 (tests/broker/releases), and `Errors` of the released kafka-clients.
"""

from __future__ import annotations

from odradek.broker.settings.odradek import is_before
from odradek.protocol.errors import ErrorCode

PRODUCE_CODES = (
    ("2.1", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.UNKNOWN_SERVER_ERROR),  # KIP-110
    ("2.4", ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE),  # KIP-467
)
"""The first release that had an error code, the code, and what the releases before had instead."""


def older_produce_codes(release: str | None) -> dict[int, ErrorCode]:
    """Returns what a release had instead of the error codes that it did not have. None is the newest."""
    return {int(code): older for first, code, older in PRODUCE_CODES if is_before(release, first)}
