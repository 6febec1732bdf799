"""All faults of a broker or a cluster.

    broker.faults.add(api="Produce", topic="orders", nth=2, error="NOT_LEADER_OR_FOLLOWER")
    held = broker.faults.add(api="Heartbeat", group="billing", hold=True)
    ...
    held.release()

A fault that was never hit fails the test at its end, unless it is optional or was removed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack, cast

from odradek.broker.network.rounds import Dispatch
from odradek.protocol.api_keys import ApiKey
from odradek.testing.calls import Calls, noted
from odradek.testing.faults.arguments import (
    FAIL_READ,
    FULL,
    REQUESTS,
    SLOW_SYNC,
    FaultArguments,
    Selected,
    given_of,
    names_of,
    values_of,
)
from odradek.testing.faults.disk import DiskFault, FaultyFiles
from odradek.testing.faults.fault import Action, Fault
from odradek.testing.faults.faulty_dispatch import FaultyDispatch
from odradek.testing.faults.journal import Journal
from odradek.testing.faults.request import Request
from odradek.testing.faults.selector import Selector, selector_of

if TYPE_CHECKING:
    from odradek.broker.server import Broker

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

    def add(self, **arguments: Unpack[FaultArguments]) -> Fault:
        """Adds a fault; docs/testing/faults.md says what each argument means. Without `nth` and `times` it is for every
        selected request until it is removed; `nth` alone is for that one. Raises ValueError for what is impossible.
        """
        given = given_of(arguments, FaultArguments)
        selector = self.selector(cast(Selected, {name: given[name] for name in given if name in SELECTORS}))
        values = values_of(given)
        action = Action(**{name: values[name] for name in values if name in ACTIONS})
        _check(given, selector, action)
        if action.disk is not None and not self._has_disks:
            raise ValueError("the disk of this broker was passed in as `files`; only the broker's own disk has faults")
        self._count += 1
        nth = values.get("nth")
        fault = Fault(
            self._count,
            given,
            selector,
            action,
            nth=nth,
            times=values.get("times", None if nth is None else 1),
            optional=values.get("optional", False),
            remove=self._remove,
            calls=self.calls,
        )
        self._all[fault.number] = fault
        if action.disk is not None:
            self.of_disks = (*self.of_disks, DiskFault(fault, values.get("path"), values.get("after_bytes", 0)))
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


SELECTORS = names_of(lambda _: True, Selected)
ACTIONS = tuple(Action.__dataclass_fields__)
ENDS = names_of(lambda argument: argument.ends)
"""What a fault does to a request; one of them."""
READ_FROM_MEMORY = ": the latest records are read from memory, unless the broker has odradek_log_tail_bytes=0"


def _never_hit(fault: Fault) -> str:
    of_memory = fault.action.disk == FAIL_READ
    return f"{fault!r} was never hit" + (READ_FROM_MEMORY if of_memory else "")


def _check(given: dict[str, Any], selector: Selector, action: Action) -> None:
    """Raises ValueError for arguments that do not go together."""
    ends = [name for name in ENDS if name in given]
    if len(ends) > 1:
        raise ValueError(f"{' and '.join(ends)}: a fault does one of these; add another fault for the other")
    if not ends and not action.waits:
        raise ValueError(f"the fault does nothing: say delay, hold, or one of {', '.join(ENDS)}")
    if action.hold and "delay" in given:
        raise ValueError("hold and delay: a fault does one of both")
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
    of_requests = names_of(lambda argument: argument.of == REQUESTS)
    wrong = [name for name in of_requests if name in given]
    if selectors := [name for name in wrong if name in SELECTORS]:
        raise ValueError(
            f"a fault of disks selects by topic, partition, path and broker, not by {', '.join(selectors)}"
        )
    if wrong:
        raise ValueError(f"{wrong[0]} is for faults of requests, not of disks")
    if "after_bytes" in given and action.disk != FULL:
        raise ValueError(f"after_bytes goes with disk={FULL!r}")
    if (action.disk == SLOW_SYNC) != action.waits:
        raise ValueError(f"delay or hold go with disk={SLOW_SYNC!r}, which needs one of both")
