"""How large an answer may become: `odradek.max.response.bytes`.

(A) Every answer is measured while it is written: one that grows beyond the bound is given up there, before it is
    whole. The request fails with POLICY_VIOLATION, in its API's own error response.
(B) A handler whose answer may be much larger than what it is written of counts as it goes (`AnswerSize`), so that
    the objects of an answer that cannot be written are not made either.
(C) Where an API has no room for the error (Metadata of all topics), or the error response is too large itself, the
    connection ends, and the log says why.
(D) Fetch goes by `fetch.max.bytes` instead: its records lie in files, or were bounded when they were read.
"""

from __future__ import annotations

from odradek.protocol.errors import ErrorCode, ProtocolError


class AnswerTooLarge(ProtocolError):
    """POLICY_VIOLATION of the answer's own kind."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(
            ErrorCode.POLICY_VIOLATION,
            f"The answer would have more than {most_bytes} bytes (odradek.max.response.bytes): ask for less at a time",
        )


class AnswerSize:
    """Counts the bytes that an answer in the making will have at least, up to `most_bytes` (B)."""

    __slots__ = ("_left", "_most_bytes")

    def __init__(self, most_bytes: int) -> None:
        self._left = self._most_bytes = most_bytes

    def add(self, size: int) -> None:
        """Raises AnswerTooLarge."""
        self._left -= size
        if self._left < 0:
            raise AnswerTooLarge(self._most_bytes)
