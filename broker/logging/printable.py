"""Text from clients as it may reach a terminal.

A client id, a group's name or an error that quotes them may hold escape sequences, which a terminal would obey: they
change its title, hide lines, or type. C1 control characters, line ends and marks that turn the direction of text do
harm, too. JSON output needs none of this: it escapes them itself.
"""

from __future__ import annotations


def printable(text: str) -> str:
    r"""`text` with a backslash escape (`\x1b`, `\n`, `\u202e`) for each character that is not printable."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def printable_lines(text: str) -> str:
    """As `printable`, for each line of several."""
    return "\n".join(printable(line) for line in text.split("\n"))
