"""An HTTP server before a schema registry, or without one, that answers as a test says."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, bytes]
"""The status and the body."""


class RegistryFront:
    """`answers`: what is answered to requests whose path ends so, by this end; all others are passed on to `behind`.
    `down`: connections are closed without an answer. `asked`: the paths of all requests, in order, and `logins` their
    Authorization headers."""

    def __init__(self, behind: str = "") -> None:
        self.answers: dict[str, Answer | list[Answer]] = {}
        self.down = False
        self.asked: list[str] = []
        self.logins: list[str | None] = []
        self._behind = behind
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, path: str, body: bytes | None = None) -> Answer | None:
        """The answer to a GET, or to a POST with a body; None if there is none."""
        self.asked.append(path)
        if self.down:
            return None
        for end, answer in self.answers.items():
            if path.endswith(end):
                return answer if isinstance(answer, tuple) else answer.pop(0) if len(answer) > 1 else answer[0]
        try:
            request = urllib.request.Request(self._behind + path, body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=30) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        front = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.respond(self.rfile.read(int(self.headers["Content-Length"])))

            def do_GET(self) -> None:
                self.respond()

            def respond(self, sent: bytes | None = None) -> None:
                front.logins.append(self.headers["Authorization"])
                answer = front.answer(self.path, sent)
                if answer is None:
                    self.close_connection = True
                    return
                status, body = answer
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Writes no log."""

        return Handler

    def __enter__(self) -> RegistryFront:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
