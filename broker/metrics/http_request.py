"""What `/metrics` and `/health` need of an HTTP request: method, path, and whether its Host may be answered.

A browser on the broker's machine reaches what listens there, whatever page sent it: a page of evil.example whose name
comes to mean 127.0.0.1 (DNS rebinding) would read the answers as its own. The request names evil.example as its Host
then, so that only these Hosts are answered:

    A   an address, which no DNS server decides about, or none at all, as no browser sends it
    B   a name without a dot: localhost, a container's or a service's name; the public DNS has no hosts of such names
    C   the name that the server listens on, and those of odradek.metrics.allowed.hosts; `*` there allows every name
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection


def request_line(head: bytes) -> tuple[str | None, str]:
    """Method and path, without the query; (None, "") when the bytes are no HTTP request."""
    words = head.partition(b"\r\n")[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        return None, ""
    return words[0].decode("latin-1"), words[1].decode("latin-1").partition("?")[0]


def is_host_allowed(head: bytes, names: Collection[str]) -> bool:
    """Whether every Host of the request's head may be answered; `names` in lower case (C)."""
    return "*" in names or all(_is_allowed(host, names) for host in _hosts(head))


def _hosts(head: bytes) -> list[str]:
    """The values of the Host headers, without ports and in lower case."""
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
