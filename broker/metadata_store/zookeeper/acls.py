"""Who may do what with the entries that a broker creates: ZooKeeper's access control lists.

With zookeeper.set.acl only the broker's own user may change its entries, and everybody may read them, except those
below SENSITIVE. The scheme `auth` stands for the user who is logged in on the connection. ZooKeeper stores the name of
this user with the scheme sasl or x509. It refuses the entry if nobody is logged in.

Source: Kafka's `ZkData.defaultAcls`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kazoo.security import ACL, Id

Acls = Sequence[ACL]
AclsOf = Callable[[str], Acls]
"""Returns the access control list of a new entry at a path, without the chroot."""

READ, ALL = 1, 31
CONSUMERS = "/consumers"
"""Open to everybody: old consumers write below it."""
SENSITIVE = ("/config/users", "/config/brokers", "/delegation_token/tokens")
"""What is there can contain secrets."""

OPEN: Acls = (ACL(ALL, Id("world", "anyone")),)
OWN: Acls = (ACL(ALL, Id("auth", "")),)
OWN_AND_READABLE: Acls = (*OWN, ACL(READ, Id("world", "anyone")))


def open_to_all(path: str) -> Acls:
    """Everybody may do everything: zookeeper.set.acl=false."""
    return OPEN


def kafkas_acls(path: str) -> Acls:
    """See the head of this file: zookeeper.set.acl=true."""
    if path == CONSUMERS:
        return OPEN
    return OWN if path.startswith(SENSITIVE) else OWN_AND_READABLE
