"""Creates the path below which all entries of a cluster are, as Kafka does at the start."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from odradek.broker.metadata_store.interface import Create, EntryExists, MetadataStoreError, TooLarge
from odradek.broker.metadata_store.zookeeper import codec
from odradek.broker.metadata_store.zookeeper.acls import AclsOf
from odradek.broker.metadata_store.zookeeper.codec import Chroot, Request

ROOT = Chroot("")


async def create_chroot(path: str, acls_of: AclsOf, send: Callable[[Request], Awaitable[Any]]) -> None:
    """Returns when the path exists and the server has answered at least one request: it serves this session. `send`
    returns a request's result. Raises MetadataStoreError.
    """
    position = 0
    while position < len(path):
        end = path.find("/", position + 1)
        position = len(path) if end < 0 else end
        request = codec.multi([Create(path[:position])], ROOT, acls_of)
        assert not isinstance(request, TooLarge), "a path is short"
        result = await send(request)
        if isinstance(result, MetadataStoreError) and not isinstance(result, EntryExists):
            raise result
    answer = await send(codec.sync(ROOT))
    if isinstance(answer, MetadataStoreError):
        raise answer
