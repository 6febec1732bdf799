"""The ways between brokers and the shared metadata store: a broker is connected to it while nothing speaks against it.

Reasons not to be: its process has ended, it is paused (it sends no heartbeats), a fault cuts the way.

A fault may wait for a change of the store: `at_change` calls it when the change is made, before its answer is sent.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable
from random import Random

from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import Entry, MetadataStore, NoEntry
from odradek.broker.metadata_store.shared.shared_store import SharedStore
from odradek.broker.metadata_store.tree import Transaction, parent_of
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.final_state import Stored, StoredMetadata, StoredTopic
from tests.simulation.loop import Node

ENDED, PAUSED, CUT = "ended", "paused", "cut"
SESSION_TIMEOUT_MS = 6000
STATE_PATH = re.compile(r"/brokers/topics/([^/]+)/partitions/\d+/state")


OnChange = Callable[[Stored, Stored], bool]
"""Gets a partition's state before and after a change; returns whether it was waiting for this one."""


class WatchedStore(SharedStore):
    """Calls `on_change` with the path and the entries before and after each change of an entry."""

    on_change: Callable[[str, Entry, Entry], object]
    on_registration: Callable[[int, bool], object]
    """Gets the id of a broker whose registration begins (True) or ends."""
    on_election: Callable[[int], object]
    """Gets the id of the new controller."""

    def _apply(self, transaction: Transaction) -> None:
        before = {path: self.entry(path) for path in transaction.entries}
        super()._apply(transaction)
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

    def children(self, path: str) -> list[str]:
        """The names below a path."""
        return self._tree.children(path)


class StoreLinks:
    """Create it on the running loop."""

    def __init__(
        self,
        source: Random,
        note: Callable[[str, str], object],
        on_registration: Callable[[int, bool], object],
        on_election: Callable[[int], object],
    ) -> None:
        """`note(event, name)`: the trace. The others: see WatchedStore."""
        self.store = WatchedStore(session_timeout_ms=SESSION_TIMEOUT_MS, delay=self._delay_s)
        self.store.on_change = self._changed
        self.store.on_registration = on_registration
        self.store.on_election = on_election
        self.slowness: dict[str, float] = {}
        """How many times as long the messages of these brokers take."""
        self._waiting: list[OnChange] = []
        self._source = source
        self._note = note
        self._reasons: dict[str, dict[str, None]] = {}

    def _delay_s(self, name: str) -> float:
        return self.slowness.get(name, 1.0) * (0.0002 + self._source.expovariate(1 / 0.0005))

    def open(self, node: Node) -> MetadataStore:
        """A session for a starting process. Called as the node."""
        session = self.store.session(node.name)
        self._reasons.setdefault(node.name, {}).pop(PAUSED, None)
        self.end(node.name, ENDED)
        return session

    def begin(self, name: str, reason: str, *, loses_answers: bool = False) -> None:
        """Cuts the broker off, unless it is already."""
        reasons = self._reasons.get(name)
        if reasons is None or reason in reasons:
            return
        reasons[reason] = None
        if len(reasons) == 1:
            self._note("cut from the store", name)
            self.store.cut(name, lost_answers=self._source if loses_answers else None)

    def end(self, name: str, reason: str) -> None:
        """Connects the broker again, unless something else speaks against it."""
        reasons = self._reasons.get(name)
        if reasons is not None and reasons.pop(reason, self) is None and not reasons:
            self._note("connected to the store", name)
            self.store.heal(name)

    def expire(self, name: str) -> None:
        """Ends the session of the broker."""
        if name in self._reasons:
            self._note("session expires", name)
            self.store.expire(name)

    async def delete(self, path: str) -> None:
        """Deletes an entry, as an operator does."""
        session = self.store.session("operator")
        await session.open()
        with contextlib.suppress(NoEntry):
            await session.delete(path)
        await session.close()

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
        for name in self.store.children(znodes.TOPICS):
            entry = self.store.entry(znodes.topic_path(name))
            assert entry is not None
            topic = znodes.parse_topic(name, entry.data)
            topics[name] = StoredTopic(topic.topic_id, topic.replicas, sorted({**topic.adding, **topic.removing}))
        children = self.store.children
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
