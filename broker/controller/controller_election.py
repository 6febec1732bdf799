"""The race for `/controller`: one broker of the cluster creates the entry, and is the controller until it is deleted.

    (A) The entry is created together with the next controller epoch, in one transaction. Of two brokers that try at the
        same time, one loses, and reads who has won.
    (B) The entry belongs to a session. One that belongs to another session is not ours, even if it has our broker id:
        it is that of our predecessor, and vanishes with its session.
    (C) An entry that nobody can read, or that is ours but from a term that was given up, is replaced.
    (D) If the answer to the transaction is lost, the entries tell whether it was applied.

Source: Kafka's `KafkaController.elect`, `KafkaZkClient.registerControllerAndIncrementControllerEpoch`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import structlog

from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import (
    BadVersion,
    Check,
    Create,
    Delete,
    Entry,
    EntryExists,
    MetadataStore,
    NoEntry,
    Operation,
    Set,
    StoreDamaged,
)
from odradek.broker.metadata_store.one_watch import OneWatch
from odradek.broker.metadata_store.read_back import multi_or_read_back
from odradek.timer.clock import Clock

NOBODY = -1
LOSSES = (BadVersion, EntryExists, NoEntry)

log = structlog.get_logger("controller")


class Won(NamedTuple):
    """This broker was elected. `epoch_version` is the version of `/controller_epoch`."""

    epoch: int
    epoch_version: int


class Lost(NamedTuple):
    """Another broker is the controller, or NOBODY whose session is known to live."""

    controller_id: int


class ControllerElection:
    """A broker's part in the race. `on_change` is called when the entry may have changed."""

    def __init__(self, store: MetadataStore, broker_id: int, clock: Clock, on_change: Callable[[], object]) -> None:
        self._store = store
        self._broker_id = broker_id
        self._clock = clock
        self._watch = OneWatch(store, znodes.CONTROLLER, lambda _event: on_change())

    async def leader(self) -> tuple[Entry | None, int]:
        """Reads and watches the entry. Returns it, and the controller's id (NOBODY: there is none, or it is not known).

        Raises StoreUnavailable.
        """
        entry = await self._watch.read(self._store.exists)
        if entry is None:
            return None, NOBODY
        try:
            controller_id = znodes.parse_controller(entry.data)
        except StoreDamaged as error:
            log.error("entry of the controller is damaged", reason=str(error))
            return entry, NOBODY
        is_of_predecessor = controller_id == self._broker_id and entry.owner != self._store.session_id
        return entry, NOBODY if is_of_predecessor else controller_id

    async def stand(self) -> Won | Lost:
        """Tries to become the controller. Raises StoreUnavailable, and StoreDamaged for an unusable epoch."""
        while True:
            entry, controller_id = await self.leader()
            if entry is not None and not self._is_replaceable(entry):
                return Lost(controller_id)
            epoch_entry = await self._store.exists(znodes.CONTROLLER_EPOCH)
            epoch = 1
            if epoch_entry is not None:
                epoch = znodes.parse_epoch(znodes.CONTROLLER_EPOCH, epoch_entry.data) + 1
            try:
                return Won(epoch, await self._take(entry, epoch_entry, epoch))
            except LOSSES as loss:
                log.info("another broker was faster", reason=str(loss))

    async def withdraw(self, epoch_version: int) -> None:
        """Deletes the own entry after a term was given up, so that the next controller is elected."""
        entry, _ = await self.leader()
        if entry is not None and entry.owner == self._store.session_id:
            check = Check(znodes.CONTROLLER_EPOCH, epoch_version)
            try:
                await multi_or_read_back(self._store, [check, Delete(znodes.CONTROLLER, entry.version)])
            except LOSSES as loss:
                log.info("another controller was elected already", reason=str(loss))

    def _is_replaceable(self, entry: Entry) -> bool:
        """Whether the entry is nobody's (C)."""
        if entry.owner == self._store.session_id:
            return True
        try:
            znodes.parse_controller(entry.data)
        except StoreDamaged:
            return True
        return False

    async def _take(self, entry: Entry | None, epoch_entry: Entry | None, epoch: int) -> int:
        """Creates the entry (A, D). Returns the version of the epoch."""
        data = znodes.encode_number(epoch)
        operations: list[Operation] = []
        if epoch_entry is None:
            operations.append(Create(znodes.CONTROLLER_EPOCH, data))
        else:
            operations.append(Set(znodes.CONTROLLER_EPOCH, data, epoch_entry.version))
        if entry is not None:
            log.warning("entry of the controller is replaced", owner=entry.owner)
            operations.append(Delete(znodes.CONTROLLER, entry.version))
        now = self._clock.wall_ms()
        operations.append(Create(znodes.CONTROLLER, znodes.encode_controller(self._broker_id, now), ephemeral=True))
        results = await multi_or_read_back(self._store, operations)
        return results[0] if isinstance(results[0], int) else 0
