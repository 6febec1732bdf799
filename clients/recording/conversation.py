"""Which response answers which request of a connection.

Brokers answer in the order of the requests, but leave out those that want no response (Produce with acks=0). So a
response belongs to the first request with its correlation id, and the requests before that one get none.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import NamedTuple, TypeVar

from odradek.protocol.api_keys import ApiKey

T = TypeVar("T")

_START = Struct(">hhi")
_CORRELATION_ID = Struct(">i")
_ID_LENGTH = Struct(">h")
MOST_UNANSWERED = 100_000
"""How many requests of a connection are remembered: producers with acks=0 never get a response."""
KNOWN_KEYS = frozenset(int(key) for key in ApiKey)
HIGHEST_VERSION = 31
"""Above every version of Kafka's requests. Tokens of SASL begin with other bytes than a key and such a version."""
RAW_TOKENS = (ApiKey.SASL_HANDSHAKE, 0)
"""After this request, clients send the tokens of their login as frames without a header. So do brokers."""
TOKEN_KEY = -1


class Asked(NamedTuple):
    """The beginning of a request's header. `number` counts the requests of the connection."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    number: int

    @property
    def is_token(self) -> bool:
        """Whether it is a token of a login, without a header."""
        return self.api_key == TOKEN_KEY

    @property
    def api_name(self) -> str:
        if self.is_token:
            return "SaslToken"
        return ApiKey(self.api_key).api_name if self.api_key in KNOWN_KEYS else f"API {self.api_key}"


class Conversation:
    """The requests of one connection that may still be answered."""

    def __init__(self) -> None:
        self._waiting: deque[Asked] = deque(maxlen=MOST_UNANSWERED)
        self._count = 0
        self._tokens: int | None = None
        """How many tokens of a login without headers were sent. None: no such login is under way."""

    def asked(self, data: bytes) -> Asked | None:
        """Notes and returns a request that begins with `data`, None if it is too short for one."""
        asked = self._read(data)
        if asked is not None:
            self._count += 1
            self._waiting.append(asked)
        return asked

    def _read(self, data: bytes) -> Asked | None:
        if self._tokens is not None and (self._tokens == 0 or not _is_request(data)):
            self._tokens += 1
            return Asked(TOKEN_KEY, 0, 0, None, self._count)
        self._tokens = None
        if len(data) < _START.size:
            return None
        api_key, version, correlation_id = _START.unpack_from(data)
        if (api_key, version) == RAW_TOKENS:
            self._tokens = 0
        return Asked(api_key, version, correlation_id, _client_id(data), self._count)

    def answered(self, data: bytes) -> Asked | None:
        """Returns the request that the response with this beginning answers, None if there is no such request."""
        if self._waiting and self._waiting[0].is_token:
            return self._waiting.popleft()
        if len(data) < _CORRELATION_ID.size:
            return None
        (correlation_id,) = _CORRELATION_ID.unpack_from(data)
        found = next((index for index, one in enumerate(self._waiting) if one.correlation_id == correlation_id), None)
        if found is None:
            return None
        for _ in range(found):
            self._waiting.popleft()
        return self._waiting.popleft()


def answered_of(requests: dict[int, T], number: int) -> T | None:
    """Removes and returns what is kept for an answered request, by its number. What is kept for the requests before it
    is removed, too: they get no response.
    """
    while requests and (first := next(iter(requests))) < number:
        del requests[first]
    return requests.pop(number, None)


def _is_request(data: bytes) -> bool:
    if len(data) < _START.size:
        return False
    api_key, version, _ = _START.unpack_from(data)
    return api_key in KNOWN_KEYS and 0 <= version <= HIGHEST_VERSION


def _client_id(data: bytes) -> str | None:
    if len(data) < _START.size + _ID_LENGTH.size:
        return None
    (length,) = _ID_LENGTH.unpack_from(data, _START.size)
    start = _START.size + _ID_LENGTH.size
    return None if length < 0 else data[start : start + length].decode("utf-8", "replace")
