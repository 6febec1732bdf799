"""What goes wrong between the store and its clients (client/store.py), all the time: most of it at the moment of a
change, when something is on its way.

    a connection breaks when a change is made, before its events and its answer are sent
    ... and the client finds a server that has not heard of the change yet
    a client is cut off, and its session ends meanwhile
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from random import Random

from tests.simulation.store_history import ENTRIES
from tests.simulation.store_links import StoreLinks

PAUSE_S = (0.5, 2.0)
PATIENCE_S = 3.0
LAG_S = (0.3, 1.0)
CUT_S = (0.2, 0.8)


class StoreTrouble:
    """`names`: the hosts of the clients. `run` returns soon after `ending` is done, with everything mended."""

    def __init__(self, links: StoreLinks, source: Random, names: Sequence[str]) -> None:
        self._links = links
        self._source = source
        self._names = names

    async def run(self, ending: asyncio.Future[None]) -> None:
        """One after the other."""
        source = self._source
        while not ending.done():
            await asyncio.wait([ending], timeout=source.uniform(*PAUSE_S))
            name = source.choice(self._names)
            chance = source.random()
            if chance < 0.5:
                await self._drop_at_change([name] if chance < 0.4 else self._names)
            elif chance < 0.8:
                catch_up = self._links.lag_at(self._is_changed)
                await self._drop_at_change([name])
                await asyncio.sleep(source.uniform(*LAG_S))
                catch_up()
            else:
                await self._end_session(name)

    async def _drop_at_change(self, names: Sequence[str]) -> None:
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def drop(paths: Collection[str]) -> bool:
            if not self._is_changed(paths):
                return False
            for name in names:
                self._links.drop(name)
            changed.set_result(None)
            return True

        stop = self._links.before_change(drop)
        await asyncio.wait([changed], timeout=PATIENCE_S)
        stop()

    def _is_changed(self, paths: Collection[str]) -> bool:
        return any(path.startswith(f"{ENTRIES}/") for path in paths)

    async def _end_session(self, name: str) -> None:
        self._links.cut(name)
        await asyncio.sleep(self._source.uniform(*CUT_S))
        self._links.expire(name)
        self._links.heal(name)
