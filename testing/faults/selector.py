"""Which requests a fault is for, or somebody waits for: the arguments that say it, and what is made of them.

(A) All that is given must fit.
(B) What no request could fit is a ValueError: an unknown API, a group of an API whose requests name none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict
from uuid import UUID

from odradek.broker.handlers.api_row import ApiRow
from odradek.testing.faults.fetches import chosen_of
from odradek.testing.faults.names import api_of, nearest
from odradek.testing.faults.request import Request
from odradek.testing.faults.selection import Selection, Split, what_requests_name

ITEMS = ("topic", "topic_id", "partition", "group", "transactional_id")
NOT_EMPTY = ("topic", "group", "transactional_id")


class Selected(TypedDict, total=False):
    """The arguments that select requests; docs/testing/faults.md says what each means. None: any."""

    api: str | None
    client_id: str | None
    user: str | None
    topic: str | None
    topic_id: UUID | str | None
    partition: int | None
    group: str | None
    transactional_id: str | None
    broker: int | None
    when: Callable[[Request], object] | None


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


def given_of(selected: Mapping[str, object], others: Iterable[str] = ()) -> dict[str, Any]:
    """Returns the arguments that say something. `others` are known beside those of Selected. Raises TypeError for an
    unknown one, which names those that are similar.
    """
    known = (*Selected.__annotations__, *others)
    for name in selected:
        if name not in known:
            raise TypeError(f"there is no argument {name!r}{nearest(name, known)}")
    return {name: value for name, value in selected.items() if value is not None}


def selector_of(selected: Selected) -> Selector:
    """Returns what selects requests. Raises ValueError (B), TypeError."""
    given = given_of(selected)
    row = api_of(given["api"]) if "api" in given else None
    for name in NOT_EMPTY:
        if given.get(name) == "":
            raise ValueError(f"{name} is empty: leave it out to select any")
    if given.get("partition", 0) < 0:
        raise ValueError(f"partition={given['partition']}: must be at least 0")
    if inspect.iscoroutinefunction(given.get("when")):
        raise ValueError("when is a coroutine function: it must decide at once")
    if row is not None:
        _check_items(row, given)
    user, topic_id = given.get("user"), given.get("topic_id")
    return Selector(
        row=row,
        client_id=given.get("client_id"),
        user=user if user is None or ":" in user else f"User:{user}",
        broker=given.get("broker"),
        items=Selection(
            given.get("topic"),
            None if topic_id is None else UUID(str(topic_id)),
            given.get("partition"),
            given.get("group"),
            given.get("transactional_id"),
        ),
        when=given.get("when"),
    )


def _check_items(row: ApiRow, given: Mapping[str, Any]) -> None:
    """Raises ValueError if the requests of an API do not name what is selected."""
    named = what_requests_name(row.request_class)
    missing = [name for name in ITEMS if name in given and name not in named]
    if missing:
        known = [name for name in ITEMS if name in named]
        may = f"; they can be selected by {', '.join(known)}" if known else ""
        raise ValueError(f"requests of {given['api']} name no {' and no '.join(missing)}{may}")
