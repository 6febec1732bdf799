"""Bugs of the sessions with the metadata store and of what brokers hear in them: see planted.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from odradek.broker.cluster.store_follower import StoreFollower
from odradek.broker.metadata_store import read_back
from odradek.broker.metadata_store.interface import WatchEvent
from odradek.broker.metadata_store.tree import _Staging
from odradek.broker.metadata_store.zookeeper import codec
from odradek.broker.metadata_store.zookeeper.zookeeper_store import ZooKeeperStore

Replace = Callable[[Any, str, Any], None]
"""replace(owner, name, replacement)"""


def _lose_watches(replace: Replace) -> None:
    replace(ZooKeeperStore, "_set_watches", lambda self: [])


def _answer_before_event(replace: Replace) -> None:
    event = ZooKeeperStore.event

    def later(self: ZooKeeperStore, watched: WatchEvent) -> None:
        asyncio.get_running_loop().call_later(0.02, event, self, watched)

    replace(ZooKeeperStore, "event", later)


def _read_without_sync(replace: Replace) -> None:
    replace(codec, "sync", lambda chroot: codec.exists("/", chroot, watched=False))


def _send_any_size(replace: Replace) -> None:
    replace(codec, "LONGEST_CHANGE", 1 << 30)
    replace(codec, "LONGEST_REQUEST", 1 << 30)


def _send_in_any_session(replace: Replace) -> None:
    async def is_connected_again(store: Any, session: int) -> bool:
        await store.connected()
        return True

    replace(read_back, "_is_connected_again", is_connected_again)


def _count_children_version(replace: Replace) -> None:
    replace(_Staging, "_creations", lambda self, parent_path, parent: parent.children_version)


def _miss_settings(replace: Replace) -> None:
    replace(StoreFollower, "changed", lambda self, event: None)


def _forget_missed_settings(replace: Replace) -> None:
    replace(StoreFollower, "_session_changed", lambda self, state: None)


SESSION_BUGS: Mapping[str, Callable[[Replace], None]] = {
    "settings that other brokers change are not applied": _miss_settings,
    "settings that were missed in a lost session are not read": _forget_missed_settings,
    "watches are lost with the connection": _lose_watches,
    "an answer comes before its event": _answer_before_event,
    "reads do not wait for a sync": _read_without_sync,
    "a change of any size is sent": _send_any_size,
    "a call is sent in the next session": _send_in_any_session,
    "names count changes, not creations": _count_children_version,
}
"""How to plant each bug."""
