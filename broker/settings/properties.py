"""Java property files, read exactly as `java.util.Properties.load(InputStream)` reads them.

A   The bytes are ISO 8859-1; anything else is written as \\uXXXX, beyond the basic plane as two of them.
B   Lines end with LF, CR or CR LF. Blanks (space, tab, form feed) before the first character do not count.
C   A line whose first character is # or ! is a comment, and blank lines are nothing.
D   An odd number of backslashes before the end continues a line; blanks at the start of the next one are dropped.
    A comment is never continued, and only behind a lone backslash can a comment follow.
E   The name ends at the first unescaped =, : or blank. One = or : with blanks around it separates; the rest is the
    value, blanks at its end included.
F   \\t \\n \\r \\f are what they say; a backslash before any other character drops out.
G   Of two lines with the same name the later one counts.
"""

from __future__ import annotations

from collections.abc import Iterator

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(data: bytes) -> dict[str, str]:
    """Names and values in the order in which names first appear. Raises ValueError for a broken \\uXXXX."""
    properties: dict[str, str] = {}
    for line in _logical_lines(data.decode("latin-1")):
        name, value = _split(line)
        properties[_unescaped(name)] = _unescaped(value)
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    joined = ""
    continues = False
    for natural in text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n"):
        line = natural.lstrip(_BLANKS)
        if not joined and (not line or line[0] in "#!"):
            continues = False
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        continues = backslashes % 2 == 1
        joined += line[:-1] if continues else line
        if not continues:
            yield joined
            joined = ""
    if joined or (continues and not text.endswith("\r\n")):
        yield joined


def _split(line: str) -> tuple[str, str]:
    """Name and value, both still escaped (E)."""
    end = 0
    while end < len(line) and line[end] not in "=:" and line[end] not in _BLANKS:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return line[:end], rest


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\":
            parts.append(character)
        elif text[position : position + 1] == "u":
            parts.append(_code_unit(text[position + 1 : position + 5]))
            position += 5
        else:
            escaped = text[position : position + 1]
            parts.append(_ESCAPES.get(escaped, escaped))
            position += 1
    return "".join(parts).encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")


def _code_unit(digits: str) -> str:
    if len(digits) != 4 or not set(digits) <= set("0123456789abcdefABCDEF"):
        raise ValueError(f"\\u{digits} is no character: four hexadecimal digits must follow \\u")
    return chr(int(digits, 16))
