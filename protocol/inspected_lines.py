"""One JSON line of `odradek show --hex`: its message is decoded or encoded, and the line gets the result.

A line is an object. It names its message by `apiKey` and `type` (request or response), or by `name` as in Kafka's
specifications (`FetchRequest`, `RequestHeader`, `OffsetCommitKey`), and has

    version          the message's version; optional for coordinator records, whose bytes begin with it
    hex              the body, without header and length; for coordinator records with the leading int16 version
    headerVersion    only if `hex` is a whole frame: int32 length, header of this version, body

Decoding adds `fields` (for a frame also `header`), and `rest`, the number of bytes after the message, if there are any.
Encoding reads `fields` (and `header`) and adds `hex`. An error is reported under `error` instead.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.batch_documents import batches_to_documents
from odradek.protocol.compiler import check_version, encode, encode_versioned, read, versioned_version
from odradek.protocol.documents import from_document, to_document
from odradek.protocol.errors import ProtocolError
from odradek.protocol.framing import LENGTH_BYTES, frame, frame_length
from odradek.protocol.headers import RequestHeader, ResponseHeader
from odradek.protocol.messages.registry import API_KEYS, message_class, request_class, response_class
from odradek.protocol.schema import Message

Line = dict[str, Any]


class BadLine(ValueError):
    """A line lacks a member or has an invalid one."""


def inspected(text: str, inspect: Callable[[Line], Line], *results: str) -> str:
    """Returns one line of JSON for any line of input: what `inspect` makes of it, or its `error` without `results`."""
    line: Line = {}
    try:
        parsed = json.loads(text)
        if not isinstance(parsed, dict):
            raise BadLine(f"expected a JSON object, not {type(parsed).__name__}")
        line = parsed
        return json.dumps(inspect(line), ensure_ascii=False)
    except json.JSONDecodeError as error:
        return json.dumps({"error": f"not JSON: {error}", "line": text})
    except (ValueError, ProtocolError) as error:
        reason = str(error)
    except (RecursionError, MemoryError, OverflowError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
    kept = _without(line, *results) if line else {"line": text}
    try:
        return json.dumps({**kept, "error": reason})
    except RecursionError:
        return json.dumps({"error": reason})


def decode_line(line: Line) -> Line:
    """Returns the line with `fields`, and with `header` and `rest` if they apply."""
    cls = message_of(line)
    data = hex_of(line)
    found = _without(line, "fields", "error", "rest")
    position = 0
    if is_versioned(cls):
        found["version"] = _version_in_front(line, data)
        position = 2
    elif "headerVersion" in line:
        data, position, header = _open_frame(line, cls, data)
        found["header"] = header
    version = version_of(found)
    message, end = read(cls, version, data, position)
    found["fields"] = to_document(message, version)
    if end < len(data):
        found["rest"] = len(data) - end
    return found


def encode_line(line: Line) -> Line:
    """Returns the line with `hex`."""
    cls = message_of(line)
    version = version_of(line)
    if "fields" not in line:
        raise BadLine("`fields`, the object to encode, is missing")
    message = from_document(cls, version, line["fields"])
    found = _without(line, "hex", "error")
    if is_versioned(cls):
        data = encode_versioned(message, version)
    else:
        data = encode(message, version)
        if "headerVersion" in line:
            header_class = header_of(cls)
            header_version = version_of(line, "headerVersion")
            header = from_document(header_class, header_version, line.get("header", {}))
            data = frame(encode(header, header_version), data)
    found["hex"] = data.hex()
    return found


def batches_line(line: Line, *, whole_values: bool = False) -> Line:
    """Returns the line with `batches`, the record batches in `hex`.

    If the line names a message, `batches` holds an object for each of its `records` fields: its place and batches.
    """
    if not names_message(line):
        found = _without(line, "batches", "error", "rest")
        data = hex_of(line)
        found["batches"], size = batches_to_documents(data, whole_values=whole_values)
        if size < len(data):
            found["rest"] = len(data) - size
        return found
    found = decode_line(line)
    cls = message_of(line)
    found["batches"] = [
        {"place": place, "batches": batches_to_documents(data, whole_values=whole_values)[0]}
        for place, data in records_in(cls, found["version"], found["fields"])
    ]
    return found


def records_in(cls: type[Message], version: int, document: Line) -> list[tuple[str, bytes]]:
    """Returns the place and bytes of every `records` field that is not null."""
    message = from_document(cls, version, document)
    found: list[tuple[str, bytes]] = []
    _collect_records(message, version, "", found)
    return found


def _collect_records(message: Message, version: int, place: str, found: list[tuple[str, bytes]]) -> None:
    for field in message.__schema__.fields:
        value = getattr(message, field.attribute)
        here = f"{place}.{field.name}" if place else field.name
        if version not in field.versions or not value:
            continue
        if field.type == "records":
            found.append((here, value))
        elif field.element == "struct":
            for index, element in enumerate(value):
                _collect_records(element, version, f"{here}[{index}]", found)


# The message that a line names


def names_message(line: Line) -> bool:
    if line.get("apiKey") is not None:
        return True
    try:
        message_class(str(line.get("name")))
    except KeyError:
        return False
    return True


def message_of(line: Line) -> type[Message]:
    """Returns the class of the message that the line names; BadLine if it names none."""
    key = line.get("apiKey")
    if key is None:
        name = line.get("name")
        if not isinstance(name, str):
            raise BadLine("the line must name its message by `apiKey` and `type`, or by `name`")
        try:
            return message_class(name)
        except KeyError:
            raise BadLine(f"no message is named {name!r}") from None
    finders: dict[Any, Callable[[int], type[Message]]] = {"request": request_class, "response": response_class}
    kind = line.get("type")
    if not isinstance(kind, str) or kind not in finders:
        raise BadLine(f"`type` must be request or response, not {kind!r}")
    return finders[kind](api_key_of(key))


def api_key_of(key: object) -> ApiKey:
    """Returns the API with a number or a name like Fetch or FETCH; BadLine if the codec does not know it."""
    for known in API_KEYS:
        if isinstance(key, str) and key.lower() in (known.name.lower(), known.api_name.lower(), str(int(known))):
            return known
        if isinstance(key, int) and not isinstance(key, bool) and key == known:
            return known
    raise BadLine(f"unknown API key {key!r}")


def version_of(line: Line, name: str = "version") -> int:
    version = line.get(name)
    if not isinstance(version, int) or isinstance(version, bool):
        raise BadLine(f"`{name}` must be a number, not {version!r}")
    return version


def hex_of(line: Line) -> bytes:
    text = line.get("hex")
    if not isinstance(text, str):
        raise BadLine("`hex` must be a string of hexadecimal digits")
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise BadLine(f"`hex` is not hexadecimal: {error}") from None


def is_versioned(cls: type[Message]) -> bool:
    """Whether the message's bytes begin with the version: coordinator records and the consumer protocol."""
    return cls.__schema__.kind == "data"


def header_of(cls: type[Message]) -> type[Message]:
    kind = cls.__schema__.kind
    if kind == "request":
        return RequestHeader
    if kind == "response":
        return ResponseHeader
    raise BadLine(f"{cls.__schema__.name} is not sent in a frame: `headerVersion` is not allowed")


def _version_in_front(line: Line, data: bytes) -> int:
    version = versioned_version(data)
    if line.get("version", version) != version:
        raise BadLine(f"`version` is {line['version']}, but the bytes begin with version {version}")
    return version


def _open_frame(line: Line, cls: type[Message], data: bytes) -> tuple[bytes, int, Line]:
    """Returns the bytes of the one frame in `data`, the position of its body, and its header."""
    header_class = header_of(cls)
    header_version = version_of(line, "headerVersion")
    check_version(header_class, header_version)
    length = frame_length(data)
    if len(data) != LENGTH_BYTES + length:
        raise BadLine(f"the frame's length is {length}, but {max(0, len(data) - LENGTH_BYTES)} bytes follow")
    header, position = read(header_class, header_version, data, LENGTH_BYTES)
    return data, position, to_document(header, header_version)


def _without(line: Line, *names: str) -> Line:
    return {name: value for name, value in line.items() if name not in names}
