"""The limit on the size of a response: `odradek.max.response.bytes`.

(A) Every response is measured while it is encoded. Encoding stops as soon as it exceeds the limit, and the request
    fails with POLICY_VIOLATION, in its API's own error response.
(B) A handler whose response may be much larger than the objects it is built from counts its size on the way
    (`AnswerSize`), so that the objects of an oversized response are not created either.
(C) If an API has no field for the error (Metadata of all topics), or the error response itself is too large, the
    connection ends, and the reason is logged.
(D) Fetch uses `fetch.max.bytes` instead: its records are in files, or were bounded when they were read.
"""

from __future__ import annotations

from odradek.protocol.errors import ErrorCode, ProtocolError


class AnswerTooLarge(ProtocolError):
    """POLICY_VIOLATION because the response exceeds `odradek.max.response.bytes`."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(
            ErrorCode.POLICY_VIOLATION,
            f"The response would exceed {most_bytes} bytes (odradek.max.response.bytes): request less at a time",
        )


class AnswerSize:
    """Counts a lower bound of the size of a response that is being built, up to `most_bytes` (B)."""

    __slots__ = ("_left", "_most_bytes")

    def __init__(self, most_bytes: int) -> None:
        self._left = self._most_bytes = most_bytes

    def add(self, size: int) -> None:
        """Raises AnswerTooLarge."""
        self._left -= size
        if self._left < 0:
            raise AnswerTooLarge(self._most_bytes)
