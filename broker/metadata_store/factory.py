"""Chooses a broker's metadata store by its settings, and makes it.

With zookeeper.connect it is a session with ZooKeeper, which the brokers of a cluster share. Without, it is the embedded
store, which belongs to this broker alone. Tests and `odradek.testing` pass a factory of their own to the broker.
Whether other brokers share a store is a property of it: `is_shared`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.broker.metadata_store.migration_note import why_not_with_zookeeper
from odradek.broker.start_error import StartError

if TYPE_CHECKING:
    from odradek.broker.background.tasks import Threads
    from odradek.broker.metadata_store.interface import MetadataStore
    from odradek.broker.settings.config import BrokerConfig
    from odradek.storage.files import Files

NewMetadataStore = Callable[["BrokerConfig", "Files", "Threads", random.Random], "MetadataStore"]
"""Makes the store of a broker with these settings, not open yet. The files are on the broker's disk; the background
runs the store's threads and tasks; the random source is the broker's.
"""


def metadata_store_of(config: BrokerConfig, files: Files, background: Threads, source: random.Random) -> MetadataStore:
    """Returns the store that the settings name. A broker imports only the kind of store that it uses. Raises StartError
    if a package is missing, or if metadata that are still in a log directory would be left behind; and ConfigError if a
    file that the settings name cannot be used.
    """
    if config.zookeeper_connect is None:
        from odradek.broker.metadata_store.embedded_store import EmbeddedMetadataStore
        from odradek.broker.metadata_store.znodes import PERSISTENT_PATHS

        return EmbeddedMetadataStore(
            config.log_dirs[0], files, run_blocking=background.run_in_thread, first_paths=PERSISTENT_PATHS
        )
    for directory in config.log_dirs:
        reason = why_not_with_zookeeper(files, directory)
        if reason is not None:
            raise StartError(reason)
    return zookeeper_store_of(config, files, background, source)


def zookeeper_store_of(
    config: BrokerConfig, files: Files, background: Threads, source: random.Random, *, creates_chroot: bool = True
) -> MetadataStore:
    """Returns a session with the ZooKeeper of zookeeper.connect, not open yet. Raises as `metadata_store_of`."""
    assert config.zookeeper_connect is not None
    try:
        from odradek.broker.metadata_store.zookeeper.session_security import session_security_of
        from odradek.broker.metadata_store.zookeeper.zookeeper_store import ZooKeeperStore
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "kazoo":
            raise
        raise StartError(
            "zookeeper.connect needs a package that is missing: pip install 'odradek[zookeeper]'"
        ) from error
    from odradek.broker.settings.connect_string import parse_connect_string

    session_timeout_ms = config.zookeeper_session_timeout_ms
    wait_ms = config.zookeeper_connection_timeout_ms
    return ZooKeeperStore(
        parse_connect_string(config.zookeeper_connect),
        session_timeout_ms=session_timeout_ms,
        connection_timeout_ms=session_timeout_ms if wait_ms is None else wait_ms,
        max_in_flight=config.zookeeper_max_in_flight_requests,
        spawn=background.spawn,
        source=source,
        security=session_security_of(config, files),
        creates_chroot=creates_chroot,
    )
