"""Regular expressions that clients choose, in RE2's syntax.

RE2 needs time linear in its input for any expression, and refuses one that would need too much memory: Python's `re`
could be kept busy for hours. What a match costs is known from the size of the compiled program. Compiling cannot be cut
into steps, and holds the interpreter: an expression of many parts that take long is refused without it.
"""

from __future__ import annotations

from typing import Any

from odradek.protocol.errors import ErrorCode, ProtocolError

MOST_BYTES = 1 << 20
"""Of a compiled expression, with what matching adds. RE2's own bound is 8 MiB."""
MOST_COSTLY_PARTS = 200
"""How many classes of Unicode characters and counted repetitions an expression may have. Each takes up to 0.2 ms to
compile, the rest of the longest expression 20 ms.
"""

MOST_WORK = 1 << 24
"""The size of a program times the number of characters that it is matched against, at worst 5 ns each."""


def costly_parts(regex: str) -> int:
    """Returns how many parts take long to compile: `\\p{L}`, `\\PL`, `a{5}`."""
    return regex.count("\\p") + regex.count("\\P") + regex.count("{")


def compiled(regex: str) -> Any:
    """Returns an object for `matches`. Raises INVALID_REGULAR_EXPRESSION."""
    import re2

    if costly_parts(regex) > MOST_COSTLY_PARTS:
        raise ProtocolError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"The regular expression has more than {MOST_COSTLY_PARTS} classes of Unicode and counted repetitions.",
        )
    options = re2.Options()
    options.never_capture = True
    options.log_errors = False
    options.max_mem = MOST_BYTES
    re2.purge()  # it would keep the last 128
    try:
        return re2.compile(regex, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ProtocolError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"The regular expression does not compile: {text}."
        ) from None


def matches(pattern: Any, text: str) -> bool:
    """Returns whether a compiled expression matches the whole text.

    Raises INVALID_REGULAR_EXPRESSION if that could take longer than a turn of the event loop: only for a large
    expression and a text that is longer than any name of a topic.
    """
    if pattern.programsize * len(text) > MOST_WORK:
        raise ProtocolError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"The regular expression is too large for a text of {len(text)} characters.",
        )
    return pattern.fullmatch(text) is not None


def items_of_match(pattern: Any, text: str) -> int:
    """Returns how many items of a step a match counts as: at worst, its time grows with the program and the text."""
    return 2 + int(pattern.programsize) * len(text) // 4000


def items_of(regex: str) -> int:
    """Returns how many items of a step it takes to compile: some microseconds for every few characters."""
    return 10 + len(regex) // 16 + 40 * costly_parts(regex)
