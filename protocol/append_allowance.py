"""The remaining work that one Produce request may cause: in this turn of the event loop, and in total."""

from __future__ import annotations

from typing import Final

from odradek.protocol.batch_contents import inflate
from odradek.protocol.compression import Scratch
from odradek.protocol.errors import ErrorCode, ProtocolError

TURN_BYTES: Final = 2 << 20
"""Bytes of records, compressed and decompressed, that are checked in one turn: 2 to 10 ms of work."""
APPEND_BYTES: Final = 4096
"""Fixed cost of appending a batch, added to its bytes."""
TURN_RECORDS: Final = 30_000
"""Records and headers of one batch that are checked in one turn."""
COMPRESSED_ANEW: Final = 8
"""Weight of a batch that the leader recompresses, relative to other batches."""
EVERYTHING: Final = 1 << 62


class TooMuchForOneTurn(Exception):
    """The batch must be checked piece by piece. It is unchanged."""


class AppendAllowance:
    """`turn_bytes`: the rest of the turn's budget, see TURN_BYTES. `inflated_bytes`: the bytes to which the remaining
    batches of the request may inflate, counting refused ones; initially `odradek.max.decompressed.request.bytes`.
    """

    def __init__(self, inflated_bytes: int) -> None:
        self.turn_bytes = TURN_BYTES
        self.inflated_bytes = inflated_bytes
        self._most_inflated_bytes = inflated_bytes

    @property
    def is_untouched(self) -> bool:
        """Whether the turn's budget is unused."""
        return self.turn_bytes == TURN_BYTES

    @property
    def is_used_up(self) -> bool:
        """Whether the turn's budget is exhausted, even for a batch that will be refused."""
        return self.turn_bytes <= 0

    def begin_turn(self) -> None:
        self.turn_bytes = TURN_BYTES

    def refused(self, size: int) -> None:
        """Charges a refused batch of `size` bytes, since refusing takes time, too."""
        self.turn_bytes -= size + APPEND_BYTES

    def inflate(
        self, body: memoryview, codec: int, max_batch_bytes: int, turn_bytes: int, scratch: Scratch | None = None
    ) -> bytes:
        """Returns the inflated `body` of a producer's batch, see `decompress` for `scratch`. Raises INVALID_RECORD;
        MESSAGE_TOO_LARGE above `max_batch_bytes` or the rest of the request's limit, TooMuchForOneTurn above
        `turn_bytes`.

        A stream that fails is charged as if it had inflated to its limit.
        """
        limit = min(max_batch_bytes, self.inflated_bytes)
        if limit == 0:
            raise self._beyond()
        try:
            plain = inflate(body, codec, min(limit, turn_bytes), scratch, is_sent=True)
        except ProtocolError as error:
            is_too_large = error.code is ErrorCode.MESSAGE_TOO_LARGE
            if is_too_large and turn_bytes < limit:
                raise TooMuchForOneTurn from None
            self.inflated_bytes -= min(limit, turn_bytes)
            self.turn_bytes -= min(limit, turn_bytes)
            if is_too_large and limit < max_batch_bytes:
                raise self._beyond() from None
            raise
        self.inflated_bytes -= len(plain) if scratch is None else scratch.filled
        return plain

    def _beyond(self) -> ProtocolError:
        return ProtocolError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batches of the request inflate to more than {self._most_inflated_bytes} bytes in total",
        )
