"""The arguments of faults: the one table that the types of `Faults.add` and `request`, what is made of them, their form
as JSON and docs/testing/faults.md have in common.

The tables are typed dictionaries, so that checkers see the arguments; the note on each says the rest (`Argument`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, get_args, get_type_hints
from uuid import UUID

from odradek.testing.faults.names import api_of, error_of, nearest
from odradek.testing.faults.request import Request

When = Literal["before", "after"]
Respond = Callable[[Request], Any]
"""Returns a response, None to leave the request to the broker, or an awaitable of one of both."""
Change = Callable[[Request, Any], Any]
"""Changes the decoded response, or returns another one."""

MOST_DELAY_S = 24 * 60 * 60
FULL, SLOW_SYNC, FAIL_SYNC, FAIL_READ = "full", "slow sync", "fail sync", "fail read"
KINDS = (FULL, SLOW_SYNC, FAIL_SYNC, FAIL_READ)
"""The faults of disks."""

REQUESTS, DISKS, BOTH = "requests", "disks", "both"
Types = tuple[type, ...]
TEXT, COUNT, SECONDS, FLAG, DOCUMENT = (str,), (int,), (int, float), (bool,), (dict,)
Read = Callable[[str, Any], Any]
"""Takes an argument's name and value, and returns what is made of it. Raises ValueError."""


# What is made of a value


def _as_it_is(_name: str, value: Any) -> Any:
    return value


def _api(_name: str, value: Any) -> Any:
    return api_of(value)


def _error(_name: str, value: Any) -> Any:
    return error_of(value)


def _principal(_name: str, value: str) -> str:
    return value if ":" in value else f"User:{value}"


def _topic_id(_name: str, value: Any) -> UUID:
    return UUID(str(value))


def _not_empty(name: str, value: str) -> str:
    if value == "":
        raise ValueError(f"{name} is empty: leave it out to select any")
    return value


def _at_least(least: int) -> Read:
    def read(name: str, value: int) -> int:
        if value < least:
            raise ValueError(f"{name}={value}: must be at least {least}")
        return value

    return read


def _delay(_name: str, value: float) -> float:
    if not 0 < value <= MOST_DELAY_S:
        raise ValueError(f"delay={value}: must be above 0 seconds, and at most a day")
    return value


def _throttle(name: str, value: int) -> Any:
    if value > MOST_DELAY_S * 1000:
        raise ValueError(f"{name}={value}: must be at most a day")
    return _at_least(1)(name, value)


def _before_or_after(name: str, value: Any) -> Any:
    if value not in get_args(When):
        raise ValueError(f"{name}={value!r}: must be 'before' or 'after' the request is handled")
    return value


def _decides_at_once(name: str, value: Any) -> Any:
    if inspect.iscoroutinefunction(value):
        raise ValueError(f"{name} is a coroutine function: it must decide at once")
    return value


def _kind_of_disk_fault(_name: str, value: str) -> str:
    if value not in KINDS:
        raise ValueError(f"there is no fault of disks {value!r}{nearest(value, KINDS)}: {KINDS}")
    return value


class Argument(NamedTuple):
    """`example` is a value as it is written in Python. `json`: its types over HTTP; empty: it is Python's alone. With
    its `default` it is not given. `of`: requests or disks, if it is for faults of these alone. `ends`: what a fault
    does to a request, of which it does one.
    """

    example: str
    json: Types = ()
    read: Read = _as_it_is
    default: object = None
    of: str = REQUESTS
    ends: bool = False
    doc: str = ""


# fmt: off
class Selected(TypedDict, total=False):
    """The arguments that select requests. None: any."""

    api: Annotated[str | None, Argument('"Produce"', TEXT, _api,
        doc="an API, by Kafka's name: `Fetch`, `FindCoordinator`, `TxnOffsetCommit` ... "
            "[supported_apis.md](../supported_apis.md) has all; without it, every API")]
    client_id: Annotated[str | None, Argument('"billing"', TEXT, doc="the client's `client.id`")]
    user: Annotated[str | None, Argument('"alice"', TEXT, _principal, doc="who has logged in")]
    topic: Annotated[str | None, Argument('"orders"', TEXT, _not_empty, of=BOTH,
        doc="requests that name the topic, also by its id. A fetch names what its session fetches; a request for all "
            "topics names each")]
    topic_id: Annotated[UUID | str | None, Argument("UUID(...)", TEXT, _topic_id,
        doc="the same by the topic's id, also an id that does not exist any more")]
    partition: Annotated[int | None, Argument("1", COUNT, _at_least(0), of=BOTH,
        doc="with a topic: requests that name this partition")]
    group: Annotated[str | None, Argument('"billing"', TEXT, _not_empty,
        doc="requests of or about a group or its settings")]
    transactional_id: Annotated[str | None, Argument('"payments"', TEXT, _not_empty,
        doc="requests of or about a transaction")]
    broker: Annotated[int | None, Argument("2", COUNT, of=BOTH, doc="those that this broker of a cluster receives")]
    when: Annotated[Callable[[Request], object] | None, Argument(
        "lambda request: request.body.acks == 0", read=_decides_at_once,
        doc="whatever a function decides. `request.body` is the decoded request; `request.api`, `version`, "
            "`client_id`, `user`, `broker` are there, too")]


