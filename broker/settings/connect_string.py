"""The value of zookeeper.connect: `host:port,host:port/chroot`. Source: ZooKeeper's ConnectStringParser."""

from __future__ import annotations

from typing import NamedTuple

DEFAULT_PORT = 2181


class Address(NamedTuple):
    """Where a server listens. The host is resolved at each connect."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ConnectString(NamedTuple):
    """The servers, and the path below which all entries are; empty if it is the root."""

    servers: tuple[Address, ...]
    chroot: str


def parse_connect_string(text: str) -> ConnectString:
    """Raises ValueError, which says what is wrong."""
    hosts, slash, path = text.strip().partition("/")
    chroot = "" if path == "" else slash + path
    if chroot.endswith("/") or "//" in chroot or "\0" in chroot or {".", ".."} & set(chroot.split("/")):
        raise ValueError(f"the path {chroot} is not valid")
    servers = tuple(_address(host.strip()) for host in hosts.split(",") if host.strip())
    if not servers:
        raise ValueError("it names no server")
    return ConnectString(servers, chroot)


def _address(text: str) -> Address:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{text} is not an address")
        port = rest[1:]
    elif text.count(":") > 1:
        raise ValueError(f"{text} is not an address: an IPv6 address stands in brackets")
    else:
        host, _, port = text.partition(":")
    if not host:
        raise ValueError(f"{text} has no host")
    if not port:
        return Address(host, DEFAULT_PORT)
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"{text} has no valid port")
    return Address(host, int(port))
