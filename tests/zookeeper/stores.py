"""Sessions with a ZooKeeper, the model or a real one, as tests open them."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections.abc import Coroutine
from typing import Any

from kazoo.protocol import serialization as kazoo

from odradek.broker.metadata_store.interface import MetadataStoreError
from odradek.broker.metadata_store.zookeeper import codec
from odradek.broker.metadata_store.zookeeper.session_security import INSECURE, SessionSecurity
from odradek.broker.metadata_store.zookeeper.zookeeper_store import ZooKeeperStore
from odradek.broker.settings.connect_string import parse_connect_string
from odradek.timer import Clock

_numbers = itertools.count(1)


def spawn(coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(coroutine, name=name)


def new_chroot() -> str:
    """A path that no other test uses."""
    return f"/test-{os.getpid()}-{next(_numbers)}"


def store_at(
    connect: str,
    *,
    session_timeout_ms: int = 60_000,
    connection_timeout_ms: int = 120_000,
    security: SessionSecurity = INSECURE,
    clock: Clock | None = None,
) -> ZooKeeperStore:
    """`connect` as in zookeeper.connect."""
    return ZooKeeperStore(
        parse_connect_string(connect),
        session_timeout_ms=session_timeout_ms,
        connection_timeout_ms=connection_timeout_ms,
        max_in_flight=10,
        spawn=spawn,
        source=random.Random(1),
        security=security,
        clock=clock,
    )


async def acls_of(store: ZooKeeperStore, path: str) -> list[tuple[int, str, str]]:
    """The ACLs of an entry: permissions, scheme, id. Raises MetadataStoreError."""
    request = codec.Request(
        kazoo.GetACL.type,
        bytes(kazoo.GetACL(store._chroot.full(path)).serialize()),
        path,
        lambda frame, position: kazoo.GetACL.deserialize(frame, position)[0],
    )
    found = await store._send(request)
    if isinstance(found, MetadataStoreError):
        raise found
    return [(acl.perms, acl.id.scheme, acl.id.id) for acl in found]
