"""Prints frames and record batches in readable form: one field per line, indented, nothing omitted silently.

Lines are yielded as they are decoded, so that everything before the error in a broken frame is printed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.batch_documents import batches_to_documents
from odradek.protocol.compiler import read
from odradek.protocol.documents import UNKNOWN_TAGS, to_document
from odradek.protocol.errors import MalformedMessage, ProtocolError
from odradek.protocol.framing import LENGTH_BYTES
from odradek.protocol.headers import (
    ResponseHeader,
    read_request_header,
    request_header_version,
    response_header_version,
)
from odradek.protocol.messages.registry import API_KEYS, request_class, response_class
from odradek.protocol.schema import Field, Message

LONGEST_SHOWN = 64


def frame_body(data: bytes) -> tuple[bytes, str]:
    """Returns the frame's content and a remark. A leading length is removed if it matches; else all is the content."""
    if len(data) >= LENGTH_BYTES and int.from_bytes(data[:LENGTH_BYTES], "big") == len(data) - LENGTH_BYTES:
        return data[LENGTH_BYTES:], f"{len(data)} bytes with the leading length"
    return data, f"{len(data)} bytes without a leading length"


def readable_request(data: bytes, *, records: bool = False) -> Iterator[str]:
    """Yields the lines of a request's frame; MalformedMessage if it cannot be read."""
    content, remark = frame_body(data)
    if len(content) < 4:
        raise MalformedMessage(f"{len(content)} bytes are too few for a request: API key and version take 4")
    api_key = int.from_bytes(content[:2], "big", signed=True)
    version = int.from_bytes(content[2:4], "big", signed=True)
    if api_key not in API_KEYS:
        raise MalformedMessage(f"API key {api_key} is unknown; is this a request? Use --response for a response")
    yield f"{ApiKey(api_key).api_name} request, version {version}, {remark}"
    header, position = read_request_header(content)
    yield from _header_lines(header, request_header_version(api_key, version))
    yield from _body_lines(request_class(api_key), version, content, position, records)


def readable_response(data: bytes, api_key: ApiKey, version: int, *, records: bool = False) -> Iterator[str]:
    """Yields the lines of a response's frame, which does not name its API; MalformedMessage if it cannot be read."""
    content, remark = frame_body(data)
    yield f"{api_key.api_name} response, version {version}, {remark}"
    header_version = response_header_version(api_key, version)
    header, position = read(ResponseHeader, header_version, content)
    yield from _header_lines(header, header_version)
    yield from _body_lines(response_class(api_key), version, content, position, records)


def readable_batches(data: bytes) -> Iterator[str]:
    """Yields the lines of consecutive record batches; ProtocolError if they cannot be read."""
    documents, size = batches_to_documents(data, whole_values=True)
    yield from _batch_lines(documents, "")
    if size < len(data):
        yield f"{len(data) - size} bytes after the last whole batch"


def readable_fields(message: Message, version: int, indentation: str = "", *, records: bool = False) -> Iterator[str]:
    """Yields the lines of a message's fields."""
    yield from _structure_lines(type(message), to_document(message, version), indentation, records)


def _header_lines(header: Message, version: int) -> Iterator[str]:
    yield f"header, version {version}"
    yield from _structure_lines(type(header), to_document(header, version), "  ", False)


def _body_lines(cls: type[Message], version: int, data: bytes, position: int, records: bool) -> Iterator[str]:
    message, end = read(cls, version, data, position)
    yield "body"
    yield from _structure_lines(cls, to_document(message, version), "  ", records)
    if end < len(data):
        yield f"{len(data) - end} bytes after the body: {_shown_bytes(data[end:])}"


def _structure_lines(cls: type[Message], document: dict[str, Any], indentation: str, records: bool) -> Iterator[str]:
    for field in cls.__schema__.fields:
        if field.name in document:
            yield from _field_lines(field, document[field.name], indentation, records)
    for tag in document.get(UNKNOWN_TAGS, ()):
        yield f"{indentation}unknown tag {tag['tag']}: {_shown_bytes(base64.b64decode(tag['data']))}"


def _field_lines(field: Field, value: Any, indentation: str, records: bool) -> Iterator[str]:
    if field.element == "struct" and value:
        yield f"{indentation}{field.name}: {len(value)}"
        for element in value:
            lines = _structure_lines(field.structure, element, indentation + "    ", records)
            for index, line in enumerate(lines):
                yield line if index else f"{indentation}  - {line.lstrip()}"
    elif field.type == "struct" and value is not None:
        yield f"{indentation}{field.name}:"
        yield from _structure_lines(field.structure, value, indentation + "  ", records)
    elif field.type in ("bytes", "records") and value is not None:
        yield f"{indentation}{field.name}: {_shown_bytes(base64.b64decode(value))}"
        if records and field.type == "records":
            yield from _records_lines(base64.b64decode(value), indentation + "  ")
    else:
        yield f"{indentation}{field.name}: {_shown_value(field, value)}"


def _records_lines(data: bytes, indentation: str) -> Iterator[str]:
    try:
        documents, size = batches_to_documents(data, whole_values=True)
    except ProtocolError as error:
        yield f"{indentation}unreadable: {error}"
        return
    yield from _batch_lines(documents, indentation)
    if size < len(data):
        yield f"{indentation}{len(data) - size} bytes after the last whole batch"


def _batch_lines(documents: list[dict[str, Any]], indentation: str) -> Iterator[str]:
    for batch in documents:
        header = ", ".join(f"{name} {_plain(value)}" for name, value in batch.items() if name != "records")
        yield f"{indentation}batch: {header}"
        for record in batch["records"]:
            yield f"{indentation}  record: {', '.join(_record_parts(record))}"


def _record_parts(record: dict[str, Any]) -> Iterator[str]:
    for name, value in record.items():
        if name in ("key", "value"):
            yield f"{name} {_shown_data(value)}"
        elif name == "headers":
            if value:
                yield f"headers {', '.join(f'{key}={_shown_data(data)}' for key, data in value)}"
        else:
            yield f"{name} {_plain(value)}"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _shown_value(field: Field, value: Any) -> str:
    if field.type == "array" and value and field.element == "bytes":
        return ", ".join(_shown_data(element) for element in value)
    if field.type == "uuid":
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def _shown_data(text: str | None) -> str:
    return "null" if text is None else _shown_bytes(base64.b64decode(text))


def _shown_bytes(data: bytes) -> str:
    """Returns printable text as JSON, other bytes in hexadecimal; only the beginning of long data."""
    beginning = data[:LONGEST_SHOWN]
    try:
        text = beginning.decode("utf-8")
        shown = json.dumps(text, ensure_ascii=False) if text.isprintable() else beginning.hex()
    except UnicodeDecodeError:
        shown = beginning.hex()
    more = f"... ({len(data)} bytes)" if len(data) > LONGEST_SHOWN else ""
    return shown + more
