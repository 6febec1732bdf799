"""Our operations as ZooKeeper's requests, and ZooKeeper's replies as our results. The bytes are kazoo's
(`kazoo.protocol.serialization`); SetWatches, which kazoo does not have, is written here.

A request is complete before it is sent: its operation code, its bytes, and how its reply is read. Reading raises
`BadReply` for bytes that are no reply; an error of ZooKeeper is one of `interface.py`'s, a value.

Source: ZooKeeper's `ZooDefs`, `KeeperException.Code` and zookeeper.jute.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from kazoo.exceptions import EXCEPTIONS, RolledBackError, RuntimeInconsistency
from kazoo.protocol import serialization as kazoo

from odradek.broker.metadata_store.interface import (
    LONGEST_CHANGE,
    BadArguments,
    BadVersion,
    Change,
    Create,
    Delete,
    Entry,
    EntryExists,
    HasChildren,
    MetadataStoreError,
    NoEntry,
    Operation,
    Outcome,
    Result,
    Set,
    StoreUnavailable,
    TooLarge,
    WatchEvent,
    size_of,
    too_large,
)
from odradek.broker.metadata_store.zookeeper.acls import AclsOf

EVENT_XID: Final = -1
PING_XID: Final = -2
SET_WATCHES_XID: Final = -8
SET_WATCHES: Final = 101
LONGEST_REQUEST: Final = 0xFFFFF - 1024
"""ZooKeeper ends a connection that sends more than jute.maxbuffer, 0xFFFFF bytes; the rest is for its own headers."""
LONGEST_SET_WATCHES: Final = 128 * 1024
LONGEST_REPLY: Final = 64 << 20
EPHEMERAL, SEQUENTIAL = 1, 2

_HEADER = struct.Struct(">ii")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")

OK: Final = 0
SESSION_EXPIRED: Final = -112
SESSION_MOVED: Final = -118
AUTH_FAILED: Final = -115
LOGIN_REQUIRED: Final = -124

_ERRORS: dict[int, Callable[[str], MetadataStoreError]] = {
    -8: lambda path: BadArguments(path, "not a valid path"),
    -101: lambda path: NoEntry(path, "no such entry"),
    -102: lambda path: StoreUnavailable(path, "ZooKeeper does not permit it (NoAuth)"),
    -103: lambda path: BadVersion(path, "the entry has another version"),
    -108: lambda path: BadArguments(path, "an ephemeral entry cannot have children"),
    -110: lambda path: EntryExists(path, "already exists"),
    -111: lambda path: HasChildren(path, "has children"),
    -114: lambda path: StoreUnavailable(path, "ZooKeeper does not accept its ACL: nobody is logged in (InvalidACL)"),
    AUTH_FAILED: lambda path: StoreUnavailable(path, "ZooKeeper does not accept the login (AuthFailed)"),
    LOGIN_REQUIRED: lambda path: StoreUnavailable(path, "ZooKeeper requires the login, and does not accept it"),
    SESSION_EXPIRED: lambda path: StoreUnavailable(path, "the session has ended"),
}

_CHANGES = {1: Change.CREATED, 2: Change.DELETED, 3: Change.CHANGED, 4: Change.CHILDREN}


class BadReply(Exception):
    """The bytes are not a reply to what was sent: the connection cannot be used any more."""


class Header(NamedTuple):
    """The beginning of a reply: which request it answers, the last transaction that the server knows, the error."""

    xid: int
    zxid: int
    error: int


class Request(NamedTuple):
    """`read` makes the result of the reply's body, which begins at a position of the frame. `path` is for errors."""

    code: int
    body: bytes
    path: str
    read: Callable[[bytes, int], Any]

    def frame(self, xid: int) -> bytes:
        """The bytes to send."""
        size = _HEADER.size + len(self.body)
        return b"".join((_INT.pack(size), _HEADER.pack(xid, self.code), self.body))


