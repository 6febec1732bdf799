"""Parses the parts of an HTTP request that the metrics port needs: method, path, query, and Host.

A browser on the broker's machine can connect to local ports on behalf of any web page. If evil.example resolves to
127.0.0.1 (DNS rebinding), its page could read the responses as its own. Such a request has evil.example as its Host, so
only these Hosts are answered:

    A   an IP address, which DNS cannot redirect, or no Host at all, which no browser sends
    B   a name without a dot: localhost, a container or a service; the public DNS has no such host names
    C   the name that the server listens on, and those in odradek.metrics.allowed.hosts; `*` there allows every name
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection


def request_line(head: bytes) -> tuple[str | None, str]:
    """Returns the method and the path without the query, or (None, "") if the bytes are not an HTTP request."""
    words = head.partition(b"\r\n")[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        return None, ""
    return words[0].decode("latin-1"), words[1].decode("latin-1").partition("?")[0]


def query_of(head: bytes) -> str:
    """Returns what stands behind the `?` of an HTTP request, or ""."""
    return head.partition(b"\r\n")[0].split(b" ")[1].decode("latin-1").partition("?")[2]


def is_host_allowed(head: bytes, names: Collection[str]) -> bool:
    """Whether every Host header of the request is allowed. `names` (C) must be in lower case."""
    return "*" in names or all(_is_allowed(host, names) for host in _hosts(head))


def _hosts(head: bytes) -> list[str]:
    """Returns the values of the Host headers, without ports and in lower case."""
    fields = (line.partition(b":") for line in head.split(b"\r\n")[1:])
    values = [value.strip().decode("latin-1") for name, _, value in fields if name.strip().lower() == b"host"]
    return [_without_port(value).lower().removesuffix(".") for value in values]


def _without_port(value: str) -> str:
    if value.startswith("["):
        return value[1:].partition("]")[0]
    return value.partition(":")[0]


def _is_allowed(host: str, names: Collection[str]) -> bool:
    return ("." not in host and ":" not in host) or host in names or _is_address(host)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
