"""ZooKeeper in the simulation: the model that speaks its protocol, on a host of its own, and the ways that brokers have
to it over the simulated network.

A fault may wait for a change of the store: `at_change` calls it when the change is made, before its answer is sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from random import Random
from typing import Protocol

from odradek.broker.background.stepwise import finished
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import Create, Delete, Entry, NoEntry, Set
from odradek.broker.metadata_store.tree import MetadataTree, Transaction, parent_of
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client.impostor import Proposable
from tests.simulation.final_state import SettingInForce, Stored, StoredMetadata, StoredTopic
from tests.simulation.loop import Node, SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.store_history import ROOT
from tests.simulation.stored_changes import Entries
from tests.simulation.upkeep_history import Setting
from tests.zookeeper.model import Session, ZooKeeperModel

STORE_HOST, STORE_ADDRESS, STORE_PORT = "zookeeper", "10.0.3.1", 2181
SESSION_TIMEOUT_MS = 6000
TICK_S = 0.5
SETTINGS = {
    "zookeeper.connect": f"{STORE_ADDRESS}:{STORE_PORT}",
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
}
STATE_PATH = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")


OnChange = Callable[[Stored, Stored], bool]
"""Gets a partition's state before and after a change; returns whether it was waiting for this one."""


BeforeChange = Callable[[Collection[str]], bool]
"""Gets the paths that are about to change; returns whether it was waiting for this change."""


BeforeRead = Callable[[str, str], bool]
"""Gets the name of the host that is about to read, and the path; returns whether it was waiting for this."""


class StoreObserver(Protocol):
    """What hears of the store's changes."""

    def registration_changed(self, broker_id: int, is_there: bool) -> None:
        """The registration of a broker begins or ends."""

    def elected(self, broker_id: int) -> None:
        """A broker becomes the controller."""

    def client_changed(self, path: str, entry: Entry, is_new: bool) -> None:
        """An entry of the store's own clients is new, or has changed."""

    def joined(self, partition: TopicPartition, leader_id: int, joined: Sequence[int]) -> None:
        """Replicas have joined the in-sync replicas of this leader."""

    def applied(self, tree: MetadataTree, before: Entries, after: Entries) -> None:
        """A transaction has changed these entries."""


