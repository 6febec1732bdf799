"""The broker's registration in the metadata store: the ephemeral entry `/brokers/ids/N`, which is there as long as the
broker lives.

One look at the entry decides what comes next, and the next look sees whether it was done. So it does not matter whose
answer was lost, or which of the steps was:

    entry                       next
    --------------------------  ------------------------------------------------------------------------------------
    none                        create it
    of another session          wait for its end (A)
    of this session, old data   write the addresses
    of this session             registered: its transaction number is the broker epoch

    (A) After kill -9, the entry of the process before is there until the time-out of its session. If it were reused, it
        would vanish under the living broker. A session that is still there when it must have ended belongs to another
        broker with this id: BrokerIdInUse. ZooKeeper ends sessions at its ticks, of which a session time-out has at
        least two; so an ended session may stay for half as long again.
    (B) A broker that is registered looks again when its session was lost or somebody has deleted its entry. It then
        gets a new broker epoch. If another broker has taken the id, it waits for that one's end, however long it takes.
        After any other error of the store it looks again a second later, as long as the broker runs.

Source: Kafka's `KafkaZkClient` (registerBroker, CheckedEphemeral), `KafkaController` (RegisterBrokerAndReelect).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from odradek.broker.background.tasks import Spawn
from odradek.broker.logging.lasting_failure import LastingFailure
from odradek.broker.metadata.metadata_cache import BrokerInfo
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import (
    BadVersion,
    ConnectionLost,
    EntryExists,
    MetadataStore,
    MetadataStoreError,
    SessionState,
    WatchEvent,
    has_lost_connection,
)
from odradek.broker.start_error import StartError
from odradek.timer.clock import Clock

PATIENCE = 1.5
"""How many session time-outs another session may take to end (A)."""
RETRY_DELAY_S = 1.0
"""How long after an error the entry is looked at again (B)."""

log = structlog.get_logger("cluster.registration")


class BrokerIdInUse(StartError):
    """Another broker with this id is alive."""


class BrokerRegistration:
    """Call `register` once the store is open, and again when the addresses change; and `stop` before the store is
    closed.

    `on_registered` receives the broker with its epoch, whenever either has changed.
    """

    def __init__(
        self,
        store: MetadataStore,
        *,
        clock: Clock,
        session_timeout_ms: int,
        spawn: Spawn,
        on_registered: Callable[[BrokerInfo], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._session_timeout_ms = session_timeout_ms
        self._spawn = spawn
        self._on_registered = on_registered
        self._broker: BrokerInfo | None = None
        self._path = ""
        self._data = b""
        self._session_epoch = 0
        """In which session the broker is registered."""
        self._is_registered = asyncio.Event()
        self._changed = asyncio.Event()
        """Set when the entry may not be as it was at the last look."""
        self._looking = asyncio.Lock()
        self._keeper: asyncio.Task[Any] | None = None
        self._failure = LastingFailure(clock)
        store.add_session_listener(self._session_changed)

    def broker_epoch(self) -> int:
        """Returns the epoch of the last registration; -1 before the first one."""
        return -1 if self._broker is None else self._broker.epoch

    async def registered(self) -> None:
        """Returns once the broker is registered: for the first time, or in a new session after the last one ended."""
        await self._is_registered.wait()

    async def register(self, broker: BrokerInfo) -> BrokerInfo:
        """Returns the broker with its epoch. Raises BrokerIdInUse (A), StoreUnavailable."""
        self._path = znodes.broker_path(broker.broker_id)
        self._data = znodes.encode_broker(broker, self._clock.wall_ms())
        async with self._looking:
            registered = await self._settle(broker)
        if self._keeper is None:
            self._keeper = self._spawn(self._keep(), "broker registration")
        return registered

    def stop(self) -> None:
        """Ends the registration's care for the entry, which is deleted with the session."""
        if self._keeper is not None:
            self._keeper.cancel()

    async def _keep(self) -> None:
        """Looks again whenever there is reason to (B)."""
        while True:
            await self._changed.wait()
            assert self._broker is not None, "the broker was registered before"
            try:
                async with self._looking:
                    await self._settle(self._broker)
                self._failure.over()
            except BrokerIdInUse as error:
                log.error("broker not registered", reason=str(error))
                self._changed.set()
            except MetadataStoreError as error:
                line = log.info if has_lost_connection(error) else log.error
                self._failure.met(line, str(error), "broker not registered", reason=str(error))
                await asyncio.sleep(RETRY_DELAY_S)
                self._changed.set()

    async def _settle(self, broker: BrokerInfo) -> BrokerInfo:
        """Looks and acts until the entry is there, of this session and with the addresses."""
        other, ends_at = 0, 0.0
        while True:
            self._changed.clear()
            try:
                entry = await self._store.exists(self._path, self._entry_changed)
                if entry is None:
                    await self._store.create(self._path, self._data, ephemeral=True)
                elif entry.owner == self._store.session_id:
                    if entry.data == self._data:
                        return self._registered(broker._replace(epoch=entry.created))
                    await self._store.set(self._path, self._data, entry.version)
                else:
                    if entry.owner != other:
                        other, ends_at = entry.owner, self._begin_to_wait(broker)
                    await self._wait(broker, ends_at)
            except (EntryExists, BadVersion):
                pass
            except ConnectionLost:
                await self._store.connected()

    def _registered(self, broker: BrokerInfo) -> BrokerInfo:
        self._session_epoch = self._store.session_epoch
        before, self._broker = self._broker, broker
        self._is_registered.set()
        if broker != before:
            log.info("broker registered", broker_id=broker.broker_id, epoch=broker.epoch)
            self._on_registered(broker)
        return broker

    def _begin_to_wait(self, broker: BrokerInfo) -> float:
        """The process before has asked for the same session time-out, and was granted the same."""
        patience_ms = PATIENCE * max(self._session_timeout_ms, self._store.granted_timeout_ms)
        log.warning(
            "broker id registered by another session, waiting for its end",
            broker_id=broker.broker_id,
            at_most_ms=round(patience_ms),
        )
        return asyncio.get_running_loop().time() + patience_ms / 1000

    async def _wait(self, broker: BrokerInfo, ends_at: float) -> None:
        """Waits for a change, until `ends_at` at the latest. Raises BrokerIdInUse if it is later already: the entry has
        been seen after that.
        """
        if asyncio.get_running_loop().time() >= ends_at:
            raise BrokerIdInUse(
                f"Another broker with id {broker.broker_id} is registered in the metadata store and alive: stop it, or "
                "give this one another broker.id"
            )
        try:
            async with asyncio.timeout_at(ends_at):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _entry_changed(self, _event: WatchEvent) -> None:
        self._changed.set()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._is_registered.clear()
        elif state is SessionState.CONNECTED and self._store.session_epoch != self._session_epoch:
            self._changed.set()
