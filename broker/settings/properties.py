"""Java property files, read exactly as `java.util.Properties.load(InputStream)` reads them.

A   The bytes are ISO 8859-1; other characters are written as \\uXXXX, beyond the basic plane as a surrogate pair.
B   Lines end with LF, CR or CR LF. Whitespace (space, tab, form feed) before the first character is ignored.
C   A line whose first character is # or ! is a comment; blank lines are ignored.
D   An odd number of backslashes at the end continues a line; leading whitespace of the next line is dropped.
    A comment is never continued, and a comment can follow a continued line only after a lone backslash.
E   The name ends at the first unescaped =, : or whitespace. One = or :, with whitespace around it, separates; the
    rest is the value, including trailing whitespace.
F   \\t \\n \\r \\f have their usual meaning; a backslash before any other character is dropped.
G   If a name occurs twice, the later line wins.
"""

from __future__ import annotations

from collections.abc import Iterator

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(data: bytes) -> dict[str, str]:
    """Returns names and values, in the order in which the names first appear. Raises ValueError for a malformed
    \\uXXXX.
    """
    return parse_property_text(data.decode("latin-1"))


def parse_property_text(text: str) -> dict[str, str]:
    """As `parse_properties`, for text in whatever encoding."""
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
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
    """Splits a line into name and value, both still escaped (E)."""
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
        raise ValueError(f"\\u{digits} is malformed: four hexadecimal digits must follow \\u")
    return chr(int(digits, 16))