class Chroot:
    """Adds the path below which all entries are to what is sent, and removes it from what is received."""

    def __init__(self, path: str) -> None:
        self._path = path

    def full(self, path: str) -> str:
        """The path at the server."""
        if not self._path:
            return path
        return self._path if path == "/" else self._path + path

    def own(self, path: str) -> str:
        """The path below the chroot."""
        return path[len(self._path) :] or "/"


def connect_frame(session_id: int, password: bytes, timeout_ms: int, last_zxid: int) -> bytes:
    """The first frame of a connection: it continues the session, or asks for one if the id is 0."""
    body = bytes(kazoo.Connect(0, last_zxid, timeout_ms, session_id, password, False).serialize())
    return _INT.pack(len(body)) + body


class Granted(NamedTuple):
    """The reply to the first frame. The session has ended if the time-out is not positive."""

    session_id: int
    password: bytes
    timeout_ms: int


def read_granted(frame: bytes) -> Granted:
    """Raises BadReply."""
    try:
        connect, _ = kazoo.Connect.deserialize(frame, 0)
    except (struct.error, UnicodeDecodeError) as error:
        raise BadReply(f"the reply to the handshake has {len(frame)} bytes") from error
    return Granted(connect.session_id, connect.passwd or b"", connect.time_out)


def read_header(frame: bytes) -> tuple[Header, int]:
    """Returns the header of a reply and where its body begins. Raises BadReply."""
    try:
        header, position = kazoo.ReplyHeader.deserialize(frame, 0)
    except struct.error as error:
        raise BadReply(f"a reply has {len(frame)} bytes") from error
    return Header(*header), position


def read_body(request: Request, header: Header, frame: bytes, position: int) -> Any:
    """Returns the result of a request, which may be a MetadataStoreError. Raises BadReply."""
    if header.error != OK:
        return error_of(header.error, request.path)
    try:
        return request.read(frame, position)
    except (struct.error, IndexError, KeyError, ValueError, RuntimeError) as error:
        raise BadReply(f"the reply to {request.code} {request.path} cannot be read: {error!r}") from error


def read_event(frame: bytes, position: int, chroot: Chroot) -> WatchEvent | None:
    """Returns what a watch has seen; None for an event of the connection. Raises BadReply."""
    try:
        watch, _ = kazoo.Watch.deserialize(frame, position)
    except (struct.error, UnicodeDecodeError) as error:
        raise BadReply(f"an event cannot be read: {error!r}") from error
    change = _CHANGES.get(watch.type)
    return None if change is None else WatchEvent(change, chroot.own(watch.path))


def error_of(code: int, path: str) -> MetadataStoreError:
    """ZooKeeper's error as ours."""
    make = _ERRORS.get(code)
    if make is not None:
        return make(path)
    name = EXCEPTIONS[code].__name__ if code in EXCEPTIONS else str(code)
    return StoreUnavailable(path, f"ZooKeeper answered with an error: {name}")


# Requests


def get_data(path: str, chroot: Chroot, *, watched: bool = False) -> Request:
    """Read as an Entry. If there is none, no watch is set."""
    return _request(kazoo.GetData(chroot.full(path), watched), path, _entry)


def exists(path: str, chroot: Chroot, *, watched: bool) -> Request:
    """Read as True; NoEntry is the result if there is no entry. Sets the watch in both cases."""
    return _request(kazoo.Exists(chroot.full(path), watched), path, lambda _frame, _position: True)


def get_children(path: str, chroot: Chroot, *, watched: bool = False) -> Request:
    """Read as the names, sorted."""
    return _request(kazoo.GetChildren(chroot.full(path), watched), path, _names)


def sync(chroot: Chroot) -> Request:
    """What is read after it is at least as new as now."""
    return _request(kazoo.Sync(chroot.full("/")), "/", lambda _frame, _position: None)


