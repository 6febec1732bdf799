"""ZooKeeper in the simulation: the model that speaks its protocol, on a host of its own, and the ways that brokers have
to it over the simulated network.

A fault may wait for a change of the store: `at_change` calls it when the change is made, before its answer is sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from random import Random

from odradek.broker.background.stepwise import finished
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import Delete, Entry, NoEntry
from odradek.broker.metadata_store.tree import Transaction, parent_of
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.final_state import Stored, StoredMetadata, StoredTopic
from tests.simulation.loop import Node, SimulatedLoop
from tests.simulation.network import Network
from tests.zookeeper.model import ZooKeeperModel

STORE_HOST, STORE_ADDRESS, STORE_PORT = "zookeeper", "10.0.3.1", 2181
SESSION_TIMEOUT_MS = 6000
TICK_S = 0.5
SETTINGS = {
    "zookeeper.connect": f"{STORE_ADDRESS}:{STORE_PORT}",
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
}
STATE_PATH = re.compile(r"/brokers/topics/([^/]+)/partitions/\d+/state")


OnChange = Callable[[Stored, Stored], bool]
"""Gets a partition's state before and after a change; returns whether it was waiting for this one."""


class WatchedModel(ZooKeeperModel):
    """Calls `on_change` with the path and the entries before and after each change of an entry."""

    on_change: Callable[[str, Entry, Entry], object]
    on_registration: Callable[[int, bool], object]
    """Gets the id of a broker whose registration begins (True) or ends."""
    on_election: Callable[[int], object]
    """Gets the id of the new controller."""

    def apply(self, transaction: Transaction) -> None:
        before = {path: self.entry(path) for path in transaction.entries}
        super().apply(transaction)
        for path, after in transaction.entries.items():
            earlier = before[path]
            if earlier is not None and after is not None:
                self.on_change(path, earlier, after)
            if parent_of(path) == znodes.BROKER_IDS:
                self._registration_changed(int(path.rpartition("/")[2]), earlier, after)
            elif path == znodes.CONTROLLER and after is not None:
                self.on_election(znodes.parse_controller(after.data))

    def _registration_changed(self, broker_id: int, before: Entry | None, after: Entry | None) -> None:
        if before is not None and (after is None or after.owner != before.owner):
            self.on_registration(broker_id, False)
        if after is not None and (before is None or after.owner != before.owner):
            self.on_registration(broker_id, True)

    def entry(self, path: str) -> Entry | None:
        """What is at a path."""
        return self.tree.get(path)


class StoreLinks:
    """Starts the model on its host. `network` has no such host yet."""

    def __init__(
        self,
        loop: SimulatedLoop,
        network: Network,
        source: Random,
        note: Callable[[str, str], object],
        on_registration: Callable[[int, bool], object],
        on_election: Callable[[int], object],
    ) -> None:
        """`note(event, name)`: the trace. The others: see WatchedModel."""
        self.store = WatchedModel(tick_s=TICK_S, source=source)
        self.store.on_change = self._changed
        self.store.on_registration = on_registration
        self.store.on_election = on_election
        self._network = network
        self._waiting: list[OnChange] = []
        self._note = note
        self._cut: set[str] = set()
        self._node = Node(STORE_HOST)
        network.add_host(STORE_HOST, STORE_ADDRESS)
        network.started(self._node)
        loop.run_as(self._node, loop.create_task, self.store.serve(STORE_ADDRESS, STORE_PORT))

    def cut(self, name: str, *, loses_answers: bool = False) -> None:
        """Breaks the connection of a broker to the store, and lets nothing pass between them. If it `loses_answers`,
        what the broker sends arrives all the same, and the connection breaks in the end.
        """
        if name in self._cut:
            return
        self._note("cut from the store", name)
        self._cut.add(name)
        self._network.cut(STORE_HOST, name)
        if not loses_answers:
            self._network.reset(STORE_HOST, name)
            self._network.cut(name, STORE_HOST)

    def heal(self, name: str) -> None:
        """Ends a cut."""
        if name not in self._cut:
            return
        self._note("connected to the store", name)
        self._cut.remove(name)
        self._network.reset(STORE_HOST, name)
        self._network.heal(STORE_HOST, name)
        self._network.heal(name, STORE_HOST)

    def slow_down(self, name: str, slowness: float) -> None:
        """The messages of a broker to and from the store take so many times as long."""
        self._network.slow_down(name, STORE_HOST, slowness)
        self._network.slow_down(STORE_HOST, name, slowness)

    def expire(self, name: str) -> None:
        """Ends the latest session of the broker."""
        address = self._network.hosts[name].address
        sessions = [session for session in self.store.sessions.values() if session.address == address]
        if sessions:
            self._note("session expires", name)
            self.store.end(sessions[-1])

    def delete(self, path: str) -> None:
        """Deletes an entry, as an operator does."""
        try:
            self.store.apply(finished(self.store.tree.stage([Delete(path)], 0)))
        except NoEntry:
            pass

    # --- what the store has -------------------------------------------------------------------------------------

    @property
    def controller(self) -> str | None:
        """The name of the controller."""
        entry = self.store.entry(znodes.CONTROLLER)
        return None if entry is None else f"broker-{znodes.parse_controller(entry.data)}"

    def stored(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Stored]:
        """These partitions' states."""
        entries = {key: self.store.entry(znodes.state_path(key.topic, key.partition)) for key in partitions}
        return {key: _stored(entry) for key, entry in entries.items() if entry is not None}

    def metadata(self) -> StoredMetadata:
        """All topics."""
        topics = {}
        children = self.store.tree.children
        for name in children(znodes.TOPICS):
            entry = self.store.entry(znodes.topic_path(name))
            assert entry is not None
            topic = znodes.parse_topic(name, entry.data)
            topics[name] = StoredTopic(topic.topic_id, topic.replicas, sorted({**topic.adding, **topic.removing}))
        return StoredMetadata(topics, children(znodes.TOPIC_CONFIGS), children(znodes.DELETE_TOPICS))

    def at_change(self, is_it: OnChange) -> Callable[[], None]:
        """Calls `is_it` at each change of a partition's leader or in-sync replicas, until it returns True. Returns a
        function that ends this."""
        self._waiting.append(is_it)

        def stop() -> None:
            if is_it in self._waiting:
                self._waiting.remove(is_it)

        return stop

    def _changed(self, path: str, before: Entry, after: Entry) -> None:
        if self._waiting and STATE_PATH.fullmatch(path):
            states = _stored(before), _stored(after)
            self._waiting = [is_it for is_it in self._waiting if not is_it(*states)]


def _stored(entry: Entry) -> Stored:
    state = json.loads(entry.data or b"{}")
    return Stored(state["leader"], state["leader_epoch"], tuple(state["isr"]))
