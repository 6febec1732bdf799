"""Which requests a fault is for, or somebody waits for: what is made of the arguments that say it.

(A) All that is given must fit.
(B) What no request could fit is a ValueError: an unknown API, a group of an API whose requests name none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from odradek.broker.handlers.api_row import ApiRow
from odradek.testing.faults.arguments import Selected, given_of, values_of
from odradek.testing.faults.fetches import chosen_of
from odradek.testing.faults.request import Request
from odradek.testing.faults.selection import Selection, Split, what_requests_name

ITEMS = ("topic", "topic_id", "partition", "group", "transactional_id")
"""The arguments of Selection, in its order."""


@dataclass(frozen=True, slots=True)
class Selector:
    """Which requests; None: any."""

    row: ApiRow | None
    client_id: str | None
    user: str | None
    broker: int | None
    items: Selection
    when: Callable[[Request], object] | None

    def split(self, request: Request, body: Any) -> Split | None:
        """Returns what is selected in a request; None: nothing. `body` is the request, or what is left of it."""
        if not self._is_for(request):
            return None
        if request.fetched is not None and self.items.selects_topics:
            split = Split(body, None) if chosen_of(self.items, request.fetched) else None
        else:
            split = self.items.split(body, request.topic_name)
        return split if split is not None and (self.when is None or self.when(request)) else None

    def _is_for(self, request: Request) -> bool:
        """Whether all but the items is selected."""
        return (
            (self.row is None or self.row.key == request.row.key)
            and self.client_id in (None, request.client_id)
            and self.user in (None, request.user)
            and self.broker in (None, request.broker)
        )


def selector_of(selected: Selected) -> Selector:
    """Returns what selects requests. Raises ValueError (B), TypeError."""
    given = given_of(selected)
    values = values_of(given)
    row: ApiRow | None = values.get("api")
    if row is not None:
        _check_items(row, given)
    return Selector(
        row=row,
        client_id=values.get("client_id"),
        user=values.get("user"),
        broker=values.get("broker"),
        items=Selection(*map(values.get, ITEMS)),
        when=values.get("when"),
    )


def _check_items(row: ApiRow, given: Mapping[str, Any]) -> None:
    """Raises ValueError if the requests of an API do not name what is selected."""
    named = what_requests_name(row.request_class)
    missing = [name for name in ITEMS if name in given and name not in named]
    if missing:
        known = [name for name in ITEMS if name in named]
        may = f"; they can be selected by {', '.join(known)}" if known else ""
        raise ValueError(f"requests of {given['api']} name no {' and no '.join(missing)}{may}")
