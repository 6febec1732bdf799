"""Asks a schema registry with Confluent's API for schemas: by id, and the latest of a subject.

A registry that does not answer, or answers 429 or 5xx, is asked again for RETRY_S. What then remains is an error of the
job, never of a record. Only the registry's own answer (40403) means that it does not have an id: a 404 without it comes
from something else, such as a proxy, or a wrong path.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.registry.schema import Schema
from odradek.pipeline.settings import Settings

LOGIN_VARIABLE = "ODRADEK_SCHEMA_REGISTRY_LOGIN"
TIMEOUT_S = 10
RETRY_S = 30
PAUSES_S = (0.5, 1, 2, 4)
"""The pauses before the first attempts; the last one repeats."""
MOST_BYTES = 16 << 20
"""The maximum size of an answer."""
MOST_REFERENCES = 1000
ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
NO_SUBJECT, NO_VERSION, NO_SCHEMA = 40401, 40402, 40403
TRANSIENT = (429, 500, 502, 503, 504)
RETRIED = "nothing was written, and the next job repeats the batch"


class SchemaRegistry:
    """The registry of `schema-registry`. `sleep` pauses between attempts. Raises PipelineError if the settings are
    invalid."""

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str] = os.environ,
        sleep: Callable[[float], None] = time.sleep,
        retry_s: float | None = None,
    ) -> None:
        self.url = settings.schema_registry.rstrip("/")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise PipelineError(f"schema-registry {self.url!r} is not a URL", "set http://HOST:PORT or https://HOST")
        if parts.username is not None:
            raise PipelineError(
                "schema-registry contains a login", f"set schema-registry-login, or {LOGIN_VARIABLE} in the environment"
            )
        login = settings.schema_registry_login or environ.get(LOGIN_VARIABLE, "")
        if login and ":" not in login:
            raise PipelineError("schema-registry-login has no colon", "set USER:PASSWORD")
        self._headers = {"Accept": ACCEPT}
        if login:
            self._headers["Authorization"] = f"Basic {b64encode(login.encode()).decode()}"
        self._path, self._host, self._port = parts.path, parts.hostname, parts.port
        self._tls = _tls(settings.schema_registry_ca) if parts.scheme == "https" else None
        self._sleep = sleep
        self._retry_s = RETRY_S if retry_s is None else retry_s
        self._connection: http.client.HTTPConnection | None = None

    def schema(self, number: int) -> Schema | None:
        """Returns the schema with this id. None if the registry does not have it. Raises PipelineError."""
        answer = self._ask(f"/schemas/ids/{number}", NO_SCHEMA)
        return None if answer is None else self._schema(answer)

    def latest(self, subject: str) -> tuple[int, Schema] | None:
        """Returns the latest schema of a subject, with its id. None if there is none. Raises PipelineError."""
        answer = self._ask(f"/subjects/{quote(subject, safe='')}/versions/latest", NO_SUBJECT, NO_VERSION)
        return None if answer is None else (self._field(answer, "id", int), self._schema(answer))

    def close(self) -> None:
        """Closes the connection. The next request opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _schema(self, answer: Mapping[str, Any]) -> Schema:
        texts: dict[str, str] = {}
        self._add_references(answer, texts, set())
        return Schema(str(answer.get("schemaType") or "AVRO"), self._field(answer, "schema", str), texts)

    def _add_references(self, answer: Mapping[str, Any], texts: dict[str, str], asked: set[str]) -> None:
        """Adds the texts of the schemas that a schema refers to, after those that they refer to themselves."""
        for one in answer.get("references") or ():
            name, subject, version = (
                self._field(one, key, kind) for key, kind in (("name", str), ("subject", str), ("version", int))
            )
            if name in asked:
                continue
            asked.add(name)
            if len(asked) > MOST_REFERENCES:
                raise PipelineError(f"a schema of {self.url} refers to more than {MOST_REFERENCES} others")
            found = self._ask(f"/subjects/{quote(subject, safe='')}/versions/{version}", NO_SUBJECT, NO_VERSION)
            if found is None:
                raise PipelineError(
                    f"the schema registry {self.url} has no version {version} of {subject}, to which a schema refers",
                    "register it again",
                )
            self._add_references(found, texts, asked)
            texts[name] = self._field(found, "schema", str)

    def _field(self, answer: Any, name: str, kind: type[Any]) -> Any:
        value = answer.get(name) if isinstance(answer, dict) else None
        if not isinstance(value, kind):
            raise PipelineError(f"{self.url} answers without {name}, so it is no schema registry", _CHECK_URL)
        return value

    def _ask(self, path: str, *absent: int) -> Any:
        """Returns the answer to a GET. None if the registry answers 404 with an error code in `absent`."""
        until, problem = time.monotonic() + self._retry_s, ""
        for pause in _pauses():
            try:
                status, body = self._get(path)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if isinstance(error, ssl.SSLCertVerificationError):
                    raise PipelineError(
                        f"the certificate of the schema registry {self.url} is not trusted: {error.verify_message}",
                        "set schema-registry-ca to a PEM file of its authority",
                    ) from error
                problem = f"does not answer ({type(error).__name__}: {error})"
            else:
                if status == 200:
                    return self._parsed(body, path)
                if status == 404 and _error_code(body) in absent:
                    return None
                problem = f"answers {status} to {path}"
                if status not in TRANSIENT:
                    raise PipelineError(f"the schema registry {self.url} {problem}", _REMEDIES.get(status, _CHECK_URL))
            if time.monotonic() + pause > until:
                break
            self._sleep(pause)
        raise PipelineError(f"the schema registry {self.url} {problem}; {RETRIED}", "start the job when it works")

    def _get(self, path: str) -> tuple[int, bytes]:
        """Sends a GET, on the open connection if there is one. Raises OSError and HTTPException."""
        if self._connection is None:
            self._connection = (
                http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
                if self._tls is None
                else http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT_S, context=self._tls)
            )
        self._connection.request("GET", self._path + path, headers=self._headers)
        response = self._connection.getresponse()
        body = response.read(MOST_BYTES + 1)
        if len(body) > MOST_BYTES:
            self.close()
            raise PipelineError(f"the schema registry {self.url} answers more than {MOST_BYTES} bytes to {path}")
        if response.will_close:
            self.close()
        return response.status, body

    def _parsed(self, body: bytes, path: str) -> Any:
        try:
            return dict(json.loads(body))
        except (ValueError, TypeError) as error:
            raise PipelineError(f"{self.url} answers {path} with something else than JSON", _CHECK_URL) from error


_CHECK_URL = "check schema-registry: the URL below which there is /schemas/ids"
_LOGIN = f"set schema-registry-login, or {LOGIN_VARIABLE} in the environment, to USER:PASSWORD"
_REMEDIES = {401: _LOGIN, 403: _LOGIN}


def _pauses() -> Iterator[float]:
    yield from PAUSES_S
    while True:
        yield PAUSES_S[-1]


def _error_code(body: bytes) -> int | None:
    try:
        code = json.loads(body)["error_code"]
    except (ValueError, KeyError, TypeError):
        return None
    return code if isinstance(code, int) else None


def _tls(authority: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authority or None)
    except OSError as error:
        raise PipelineError(f"schema-registry-ca {authority} cannot be read: {error}", "set a PEM file") from error
