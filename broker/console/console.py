"""From a path to an answer: the page, its files, and the JSON of `/api/...`; docs/console.md lists the paths.

    200   the page, a file of it, JSON
    400   the parameters are wrong; JSON with `error`
    404   no such path below /api/; JSON with `error`
    503   the broker does not serve clients yet, or any more; JSON with `error`

The JSON is computed in steps, between which the event loop runs other tasks. The page loads nothing but its own files:
the Content-Security-Policy forbids everything else, inline scripts and styles as well, so that a name that a client has
chosen is never run as a script, whatever it contains.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.background.turns import Turns
from odradek.broker.console.clients import clients, series
from odradek.broker.console.connections import connections
from odradek.broker.console.groups import groups, members, offsets
from odradek.broker.console.hand_overs import handovers
from odradek.broker.console.overview import overview
from odradek.broker.console.queries import BadQuery, Query, parse_query
from odradek.broker.console.selection import Row
from odradek.broker.console.settings import settings_of
from odradek.broker.console.topics import partitions, topics
from odradek.broker.console.transactions import transactions
from odradek.broker.console.waiting import waiting
from odradek.broker.console.wheel import wheel
from odradek.broker.http.server import Response
from odradek.broker.metrics.sources import BrokerStatus, MetricSources
from odradek.broker.settings.config import BrokerConfig

API = "/api/"
STATIC = Path(__file__).with_name("static")
JAVASCRIPT = "text/javascript; charset=utf-8"
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/console/console.css": ("console.css", "text/css; charset=utf-8"),
    "/console/icon.svg": ("icon.svg", "image/svg+xml"),
    **{
        f"/console/{name}.js": (f"{name}.js", JAVASCRIPT)
        for name in (
            "main",
            "elements",
            "formats",
            "polling",
            "charts",
            "tables",
            "views",
            "waiting",
            "wheel",
            "scheme",
        )
    },
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
PAGED = frozenset({"offset", "limit", "search"})
OF_ONE = frozenset({"offset", "limit", "name"})
LONG_LISTS = frozenset({"rows", "purgatories"})
CHARACTERS_PER_ITEM = 1000
View = Callable[[MetricSources, Query], Steps[Row]]


class Console:
    """Answers for one broker. `status` returns what it has at the moment. The steps of all answers take `turns` with
    those of long requests: however many pages are open, there is one step in a turn of the loop.
    """

    def __init__(self, status: Callable[[], BrokerStatus], config: BrokerConfig, turns: Turns) -> None:
        self._status = status
        self._turns = turns
        self._views: Mapping[str, tuple[View, frozenset[str]]] = {
            "overview": (overview, frozenset()),
            "topics": (topics, PAGED),
            "partitions": (partitions, OF_ONE),
            "groups": (groups, PAGED),
            "members": (members, OF_ONE),
            "handovers": (handovers, OF_ONE | {"search"}),
            "offsets": (offsets, OF_ONE | {"search"}),
            "transactions": (transactions, PAGED),
            "connections": (connections, PAGED),
            "clients": (clients, PAGED),
            "series": (series, OF_ONE | {"search"}),
            "settings": (settings_of(config), PAGED),
            "waiting": (waiting, frozenset({"limit"})),
            "wheel": (wheel, frozenset()),
        }

    async def answer(self, path: str, query: str) -> Response | None:
        """Returns the answer to a GET, or None if the path is not the console's."""
        if path in FILES:
            name, content_type = FILES[path]
            return Response(HTTPStatus.OK, content_type, _file(name), HEADERS)
        if not path.startswith(API):
            return None
        view = self._views.get(path.removeprefix(API))
        if view is None:
            return _json(HTTPStatus.NOT_FOUND, {"error": f"The paths are {', '.join(map(API.__add__, self._views))}"})
        status = self._status()
        if status.sources is None:
            state = {"error": "The broker does not serve clients", "state": status.state}
            return _json(HTTPStatus.SERVICE_UNAVAILABLE, state)
        try:
            found = await self._turns.take(view[0](status.sources, parse_query(query, view[1])))
        except BadQuery as error:
            return _json(HTTPStatus.BAD_REQUEST, {"error": str(error)})
        return _page(HTTPStatus.OK, await self._turns.take(encoded(found, Pace())))


def encoded(document: Row, pace: Pace) -> Steps[str]:
    """JSON in steps: 3,500 rows with texts of clients may have 30 MB. What has a long list has other fields, too."""
    long = document.keys() & LONG_LISTS
    text = json.dumps({name: value for name, value in document.items() if name not in long})
    if pace.step_ends(1 + len(text) // CHARACTERS_PER_ITEM):
        yield
    for name in long:
        rows: list[str] = []
        for row in document[name]:
            rows += [(yield from encoded(row, pace))]
        text = f'{text[:-1]}, "{name}": [{", ".join(rows)}]}}'
    return text


def _json(status: HTTPStatus, document: Row) -> Response:
    return _page(status, json.dumps(document))


def _page(status: HTTPStatus, text: str) -> Response:
    return Response(status, "application/json", f"{text}\n".encode(), HEADERS)


def _file(name: str) -> bytes:
    return (STATIC / name).read_bytes()
