"""Why a replica of this broker is offline, and whether it can come back before the broker starts again.

(A) If an append fails, or the creation or opening of a log, because there is no room (ENOSPC, EDQUOT) or for another
    reason (EIO, EMFILE), the log is as it was before: what the append has left is cut off. The replica can come back.
(B) If an fsync fails, the system may have dropped pages that it still shows as written. A second fsync that succeeds
    proves nothing, so the log is not used until a restart reads it again. If a truncation fails, some files are cut or
    removed and others not: the same.
(C) A log that is there, but could not be opened at the start, is not replaced by an empty one (FileExistsError): the
    same.

`cluster/offline_replicas.py` brings replicas back.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.storage.files import cause_of, is_full


class OfflineReplica(NamedTuple):
    """`reason` is for users. `is_full`: it can come back when its disk has room. `needs_restart`: the content of its
    log is unknown until the log is opened again.
    """

    reason: str
    since_ms: int
    is_full: bool = False
    needs_restart: bool = False

    @classmethod
    def because(cls, error: Exception, now_ms: int, *, needs_restart: bool = False) -> OfflineReplica:
        """`now_ms` is wall clock time."""
        message = error.strerror if isinstance(error, OSError) else getattr(error, "error_message", None)
        cause = error if isinstance(error, OSError) else cause_of(error)
        needs_restart = needs_restart or isinstance(cause, FileExistsError)
        return cls(message or str(error), now_ms, isinstance(cause, OSError) and is_full(cause), needs_restart)

    @property
    def error(self) -> ProtocolError:
        """What a request to the replica is answered with. Clients that ask for its producers are shown the message."""
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC).isoformat(sep=" ", timespec="seconds")
        ending = "; it needs a restart of the broker" if self.needs_restart else ""
        return ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, f"offline since {since}: {self.reason}{ending}")
