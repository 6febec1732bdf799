"""Regular expressions that clients choose, in RE2's syntax.

RE2 needs time linear in its input for any expression, and refuses one that would need too much memory: Python's `re`
could be kept busy for hours.
"""

from __future__ import annotations

from typing import Any

from odradek.protocol.errors import ErrorCode, ProtocolError


def compiled(regex: str) -> Any:
    """Returns an object with `fullmatch(text)`. Raises INVALID_REGULAR_EXPRESSION."""
    import re2

    options = re2.Options()
    options.never_capture = True
    options.log_errors = False
    try:
        return re2.compile(regex, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ProtocolError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"The regular expression does not compile: {text}."
        ) from None


def items_of(regex: str) -> int:
    """Returns how many items of a step it takes to compile: some microseconds for every few characters."""
    return 10 + len(regex) // 16
