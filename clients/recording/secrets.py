"""What a recording, and the list of requests of a broker under test, do not contain: passwords, tokens and what proves
that a client knows them.

(A) SaslAuthenticate, requests and responses: the bytes of the mechanism. A login by SaslHandshake 0: its frames.
(B) AlterUserScramCredentials: salts and salted passwords.
(C) Delegation tokens: their HMACs.
(D) AlterConfigs, IncrementalAlterConfigs and CreateTopics: values of settings whose names have one of SECRET_WORDS or
    end as `.key`, unless Odradek knows the setting as one without a secret.
(E) If a frame of these APIs cannot be decoded, only its header is recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from odradek.broker.settings import BROKER, TOPIC
from odradek.clients.recording.conversation import Asked
from odradek.clients.recording.decoding import Decoded, decoded_request, decoded_response
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.schema import Message

HIDDEN = "(not recorded)"
HEADER_BYTES = 8
"""Key, version and correlation id of a request. (A response has four bytes before its body.)"""
SECRET_WORDS = ("password", "passphrase", "secret", "jaas", "credential", "token")
SECRET_FIELDS = frozenset({"auth_bytes", "salt", "salted_password", "hmac"})
SECRET_REQUESTS = frozenset(
    {
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.CREATE_TOPICS,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
    }
)
SECRET_RESPONSES = frozenset(
    {ApiKey.SASL_AUTHENTICATE, ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN}
)


def has_secrets(asked: Asked, *, is_request: bool) -> bool:
    """Whether frames of this kind may hold secrets."""
    return asked.is_token or asked.api_key in (SECRET_REQUESTS if is_request else SECRET_RESPONSES)


def request_without_secrets(asked: Asked, data: bytes) -> bytes | None:
    """Returns the frame without its secrets, None if it has none."""
    if asked.is_token:
        return b""
    return _without(decoded_request(asked, data), data[:HEADER_BYTES])


def response_without_secrets(asked: Asked, data: bytes) -> bytes | None:
    """Returns the frame without its secrets, None if it has none."""
    if asked.is_token:
        return b""
    return _without(decoded_response(asked, data), data[: HEADER_BYTES // 2])


def _without(decoded: Decoded | None, header: bytes) -> bytes | None:
    if decoded is None:
        return header
    return decoded.with_message(decoded.message) if hide_secrets(decoded.message) else None


def hide_secrets(message: Message) -> int:
    """Removes the secrets of a request or response of these APIs, and returns how many there were."""
    return sum(_hide(structure) for structure in structures(message))


def structures(message: Any) -> Iterator[Any]:
    """Yields a message and all structures in it."""
    yield message
    for field in message.__schema__.fields:
        value = getattr(message, field.attribute)
        if field.element == "struct":
            for element in value or ():
                yield from structures(element)
        elif field.type == "struct" and value is not None:
            yield from structures(value)


def _hide(structure: Any) -> int:
    """Removes the secrets of one structure, and returns how many there were."""
    hidden = 0
    for attribute in SECRET_FIELDS.intersection(structure.__slots__):
        if getattr(structure, attribute):
            setattr(structure, attribute, b"")
            hidden += 1
    if {"name", "value"} <= set(structure.__slots__) and structure.value and is_secret(structure.name):
        structure.value = HIDDEN
        hidden += 1
    return hidden


def is_secret(setting: str) -> bool:
    known = BROKER.get(setting) or TOPIC.get(setting)
    if known is not None:
        return known.is_sensitive
    name = setting.lower()
    return name.endswith(".key") or any(word in name for word in SECRET_WORDS)
