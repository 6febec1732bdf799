"""Notes in the history what happens in the store and to brokers, and what is seen in them: no client can tell of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import count

from odradek.broker.metadata_store.interface import Entry
from odradek.broker.metadata_store.tree import MetadataTree
from odradek.broker.server import Broker
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.access_watch import AccessWatch
from tests.simulation.coordinator_logs import CoordinatorLogs
from tests.simulation.examination import broken, joined_behind, served_early
from tests.simulation.history import Broken, Elected, History, Operation, Registered, ServedEarly, Started
from tests.simulation.log_watch import LogWatch
from tests.simulation.loop import SimulatedLoop
from tests.simulation.machine import Machine
from tests.simulation.stable_offsets import StableOffsets
from tests.simulation.store_history import ClientEntries, Unheard
from tests.simulation.store_judge import StoreJudge
from tests.simulation.store_links import StoreLinks
from tests.simulation.stored_changes import Entries
from tests.simulation.transaction_history import Unstable

LOOK_EVERY_S = 0.1
READ_LOGS_EVERY = 5
"""Looks."""
LONGEST_NEWS_S = 10.0


class Observer:
    """`machines` may be added later."""

    def __init__(
        self, history: History, loop: SimulatedLoop, machines: Mapping[int, Machine], judge: StoreJudge
    ) -> None:
        self._judge = judge
        self._history = history
        self._loop = loop
        self._machines = machines
        self._entries = ClientEntries()
        self.logs = CoordinatorLogs(history, machines)
        self._access = AccessWatch(history, loop, machines)
        self._stable_offsets = StableOffsets(machines, ("payments",))
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

    def applied(self, tree: MetadataTree, before: Entries, after: Entries) -> None:
        """See StoreObserver."""
        self._judge.applied(tree, before, after)
        self._access.applied(after)

    # --- what is seen -------------------------------------------------------------------------------------------

    async def look(self, links: StoreLinks | None) -> None:
        """Notes what must never be seen in a broker, once of each object, until it is cancelled."""
        seen: dict[tuple[type[Operation], str, TopicPartition | str], None] = {}
        for number in count():
            await asyncio.sleep(LOOK_EVERY_S)
            machines = self._machines.values()
            if number % READ_LOGS_EVERY == 0:
                self.logs.look()
            if links is not None:
                self._look_at_the_controller(links)
                if number % READ_LOGS_EVERY == 0:
                    self._access.look(links)
            observed: list[Broken | ServedEarly | Unstable] = [
                *broken(machines),
                *served_early(machines),
                *(self._stable_offsets.look() if number % READ_LOGS_EVERY == 0 else ()),
            ]
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
        is_at_work = (
            machine is not None and broker is not None and not machine.is_paused and not links.is_cut(name or "")
        )
        self._judge.overdue(is_controlled=is_at_work and self._agreeing[0] == name)
        if machine is None or broker is None or not is_at_work:
            self._agreeing = ("", now)
            return
        known, registered = sorted(broker.metadata.brokers), links.registered
        if known == registered or self._agreeing[0] != machine.name:
            self._agreeing = (machine.name, now)
        elif now - self._agreeing[1] > LONGEST_NEWS_S:
            self._agreeing = (machine.name, now)
            unheard = Unheard(process=machine.name, known=(*known,), registered=(*registered,), seconds=LONGEST_NEWS_S)
            self._history.note(unheard)
