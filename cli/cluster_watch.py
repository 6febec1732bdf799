"""`odradek cluster watch`: looks at the cluster time and again, and shows what has changed.

A look that fails is shown and does not end the watch: the cluster may be unreachable for a while.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import deque
from typing import Protocol, TextIO

from odradek.broker.logging.printable import printable
from odradek.cli.cluster_lines import cluster_lines
from odradek.clients.admin.client import AdminClient
from odradek.clients.admin.overview import ClusterOverview, changes, overview
from odradek.clients.network_errors import LoginRefused, NetworkError
from odradek.protocol.errors import ProtocolError

HOME_AND_CLEAR = "\x1b[H\x1b[J"
SHOWN_CHANGES = 10
LEAST_LINES = 10


class Display(Protocol):
    """Where a watch shows what it sees."""

    def show(self, now: str, found: ClusterOverview | None, news: list[str]) -> None:
        """`found` is None if the cluster could not be reached; `news` are the changes since the last look."""


class Lines:
    """A line for each change, for files and pipes; first what there is."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._has_begun = False

    def show(self, now: str, found: ClusterOverview | None, news: list[str]) -> None:
        """See Display."""
        if not self._has_begun and found is not None:
            self._has_begun = True
            for line in cluster_lines(found, [one for one in found.partitions.values() if one.problems]):
                print(line, file=self._out)
        for line in news:
            print(f"{now}  {printable(line)}", file=self._out)
        self._out.flush()


class Screen:
    """The cluster in full above the last changes, on a terminal."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last: list[str] = []
        self._news: deque[str] = deque(maxlen=SHOWN_CHANGES)

    def show(self, now: str, found: ClusterOverview | None, news: list[str]) -> None:
        """See Display."""
        self._news.extend(f"{now}  {printable(line)}" for line in news)
        if found is not None:
            self._last = list(cluster_lines(found, [one for one in found.partitions.values() if one.problems]))
        columns, lines = shutil.get_terminal_size()
        room = max(lines - len(self._news) - 3, LEAST_LINES)
        shown = self._last if len(self._last) <= room else [*self._last[: room - 1], "..."]
        text = [f"{now}  {'' if found is not None else 'not reached; as it was:'}", *shown, "", *self._news]
        self._out.write(HOME_AND_CLEAR + "\n".join(line[:columns] for line in text) + "\n")
        self._out.flush()


async def look_again(admin: AdminClient, display: Display, interval_s: float, times: int | None) -> None:
    """Looks every `interval_s`, `times` or until it is interrupted. Raises LoginRefused if the first login fails."""
    before: ClusterOverview | None = None
    failure = ""
    looks = 0
    while True:
        looks += 1
        news: list[str] = []
        found = None
        try:
            found = await overview(admin, patience_s=interval_s)
        except (NetworkError, ProtocolError) as error:
            if isinstance(error, LoginRefused) and before is None:
                raise
            if str(error) != failure:
                failure = str(error)
                news.append(f"not reached: {failure}")
        else:
            news += ["reached again"] if failure else []
            failure = ""
            news += [] if before is None else changes(before, found)
            before = found
        display.show(time.strftime("%H:%M:%S"), found, news)
        if looks == times:
            return
        await asyncio.sleep(interval_s)
