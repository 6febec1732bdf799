"""Makes text from clients safe to print on a terminal.

A client id, a group name or an error that quotes them may contain escape sequences, which a terminal executes: they
change its title, hide lines, or simulate input. C1 control characters, line ends and marks that change the direction of
text are harmful, too. JSON output needs none of this, since JSON escapes them.
"""

from __future__ import annotations


def printable(text: str) -> str:
    r"""Returns `text` with a backslash escape (`\x1b`, `\n`, `\u202e`) for each unprintable character."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def printable_lines(text: str) -> str:
    """Like `printable`, for each of several lines."""
    return "\n".join(printable(line) for line in text.split("\n"))
