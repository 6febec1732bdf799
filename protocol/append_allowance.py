"""The remaining work that one Produce request may cause: in this turn of the event loop, and in total."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mypy_extensions import mypyc_attr

from odradek.protocol.batch_contents import inflate, inflated_pieces
from odradek.protocol.errors import ErrorCode, ProtocolError

TURN_BYTES: Final = 2 << 20
"""Bytes of records, compressed and decompressed, that are checked in one turn: 2 to 10 ms of work."""
APPEND_BYTES: Final = 4096
"""Fixed cost of appending a batch, added to its bytes."""
TURN_RECORDS: Final = 30_000
"""Records and headers of one batch that are checked in one turn."""
COMPRESSED_ANEW: Final = 8
"""Weight of a batch that the leader recompresses, relative to other batches."""


@mypyc_attr(native_class=False)
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

    def inflate(self, body: memoryview, codec: int, max_batch_bytes: int, turn_bytes: int) -> bytes:
        """Returns the inflated `body` of a producer's batch. Raises INVALID_RECORD; MESSAGE_TOO_LARGE above
        `max_batch_bytes` or the rest of the request's limit, TooMuchForOneTurn above `turn_bytes`.

        A stream that fails is charged as if it had inflated to its limit.
        """
        limit = self._limit(max_batch_bytes)
        try:
            plain = inflate(body, codec, min(limit, turn_bytes), is_sent=True)
        except ProtocolError as error:
            if error.code is ErrorCode.MESSAGE_TOO_LARGE and turn_bytes < limit:
                raise TooMuchForOneTurn from None
            raise self._charged(error, min(limit, turn_bytes), max_batch_bytes) from error
        self.inflated_bytes -= len(plain)
        return plain

    def inflated_pieces(self, body: memoryview, codec: int, max_batch_bytes: int) -> Iterator[bytes]:
        """Yields the inflated `body` in pieces, in any number of turns and threads. Raises and charges as `inflate`.
        To be exhausted: a stream that fails at its end is refused, whatever its records are.
        """
        limit = self._limit(max_batch_bytes)
        size = 0
        try:
            for piece in inflated_pieces(body, codec, limit, is_sent=True):
                size += len(piece)
                yield piece
        except ProtocolError as error:
            raise self._charged(error, limit, max_batch_bytes) from error
        self.inflated_bytes -= size

    def _limit(self, max_batch_bytes: int) -> int:
        limit = min(max_batch_bytes, self.inflated_bytes)
        if limit == 0:
            raise self._beyond()
        return limit

    def _charged(self, error: ProtocolError, limit: int, max_batch_bytes: int) -> ProtocolError:
        """Charges a stream that failed below this limit, or reached it; returns the error to raise."""
        self.inflated_bytes -= limit
        self.turn_bytes -= limit
        is_of_request = error.code is ErrorCode.MESSAGE_TOO_LARGE and limit < max_batch_bytes
        return self._beyond() if is_of_request else error

    def _beyond(self) -> ProtocolError:
        return ProtocolError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batches of the request inflate to more than {self._most_inflated_bytes} bytes in total",
        )
