"""Moving a log's start offset, when records are deleted by a request (DeleteRecords) or with their segments."""

from __future__ import annotations

import structlog

from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.storage.log.folder import LogFolder
from odradek.storage.log.leader_epochs import LeaderEpochs
from odradek.storage.log.log_state import LogState
from odradek.storage.log.positions import LogPositions
from odradek.storage.producers.producer_state import ProducerState

_log = structlog.get_logger(__name__)


class LogStart:
    __slots__ = ("_folder", "_leader_epochs", "_positions", "_producers", "_state")

    def __init__(
        self,
        state: LogState,
        folder: LogFolder,
        positions: LogPositions,
        producers: ProducerState,
        leader_epochs: LeaderEpochs,
    ) -> None:
        self._state = state
        self._folder = folder
        self._positions = positions
        self._producers = producers
        self._leader_epochs = leader_epochs

    def delete_records_before(self, offset: int) -> int:
        """Moves the log's start to the offset (-1: the high watermark), if it is before it. Returns the offset. Raises
        OFFSET_OUT_OF_RANGE below 0 or beyond the high watermark.
        """
        high_watermark = self._state.high_watermark
        if offset == -1:
            offset = high_watermark
        if offset < 0 or offset > high_watermark:
            partition = self._folder.topic_partition
            message = f"{partition} can start at most at its high watermark {high_watermark}, not at {offset}"
            raise ProtocolError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        self.advance_to(offset, "records deleted")
        return offset

    def advance_to(self, offset: int, reason: str) -> None:
        """Moves the log's start to the offset, if it is before it."""
        if offset <= self._state.log_start_offset:
            return
        self._state.started_at(offset)
        self._positions.forget()
        self._producers.forget_replicated(offset)
        partition = str(self._folder.topic_partition)
        _log.info("log start offset moved", partition=partition, offset=offset, reason=reason)
        self._leader_epochs.truncate_from_start(offset)