class WatchedModel(ZooKeeperModel):
    """Calls `on_change` with the path and the entries before and after each change of an entry."""

    observer: StoreObserver
    on_change: Callable[[str, Entry, Entry], object]
    before_change: Callable[[Collection[str]], object]
    """Gets the paths that are about to change."""
    before_read: Callable[[str, str], object]
    """Gets the address of who is about to read, and the path."""

    def reading(self, session: Session, path: str) -> None:
        self.before_read(session.address, path)

    def apply(self, transaction: Transaction) -> None:
        self.before_change(transaction.entries)
        before = {path: self.entry(path) for path in transaction.entries}
        super().apply(transaction)
        self.observer.applied(self.tree, before, transaction.entries)
        for path, after in transaction.entries.items():
            earlier = before[path]
            if after is not None and path.startswith(ROOT) and after != earlier:
                self.observer.client_changed(path, after, earlier is None)
            if earlier is not None and after is not None:
                self.on_change(path, earlier, after)
            if parent_of(path) == znodes.BROKER_IDS:
                self._registration_changed(int(path.rpartition("/")[2]), earlier, after)
            elif path == znodes.CONTROLLER and after is not None:
                self.observer.elected(znodes.parse_controller(after.data))

    def _registration_changed(self, broker_id: int, before: Entry | None, after: Entry | None) -> None:
        if before is not None and (after is None or after.owner != before.owner):
            self.observer.registration_changed(broker_id, False)
        if after is not None and (before is None or after.owner != before.owner):
            self.observer.registration_changed(broker_id, True)

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
        observer: StoreObserver,
    ) -> None:
        """`note(event, name)`: the trace."""
        self.store = WatchedModel(tick_s=TICK_S, source=source)
        self.store.on_change = self._changed
        self.store.observer = self._observer = observer
        self.store.before_change = self._before
        self.store.before_read = self._before_read
        self._network = network
        self._waiting: list[OnChange] = []
        self._waiting_before: list[BeforeChange] = []
        self._waiting_to_read: list[BeforeRead] = []
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

    def drop(self, name: str) -> None:
        """Breaks the connection of a host to the store, which it may make again at once."""
        session = self._session_of(name)
        if session is not None:
            self._note("connection to the store breaks", name)
            self.store.drop_connections(session.session_id)

    def is_cut(self, name: str) -> bool:
        """Whether nothing passes between a host and the store."""
        return name in self._cut

    def lag_at(self, is_it: BeforeChange) -> Callable[[], None]:
        """From before the next such change on, new connections find a server that has not heard of it. Returns a
        function that ends this: all servers know everything again."""

        def lag(paths: Collection[str]) -> bool:
            if not is_it(paths):
                return False
            self.store.lag_behind()
            return True

        stop = self.before_change(lag)

        def end() -> None:
            stop()
            self.store.catch_up()

        return end

    def slow_down(self, name: str, slowness: float) -> None:
        """The messages of a broker to and from the store take so many times as long."""
        self._network.slow_down(name, STORE_HOST, slowness)
        self._network.slow_down(STORE_HOST, name, slowness)

    def expire(self, name: str) -> None:
        """Ends the latest session of the broker."""
        session = self._session_of(name)
        if session is not None:
            self._note("session expires", name)
            self.store.expire(session.session_id)

    def _session_of(self, name: str) -> Session | None:
        """The latest session of a host."""
        address = self._network.hosts[name].address
        sessions = [session for session in self.store.sessions.values() if session.address == address]
        return sessions[-1] if sessions else None

    def delete(self, path: str) -> None:
        """Deletes an entry, as an operator does."""
        try:
            self.store.apply(finished(self.store.tree.stage([Delete(path)], 0)))
        except NoEntry:
            pass

    def touch(self, path: str, data: bytes | None = None) -> None:
        """Writes an entry with what it has, or with other data, as an operator does."""
        entry = self.store.entry(path)
        if entry is not None:
            self.store.apply(finished(self.store.tree.stage([Set(path, data or entry.data)], 0)))

    def create(self, creation: Create) -> str:
        """Creates an entry, as an operator does. Returns its path. Raises NoEntry if its parent is not there."""
        transaction = finished(self.store.tree.stage([creation], 0))
        self.store.apply(transaction)
        return str(transaction.results[0])

    # --- what the store has -------------------------------------------------------------------------------------

    @property
    def registered(self) -> list[int]:
        """The ids of the registered brokers."""
        return sorted(int(name) for name in self.store.tree.children(znodes.BROKER_IDS))

    @property
    def controller(self) -> str | None:
        """The name of the controller."""
        entry = self.store.entry(znodes.CONTROLLER)
        return None if entry is None else f"broker-{znodes.parse_controller(entry.data)}"

    def stored(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Stored]:
        """These partitions' states."""
        entries = {key: self.store.entry(znodes.state_path(key.topic, key.partition)) for key in partitions}
        return {key: _stored(entry) for key, entry in entries.items() if entry is not None}

    def counts_on(self, broker_id: int, spared: Collection[TopicPartition]) -> bool:
        """Whether a broker is among the in-sync replicas of any partition, but of the spared ones."""
        topics = self.metadata().topics
        keys = [TopicPartition(name, number) for name, topic in topics.items() for number in topic.replicas]
        return any(broker_id in state.in_sync for key, state in self.stored(keys).items() if key not in spared)

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

    def proposable(self) -> list[Proposable]:
        """All partitions with a leader, as one who proposes in-sync replicas must know them."""
        entries = {broker: self.store.entry(znodes.broker_path(broker)) for broker in self.registered}
        epochs = {broker: entry.created for broker, entry in entries.items() if entry is not None}
        found = []
        for name, topic in self.metadata().topics.items():
            for number, replicas in topic.replicas.items():
                entry = self.store.entry(znodes.state_path(name, number))
                if entry is not None:
                    key, state = TopicPartition(name, number), _stored(entry)
                    found.append(Proposable(key, replicas, state.in_sync, *state[:2], entry.version, epochs))
        return found

    def settings(self, settings: Iterable[Setting]) -> list[SettingInForce]:
        """The values of these settings."""
        found = []
        for setting in settings:
            path = znodes.topic_config_path(setting.topic)
            if not setting.topic:
                path = znodes.broker_config_path(setting.broker_id or None)
            entry = self.store.entry(path)
            stored = {} if entry is None else znodes.parse_config(path, entry.data)
            found.append(SettingInForce("the store", setting, stored.get(setting.name)))
        return found

    def at_change(self, is_it: OnChange) -> Callable[[], None]:
        """Calls `is_it` at each change of a partition's leader or in-sync replicas, until it returns True. Returns a
        function that ends this."""
        self._waiting.append(is_it)

        def stop() -> None:
            if is_it in self._waiting:
                self._waiting.remove(is_it)

        return stop

    def before_change(self, is_it: BeforeChange) -> Callable[[], None]:
        """Calls `is_it` before each change, until it returns True. Returns a function that ends this."""
        self._waiting_before.append(is_it)

        def stop() -> None:
            if is_it in self._waiting_before:
                self._waiting_before.remove(is_it)

        return stop

    def before_read(self, is_it: BeforeRead) -> Callable[[], None]:
        """Calls `is_it` before each read, until it returns True. Returns a function that ends this."""
        self._waiting_to_read.append(is_it)

        def stop() -> None:
            if is_it in self._waiting_to_read:
                self._waiting_to_read.remove(is_it)

        return stop

    def _before_read(self, address: str, path: str) -> None:
        if self._waiting_to_read:
            name = next(name for name, host in self._network.hosts.items() if host.address == address)
            self._waiting_to_read = [is_it for is_it in self._waiting_to_read if not is_it(name, path)]

    def _before(self, paths: Collection[str]) -> None:
        self._waiting_before = [is_it for is_it in self._waiting_before if not is_it(paths)]

    def _changed(self, path: str, before: Entry, after: Entry) -> None:
        matched = STATE_PATH.fullmatch(path)
        if matched is None:
            return
        earlier, later = _stored(before), _stored(after)
        joined = [broker_id for broker_id in later.in_sync if broker_id not in earlier.in_sync]
        if joined and earlier.leader_epoch == later.leader_epoch:
            self._observer.joined(TopicPartition(matched[1], int(matched[2])), later.leader_id, joined)
        self._waiting = [is_it for is_it in self._waiting if not is_it(earlier, later)]


def _stored(entry: Entry) -> Stored:
    state = json.loads(entry.data or b"{}")
    return Stored(state["leader"], state["leader_epoch"], tuple(state["isr"]))
