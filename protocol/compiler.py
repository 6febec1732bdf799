"""Compiles a declared message and a version to straight-line Python: one reader, one writer, at the first use.

`protocol.reader_source` and `protocol.writer_source` generate the source. It stays visible to tracebacks, debuggers
and `inspect` through `linecache`, under names like `<FetchRequest v11 reader>`.

    decode(FetchRequest, 11, body)           returns the message; ignores bytes after it
    read(FetchRequest, 11, data, position)   returns the message and the position after it
    encode(response, 11)                     returns the message's bytes
    encode_parts(response, 11, parts)        appends them as buffers; records are referenced, never copied
    reader_in_steps(FetchRequest, 11)        a reader that yields regularly, for long messages
    writer_in_steps(FetchResponse, 11)       a writer that yields regularly, for long messages

Decoding raises `MalformedMessage` for bytes that are not the message; encoding raises `UnwritableMessage` for values
that do not fit the wire; both raise `UnsupportedMessageVersion` for a version that the message does not have.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from odradek.protocol.errors import MalformedMessage, UnsupportedMessageVersion
from odradek.protocol.schema import Message, Reader, Writer

M = TypeVar("M", bound=Message)
ReaderInSteps = Callable[[bytes, int, int], Generator[None, None, tuple[Any, int]]]
"""Takes data, a position and a limit in bytes for the message's memory; returns what a `Reader` returns."""


def decode(cls: type[M], version: int, data: bytes, offset: int = 0) -> M:
    reader = cls.__readers__.get(version) or reader_of(cls, version)
    message: M = reader(data, offset)[0]
    return message


def read(cls: type[M], version: int, data: bytes, position: int = 0) -> tuple[M, int]:
    reader = cls.__readers__.get(version) or reader_of(cls, version)
    return reader(data, position)


def encode(message: Message, version: int) -> bytes:
    parts: list[Any] = []
    (message.__writers__.get(version) or writer_of(type(message), version))(message, parts)
    return b"".join(parts)


def encode_parts(message: Message, version: int, prefix_parts: list[Any]) -> int:
    """Appends the message's buffers to `prefix_parts`; returns how many bytes were appended."""
    parts: list[Any] = []
    (message.__writers__.get(version) or writer_of(type(message), version))(message, parts)
    prefix_parts += parts
    return sum(map(len, parts))


def decode_versioned(cls: type[M], data: bytes) -> tuple[int, M]:
    """Decodes a message with a leading int16 version: coordinator records and JoinGroup metadata."""
    version = versioned_version(data)
    return version, decode(cls, version, data, 2)


def versioned_version(data: bytes) -> int:
    """Returns the leading int16 version; raises `MalformedMessage` if it is truncated."""
    if len(data) < 2:
        raise MalformedMessage(f"{len(data)} bytes where at least a version of 2 bytes is expected")
    return int.from_bytes(data[:2], "big", signed=True)


def encode_versioned(message: Message, version: int) -> bytes:
    return struct.pack(">h", version) + encode(message, version)


def reader_of(cls: type[Message], version: int) -> Reader:
    """Returns the reader, compiled on first use: data and position to the message and the position after it."""
    known = cls.__readers__.get(version)
    if known is None:
        from odradek.protocol.reader_source import ReaderSource

        check_version(cls, version)
        known = cls.__readers__[version] = _compile(cls, version, "reader", ReaderSource(cls, version))
    return known


def writer_of(cls: type[Message], version: int) -> Writer:
    """Returns the writer, compiled on first use: it takes the message and a list to which it appends buffers."""
    known = cls.__writers__.get(version)
    if known is None:
        from odradek.protocol.writer_source import WriterSource

        check_version(cls, version)
        known = cls.__writers__[version] = _compile(cls, version, "writer", WriterSource(cls, version))
    return known


def reader_in_steps(cls: type[Message], version: int, answered: int = 0) -> ReaderInSteps:
    """Compiles a new reader in steps at every call; its first step raises what `reader_of` raises.

    The reader also raises `MalformedMessage` if the elements of arrays take more memory than is allowed
    (element_sizes.py). For each element of the message's own arrays it also charges `answered` bytes for the element's
    response. It skips unknown tagged fields.
    """
    from odradek.protocol.reader_source import ReaderSource

    check_version(cls, version)
    return _compile(cls, version, "reader", ReaderSource(cls, version, in_steps=True, answered=answered), " in steps")  # type: ignore[no-any-return]


def writer_in_steps(cls: type[Message], version: int) -> Callable[[Any, list[Any]], Generator[None, None, None]]:
    """Compiles a new writer at every call. Between two steps the caller may remove the buffers appended so far."""
    from odradek.protocol.writer_source import WriterSource

    check_version(cls, version)
    return _compile(cls, version, "writer", WriterSource(cls, version, in_steps=True), " in steps")  # type: ignore[no-any-return]


def check_version(cls: type[Message], version: int) -> None:
    schema = cls.__schema__
    if version not in schema.versions:
        raise UnsupportedMessageVersion(
            f"{schema.name} has versions {schema.versions.lowest} to {schema.versions.highest}, not {version}"
        )


def _compile(cls: type[Message], version: int, what: str, made: Any, how: str = "") -> Any:
    file_name = f"<{cls.__schema__.name} v{version} {what}{how}>"
    source = made.source()
    linecache.cache[file_name] = (len(source), None, source.splitlines(keepends=True), file_name)
    exec(compile(source, file_name, "exec"), made.names)  # nosec B102 # made of schemas, not of messages
    return made.names[what]
