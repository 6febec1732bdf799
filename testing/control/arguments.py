"""The arguments of faults and of requests as JSON. They are those of `Faults.add` and `request` in Python."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, cast

from odradek.broker.http.request import Refused
from odradek.protocol.documents import from_document
from odradek.protocol.schema import Message
from odradek.testing.faults import Request
from odradek.testing.faults.arguments import (
    COUNT,
    FLAG,
    SECONDS,
    FaultArguments,
    Selected,
    Types,
    json_types,
)
from odradek.testing.faults.names import nearest

SELECTORS = json_types(Selected)
FAULT = json_types(FaultArguments)
WAIT: Mapping[str, Types] = {**SELECTORS, "within": SECONDS, "answered": FLAG}
HITS: Mapping[str, Types] = {"hits": COUNT, "within": SECONDS}
LONGEST_WAIT_S = 600


def checked(document: Mapping[str, Any], known: Mapping[str, Types]) -> dict[str, Any]:
    """Returns the arguments of a document; null means that one is not given. Raises Refused."""
    for name, value in document.items():
        types = known.get(name)
        if types is None:
            raise Refused(HTTPStatus.BAD_REQUEST, f"there is no argument {name!r}{nearest(name, known)}")
        if value is not None and (not isinstance(value, types) or (isinstance(value, bool) and types != FLAG)):
            names = " or ".join(each.__name__ for each in types)
            raise Refused(HTTPStatus.BAD_REQUEST, f"{name}={value!r}: must be {names}")
    return {name: value for name, value in document.items() if value is not None}


def fault_arguments(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of `Faults.add`. Raises Refused."""
    arguments = checked(document, FAULT)
    response = arguments.get("respond")
    if response is not None:
        arguments["respond"] = _Responding(response)
    return arguments


def wait_arguments(document: Mapping[str, Any], default_s: float) -> dict[str, Any]:
    """Returns the arguments of `request`. Raises Refused."""
    return _with_wait({"within": default_s, "answered": False, **checked(document, WAIT)})


def hits_arguments(document: Mapping[str, Any], default_s: float) -> dict[str, Any]:
    """Returns the arguments of `wait_for_hits`. Raises Refused."""
    return _with_wait({"hits": 1, "within": default_s, **checked(document, HITS)})


def _with_wait(arguments: dict[str, Any]) -> dict[str, Any]:
    if not 0 < arguments["within"] <= LONGEST_WAIT_S:
        raise Refused(HTTPStatus.BAD_REQUEST, f"within={arguments['within']}: above 0, at most {LONGEST_WAIT_S} s")
    return arguments


def query_arguments(query: Mapping[str, str]) -> Selected:
    """Returns the selectors of a query. Raises Refused."""
    typed = {name: int(text) if _is_count(name, text) else text for name, text in query.items()}
    return cast(Selected, checked(typed, SELECTORS))


def _is_count(name: str, text: str) -> bool:
    return SELECTORS.get(name) == COUNT and text.isascii() and text.isdigit()


class _Responding:
    """Answers requests with a document, in the form of Kafka's specification; missing fields have their defaults."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document

    def __call__(self, request: Request) -> Message:
        return from_document(request.row.response_class, request.version, self._document)

    def __str__(self) -> str:
        return str(self._document)
