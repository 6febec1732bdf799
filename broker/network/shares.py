"""Who uses how much of something that all connections share, by address, so that the greediest address goes first.

A client of one address is served while another address tries to use up everything. Someone with a network of IPv6 has
2^64 addresses in it, so these count as one.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv6Address
from typing import Generic, TypeVar

T = TypeVar("T")
NETWORK_BYTES = 8
"""Of an IPv6 address."""


def origin_of(host: str) -> str:
    """Returns what counts as one address: an IPv4 address, or a /64 network of IPv6."""
    if ":" not in host:
        return host
    return IPv6Address(host.partition("%")[0]).packed[:NETWORK_BYTES].hex()


class Share(Generic[T]):
    """What one address uses: the size of each of its users, the one that began first before the others."""

    __slots__ = ("origin", "sizes", "total")

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.sizes: dict[T, int] = {}
        self.total = 0


class Shares(Generic[T]):
    def __init__(self) -> None:
        self.total = 0
        self._by_origin: dict[str, Share[T]] = {}
        self._by_user: dict[T, Share[T]] = {}
        """In the order in which they began."""
        self._greediest: Share[T] | None = None
        """None: unknown."""

    def __len__(self) -> int:
        return len(self._by_user)

    def __contains__(self, user: T) -> bool:
        return user in self._by_user

    def __iter__(self) -> Iterator[T]:
        """The users, the one that began first before the others."""
        return iter(self._by_user)

    def of(self, user: T) -> Share[T]:
        """Returns the share of the user's address. The user must be known."""
        return self._by_user[user]

    def size_of(self, user: T) -> int:
        return self._by_user[user].sizes[user]

    @property
    def first(self) -> T:
        """The user that began first. There must be one."""
        return next(iter(self._by_user))

    @property
    def greediest(self) -> Share[T]:
        """The share of the address that uses most. There must be one."""
        if self._greediest is None:
            self._greediest = max(self._by_origin.values(), key=lambda share: share.total)
        return self._greediest

    def use(self, user: T, host: str, size: int) -> int:
        """The user, at this address, uses `size` from now on. Returns by how much that is more than before."""
        share = self._by_user.get(user)
        if share is None:
            grown = size
            share = self._by_user[user] = self._share_of(host)
        else:
            grown = size - share.sizes[user]
        share.sizes[user] = size
        share.total += grown
        self.total += grown
        if self._greediest is not None:
            self._look_again(share, grown)
        return grown

    def drained(self) -> Iterator[T]:
        """Removes and yields one after the other: of the address that uses most then, the one that began first."""
        while self._by_user:
            user = next(iter(self.greediest.sizes))
            self.remove(user)
            yield user

    def remove(self, user: T) -> None:
        """The user uses nothing. Further calls have no effect."""
        share = self._by_user.pop(user, None)
        if share is None:
            return
        size = share.sizes.pop(user)
        share.total -= size
        self.total -= size
        if not share.sizes:
            del self._by_origin[share.origin]
        if self._greediest is not None:
            self._look_again(share, -size)

    def _share_of(self, host: str) -> Share[T]:
        origin = origin_of(host)
        share = self._by_origin.get(origin)
        if share is None:
            share = self._by_origin[origin] = Share(origin)
        return share

    def _look_again(self, share: Share[T], grown: int) -> None:
        """Keeps in mind which share is the greediest after one of them has changed."""
        known = self._greediest
        if share is known:
            if grown < 0 or not share.sizes:
                self._greediest = None
        elif known is not None and share.total > known.total:
            self._greediest = share
