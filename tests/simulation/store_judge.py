"""Judges each change of partitions and topics in the metadata store when it is made, and what leaders call committed.

It only looks: at the store, the brokers' replicas and what the controller knows. See isr_invariants.py,
reassignment_invariants.py and deletion_invariants.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from random import Random

from odradek.broker.controller.term import Term
from odradek.broker.metadata.metadata_cache import PartitionState
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.tree import MetadataTree
from odradek.broker.replica.partition.partition import Partition
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.deletion_invariants import Remains, wrong_in_deletions
from tests.simulation.disk import kept_of_log, lost_of_log
from tests.simulation.examination import epochs_between, folders_of, replica_of
from tests.simulation.history import History
from tests.simulation.isr_invariants import Facts, wrong_in
from tests.simulation.loop import SimulatedLoop
from tests.simulation.machine import Machine
from tests.simulation.missteps import Finding, Misstep, begun_since
from tests.simulation.proposal_history import Proposal
from tests.simulation.reassignment_invariants import LONGEST_REQUEST_US, Moves
from tests.simulation.stored_changes import Entries, changes_between
from tests.simulation.topic_invariants import LATE_US

UNCLEAN = "unclean.leader.election.enable"
LOOKS_A_SECOND = 200


class StoreJudge:
    """`machines` may be added later. `is_durable`: brokers sync before they acknowledge. `unclean`: the topics that get
    such leaders when operators ask for them, whatever their settings: see `unclean_leaders_asked_for`."""

    def __init__(
        self,
        history: History,
        loop: SimulatedLoop,
        machines: Mapping[int, Machine],
        source: Random,
        *,
        is_durable: bool,
        unclean: Collection[str] = (),
    ) -> None:
        self._history = history
        self._loop = loop
        self._machines = machines
        self._source = source
        self._is_durable = is_durable
        self._states: dict[TopicPartition, PartitionState] = {}
        self._unclean_by_hand = unclean
        self._unclean_until_us = -1
        """How long a controller may still do what operators have asked for."""
        self._unclean: dict[str, bool] = {}
        self._moves = Moves(history, self._states)
        self._controller_epoch = -1
        self._committed: dict[tuple[int, TopicPartition], int] = {}
        """The high watermark of each leader at the last look."""

    # --- the store ----------------------------------------------------------------------------------------------

    def unclean_leaders_asked_for(self) -> None:
        """Operators ask now for unclean leaders of their topics."""
        self._unclean_until_us = self._loop.now_us + LATE_US

    def applied(self, tree: MetadataTree, before: Entries, after: Entries) -> None:
        """A transaction has changed these entries of the store."""
        changes = changes_between(before, after)
        now_us = self._loop.now_us
        for key, (_, later) in changes.states.items():
            if later is None:
                self._states.pop(key, None)
            else:
                self._states[key] = later
        for key, (earlier, later) in changes.states.items():
            if later is not None:
                self._note(str(key), wrong_in(earlier, later, self._facts(tree, key, later)))
                joined = {*later.isr} - {*(later if earlier is None else earlier).isr}
                self._note(str(key), self._missing_in_joined(key, later, joined))
        if changes.topics or changes.states:
            self._note("", self._moves.judge(changes, now_us))
        if changes.topics or changes.marks:
            removed = [name for name, (_, later) in changes.topics.items() if later is None]
            folders = [
                folder
                for machine in (self._machines.values() if removed else ())
                for folder in folders_of(machine)
                if folder.partition.topic in removed
            ]
            remains = Remains(tree.children(znodes.TOPICS), tree.children(znodes.DELETE_TOPICS))
            self._note("", wrong_in_deletions(self._history, changes, remains, folders, now_us))

    def _facts(self, tree: MetadataTree, key: TopicPartition, after: PartitionState) -> Facts:
        topic = tree.get(znodes.topic_path(key.topic))
        epoch = tree.get(znodes.CONTROLLER_EPOCH)
        config = tree.get(znodes.topic_config_path(key.topic))
        assert topic is not None, "a state is below its topic"
        assert epoch is not None, "a controller has written it"
        replicas = znodes.parse_topic(key.topic, topic.data).replicas.get(key.partition, ())
        own = {} if config is None else znodes.parse_config("", config.data)
        is_by_hand, is_by_settings = key.topic in self._unclean_by_hand, own.get(UNCLEAN) == "true"
        is_asked_for = is_by_hand and self._loop.now_us <= self._unclean_until_us
        self._unclean[key.topic] = is_by_settings or is_by_hand
        term = self.term_of(after.controller_epoch)
        state = after._replace(replicas=replicas)
        proposed = _proposed(replica_of(self._machines, after.leader, key), after)
        is_proposed = proposed is None or sorted(proposed) == sorted(after.isr)
        late = None if is_proposed else self._late_proposal(key, after)
        registered = None if late is None else tree.get(znodes.broker_path(late.broker_id))
        return Facts(
            replicas=replicas,
            controller_epoch=znodes.parse_epoch("", epoch.data),
            allows_unclean=is_by_settings or is_asked_for,
            alive=None if term is None else [broker for broker in replicas if broker in term.context.brokers],
            electable=None if term is None else _electable(term, key, state),
            proposed=proposed,
            late=late,
            registration=-1 if registered is None else registered.created,
        )

    def _late_proposal(self, key: TopicPartition, after: PartitionState) -> Proposal | None:
        """The last proposal of who may not that may have led to this state."""
        proposals = begun_since(self._history, Proposal, self._loop.now_us - LONGEST_REQUEST_US)
        isr = {*after.isr}
        return next(
            (each for each in proposals if each.partition == key and {*each.in_sync, after.leader} == isr), None
        )

    def _missing_in_joined(
        self, key: TopicPartition, after: PartitionState, joined: Collection[int]
    ) -> Iterator[Finding]:
        """Who joins has all that the leader had when its epoch began, in the same epochs."""
        leader = replica_of(self._machines, after.leader, key) if joined else None
        if leader is None or not leader.is_leader or leader.leader_epoch != after.leader_epoch:
            return
        for broker_id in sorted(joined):
            replica = replica_of(self._machines, broker_id, key)
            if replica is None or replica.topic_id != leader.topic_id:
                continue
            if replica.log.state.log_end_offset < leader.epoch_start_offset:
                has = f"{broker_id} has joined with what it has up to {replica.log.state.log_end_offset}"
                yield Finding("members", f"{has}, and the epoch of its leader begins at {leader.epoch_start_offset}")
            start = max(each.log.state.log_start_offset for each in (leader, replica))
            one, other = (epochs_between(each.log, start, leader.epoch_start_offset) for each in (leader, replica))
            if one != other and not leader.log.config.compact:
                yield Finding("members", f"{broker_id} has joined with the epochs {other}, its leader has {one}")

    def term_of(self, controller_epoch: int) -> Term | None:
        """The term of the controller of an epoch, if it lasts."""
        for machine in self._machines.values():
            controller = getattr(machine.broker, "controller", None)
            term: Term | None = None if controller is None else controller.terms.term
            if term is not None and term.context.epoch == controller_epoch:
                return term
        return None

    def _note(self, about: str, findings: Iterator[Finding]) -> None:
        for finding in findings:
            text = f"{about}: {finding.text}" if about else finding.text
            self._history.note(Misstep(process="store", finding=finding._replace(text=text)))

    # --- what leaders call committed ----------------------------------------------------------------------------

    async def look(self) -> None:
        """Looks at random moments, until it is cancelled."""
        while True:
            await asyncio.sleep(self._source.expovariate(LOOKS_A_SECOND))
            for machine in self._machines.values():
                self._note(machine.name, self._missing_below_watermarks(machine))

    def overdue(self, *, is_controlled: bool) -> None:
        """Notes the reassignments that should have ended."""
        self._note("", self._moves.overdue(self._loop.now_us, is_controlled=is_controlled))

    def _missing_below_watermarks(self, machine: Machine) -> Iterator[Finding]:
        broker = machine.running
        for partition in () if broker is None else broker.replica_manager.partitions:
            if not partition.is_leader:
                continue
            key, high_watermark = partition.topic_partition, partition.log.state.high_watermark
            if self._committed.get((machine.broker_id, key)) == high_watermark:
                continue
            self._committed[machine.broker_id, key] = high_watermark
            stored = self._states.get(key)
            if stored is None or stored.leader_epoch != partition.leader_epoch or self._unclean.get(key.topic):
                continue
            for broker_id in stored.isr:
                replica = replica_of(self._machines, broker_id, key)
                if replica is None or replica.topic_id != partition.topic_id:
                    continue
                yield from self._missing_in(broker_id, replica, high_watermark)

    def _missing_in(self, broker_id: int, replica: Partition, high_watermark: int) -> Iterator[Finding]:
        end = replica.log.state.log_end_offset
        text = f"{replica.topic_partition} is committed up to {high_watermark}, in-sync broker {broker_id}"
        if end < high_watermark:
            yield Finding("on disk", f"{text} has it up to {end}")
        elif self._is_durable:
            disk, folder = self._machines[broker_id].disk, replica.log.folder.path
            kept, lost = kept_of_log(disk, folder, end), lost_of_log(disk, folder)
            if lost is not None and lost < high_watermark:
                yield Finding("on disk", f"{text} knows that a sync has failed, and lost it from {lost} on")
            elif kept < high_watermark:
                yield Finding("on disk", f"{text} has synced it up to {kept}")


def _electable(term: Term, key: TopicPartition, state: PartitionState) -> list[int]:
    """Who may lead, as the controller knows: alive, not shutting down, its log directory online."""
    context = term.context
    return [
        broker
        for broker in state.replicas
        if broker in context.brokers
        and broker not in context.shutting_down
        and key not in context.offline_replicas.get(broker, ())
    ]


def _proposed(leader: Partition | None, after: PartitionState) -> tuple[int, ...] | None:
    if leader is None or not leader.is_leader or leader.leader_epoch != after.leader_epoch:
        return None
    proposal = leader.isr.proposal
    return leader.isr.committed if proposal is None else proposal.isr