def multi(operations: Sequence[Operation], chroot: Chroot, acls_of: AclsOf) -> Request | TooLarge:
    """Read as the results or the error of the first operation that failed. New entries have the ACLs of `acls_of`."""
    size = 0
    for operation in operations:
        size += size_of(operation)
        if size > LONGEST_CHANGE:
            return too_large(operation, size)
    body = bytes(kazoo.Transaction([_operation(each, chroot, acls_of) for each in operations]).serialize())
    if len(body) > LONGEST_REQUEST:
        longest = max(operations, key=size_of)
        reason = f"a change of {len(body)} bytes with the chroot is above ZooKeeper's limit of {LONGEST_REQUEST}"
        return TooLarge(longest.path, reason)
    return Request(
        kazoo.Transaction.type, body, operations[0].path, lambda frame, at: _outcome(operations, frame, at, chroot)
    )


def login(token: bytes) -> Request:
    """One message of a SASL login. Read as the server's response, empty if it has none."""
    return _request(kazoo.SASL(token), "", lambda frame, at: kazoo.SASL.deserialize(frame, at)[0] or b"")


def ping() -> Request:
    """Says that this side is alive. Its xid is PING_XID."""
    return Request(kazoo.Ping.type, b"", "", lambda _frame, _position: None)


def close_session() -> Request:
    """Ends the session."""
    return Request(kazoo.Close.type, b"", "", lambda _frame, _position: None)


def set_watches(
    since: int, chroot: Chroot, data: Iterable[str], missing: Iterable[str], children: Iterable[str]
) -> list[Request]:
    """Sets watches again, those whose change was missed since the transaction `since` are called at once. Several
    requests if there are many. Their xid is SET_WATCHES_XID.
    """
    requests: list[Request] = []
    parts: tuple[list[bytes], list[bytes], list[bytes]] = ([], [], [])
    size = 0

    def end() -> None:
        nonlocal parts, size
        body = b"".join((_LONG.pack(since), *(_INT.pack(len(part)) + b"".join(part) for part in parts)))
        requests.append(Request(SET_WATCHES, body, "", lambda _frame, _position: None))
        parts, size = ([], [], []), 0

    for kind, path in _numbered(data, missing, children):
        encoded = kazoo.write_string(chroot.full(path))
        if size and size + len(encoded) > LONGEST_SET_WATCHES:
            end()
        parts[kind].append(encoded)
        size += len(encoded)
    if size:
        end()
    return requests


def _numbered(*lists: Iterable[str]) -> Iterator[tuple[int, str]]:
    for number, paths in enumerate(lists):
        for path in paths:
            yield number, path


def _request(message: Any, path: str, read: Callable[[bytes, int], Any]) -> Request:
    return Request(message.type, bytes(message.serialize()), path, read)


def _operation(operation: Operation, chroot: Chroot, acls_of: AclsOf) -> Any:
    path = chroot.full(operation.path)
    if isinstance(operation, Create):
        flags = EPHEMERAL * operation.ephemeral | SEQUENTIAL * operation.sequential
        return kazoo.Create(path, operation.data, acls_of(operation.path), flags)
    if isinstance(operation, Set):
        return kazoo.SetData(path, operation.data, operation.version)
    if isinstance(operation, Delete):
        return kazoo.Delete(path, operation.version)
    return kazoo.CheckVersion(path, operation.version)


# Replies


def _entry(frame: bytes, position: int) -> Entry:
    data, stat = kazoo.GetData.deserialize(frame, position)
    return Entry(data, stat.version, stat.cversion, stat.ephemeralOwner, stat.czxid, stat.mzxid)


def _names(frame: bytes, position: int) -> list[str]:
    return sorted(kazoo.GetChildren.deserialize(frame, position))


def _outcome(operations: Sequence[Operation], frame: bytes, position: int, chroot: Chroot) -> Outcome:
    results = kazoo.Transaction.deserialize(frame, position)
    for index, (operation, result) in enumerate(zip(operations, results, strict=True)):
        if isinstance(result, Exception) and not isinstance(result, RolledBackError | RuntimeInconsistency):
            error = error_of(result.code, operation.path)  # type: ignore[attr-defined]
            error.index = index
            return error
    return [_result(operation, result, chroot) for operation, result in zip(operations, results, strict=True)]


def _result(operation: Operation, result: Any, chroot: Chroot) -> Result:
    if isinstance(operation, Create):
        return chroot.own(result)
    return int(result.version) if isinstance(operation, Set) else None
