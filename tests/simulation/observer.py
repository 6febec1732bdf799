"""Notes in the history what happens in the store and to brokers, and what is seen in them: no client can tell of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from odradek.broker.metadata_store.interface import Entry
from odradek.broker.server import Broker
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.examination import broken, joined_behind, served_early
from tests.simulation.history import Broken, Elected, History, Operation, Registered, ServedEarly, Started
from tests.simulation.log_watch import LogWatch
from tests.simulation.loop import SimulatedLoop
from tests.simulation.machine import Machine
from tests.simulation.store_history import ClientEntries, Unheard
from tests.simulation.store_links import StoreLinks

LOOK_EVERY_S = 0.1
LONGEST_NEWS_S = 10.0


class Observer:
    """`machines` may be added later."""

    def __init__(self, history: History, loop: SimulatedLoop, machines: Mapping[int, Machine]) -> None:
        self._history = history
        self._loop = loop
        self._machines = machines
        self._entries = ClientEntries()
        self._agreeing = ("", 0.0)
        """The controller, and when it last knew the registered brokers."""

    # --- what happens -------------------------------------------------------------------------------------------

    def started(self, broker_id: int) -> None:
        """A broker's process starts."""
        self._history.note(Started(process=f"broker-{broker_id}", broker_id=broker_id))

    def launched(self, name: str, broker: Broker) -> None:
        """A broker was made, and will start."""
        LogWatch(self._history, name, broker)

    def registration_changed(self, broker_id: int, is_there: bool) -> None:
        """See StoreObserver."""
        self._history.note(Registered(process="store", broker_id=broker_id, is_there=is_there))

    def elected(self, broker_id: int) -> None:
        """See StoreObserver."""
        self._history.note(Elected(process="store", broker_id=broker_id))

    def client_changed(self, path: str, entry: Entry, is_new: bool) -> None:
        """See StoreObserver."""
        observed = self._entries.observed(path, entry, is_new=is_new)
        if observed is not None:
            self._history.note(observed)

    def joined(self, partition: TopicPartition, leader_id: int, joined: Sequence[int]) -> None:
        """See StoreObserver."""
        for behind in joined_behind(self._machines, partition, leader_id, joined):
            self._history.note(behind)

    # --- what is seen -------------------------------------------------------------------------------------------

    async def look(self, links: StoreLinks | None) -> None:
        """Notes what must never be seen in a broker, once of each object, until it is cancelled."""
        seen: dict[tuple[type[Operation], str, TopicPartition | str], None] = {}
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            machines = self._machines.values()
            if links is not None:
                self._look_at_the_controller(links)
            observed: list[Broken | ServedEarly] = [*broken(machines), *served_early(machines)]
            for found in observed:
                key = (type(found), found.process, found.what if isinstance(found, Broken) else found.partition)
                if key not in seen:
                    seen[key] = None
                    self._history.note(found)

    def _look_at_the_controller(self, links: StoreLinks) -> None:
        """Notes if it knows other brokers than are registered, although nothing keeps the news from it."""
        name, now = links.controller, self._loop.time()
        machine = next((each for each in self._machines.values() if each.name == name), None)
        broker = None if machine is None else machine.running
        if machine is None or broker is None or machine.is_paused or links.is_cut(machine.name):
            self._agreeing = ("", now)
            return
        known, registered = sorted(broker.metadata.brokers), links.registered
        if known == registered or self._agreeing[0] != machine.name:
            self._agreeing = (machine.name, now)
        elif now - self._agreeing[1] > LONGEST_NEWS_S:
            self._agreeing = (machine.name, now)
            unheard = Unheard(process=machine.name, known=(*known,), registered=(*registered,), seconds=LONGEST_NEWS_S)
            self._history.note(unheard)
