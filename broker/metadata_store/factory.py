"""Chooses a broker's metadata store by its settings, and makes it.

There is one kind so far: the embedded store, which belongs to this broker alone. Tests and `odradek.testing` pass a
factory of their own to the broker. Whether other brokers share a store is a property of it: `is_shared`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.broker.background.tasks import Threads
    from odradek.broker.metadata_store.interface import MetadataStore
    from odradek.broker.settings.config import BrokerConfig
    from odradek.storage.files import Files

NewMetadataStore = Callable[["BrokerConfig", "Files", "Threads"], "MetadataStore"]
"""Makes the store of a broker with these settings, not open yet. The files are on the broker's disk; the background
runs the store's threads and tasks.
"""


def metadata_store_of(config: BrokerConfig, files: Files, background: Threads) -> MetadataStore:
    """Returns a store in the first log directory. A broker imports only the kind of store that it uses."""
    from odradek.broker.metadata_store.embedded_store import EmbeddedMetadataStore

    return EmbeddedMetadataStore(config.log_dirs[0], files, run_blocking=background.run_in_thread)
