"""Tokens for SASL OAUTHBEARER, as Kafka's Java client gets them: from the options in `[kafka]`, for the driver's clients.

(A) With `sasl.oauthbearer.token.endpoint.url` at an HTTP server: a token is requested with the `clientId`,
    `clientSecret` and `scope` of `sasl.jaas.config` (OAuth's client credentials, RFC 6749, 4.4), and used until
    RENEWED_AT of its life have passed.
(B) With a `file:` URL: the token is in the file, which is read for each connection.
(C) Everything else that Java can load by `sasl.login.callback.handler.class` is Java's alone, so it is an error here.

Errors show neither tokens nor secrets.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

from kafka.net.sasl.oauth import AbstractTokenProvider

from odradek.pipeline.errors import PipelineError

MECHANISM = "OAUTHBEARER"
URL, HANDLER, JAAS = "sasl.oauthbearer.token.endpoint.url", "sasl.login.callback.handler.class", "sasl.jaas.config"
HANDLERS = ("OAuthBearerLoginCallbackHandler", "secured.OAuthBearerLoginCallbackHandler")
PACKAGE = "org.apache.kafka.common.security.oauthbearer."
MODULE = f"{PACKAGE}OAuthBearerLoginModule"
TIMEOUT_S = 10.0
RENEWED_AT = 0.8
LONGEST = 1 << 20
"""The maximum size of a response, in bytes."""
_OPTION = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """Provides the tokens of one pipeline, for all its clients. Raises PipelineError if the options give none."""

    def __init__(self, options: Mapping[str, str], now: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._url = options.get(URL, "")
        self._now = now
        self._requesting = threading.Lock()
        self._token, self._until = "", 0.0
        handler = options.get(HANDLER, "")
        if handler not in [f"{PACKAGE}{name}" for name in HANDLERS] or not self._url:
            raise PipelineError(
                f"[kafka] {MECHANISM} needs {URL} and {HANDLER}={PACKAGE}{HANDLERS[1]}: "
                "the driver has no tokens from another class",
                "set both",
            )
        jaas = options.get(JAAS, "")
        if not jaas.startswith(MODULE):
            raise PipelineError(f"[kafka] {JAAS}: the login module of {MECHANISM} is {MODULE}", f"set {JAAS}")
        self._login = {name: re.sub(r"\\(.)", r"\1", value) for name, value in _OPTION.findall(jaas)}
        self._tls = ssl.create_default_context() if self._url.startswith("https:") else None

    def token(self) -> str:
        """Returns a valid token. Raises PipelineError."""
        if self._url.startswith("file:"):
            return self._read()
        with self._requesting:
            if self._now() >= self._until:
                self._token, seconds = self._requested()
                self._until = self._now() + seconds * RENEWED_AT
            return self._token

    def _read(self) -> str:
        path = urllib.parse.unquote(urllib.parse.urlsplit(self._url).path)
        try:
            return Path(path).read_text().strip()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise PipelineError(f"[kafka] {URL}: the token in {path} cannot be read: {reason}") from None

    def _requested(self) -> tuple[str, float]:
        """Returns a new token, and its life in seconds."""
        missing = [name for name in ("clientId", "clientSecret") if name not in self._login]
        if missing:
            raise PipelineError(f"[kafka] {JAAS} lacks the option {' and '.join(missing)}")
        pair = f"{self._login['clientId']}:{self._login['clientSecret']}".encode()
        form = {"grant_type": "client_credentials"}
        if scope := self._login.get("scope"):
            form["scope"] = scope
        request = urllib.request.Request(
            self._url,
            urllib.parse.urlencode(form).encode(),
            {"Authorization": f"Basic {base64.b64encode(pair).decode()}", "Accept": "application/json"},
        )
        try:
            if not self._url.startswith(("http:", "https:")):
                raise PipelineError(f"[kafka] {URL} is neither of http, https nor file", f"set {URL}")
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=self._tls) as response:  # noqa: S310
                answer = json.loads(response.read(LONGEST))
            return str(answer["access_token"]), float(answer.get("expires_in", 0))
        except urllib.error.HTTPError as error:
            problem = f"{error.code} {error.reason}"
        except (OSError, urllib.error.URLError) as error:
            problem = str(getattr(error, "reason", error))
        except (ValueError, KeyError, TypeError):
            problem = "the response has no access_token"
        raise PipelineError(
            f"{self._url} gives no token for {self._login['clientId']}: {problem}", f"check {URL} and {JAAS} in [kafka]"
        )