class Selecting(Selected, total=False):
    """Which of them, and whether there must be one."""

    nth: Annotated[int | None, Argument("2", COUNT, _at_least(1), of=BOTH,
        doc="the second such request, and only that")]
    times: Annotated[int | None, Argument("3", COUNT, _at_least(1), of=BOTH,
        doc="three such requests; with `nth`, from there on")]
    optional: Annotated[bool, Argument("True", FLAG, default=False, of=BOTH, doc="the fault need not be hit")]


class Acting(TypedDict, total=False):
    """What happens to them."""

    error: Annotated[str | int | None, Argument('"NOT_COORDINATOR"', (str, int), _error, ends=True,
        doc="responds with this code, in the field that the API and version have for it. The broker does not handle "
            "the request. If a topic, a partition, a group or a transaction is selected, only that gets the code, and "
            "the broker handles the others. An API with one code for all fails as a whole")]
    error_message: Annotated[str | None, Argument('"not now"', TEXT,
        doc="with `error`: the text, where there is a field for it")]
    handled: Annotated[bool, Argument("True", FLAG, default=False,
        doc="with `error`: the broker handles the request, and responds with the code all the same")]
    delay: Annotated[float | None, Argument("0.5", SECONDS, _delay, of=BOTH,
        doc="handles the request half a second later, by the broker's clock")]
    hold: Annotated[bool, Argument("True", FLAG, default=False, of=BOTH,
        doc="keeps the request until `fault.release()`, which also lets all later ones pass. `fault.held` counts those "
            "that wait")]
    in_order: Annotated[bool, Argument("False", FLAG, default=True,
        doc="with both, and with a slow `respond`: lets later requests of the connection be handled meanwhile; their "
            "responses wait")]
    close: Annotated[When | None, Argument('"before"', TEXT, _before_or_after, ends=True,
        doc='ends the connection before the request is handled; `"after"`: after it, but without a response')]
    drop: Annotated[When | None, Argument('"before"', TEXT, _before_or_after, ends=True,
        doc="the same without the end of the connection: the response never comes")]
    cut: Annotated[int | None, Argument("10", COUNT, _at_least(0), ends=True,
        doc="sends ten bytes of the response, then ends the connection")]
    throttle_ms: Annotated[int | None, Argument("300", COUNT, _throttle, ends=True,
        doc="throttles the client as a quota does: the response says so, and the connection is not read meanwhile")]
    corrupt: Annotated[bool, Argument("True", FLAG, default=False, ends=True,
        doc='with `api="Fetch"`: damages a batch in the response, so that its checksum is wrong. Only fetches with '
            "records are hit")]
    respond: Annotated[Respond | None, Argument("function", DOCUMENT, ends=True,
        doc="`function(request)` returns a response (`request.answer_with(...)`, "
            '`request.fail_with("REQUEST_TIMED_OUT")`) or leaves the request to the broker (`None`). It may be a '
            "coroutine function. Its `ConnectionError` ends the connection")]
    change: Annotated[Change | None, Argument("function", ends=True,
        doc="`function(request, response)` changes the broker's own response")]


class OnDisks(TypedDict, total=False):
    """Of faults of disks."""

    disk: Annotated[str | None, Argument('"full"', TEXT, _kind_of_disk_fault, of=DISKS, ends=True,
        doc="what happens to the disk: one of the kinds below")]
    path: Annotated[str | None, Argument('"*.log"', TEXT, of=DISKS, doc="accesses to paths like this pattern")]
    after_bytes: Annotated[int | None, Argument("10_000", COUNT, _at_least(0), of=DISKS,
        doc='with `disk="full"`: so many bytes are written before')]
# fmt: on


class FaultArguments(Selecting, Acting, OnDisks, total=False):
    """All arguments of a fault."""


@cache
def arguments_of(table: type) -> Mapping[str, Argument]:
    """Returns the arguments of a table and of those that it extends, in their order, with the notes on them."""
    hints = get_type_hints(table, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}


def given_of(arguments: Mapping[str, object], table: type = Selected) -> dict[str, Any]:
    """Returns the arguments that say something: those that select first. Raises TypeError for an unknown one, which
    names those that are similar.
    """
    known = arguments_of(table)
    for name in arguments:
        if name not in known:
            raise TypeError(f"there is no argument {name!r}{nearest(name, known)}")
    selectors = arguments_of(Selected)
    ordered = (*(name for name in arguments if name in selectors), *(name for name in known if name not in selectors))
    return {name: arguments[name] for name in ordered if name in arguments and _is_given(known[name], arguments[name])}


def _is_given(argument: Argument, value: object) -> bool:
    return value is not None and value is not argument.default


def values_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what is made of each argument. Raises ValueError."""
    known = arguments_of(FaultArguments)
    return {name: known[name].read(name, value) for name, value in given.items()}


def names_of(test: Callable[[Argument], bool], table: type = FaultArguments) -> tuple[str, ...]:
    """Returns the arguments that pass a test."""
    return tuple(name for name, argument in arguments_of(table).items() if test(argument))


def json_types(table: type) -> Mapping[str, Types]:
    """Returns the types of the arguments that JSON can have."""
    return {name: argument.json for name, argument in arguments_of(table).items() if argument.json}
