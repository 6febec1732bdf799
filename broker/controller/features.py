"""The finalized features of the cluster (KIP-584): the entry `/feature`, which each controller brings into the form of
its inter.broker.protocol.version. There are none that we know; those that others have finalized are kept.

Source: Kafka's `KafkaController.enableFeatureVersioning`, `FeatureZNode`.
"""

from __future__ import annotations

import structlog

from odradek.broker.controller.fenced_store import FencedStore
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import (
    BadVersion,
    Create,
    EntryExists,
    NoEntry,
    Operation,
    Set,
    StoreDamaged,
)

log = structlog.get_logger("controller")


async def enable_features(store: FencedStore) -> None:
    """Creates the entry, or writes it anew if it is not as we write it. Raises ControllerMoved, MetadataStoreError."""
    while True:
        entry = await store.exists(znodes.FEATURE)
        operation: Operation = Create(znodes.FEATURE, znodes.encode_features({}))
        if entry is not None:
            try:
                data = znodes.encode_features(znodes.parse_features(entry.data))
            except StoreDamaged as error:
                log.error("finalized features left alone", reason=str(error))
                return
            if data == entry.data:
                return
            operation = Set(znodes.FEATURE, data, entry.version)
        try:
            await store.multi([operation])
        except (BadVersion, EntryExists, NoEntry):
            continue
        return
