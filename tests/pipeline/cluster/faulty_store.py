"""A proxy before an S3 server that injects faults by a rule that the test sets.

    with faulty_store(bucket) as faulty:
        faulty.rule = nth(3, SLOW_DOWN, method="PUT", below="/_delta_log/")
        write_deltalake(url, rows, storage_options=faulty.store.options)
        assert faulty.injected == [...]

A rule is called once for each request, with its method, path and count, and gives a fault or None; calls never overlap.
Faults, each of which may come before the store has the request, or after it has carried it out (`fault.applied()`):

a. SERVER_ERROR, SLOW_DOWN: a whole answer, 500 InternalError or 503 SlowDown.
b. HANG: no answer, until the client goes away or the proxy ends.
c. CUT: the first half of the store's response, then the end of the connection. The store has always applied the
   request.

Other requests are forwarded unchanged: the client signed the proxy's Host, and the store verifies it unchanged. An
upload is held in memory, so the proxy does not suit gigabytes.
"""

from __future__ import annotations

import http.client
import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from socketserver import BaseServer
from typing import Any, Literal
from urllib.parse import urlsplit

from tests.pipeline.cluster.object_store import ObjectStore

STORE_TIMEOUT_S = 60
PAUSE_S = 0.05
_OF_THE_CONNECTION = {"connection", "keep-alive", "transfer-encoding", "expect"}
"""Hop-by-hop headers, which the proxy does not forward."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a rule sees of a request."""

    method: str
    path: str
    """/BUCKET/KEY, as the client quoted it, without the query."""
    query: str
    count: int
    """The number of the request at this proxy, from 1 on."""


@dataclass(frozen=True, slots=True)
class Fault:
    """The response that the client gets instead of the store's."""

    kind: Literal["answer", "hang", "cut"]
    status: HTTPStatus = HTTPStatus.OK
    code: str = ""
    is_applied: bool = False
    """Whether the store applies the request nevertheless."""

    def applied(self) -> Fault:
        """The same fault after the store has applied the request, which the client cannot know."""
        return replace(self, is_applied=True)


SERVER_ERROR = Fault("answer", HTTPStatus.INTERNAL_SERVER_ERROR, "InternalError")
SLOW_DOWN = Fault("answer", HTTPStatus.SERVICE_UNAVAILABLE, "SlowDown")
HANG = Fault("hang")
CUT = Fault("cut", is_applied=True)

Rule = Callable[[Request], Fault | None]


def never(request: Request) -> None:
    """The rule that forwards every request."""


def always(fault: Fault, *, method: str = "", below: str = "") -> Rule:
    """Every request of the method whose path contains `below`; both can be left out."""
    return lambda request: fault if _is_meant(request, method, below) else None


def nth(number: int, fault: Fault, *, method: str = "", below: str = "") -> Rule:
    """The n-th request, from 1 on, of the method with `below` in its path."""
    seen = 0

    def rule(request: Request) -> Fault | None:
        nonlocal seen
        seen += _is_meant(request, method, below)
        return fault if seen == number and _is_meant(request, method, below) else None

    return rule


def one_in(number: int, fault: Fault, *, seed: int, method: str = "", below: str = "") -> Rule:
    """A random one in `number` of the matching requests."""
    chance = Random(seed)
    return lambda request: fault if _is_meant(request, method, below) and chance.randrange(number) == 0 else None


def _is_meant(request: Request, method: str, below: str) -> bool:
    return request.method == (method or request.method) and below in request.path


class FaultyStore:
    """A running proxy. A rule can be set at any time and applies to later requests."""

    def __init__(self, upstream: ObjectStore) -> None:
        self.rule: Rule = never
        self.store = upstream
        """The bucket at the proxy's address."""
        self.requests: list[Request] = []
        self.injected: list[tuple[Request, Fault]] = []
        self.upstream_address = urlsplit(upstream.endpoint).netloc
        self.has_ended = threading.Event()
        self._lock = threading.Lock()

    def verdict(self, method: str, target: str) -> Fault | None:
        """Returns the fault for a request, if any; records both."""
        path, _, query = target.partition("?")
        with self._lock:
            request = Request(method, path, query, len(self.requests) + 1)
            self.requests.append(request)
            fault = self.rule(request)
            if fault is not None:
                self.injected.append((request, fault))
            return fault


@contextmanager
def faulty_store(upstream: ObjectStore, host: str = "127.0.0.1") -> Iterator[FaultyStore]:
    """A proxy on a free port of `host` before the bucket's server."""
    faulty = FaultyStore(upstream)
    with _Server((host, 0), faulty) as server:
        faulty.store = upstream.at(f"http://{host}:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, args=[PAUSE_S], name="faulty-store")
        thread.start()
        try:
            yield faulty
        finally:
            faulty.has_ended.set()
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # an idle connection of a client's pool would block it
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], faulty: FaultyStore) -> None:
        self.faulty = faulty
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores errors: some tests disconnect clients on purpose."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, request: Any, client_address: Any, server: BaseServer) -> None:
        assert isinstance(server, _Server)
        self.faulty = server.faulty
        super().__init__(request, client_address, server)

    def do_GET(self) -> None:
        body = self._body()
        fault = self.faulty.verdict(self.command, self.path)
        answer = self._forward(body) if fault is None or fault.is_applied else b""
        if fault is None:
            self.wfile.write(answer)
        elif fault.kind == "answer":
            self.wfile.write(self._error(fault))
        else:
            self._break_off(answer if fault.kind == "cut" else b"")

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return body

    def _forward(self, body: bytes) -> bytes:
        """The store's complete response, head and body, as it is sent to the client."""
        connection = http.client.HTTPConnection(self.faulty.upstream_address, timeout=STORE_TIMEOUT_S)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in _OF_THE_CONNECTION:
                    connection.putheader(name, value)
            if "Content-Length" not in self.headers and body:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            return self._answer(connection.getresponse())
        finally:
            connection.close()

    def _answer(self, response: http.client.HTTPResponse) -> bytes:
        body = response.read()
        headers = [(name, value) for name, value in response.getheaders() if name.lower() not in _OF_THE_CONNECTION]
        if response.getheader("Content-Length") is None and response.status != HTTPStatus.NO_CONTENT:
            headers.append(("Content-Length", str(len(body))))
        return _message(response.status, response.reason, headers, body)

    def _error(self, fault: Fault) -> bytes:
        body = f"<Error><Code>{fault.code}</Code><Message>injected</Message></Error>".encode()
        headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
        return _message(fault.status, fault.status.phrase, headers, b"" if self.command == "HEAD" else body)

    def _break_off(self, answer: bytes) -> None:
        """Sends half of the response; without one, waits until the client disconnects."""
        self.close_connection = True
        if answer:
            self.wfile.write(answer[: len(answer) // 2])
            return
        while not self.faulty.has_ended.is_set():
            if select.select([self.connection], [], [], PAUSE_S)[0]:
                return

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - http.server's name
        """Nothing: `FaultyStore.requests` is the log."""


def _message(status: int, reason: str, headers: list[tuple[str, str]], body: bytes) -> bytes:
    lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode("latin-1") + body
