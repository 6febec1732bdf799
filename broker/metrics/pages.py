"""What else the metrics port serves: pages that another part of the broker makes (the console)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple


class Page(NamedTuple):
    """An answer that is complete. `headers` come in addition to the server's own."""

    status: HTTPStatus
    content_type: str
    body: bytes
    headers: Mapping[str, str]


Pages = Callable[[str, str], Awaitable[Page | None]]
"""Takes the path and the query of a GET. Returns None if it has no such path."""


async def no_pages(_path: str, _query: str) -> Page | None:
    return None
