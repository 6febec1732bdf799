"""Kafka's names of APIs (`Produce`, `FindCoordinator`) and of error codes (`NOT_LEADER_OR_FOLLOWER`)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from functools import cache

from odradek.broker.handlers.api_row import ApiRow
from odradek.broker.handlers.api_table import api_table
from odradek.broker.handlers.telemetry_apis import with_telemetry
from odradek.protocol.errors import ErrorCode

MOST_SHOWN = 3
LEAST_LIKENESS = 0.5


@cache
def apis() -> Mapping[str, ApiRow]:
    """Returns the rows of all APIs that a broker may serve, by Kafka's names."""
    return {api_name(row): row for row in with_telemetry(api_table()).rows()}


def api_name(row: ApiRow) -> str:
    """Returns Kafka's name of an API."""
    return row.request_class.__schema__.name.removesuffix("Request")


def api_of(name: str) -> ApiRow:
    """Returns the row of an API. Raises ValueError, which names APIs with similar names."""
    row = apis().get(name)
    if row is None:
        raise ValueError(f"there is no API {name!r}{nearest(name, apis())}")
    return row


def error_of(name: str | int) -> ErrorCode:
    """Returns an error code by its name or number. Raises ValueError, which names codes with similar names."""
    known = ErrorCode.__members__
    if isinstance(name, str) and name in known:
        code = known[name]
    elif isinstance(name, int) and not isinstance(name, bool) and name in {int(code) for code in known.values()}:
        code = ErrorCode(name)
    else:
        raise ValueError(f"there is no error code {name!r}{nearest(str(name), known)}")
    if code is ErrorCode.NONE:
        raise ValueError("NONE is no error")
    return code


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns the names that are most similar, as the end of a message."""
    by_folded = {each.replace("_", "").lower(): each for each in known}
    folded = name.replace("_", "").lower()
    found = difflib.get_close_matches(folded, by_folded, MOST_SHOWN, LEAST_LIKENESS)
    return f"; did you mean {' or '.join(by_folded[each] for each in found)}?" if found else ""
