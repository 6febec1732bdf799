"""Valid requests of any API that are large or repetitive, as an attacker would send to slow down other clients.

    for case in large_requests(api_key, version, 1 << 20, Random(7), known): client.send(case.payload())

A case starts from a small request whose names resolve (`base_requests`) and grows one thing until the frame has about
`size` bytes: an array of the schema (each in turn, nested ones too, with equal, distinct, empty, tagged and long
elements), a string, a buffer, a batch, the tagged fields of header and body; "mixture" grows several of them at once.
The same seed gives the same bytes. Sizes are targets: a string ends at 32,767 bytes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache, lru_cache
from random import Random
from typing import Any, NamedTuple

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.documents import UNKNOWN_TAGS
from odradek.protocol.headers import RequestHeader, request_header_version
from odradek.protocol.messages.registry import request_class
from odradek.protocol.records import Record, build_batch
from odradek.protocol.schema import FIXED, Field, Message
from tests.base_requests import Document, Known, base_request
from tests.wire_growth import NUMBERED_INTEGER, NUMBERED_NAME, Repeated, Tags, encoded, encoded_element

LONG_TEXT = 32_767
CORRELATION_ID = 7
INFLATED_BYTES = 16 << 20
"""The inflated size of each batch of the inflating cases."""
INFLATING_BATCHES = 20
CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
MIXTURES = 2

ArrayPath = tuple[Field, ...]
"""The arrays from the message down to one of them."""

_LEFT_OUT: dict[tuple[str, str], Any] = {
    ("CreateTopicsRequest", "Assignments"): [],
    ("CreatePartitionsRequest", "Assignments"): None,
}
"""Arrays that exclude other fields: only the cases that grow them contain them."""


class LargeRequest(NamedTuple):
    """One request before it is encoded. `inflates`: its batches inflate to much more than the request."""

    name: str
    api_key: int
    version: int
    document: Document
    header: Document
    inflates: bool = False

    def payload(self) -> bytes:
        """Header and body, without the frame's length."""
        header = encoded(RequestHeader, request_header_version(self.api_key, self.version), self.header)
        return header + encoded(request_class(self.api_key), self.version, self.document)


def large_requests(
    api_key: int, version: int, size: int, random_source: Random, known: Known
) -> Iterator[LargeRequest]:
    """Every case of the API in this version, with unique names. Raises KeyError if the vectors lack the version."""
    return _Growth(api_key, version, size, random_source, known).cases()


def small_request(api_key: int, version: int, known: Known) -> LargeRequest:
    """The request that the cases grow from."""
    return _Growth(api_key, version, 0, Random(0), known).small()


def array_paths(cls: type[Message], version: int) -> Iterator[ArrayPath]:
    """All arrays of a message in a version, outer ones first."""
    for field in cls.__schema__.fields:
        if version in field.versions and field.type == "array":
            yield (field,)
            if field.struct_class is not None:
                yield from ((field, *inner) for inner in array_paths(field.struct_class, version))


