"""Frames that a client may send first to a broker of an older release, and what the broker does.

ApiVersions in every version there is, and later ones; of each API of 3.0 the first version that the release did not
have; and APIs that nobody has. A line of tests/vectors/releases/RELEASE.jsonl has a frame and what a running broker
did.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from odradek.broker.handlers.api_table import api_table
from odradek.broker.handlers.releases import versions_in
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compiler import decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.headers import RequestHeader, request_header_version
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.registry import codec_versions, request_class
from odradek.protocol.schema import Message
from tests.wire.blocking_client import RawClient

VECTORS = Path(__file__).parents[2] / "vectors" / "releases"
SOFTWARE: dict[str, Any] = {"client_software_name": "tester", "client_software_version": "1.0"}
API_VERSIONS = (*range(7), 127)
UNKNOWN_KEYS = (-1, 99, 1000)
LATEST_WITHOUT_SOFTWARE = 2
NEWEST_OF_APIS = "3.0"
LATEST_WRITTEN = {ApiKey.API_VERSIONS: 4, ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0}
"""These releases read no body of a version that they do not know; the recordings have this one."""
CORRELATION_ID_BYTES = 4


class Word(NamedTuple):
    """`send` and `receive` are frames without their lengths. `outcome`: answered or closed. `afterwards`: whether the
    connection serves ApiVersions after that.
    """

    name: str
    send: bytes
    outcome: str
    receive: bytes
    afterwards: bool

    @property
    def answered_version(self) -> int:
        """That of the answer to ApiVersions: 0 if the broker does not have the version of the request."""
        asked = int(self.name.rsplit(" ", 1)[1])
        is_refusal = int.from_bytes(self.receive[4:6], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION
        return 0 if is_refusal else asked

    def to_json(self) -> str:
        fields = self._asdict() | {"send": self.send.hex(), "receive": self.receive.hex()}
        return json.dumps(fields)

    @classmethod
    def from_json(cls, line: str) -> Word:
        fields: dict[str, Any] = json.loads(line)
        return cls(**fields | {name: bytes.fromhex(fields[name]) for name in ("send", "receive")})


def frames_for(release: str) -> Iterator[tuple[str, bytes]]:
    """Yields (name, frame)."""
    for version in API_VERSIONS:
        yield f"API_VERSIONS {version}", _frame(ApiKey.API_VERSIONS, version)
    known, apis = versions_in(release), versions_in(NEWEST_OF_APIS)
    for row in api_table().client_rows():
        if row.key != ApiKey.API_VERSIONS and row.key in apis:
            version = known[row.key].highest + 1 if row.key in known else 0
            yield f"{row.key.name} {version}", _frame(row.key, version)
    yield "METADATA -1", struct.pack(">hhih", ApiKey.METADATA, -1, 7, -1)
    for key in UNKNOWN_KEYS:
        yield f"API {key}", struct.pack(">hhih", key, 0, 7, -1)


def _frame(key: ApiKey, version: int) -> bytes:
    """Our newest form of the request where there is none of this version."""
    written = min(version, LATEST_WRITTEN.get(key, codec_versions(key).highest))
    software = SOFTWARE if key == ApiKey.API_VERSIONS and written > LATEST_WITHOUT_SOFTWARE else {}
    request: Message = ApiVersionsRequest(**software) if software else request_class(key)()
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=7, client_id="tester")
    return encode(header, request_header_version(key, written)) + encode(request, written)


def spoken(bootstrap: str, frames: Iterable[tuple[str, bytes]]) -> Iterator[Word]:
    """Sends each frame on a connection of its own."""
    for name, send in frames:
        with RawClient(bootstrap) as client:
            try:
                receive = client.call(send)
            except (ConnectionError, EOFError):
                yield Word(name, send, "closed", b"", afterwards=False)
            else:
                yield Word(name, send, "answered", receive, client.is_alive())


def answer_of(word: Word) -> ApiVersionsResponse:
    """The answer to an ApiVersions request."""
    return decode(ApiVersionsResponse, word.answered_version, word.receive, CORRELATION_ID_BYTES)


def recorded_words(release: str) -> list[Word]:
    return [Word.from_json(line) for line in _file(release).read_text().splitlines()]


def record_words(release: str, words: Iterable[Word]) -> None:
    VECTORS.mkdir(exist_ok=True)
    _file(release).write_text("".join(word.to_json() + "\n" for word in words))


def _file(release: str) -> Path:
    return VECTORS / f"{release}.jsonl"
