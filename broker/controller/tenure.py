"""The times in which this broker is the controller: stands for election, takes office, resigns; and runs the events of
the office, one after the other.

    (A) A broker stands for election as soon as it is registered in the same session. All that happens between election
        and resignation is in an `Office`.
    (B) The controller resigns when its session ends, when a check of the controller epoch fails, or when the entry of
        the controller has changed. After an unexpected error it gives up its office, and a new term starts from what is
        stored.
    (C) An event whose office has ended fails with NOT_CONTROLLER.

Source: Kafka's `KafkaController` (`elect`, `maybeResign`, `onControllerFailover`, `triggerControllerMove`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import structlog

from odradek.broker.controller.candidacy import NOBODY, Candidacy, Lost, Won
from odradek.broker.controller.control_channels import ControlTarget
from odradek.broker.controller.controller_context import ControllerNumbers
from odradek.broker.controller.events import Events
from odradek.broker.controller.fenced_store import ControllerMoved
from odradek.broker.controller.office import RETRY_DELAY_S, Office, Surroundings, Work
from odradek.broker.controller.partition_changes import storage_error
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import MetadataStoreError, SessionState, has_lost_connection
from odradek.broker.metadata_store.read_back import retry_until_connected
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.timer.clock import Clock

T = TypeVar("T")

ELECTION = "election"

log = structlog.get_logger("controller")


class Tenure:
    """`office` is the current term of office, or None. `on_active_controller` is called with the id of the active
    controller whenever it changes; -1: none is known.
    """

    _own: ControlTarget

    def __init__(self, around: Surroundings, clock: Clock, on_active_controller: Callable[[int], object]) -> None:
        self.office: Office | None = None
        self._around = around
        self._store = around.store
        self._broker_id = around.broker_id
        self._on_active_controller = on_active_controller
        self._candidacy = Candidacy(around.store, around.broker_id, clock, self._election_needed)
        self._events = Events(around.spawn, self._failed)
        self._active_id = NOBODY
        self._awaits_registration_in = 0

    # Life

    async def start(self, own: ControlTarget) -> None:
        """Stands for election. Returns when there is a controller; if it is this one, when this broker has carried out
        the first requests. `own` carries out control requests on this broker. Raises MetadataStoreError.
        """
        self._own = own
        self._store.add_session_listener(self._session_changed)
        self._events.start()
        await retry_until_connected(self._store, lambda: self._events.ask(ELECTION, self._follow))

        await self.own_answered()

    async def stop(self) -> None:
        """Waits for the event in progress, and leaves office. The entry of the controller ends with the session."""
        await self._events.stop()
        if self.office is not None:
            self._leave(self.office, "the broker stops")

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        return self.office is not None

    @property
    def epoch(self) -> int:
        """The controller epoch of the current office, or -1."""
        return -1 if self.office is None else self.office.context.epoch

    def numbers(self) -> ControllerNumbers:
        """Returns the metrics."""
        return ControllerNumbers() if self.office is None else self.office.context.numbers()

    # Events

    def current(self) -> Office:
        """Returns the office. Raises NOT_CONTROLLER."""
        if self.office is None:
            raise not_controller()
        return self.office

    async def ask(self, name: str, work: Callable[[Office], Awaitable[T]]) -> T:
        """Runs an event of a request. Raises NOT_CONTROLLER, KAFKA_STORAGE_ERROR, and what `work` raises."""
        office = self.current()
        return await self._events.ask(name, lambda: self._in_office(office, lambda: work(office)))

    async def own_answered(self) -> None:
        """Waits until this broker has carried out what was sent to it."""
        office = self.office
        while office is not None and await office.channels.own_answered() and office.own_losses:
            try:
                await self.ask("what this broker has lost", _nothing)
            except ProtocolError:
                return  # another controller is in office; the change is stored

    def _schedule(self, office: Office) -> _OfficeEvents:
        return _OfficeEvents(self._events, lambda work: self._in_office(office, work), office.won.epoch)

    async def _in_office(self, office: Office, work: Callable[[], Awaitable[T]]) -> T:
        """Runs an event of this office, and sends what it has collected. Raises ProtocolError."""
        if office is not self.office:
            raise not_controller()
        try:
            try:
                result = await work()
            except (MetadataStoreError, ProtocolError):
                await office.send()
                raise
            await office.send()
            return result
        except ProtocolError:
            raise
        except ControllerMoved as error:
            self._leave(office, str(error))
            self._election_needed()
            raise ProtocolError(ErrorCode.NOT_CONTROLLER) from error
        except MetadataStoreError as error:
            raise storage_error(error) from error
        except Exception as error:
            log.exception("controller gives up its office")
            await self._give_up(office)
            raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR) from error

    def _failed(self, name: str, error: Exception) -> None:
        """An event failed that nobody waits for. One that reads the store is tried again."""
        if isinstance(error, ProtocolError) and error.code is ErrorCode.NOT_CONTROLLER:
            return
        line = log.info if has_lost_connection(error) else log.error
        line("event of the controller failed", name=name, reason=str(error))
        if name == ELECTION:
            self._events.put_once(name, self._follow, RETRY_DELAY_S)

    # Election

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._awaits_registration_in = 0
            if self.office is not None:
                self._leave(self.office, "the session with the metadata store has ended")
            self._know(NOBODY)
        elif state is SessionState.CONNECTED:
            self._election_needed()

    def _election_needed(self) -> None:
        self._events.put_once(ELECTION, self._follow)

    async def _follow(self) -> None:
        """Finds out who is the controller, and stands for election if nobody is. Raises MetadataStoreError."""
        if self.office is not None:
            entry, controller_id = await self._candidacy.leader()
            if entry is not None and entry.owner == self._store.session_id and controller_id == self._broker_id:
                return
            self._leave(self.office, "the entry of the controller has changed")
        if not await self._is_registered():
            _, controller_id = await self._candidacy.leader()
            self._know(controller_id)
            return
        session = self._store.session_epoch
        outcome = await self._candidacy.stand()
        if isinstance(outcome, Lost):
            self._know(outcome.controller_id)
        elif self._store.session_epoch == session:
            await self._take_office(outcome)
        else:
            self._election_needed()  # the entry has ended with its session

    async def _is_registered(self) -> bool:
        """Whether this broker is registered in this session (A). If not, it stands for election when it is."""
        session = self._store.session_epoch
        watch = None if self._awaits_registration_in == session else lambda _event: self._registration_changed()
        entry = await self._store.exists(znodes.broker_path(self._broker_id), watch)
        self._awaits_registration_in = session
        return entry is not None and entry.owner == self._store.session_id

    def _registration_changed(self) -> None:
        self._awaits_registration_in = 0
        if self.office is None:
            self._election_needed()

    async def _take_office(self, won: Won) -> None:
        log.info("elected as controller", epoch=won.epoch)
        office = self.office = Office(won, self._around, self._own, self._schedule)
        self._know(self._broker_id)
        try:
            await office.begin()
        except ControllerMoved as error:
            self._leave(office, str(error))
            self._election_needed()
        except Exception:
            log.exception("controller could not begin its office")
            await self._give_up(office)

    def _leave(self, office: Office, reason: str) -> None:
        """Resigns (B)."""
        if office is self.office:
            log.info("controller resigns", epoch=office.context.epoch, reason=reason)
            office.close()
            self.office = None
            self._know(NOBODY)

    async def _give_up(self, office: Office) -> None:
        """Leaves office, and lets a new controller be elected after a while."""
        self._leave(office, "an unexpected error")
        self._events.put_once(ELECTION, self._follow, RETRY_DELAY_S)
        try:
            await self._candidacy.withdraw(office.won.epoch_version)
        except MetadataStoreError as error:
            log.warning("entry of the controller not deleted", reason=str(error))

    def _know(self, controller_id: int) -> None:
        if controller_id != self._active_id:
            self._active_id = controller_id
            self._on_active_controller(controller_id)


class _OfficeEvents:
    """The events of one office: see `Schedule`. They are dropped when it has ended."""

    def __init__(self, events: Events, run: Callable[[Work], Awaitable[Any]], epoch: int) -> None:
        self._events = events
        self._run = run
        self._epoch = epoch

    def each(self, name: str, work: Work, /) -> None:
        self._events.put(name, lambda: self._run(work))

    def once(self, name: str, work: Work, /, delay_s: float = 0) -> None:
        self._events.put_once(f"{name} in epoch {self._epoch}", lambda: self._run(work), delay_s)


async def _nothing(_office: Office) -> None:
    """The event that comes after all that are queued now."""


def not_controller() -> ProtocolError:
    """The answer of a broker that is not the controller."""
    return ProtocolError(ErrorCode.NOT_CONTROLLER)