class _Growth:
    def __init__(self, api_key: int, version: int, size: int, random_source: Random, known: Known) -> None:
        self.api_key = api_key
        self.version = version
        self.size = size
        self.random = random_source
        self.cls = request_class(api_key)
        self.flexible = version in self.cls.__schema__.flexible
        self.paths = list(array_paths(self.cls, version))
        self.base = base_request(api_key, version, known)
        self.header: Document = {
            "RequestApiKey": api_key,
            "RequestApiVersion": version,
            "CorrelationId": CORRELATION_ID,
            "ClientId": "large",
        }

    def small(self) -> LargeRequest:
        return self._case("small", self._small())

    def cases(self) -> Iterator[LargeRequest]:
        for path in self.paths:
            yield from self._array_cases(path)
        yield from self._text_cases()
        yield from self._buffer_cases()
        yield from self._tag_cases()
        for number in range(MIXTURES if self.paths else 0):
            yield self._mixture(f"mixture {number + 1}")

    def _case(
        self, name: str, document: Document, header: Document | None = None, inflates: bool = False
    ) -> LargeRequest:
        return LargeRequest(name, self.api_key, self.version, document, {**self.header, **(header or {})}, inflates)

    # Arrays

    def _array_cases(self, path: ArrayPath) -> Iterator[LargeRequest]:
        name = ".".join(field.name for field in path)
        field = path[-1]
        _, holder = self._with_holder(path)
        for kind, element in self._elements(field, holder[field.name][0]):
            document, holder = self._with_holder(path)
            holder[field.name] = Repeated(element, self._count(field, element, self.size))
            yield self._case(f"{name} of {kind} elements", document)

    def _elements(self, field: Field, element: Any) -> Iterator[tuple[str, Any]]:
        """The elements that fill the array, one kind after the other."""
        yield "equal", element
        distinct = _numbered(field, element, self.version)
        if distinct is not None:
            yield "distinct", distinct
        if field.element in ("string", "bytes"):
            yield "empty", ""
            yield "long", "x" * LONG_TEXT
        if field.struct_class is not None:
            yield "empty", _smallest(field.struct_class, self.version)
            yield from self._structures_asking_for_all(field.struct_class, element)
            yield from self._structures_with_long_texts(field.struct_class, element)
            if self.flexible:
                yield "tagged", {**element, UNKNOWN_TAGS: Tags(1, b"")}
                yield "much tagged", {**element, UNKNOWN_TAGS: Tags(min(200, self.size // 10), b"")}

    def _structures_asking_for_all(self, cls: type[Message], element: Document) -> Iterator[tuple[str, Any]]:
        """Structures in which a null array means everything."""
        fields = [field for field in cls.__schema__.plain_fields(self.version) if field.type == "array"]
        open_ones: Document = {field.name: None for field in fields if self.version in field.nullable}
        if open_ones:
            yield "all-asking", {**element, **open_ones}

    def _structures_with_long_texts(self, cls: type[Message], element: Document) -> Iterator[tuple[str, Any]]:
        texts = [field.name for field in cls.__schema__.plain_fields(self.version) if field.type == "string"]
        for name in texts:
            yield f"long {name}", {**element, name: "x" * LONG_TEXT}

    def _count(self, field: Field, element: Any, size: int) -> int:
        """At least one."""
        return max(1, size // len(encoded_element(self.cls, self.version, field, element)))

    def _with_holder(self, path: ArrayPath) -> tuple[Document, Document]:
        """A copy of the base, and the structure in it whose field is the last array of the path."""
        document = copy.deepcopy(self.base)
        names = [field.name for field in path]
        self._leave_out(document, names)
        holder = document
        for name in names[:-1]:
            holder = holder[name][0]
        return document, holder

    def _leave_out(self, document: Document, needed: list[str]) -> None:
        for topic in document.get("Topics") or () if self.api_key in (19, 37) else ():
            for (message, name), nothing in _LEFT_OUT.items():
                if message == self.cls.__schema__.name and name not in needed:
                    topic[name] = nothing
            if topic["Assignments"] and self.api_key == ApiKey.CREATE_TOPICS:
                topic["NumPartitions"] = topic["ReplicationFactor"] = -1

    def _small(self) -> Document:
        return self._with_holder(())[0]

    # Strings, buffers and batches

    def _text_cases(self) -> Iterator[LargeRequest]:
        yield self._case("a long client id", self._small(), {"ClientId": "x" * LONG_TEXT})
        for field in self.cls.__schema__.plain_fields(self.version):
            if field.type == "string":
                yield self._case(f"a long {field.name}", {**self._small(), field.name: "x" * LONG_TEXT})

    def _buffer_cases(self) -> Iterator[LargeRequest]:
        for path in [(), *self.paths]:
            cls = path[-1].struct_class if path else self.cls
            for field in () if cls is None else cls.__schema__.plain_fields(self.version):
                if field.type == "bytes":
                    yield self._with_buffer(f"a large {field.name}", path, field, bytes(self.size))
                elif field.type == "records":
                    yield from self._batch_cases(path, field)

    def _with_buffer(self, name: str, path: ArrayPath, field: Field, data: bytes) -> LargeRequest:
        if not path:
            return self._case(name, {**self._small(), field.name: data})
        document, holder = self._with_holder(path)
        holder[path[-1].name][0][field.name] = data
        return self._case(name, document)

    def _batch_cases(self, path: ArrayPath, field: Field) -> Iterator[LargeRequest]:
        yield self._with_buffer("a batch of small records", path, field, _batch(self.size // 8, b""))
        yield self._with_buffer("a batch of one record", path, field, _batch(1, self.random.randbytes(self.size)))
        array = path[-1]
        for codec, number in CODECS.items():
            document, holder = self._with_holder(path)
            element = {**holder[array.name][0], field.name: _inflating_batch(number)}
            count = min(self._count(array, element, self.size), INFLATING_BATCHES)
            holder[array.name] = Repeated(element, count)
            yield self._case(f"batches that inflate, {codec}", document, inflates=True)

    # Tagged fields

    def _tag_cases(self) -> Iterator[LargeRequest]:
        if not self.flexible:
            return
        many, one = Tags(self.size // 5, b"x"), Tags(1, bytes(self.size))
        if request_header_version(self.api_key, self.version) == 2:
            yield self._case("a header with many tags", self._small(), {UNKNOWN_TAGS: many})
            yield self._case("a header with a large tag", self._small(), {UNKNOWN_TAGS: one})
        yield self._case("a body with many tags", {**self._small(), UNKNOWN_TAGS: many})
        yield self._case("a body with a large tag", {**self._small(), UNKNOWN_TAGS: one})

    # Mixtures

    def _mixture(self, name: str) -> LargeRequest:
        """All arrays have more elements, of kinds drawn at random, and structures have tags."""
        return self._case(name, self._mixed(self.cls, self._small(), self.size))

    def _mixed(self, cls: type[Message], document: Document, size: int) -> Document:
        arrays = [field for field in cls.__schema__.plain_fields(self.version) if document.get(field.name)]
        arrays = [field for field in arrays if field.type == "array"]
        mixed = dict(document)
        for field in arrays:
            share = max(size // len(arrays), 1)
            element = document[field.name][0]
            if field.struct_class is not None:
                element = self._mixed(field.struct_class, element, int(share ** self.random.uniform(0.2, 0.8)))
                if self.flexible and self.random.random() < 0.5:
                    element[UNKNOWN_TAGS] = Tags(self.random.randrange(4), self.random.randbytes(3))
            if self.random.random() < 0.5:
                element = _numbered(field, element, self.version) or element
            mixed[field.name] = Repeated(element, self._count(field, element, share))
        return mixed


def _numbered(field: Field, element: Any, version: int) -> Any:
    """The element with a unique number in its first string or wide integer; None if it has no such field."""
    if field.struct_class is None:
        return _number_of(field.element or "")
    for inner in field.struct_class.__schema__.plain_fields(version):
        if inner.type != "array" and _number_of(inner.type) is not None:
            return {**element, inner.name: _number_of(inner.type)}
    return None


def _number_of(kind: str) -> Any:
    if kind == "string":
        return NUMBERED_NAME
    return NUMBERED_INTEGER if kind in ("int32", "int64") else None


def _smallest(cls: type[Message], version: int) -> Document:
    """The smallest encodable structure."""
    return {field.name: _nothing(field, version) for field in cls.__schema__.fields if version in field.versions}


def _nothing(field: Field, version: int) -> Any:
    if field.type in FIXED or field.type == "struct":
        return field.default_value()
    if version in field.nullable:
        return None
    return {"array": [], "string": "", "bytes": b"", "records": b""}[field.type]


@cache
def _inflating_batch(codec: int) -> bytes:
    return _batch(1, bytes(INFLATED_BYTES), codec)


@lru_cache(maxsize=4)
def _batch(records: int, value: bytes, codec: int = 0) -> bytes:
    made = [Record(offset=n, timestamp=1000, key=None, value=value, headers=[]) for n in range(max(records, 1))]
    return bytes(build_batch(made, compression=codec))
