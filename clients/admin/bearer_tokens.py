"""Tokens for SASL OAUTHBEARER, which clients get as Kafka's Java client does: by `sasl.oauthbearer.token.endpoint.url`.

    (A) At an HTTP server: a token is requested with the `clientId`, `clientSecret` and `scope` of `sasl.jaas.config`
        (OAuth's client credentials), and used until RENEWED_AT of its life have passed.
    (B) A `file:` URL: the token is in the file, which is read for each login.
    (C) Java could load other classes by `sasl.login.callback.handler.class`; here that is an error.
    (D) The server's certificate must be one that the machine trusts. Redirections are not followed, as they could lead
        the secret elsewhere. Errors show neither tokens nor secrets.

Source: RFC 6749, 4.4; Kafka's `OAuthBearerLoginCallbackHandler` (KIP-768).
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from odradek.broker.security.jaas import JaasError, parse_login_module
from odradek.broker.security.sasl.client import OAUTHBEARER
from odradek.broker.settings.config import ConfigError
from odradek.storage.files import Files

URL, HANDLER, JAAS = "sasl.oauthbearer.token.endpoint.url", "sasl.login.callback.handler.class", "sasl.jaas.config"
PACKAGE = "org.apache.kafka.common.security.oauthbearer."
MODULE = f"{PACKAGE}OAuthBearerLoginModule"
HANDLERS = tuple(f"{PACKAGE}{name}OAuthBearerLoginCallbackHandler" for name in ("secured.", ""))
"""The class until Kafka 3.9 and since Kafka 4.0."""
TIMEOUT_S = 10.0
RENEWED_AT = 0.8
LONGEST = 1 << 20
"""The maximum size of a response, in bytes."""


class BearerTokens:
    """The tokens of one login. Thread-safe. `login`: the options of the login module."""

    def __init__(
        self, url: str, login: Mapping[str, str], files: Files, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._url, self._login, self._files, self._now = url, login, files, now
        self._requesting = threading.Lock()
        self._token, self._until = "", 0.0

    @property
    def holder(self) -> str:
        """Who logs in, for messages."""
        return self._login.get("clientId", "the holder of the token")

    def token(self) -> str:
        """Returns a token that is valid for some time yet. Raises ConfigError."""
        if self._url.startswith("file:"):
            return self._read(urllib.parse.unquote(urllib.parse.urlsplit(self._url).path))
        with self._requesting:
            if self._now() >= self._until:
                asked = self._now()
                self._token, life_s = self._requested()
                self._until = asked + life_s * RENEWED_AT
            return self._token

    def _read(self, path: str) -> str:
        try:
            return self._files.read_file(path).decode("ascii").strip()
        except OSError as error:
            raise ConfigError(URL, f"{URL}: cannot read {path}: {error.strerror}") from None
        except ValueError:
            raise ConfigError(URL, f"{URL}: {path} is not a token") from None

    def _requested(self) -> tuple[str, float]:
        """Returns a new token, and its life in seconds."""
        pair = f"{self._login['clientId']}:{self._login['clientSecret']}".encode()
        form = {"grant_type": "client_credentials", "scope": self._login.get("scope", "")}
        request = urllib.request.Request(
            self._url,
            urllib.parse.urlencode({name: value for name, value in form.items() if value}).encode(),
            {"Authorization": f"Basic {base64.b64encode(pair).decode()}", "Accept": "application/json"},
        )
        opener = urllib.request.build_opener(
            _NoRedirections, urllib.request.HTTPSHandler(context=ssl.create_default_context())
        )
        try:
            with opener.open(request, timeout=TIMEOUT_S) as response:
                answer = json.loads(response.read(LONGEST))
            return str(answer["access_token"]), float(answer.get("expires_in", 0))
        except urllib.error.HTTPError as error:
            error.close()
            problem = f"{error.code} {error.reason}"
        except (OSError, http.client.HTTPException) as error:
            problem = str(getattr(error, "reason", error))
        except (ValueError, KeyError, TypeError):
            problem = "the response has no access_token"
        raise ConfigError(URL, f"{self._url} gives {self.holder} no token: {problem}; check {URL} and {JAAS}")


class _NoRedirections(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def bearer_tokens(properties: Mapping[str, str], files: Files) -> BearerTokens:
    """Returns the tokens of a client's properties; the same object for the same properties. Raises ConfigError."""
    if properties.get(HANDLER, "").strip() not in HANDLERS:
        raise ConfigError(HANDLER, f"{OAUTHBEARER} needs {HANDLER}={HANDLERS[0]}; other classes are Java's alone")
    url = properties.get(URL, "").strip()
    if not url.startswith(("http:", "https:", "file:")):
        raise ConfigError(URL, f"{OAUTHBEARER} needs {URL} with http, https or file")
    try:
        module = parse_login_module(properties.get(JAAS, ""), JAAS)
    except JaasError as error:
        raise ConfigError(JAAS, str(error)) from None
    if module.class_name != MODULE:
        raise ConfigError(JAAS, f"{JAAS}: the login module of {OAUTHBEARER} is {MODULE}")
    missing = [name for name in ("clientId", "clientSecret") if name not in module.options]
    if missing and not url.startswith("file:"):
        raise ConfigError(JAAS, f"{JAAS} lacks the option {' and '.join(missing)}")
    return _tokens(url, tuple(sorted(module.options.items())), files)  # type: ignore[arg-type]


@lru_cache(maxsize=16)
def _tokens(url: str, login: tuple[tuple[str, str], ...], files: Files) -> BearerTokens:
    return BearerTokens(url, dict(login), files)
