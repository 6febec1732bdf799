"""Addresses of brokers in responses: clients get those of the proxy, so that they do not connect past it.

Metadata, FindCoordinator and DescribeCluster have them, and errors of Produce 10, Fetch 16 (KIP-951), ShareFetch and
ShareAcknowledge. A response with addresses must be decoded. So ApiVersions lists these APIs only in versions that the
codec has. All other APIs and versions go on as they are, whether the codec has them or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from odradek.broker.requests.endpoint import address_text
from odradek.clients.recording.conversation import Asked
from odradek.clients.recording.decoding import is_decodable
from odradek.clients.recording.secrets import structures
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.registry import codec_versions

Address = tuple[str, int]

FIRST_WITH_ADDRESSES = {
    ApiKey.PRODUCE: 10,
    ApiKey.FETCH: 16,
    ApiKey.METADATA: 0,
    ApiKey.FIND_COORDINATOR: 0,
    ApiKey.DESCRIBE_CLUSTER: 0,
    ApiKey.SHARE_FETCH: 0,
    ApiKey.SHARE_ACKNOWLEDGE: 0,
}
"""The first version of each API whose responses may have addresses."""


def text_of(address: Address) -> str:
    """Returns HOST:PORT, with an IPv6 address in brackets."""
    return address_text(*address)


def may_have_addresses(asked: Asked) -> bool:
    first = FIRST_WITH_ADDRESSES.get(ApiKey(asked.api_key)) if asked.api_key in FIRST_WITH_ADDRESSES else None
    return first is not None and asked.version >= first


def is_unreadable(asked: Asked) -> bool:
    """Whether the response would have addresses that the proxy could not replace."""
    return may_have_addresses(asked) and not is_decodable(asked)


def addressed(message: Any) -> Iterator[Any]:
    """Yields the structures of a response that have an address."""
    for structure in structures(message):
        if {"host", "port"} <= set(structure.__slots__) and structure.host and structure.port > 0:
            yield structure


def addresses_in(message: Any) -> set[Address]:
    return {(structure.host, structure.port) for structure in addressed(message)}


def replace_addresses(message: Any, ports: Mapping[Address, int], host: str) -> None:
    """Every address becomes `host` with the port that `ports` has for it."""
    for structure in addressed(message):
        structure.host, structure.port = host, ports[structure.host, structure.port]


def limit_versions(response: Any) -> None:
    """Leaves the versions out of an ApiVersions response whose addresses could not be replaced."""
    kept = []
    for entry in response.api_keys:
        if entry.api_key in FIRST_WITH_ADDRESSES or entry.api_key == ApiKey.API_VERSIONS:
            known = codec_versions(entry.api_key)
            entry.min_version = max(entry.min_version, known.lowest)
            entry.max_version = min(entry.max_version, known.highest)
        if entry.min_version <= entry.max_version:
            kept.append(entry)
    response.api_keys = kept
