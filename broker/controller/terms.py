"""The terms in which this broker is the controller: it stands for election, begins a term, resigns; and runs the events
of the term, one after the other.

    (A) A broker stands for election as soon as it is registered in the same session. All that happens between election
        and resignation is in a `Term`.
    (B) The controller resigns when its session ends, when a check of the controller epoch fails, or when the entry of
        the controller has changed. It ends its term after an unexpected error, too, and a new one starts from what is
        stored.
    (C) An event whose term has ended fails with NOT_CONTROLLER.

Source: Kafka's `KafkaController` (`elect`, `maybeResign`, `onControllerFailover`, `triggerControllerMove`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import structlog

from odradek.broker.controller.control_channels import ControlTarget
from odradek.broker.controller.controller_context import ControllerNumbers
from odradek.broker.controller.controller_election import NOBODY, ControllerElection, Lost, Won
from odradek.broker.controller.events import Events
from odradek.broker.controller.fenced_store import ControllerMoved
from odradek.broker.controller.partition_changes import storage_error
from odradek.broker.controller.term import RETRY_DELAY_S, Dependencies, Term, Work
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import MetadataStoreError, SessionState, has_lost_connection
from odradek.broker.metadata_store.read_back import retry_until_connected
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.timer.clock import Clock

T = TypeVar("T")

ELECTION = "election"

log = structlog.get_logger("controller")


class Terms:
    """`term` is the current one, or None. `on_active_controller` is called with the id of the active
    controller whenever it changes; -1: none is known.
    """

    _own: ControlTarget

    def __init__(self, dependencies: Dependencies, clock: Clock, on_active_controller: Callable[[int], object]) -> None:
        self.term: Term | None = None
        self._dependencies = dependencies
        self._store = dependencies.store
        self._broker_id = dependencies.broker_id
        self._on_active_controller = on_active_controller
        self._election = ControllerElection(dependencies.store, dependencies.broker_id, clock, self._election_needed)
        self._events = Events(dependencies.spawn, self._failed)
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
        """Waits for the event in progress, and ends the term. The entry of the controller ends with the session."""
        await self._events.stop()
        if self.term is not None:
            self._leave(self.term, "the broker stops")

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        return self.term is not None

    @property
    def epoch(self) -> int:
        """The controller epoch of the current term, or -1."""
        return -1 if self.term is None else self.term.context.epoch

    def numbers(self) -> ControllerNumbers:
        """Returns the metrics."""
        return ControllerNumbers() if self.term is None else self.term.context.numbers()

    # Events

    def current(self) -> Term:
        """Returns the term. Raises NOT_CONTROLLER."""
        if self.term is None:
            raise not_controller()
        return self.term

    async def ask(self, name: str, work: Callable[[Term], Awaitable[T]]) -> T:
        """Runs an event of a request. Raises NOT_CONTROLLER, KAFKA_STORAGE_ERROR, and what `work` raises."""
        term = self.current()
        return await self._events.ask(name, lambda: self._in_term(term, lambda: work(term)))

    async def own_answered(self) -> None:
        """Waits until this broker has carried out what was sent to it."""
        term = self.term
        while term is not None and await term.channels.own_answered() and term.own_losses:
            try:
                await self.ask("what this broker has lost", _nothing)
            except ProtocolError:
                return  # another controller is active; the change is stored

    def _schedule(self, term: Term) -> _TermEvents:
        return _TermEvents(self._events, lambda work: self._in_term(term, work), term.won.epoch)

    async def _in_term(self, term: Term, work: Callable[[], Awaitable[T]]) -> T:
        """Runs an event of this term, and sends what it has collected. Raises ProtocolError."""
        if term is not self.term:
            raise not_controller()
        try:
            try:
                result = await work()
            except (MetadataStoreError, ProtocolError):
                await term.send()
                raise
            await term.send()
            return result
        except ProtocolError:
            raise
        except ControllerMoved as error:
            self._leave(term, str(error))
            self._election_needed()
            raise ProtocolError(ErrorCode.NOT_CONTROLLER) from error
        except MetadataStoreError as error:
            raise storage_error(error) from error
        except Exception as error:
            log.exception("controller gives up its term")
            await self._give_up(term)
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
            if self.term is not None:
                self._leave(self.term, "the session with the metadata store has ended")
            self._know(NOBODY)
        elif state is SessionState.CONNECTED:
            self._election_needed()

    def _election_needed(self) -> None:
        self._events.put_once(ELECTION, self._follow)

    async def _follow(self) -> None:
        """Finds out who is the controller, and stands for election if nobody is. Raises MetadataStoreError."""
        if self.term is not None:
            entry, controller_id = await self._election.leader()
            if entry is not None and entry.owner == self._store.session_id and controller_id == self._broker_id:
                return
            self._leave(self.term, "the entry of the controller has changed")
        if not await self._is_registered():
            _, controller_id = await self._election.leader()
            self._know(controller_id)
            return
        session = self._store.session_epoch
        outcome = await self._election.stand()
        if isinstance(outcome, Lost):
            self._know(outcome.controller_id)
        elif self._store.session_epoch == session:
            await self._begin_term(outcome)
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
        if self.term is None:
            self._election_needed()

    async def _begin_term(self, won: Won) -> None:
        log.info("elected as controller", epoch=won.epoch)
        term = self.term = Term(won, self._dependencies, self._own, self._schedule)
        self._know(self._broker_id)
        try:
            await term.begin()
        except ControllerMoved as error:
            self._leave(term, str(error))
            self._election_needed()
        except MetadataStoreError as error:
            log.warning("controller could not begin its term", epoch=won.epoch, reason=str(error))
            await self._give_up(term, "the metadata store could not be read")
        except Exception:
            log.exception("controller could not begin its term")
            await self._give_up(term)

    def _leave(self, term: Term, reason: str) -> None:
        """Resigns (B)."""
        if term is self.term:
            log.info("controller resigns", epoch=term.context.epoch, reason=reason)
            term.close()
            self.term = None
            self._know(NOBODY)

    async def _give_up(self, term: Term, reason: str = "an unexpected error") -> None:
        """Ends the term, and lets a new controller be elected after a while."""
        self._leave(term, reason)
        self._events.put_once(ELECTION, self._follow, RETRY_DELAY_S)
        try:
            await self._election.withdraw(term.won.epoch_version)
        except MetadataStoreError as error:
            log.warning("entry of the controller not deleted", reason=str(error))

    def _know(self, controller_id: int) -> None:
        if controller_id != self._active_id:
            self._active_id = controller_id
            self._on_active_controller(controller_id)


class _TermEvents:
    """The events of one term: see `Schedule`. They are dropped when it has ended."""

    def __init__(self, events: Events, run: Callable[[Work], Awaitable[Any]], epoch: int) -> None:
        self._events = events
        self._run = run
        self._epoch = epoch

    def each(self, name: str, work: Work, /) -> None:
        self._events.put(name, lambda: self._run(work))

    def once(self, name: str, work: Work, /, delay_s: float = 0) -> None:
        self._events.put_once(f"{name} in epoch {self._epoch}", lambda: self._run(work), delay_s)


async def _nothing(_term: Term) -> None:
    """The event that comes after all that are queued now."""


def not_controller() -> ProtocolError:
    """The answer of a broker that is not the controller."""
    return ProtocolError(ErrorCode.NOT_CONTROLLER)
