"""How much work one Produce request may still make: in this turn of the event loop, and in all."""

from __future__ import annotations

from typing import Final

from odradek.protocol.batch_contents import inflate
from odradek.protocol.compression import Scratch
from odradek.protocol.errors import ErrorCode, ProtocolError

TURN_BYTES: Final = 2 << 20
"""Bytes of records, as they come and as they are inflated, that are checked in one turn: 2 to 10 ms of work."""
APPEND_BYTES: Final = 4096
"""Each batch that is appended counts for so many bytes more."""
TURN_RECORDS: Final = 30_000
"""Records and headers of one batch that are checked in one turn."""
COMPRESSED_ANEW: Final = 8
"""A batch that is compressed anew takes as long as so many others."""
EVERYTHING: Final = 1 << 62


class TooMuchForOneTurn(Exception):
    """A batch that is to be checked piece by piece. Nothing was done with it."""


class AppendAllowance:
    """`turn_bytes`: what is left of the turn, see TURN_BYTES. `inflated_bytes`: what all batches of the request may
    still inflate to, those that are refused included; `odradek.max.decompressed.request.bytes` at first.
    """

    def __init__(self, inflated_bytes: int) -> None:
        self.turn_bytes = TURN_BYTES
        self.inflated_bytes = inflated_bytes
        self._most_inflated_bytes = inflated_bytes

    @property
    def is_untouched(self) -> bool:
        """Whether nothing of the turn was used."""
        return self.turn_bytes == TURN_BYTES

    @property
    def is_used_up(self) -> bool:
        """Whether the turn has nothing left, not even for a batch that will be refused."""
        return self.turn_bytes <= 0

    def begin_turn(self) -> None:
        self.turn_bytes = TURN_BYTES

    def refused(self, size: int) -> None:
        """A batch of so many bytes was refused, which takes time, too."""
        self.turn_bytes -= size + APPEND_BYTES

    def inflate(
        self, body: memoryview, codec: int, max_batch_bytes: int, turn_bytes: int, scratch: Scratch | None = None
    ) -> bytes:
        """What a batch's `body` inflates to, see `decompress` for `scratch`. Raises INVALID_RECORD; MESSAGE_TOO_LARGE
        above `max_batch_bytes` and above what is left for the request; TooMuchForOneTurn above `turn_bytes`.

        A stream that fails counts as if it had inflated as far as it may.
        """
        limit = min(max_batch_bytes, self.inflated_bytes)
        if limit == 0:
            raise self._beyond()
        try:
            plain = inflate(body, codec, min(limit, turn_bytes), scratch)
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
            f"the batches of the request inflate to more than {self._most_inflated_bytes} bytes together",
        )
