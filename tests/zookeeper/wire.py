"""The server's side of ZooKeeper's protocol: reads requests, writes replies. Source: zookeeper.jute.

The client's side is kazoo's, so that a mistake of one is not a mistake of both.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from odradek.broker.metadata_store.interface import Check, Create, Delete, Entry, Operation, Set

CREATE, DELETE, EXISTS, GET_DATA, SET_DATA, GET_ACL, GET_CHILDREN, SYNC, PING, GET_CHILDREN2, CHECK, MULTI = (
    1, 2, 3, 4, 5, 6, 8, 9, 11, 12, 13, 14,
)  # fmt: skip
CLOSE, SET_WATCHES, AUTH, SASL = -11, 101, 100, 102
EVENT_XID, PING_XID, AUTH_XID, SET_WATCHES_XID = -1, -2, -4, -8
EPHEMERAL, SEQUENTIAL = 1, 2
STATE_CONNECTED = 3


class Reader:
    """Reads jute's types one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, form: str) -> Any:
        value = struct.unpack_from(f">{form}", self.data, self.position)
        self.position += struct.calcsize(f">{form}")
        return value if len(value) > 1 else value[0]

    def buffer(self) -> bytes | None:
        size = self.take("i")
        if size < 0:
            return None
        value = self.data[self.position : self.position + size]
        assert len(value) == size, "the request is cut"
        self.position += size
        return value

    def text(self) -> str:
        return (self.buffer() or b"").decode()

    def texts(self) -> list[str]:
        return [self.text() for _ in range(self.take("i"))]


class Acl(NamedTuple):
    permissions: int
    scheme: str
    id: str


class AclCreate(NamedTuple):
    """A Create with the ACLs that the client wants."""

    create: Create
    acls: list[Acl]


class Hello(NamedTuple):
    last_zxid: int
    timeout_ms: int
    session_id: int
    password: bytes


def read_hello(frame: bytes) -> Hello:
    reader = Reader(frame)
    _, last_zxid, timeout_ms, session_id = reader.take("iqiq")
    return Hello(last_zxid, timeout_ms, session_id, reader.buffer() or b"")


def read_operation(code: int, reader: Reader) -> Operation | AclCreate:
    """Of a multi, or alone."""
    path = reader.text()
    if code == CREATE:
        data = reader.buffer()
        acls = [Acl(reader.take("i"), reader.text(), reader.text()) for _ in range(reader.take("i"))]
        flags = reader.take("i")
        return AclCreate(Create(path, data, bool(flags & EPHEMERAL), bool(flags & SEQUENTIAL)), acls)
    if code == SET_DATA:
        data = reader.buffer()
        return Set(path, data, reader.take("i"))
    assert code in (DELETE, CHECK), code
    version = reader.take("i")
    return Delete(path, version) if code == DELETE else Check(path, version)


def read_multi(reader: Reader) -> list[tuple[int, Operation | AclCreate]]:
    operations: list[tuple[int, Operation | AclCreate]] = []
    while True:
        code, done, _ = reader.take("iBi")
        if done:
            return operations
        operations.append((code, read_operation(code, reader)))


def frame(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return struct.pack(">i", len(body)) + body


def buffer(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def text(value: str) -> bytes:
    return buffer(value.encode())


def welcome(timeout_ms: int, session_id: int, password: bytes) -> bytes:
    return frame(struct.pack(">iiq", 0, timeout_ms, session_id), buffer(password), b"\0")


def reply(xid: int, zxid: int, error: int, body: bytes = b"") -> bytes:
    return frame(struct.pack(">iqi", xid, zxid, error), body if error == 0 else b"")


def event(kind: int, path: str) -> bytes:
    return frame(struct.pack(">iqi", EVENT_XID, -1, 0), struct.pack(">ii", kind, STATE_CONNECTED), text(path))


def stat(entry: Entry, children: int, children_zxid: int) -> bytes:
    size = 0 if entry.data is None else len(entry.data)
    return struct.pack(
        ">qqqqiiiqiiq",
        entry.created, entry.modified, 0, 0, entry.version, entry.children_version, 0, entry.owner, size, children,
        children_zxid,
    )  # fmt: skip


def acls(entries: list[Acl]) -> bytes:
    each = [struct.pack(">i", acl.permissions) + text(acl.scheme) + text(acl.id) for acl in entries]
    return struct.pack(">i", len(entries)) + b"".join(each)


def names(children: list[str]) -> bytes:
    return struct.pack(">i", len(children)) + b"".join(map(text, children))


def multi_results(parts: list[tuple[int, bytes]]) -> bytes:
    each = [struct.pack(">iBi", code, 0, 0) + body for code, body in parts]
    return b"".join(each) + struct.pack(">iBi", -1, 1, -1)


def multi_errors(codes: list[int]) -> bytes:
    each = [struct.pack(">iBi", -1, 0, code) + struct.pack(">i", code) for code in codes]
    return b"".join(each) + struct.pack(">iBi", -1, 1, -1)
