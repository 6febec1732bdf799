"""All faults of a broker or a cluster.

    broker.faults.add(api="Produce", topic="orders", nth=2, error="NOT_LEADER_OR_FOLLOWER")
    held = broker.faults.add(api="Heartbeat", group="billing", hold=True)
    ...
    held.release()

A fault that was never hit fails the test at its end, unless it is optional or was removed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack, cast, get_args

from odradek.broker.network.rounds import Dispatch
from odradek.protocol.api_keys import ApiKey
from odradek.testing.calls import Calls, noted
from odradek.testing.faults.disk import FAIL_READ, FULL, KINDS, SLOW_SYNC, DiskFault, FaultyFiles
from odradek.testing.faults.fault import Action, Change, Fault, Respond, When
from odradek.testing.faults.faulty_dispatch import FaultyDispatch
from odradek.testing.faults.journal import Journal
from odradek.testing.faults.names import error_of, nearest
from odradek.testing.faults.request import Request
from odradek.testing.faults.selector import Selected, Selector, given_of, selector_of

if TYPE_CHECKING:
    from odradek.broker.server import Broker

MOST_DELAY_S = 24 * 60 * 60
LOGINS = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)


class UnusedFaults(AssertionError):
    """A fault was never hit, or a function of one failed."""


@noted
class Faults:
    """See the head of this file. Its methods may be called from any thread."""

    def __init__(self, *, journal: bool = False, has_disks: bool = True) -> None:
        """`journal`: keeps the requests from the start, not only from its first use on. `has_disks`: whether the broker
        has the disk of `files`, not one of the test's own.
        """
        self._has_disks = has_disks
        self.calls = Calls()
        """Of these faults, and of the broker or the cluster that has them."""
        self.journal = Journal(is_on=journal)
        self.of_requests: tuple[Fault, ...] = ()
        self.of_disks: tuple[DiskFault, ...] = ()
        self._brokers: set[int] = set()
        self._all: dict[int, Fault] = {}
        self._count = 0
        self._failures: list[str] = []

    def add(
        self,
        *,
        nth: int | None = None,
        times: int | None = None,
        error: str | int | None = None,
        error_message: str | None = None,
        handled: bool = False,
        delay: float | None = None,
        hold: bool = False,
        in_order: bool = True,
        close: When | None = None,
        drop: When | None = None,
        cut: int | None = None,
        throttle_ms: int | None = None,
        corrupt: bool = False,
        respond: Respond | None = None,
        change: Change | None = None,
        disk: str | None = None,
        path: str | None = None,
        after_bytes: int | None = None,
        optional: bool = False,
        **selected: Unpack[Selected],
    ) -> Fault:
        """Adds a fault; docs/testing/faults.md says what each argument means. Without `nth` and `times` it is for every
        `selected` request until it is removed; `nth` alone is for that one. Raises ValueError for what is impossible.
        """
        others = {name: value for name, value in locals().items() if name not in ("self", "selected")}
        given = given_of(selected, others) | {name: value for name, value in others.items() if _is_given(name, value)}
        selector = self.selector(selected)
        _check_numbers(cut=cut, after_bytes=after_bytes)
        _check_numbers(least=1, nth=nth, times=times, throttle_ms=throttle_ms)
        if delay is not None and not 0 < delay <= MOST_DELAY_S:
            raise ValueError(f"delay={delay}: must be above 0 seconds, and at most a day")
        if throttle_ms is not None and throttle_ms > MOST_DELAY_S * 1000:
            raise ValueError(f"throttle_ms={throttle_ms}: must be at most a day")
        action = Action(
            delay_s=delay or 0.0,
            hold=hold,
            in_order=in_order,
            respond=respond,
            error=None if error is None else error_of(error),
            error_message=error_message,
            handled=handled,
            close=close,
            drop=drop,
            change=change,
            throttle_ms=throttle_ms or 0,
            corrupt=corrupt,
            cut=cut,
            disk=disk,
        )
        _check(given, selector, action)
        if disk is not None and not self._has_disks:
            raise ValueError("the disk of this broker was passed in as `files`; only the broker's own disk has faults")
        self._count += 1
        fault = Fault(
            self._count,
            given,
            selector,
            action,
            nth=nth,
            times=1 if nth is not None and times is None else times,
            optional=optional,
            remove=self._remove,
            calls=self.calls,
        )
        self._all[fault.number] = fault
        if disk is not None:
            self.of_disks = (*self.of_disks, DiskFault(fault, path, after_bytes or 0))
        else:
            self.of_requests = (*self.of_requests, fault)
        return fault

    def selector(self, selected: Selected) -> Selector:
        """Returns what selects requests. Raises ValueError for what no request could fit."""
        broker = selected.get("broker")
        if broker is not None and self._brokers and broker not in self._brokers:
            there_are = ", ".join(map(str, sorted(self._brokers)))
            raise ValueError(f"there is no broker {broker!r}; there is {there_are}")
        return selector_of(selected)

    async def wait_for_request(self, selected: Selected, within: float, *, answered: bool) -> Request:
        """See Asking.request."""
        what = ", ".join(f"{name}={value!r}" for name, value in given_of(selected).items())
        return await self.journal.wait(self.selector(selected), within, what, answered=answered)

    def all(self) -> list[Fault]:
        """Returns the faults that were added and not removed, oldest first."""
        return list(self._all.values())

    def clear(self) -> None:
        """Removes all faults and releases what they hold. Forgets failures, too."""
        for fault in self.all():
            fault.remove()
        self._failures.clear()

    def check(self) -> None:
        """Raises UnusedFaults if a fault that is not optional was never hit, or the function of one failed."""
        unused = [_never_hit(fault) for fault in self.all() if not fault.hits and not fault.optional]
        if unused or self._failures:
            raise UnusedFaults("\n".join([*unused, *self._failures]))

    def _remove(self, fault: Fault) -> None:
        self._all.pop(fault.number, None)
        self.of_requests = tuple(each for each in self.of_requests if each is not fault)
        self.of_disks = tuple(each for each in self.of_disks if each.fault is not fault)
        fault.release()

    # --- for the broker -----------------------------------------------------------------------------------------

    def wrap(self, broker: Broker, dispatch: Dispatch) -> Dispatch:
        """Returns the dispatch of a broker with these faults."""
        self._brokers.add(broker.broker_id)
        return FaultyDispatch(self, broker, dispatch).dispatch

    def files(self, broker: Callable[[], int | None] = lambda: None, *, is_temporary: bool = False) -> FaultyFiles:
        """Returns a disk with these faults. `broker` returns the id of the broker that it is of; `is_temporary`: see
        LinkingFiles.
        """
        return FaultyFiles(lambda: self.of_disks, broker, is_temporary=is_temporary)

    def function_failed(self, fault: Fault, error: Exception) -> None:
        """The function of a fault raised an exception."""
        self._failures.append(f"the function of {fault!r} failed: {error!r}")


ENDS = ("error", "respond", "change", "close", "drop", "cut", "throttle_ms", "corrupt", "disk")
"""What a fault does to a request; one of them."""
READ_FROM_MEMORY = ": the latest records are read from memory, unless the broker has odradek_log_tail_bytes=0"
OF_REQUESTS = ("api", "client_id", "user", "topic_id", "group", "transactional_id", "when")
OF_REQUESTS_ALONE = ("error_message", "handled", "in_order")


def _never_hit(fault: Fault) -> str:
    of_memory = fault.action.disk == FAIL_READ
    return f"{fault!r} was never hit" + (READ_FROM_MEMORY if of_memory else "")


def _is_given(name: str, value: object) -> bool:
    return value is not None and value is not (name == "in_order")


def _check_numbers(least: int = 0, **numbers: int | None) -> None:
    for name, number in numbers.items():
        if number is not None and number < least:
            raise ValueError(f"{name}={number}: must be at least {least}")


def _check(given: dict[str, Any], selector: Selector, action: Action) -> None:
    """Raises ValueError for arguments that do not go together."""
    ends = [name for name in ENDS if name in given]
    if len(ends) > 1:
        raise ValueError(f"{' and '.join(ends)}: a fault does one of these; add another fault for the other")
    if not ends and not action.waits:
        raise ValueError(f"the fault does nothing: say delay, hold, or one of {', '.join(ENDS)}")
    if action.hold and "delay" in given:
        raise ValueError("hold and delay: a fault does one of both")
    for name in ("close", "drop"):
        if getattr(action, name) not in (None, *get_args(When)):
            raise ValueError(f"{name}={getattr(action, name)!r}: must be 'before' or 'after' the request is handled")
    if action.disk is None:
        _check_request_fault(given, selector, action)
    else:
        _check_disk_fault(given, action)


def _check_request_fault(given: dict[str, Any], selector: Selector, action: Action) -> None:
    row = selector.row
    if "path" in given or "after_bytes" in given:
        raise ValueError("path and after_bytes are for faults of disks; say disk=...")
    for name in ("error_message", "handled"):
        if name in given and action.error is None:
            raise ValueError(f"{name} goes with error")
    if not action.in_order and not action.waits and action.respond is None:
        raise ValueError("in_order=False goes with delay, hold or respond: other requests do not wait")
    if action.corrupt and (row is None or row.key != ApiKey.FETCH or action.waits):
        raise ValueError('corrupt goes with api="Fetch", and with nothing else that a fault does')
    if action.waits and row is not None and row.key in LOGINS:
        raise ValueError("a login is a dialogue: its requests cannot wait")
    if action.throttle_ms and row is not None and not hasattr(row.response_class(), "throttle_time_ms"):
        raise ValueError(f"the responses of {given['api']} have no throttle_time_ms")


def _check_disk_fault(given: dict[str, Any], action: Action) -> None:
    if action.disk not in KINDS:
        raise ValueError(f"there is no fault of disks {action.disk!r}{nearest(cast(str, action.disk), KINDS)}: {KINDS}")
    wrong = [name for name in OF_REQUESTS if name in given]
    if wrong:
        raise ValueError(f"a fault of disks selects by topic, partition, path and broker, not by {', '.join(wrong)}")
    for name in OF_REQUESTS_ALONE:
        if name in given:
            raise ValueError(f"{name} is for faults of requests, not of disks")
    if "after_bytes" in given and action.disk != FULL:
        raise ValueError(f"after_bytes goes with disk={FULL!r}")
    if (action.disk == SLOW_SYNC) != action.waits:
        raise ValueError(f"delay or hold go with disk={SLOW_SYNC!r}, which needs one of both")
