"""The parameters of a request for `/api/...`. One that is unknown, repeated or out of range is an error."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl

DEFAULT_ROWS = 100
MOST_ROWS = 500
MOST_SKIPPED = 10_000_000
MOST_FIELDS = 16


class BadQuery(Exception):
    """Says what is wrong with the parameters, for the reader of the answer."""


class Query(NamedTuple):
    """`limit` rows from row `offset` of those whose name contains `search`; `name`: the one thing to describe."""

    offset: int = 0
    limit: int = DEFAULT_ROWS
    search: str = ""
    name: str = ""


def parse_query(text: str, allowed: frozenset[str]) -> Query:
    """Raises BadQuery. `allowed`: the parameters of this path."""
    try:
        fields = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=MOST_FIELDS)
    except ValueError as error:
        raise BadQuery(f"The query is not of the form NAME=VALUE&NAME=VALUE: {error}") from None
    given = dict(fields)
    if len(given) < len(fields):
        raise BadQuery("A parameter is given twice")
    for name in given.keys() - allowed:
        raise BadQuery(f"There is no parameter {name[:50]!r} here; there are: {', '.join(sorted(allowed)) or 'none'}")
    if "name" in allowed and not given.get("name"):
        raise BadQuery("The parameter name is missing")
    return Query(
        _number(given, "offset", 0, 0, MOST_SKIPPED),
        _number(given, "limit", DEFAULT_ROWS, 1, MOST_ROWS),
        given.get("search", ""),
        given.get("name", ""),
    )


def _number(given: dict[str, str], name: str, default: int, least: int, most: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
        raise BadQuery(f"The parameter {name} must be a number from {least} to {most}, not {text[:50]!r}")
    return int(text)
