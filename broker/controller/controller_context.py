"""What the active controller knows of the cluster: brokers, topics, states, deletions, reassignments. It exists from
the election of the controller until another broker is elected, and nothing outside the controller sees it.

    (A) `metadata` holds brokers and topics in the form that `Planner` reads. Brokers that are shutting down are in it.
        The states of partitions are replaced in place (`put_state`), which a cache with other readers must not do.
    (B) A broker is `electable` for a partition if it is alive, is not shutting down, and the partition's log directory
        is online; it is `present` if it may be shutting down.
    (C) A topic that is being deleted stays until all its replicas are deleted.
    (D) A topic whose entries in the store are damaged is in `damaged`, and is left alone.
    (E) While the replicas that a reassignment has removed are being deleted, the partition already has its target
        replicas, and `finishing` has the assignment that is stored.

Iteration is in a fixed order: topics as loaded (by name) or created, partitions by number, brokers by id.

Source: Kafka's `ControllerContext`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.controller.partition_states import PARTITION_MOVES, PartitionPhase, is_led_by_preferred, is_new
from odradek.broker.controller.reassignment_decisions import is_being_reassigned
from odradek.broker.controller.replica_states import REPLICA_MOVES, ReplicaPhase
from odradek.broker.metadata.metadata_cache import BrokerInfo, MetadataCache, PartitionState, TopicMetadata
from odradek.protocol.topic_partition import TopicPartition


class IllegalMove(Exception):
    """A move that is not in the tables: an error in the controller, which gives up its term and starts over."""


class ControllerNumbers(NamedTuple):
    """The controller's metrics; all 0 on a broker that is not the controller."""

    active: int = 0
    offline_partitions: int = 0
    preferred_replica_imbalance: int = 0
    topics: int = 0
    partitions: int = 0
    topics_to_delete: int = 0
    replicas_to_delete: int = 0
    topics_ineligible_to_delete: int = 0
    replicas_ineligible_to_delete: int = 0
    active_brokers: int = 0


class Finishing:
    """A reassignment whose target is reached (E): the state as stored, and the brokers that still delete replicas."""

    def __init__(self, stored: PartitionState, awaited: dict[int, None]) -> None:
        self.stored = stored
        self.awaited = awaited


class Deletion:
    """A topic to be deleted. `is_halted`: it waits for a broker with a replica to start. `untold` are the live brokers
    that have not yet answered that they know of the deletion.
    """

    def __init__(self) -> None:
        self.is_started = False
        self.is_halted = False
        self.untold: dict[int, None] = {}


class ControllerContext:
    """`epoch` is the controller epoch, which every state that this controller writes contains."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.metadata = MetadataCache("", -1)
        self.shutting_down: dict[int, None] = {}
        self.offline_replicas: dict[int, dict[TopicPartition, None]] = {}
        self.deletions: dict[str, Deletion] = {}
        self.finishing: dict[TopicPartition, Finishing] = {}
        self.damaged: dict[str, None] = {}
        self._states: dict[str, dict[int, PartitionState]] = {}
        self._partition_phases: dict[TopicPartition, PartitionPhase] = {}
        self._replica_phases: dict[TopicPartition, dict[int, ReplicaPhase]] = {}
        self._numbers: ControllerNumbers | None = None

    # Brokers

    @property
    def brokers(self) -> Mapping[int, BrokerInfo]:
        """The live brokers, including those that are shutting down."""
        return self.metadata.brokers

    def put_broker(self, broker: BrokerInfo) -> None:
        """Adds a live broker, or replaces its addresses."""
        self.metadata.put_broker(broker)
        self.metadata.brokers = dict(sorted(self.metadata.brokers.items()))

    def remove_broker(self, broker_id: int) -> None:
        """Forgets a dead broker."""
        self.metadata.remove_broker(broker_id)
        self.shutting_down.pop(broker_id, None)
        self.offline_replicas.pop(broker_id, None)

    def is_present(self, broker_id: int, key: TopicPartition) -> bool:
        """Whether the broker is alive and its replica is not offline (B)."""
        return broker_id in self.metadata.brokers and key not in self.offline_replicas.get(broker_id, ())

    def present(self, key: TopicPartition, state: PartitionState) -> list[int]:
        """The replicas that are not lost (B)."""
        return [broker for broker in state.replicas if self.is_present(broker, key)]

    def electable(self, key: TopicPartition, state: PartitionState) -> list[int]:
        """The replicas that may become leader (B)."""
        return [broker for broker in self.present(key, state) if broker not in self.shutting_down]

    # Topics and partitions

    def put_topic(self, topic: TopicMetadata) -> None:
        """Adds a topic. Its partitions and replicas get phases with `move_partition` and `move_replica`."""
        self._states[topic.name] = dict(topic.partitions)
        self.metadata.put_topic(topic._replace(partitions=self._states[topic.name]), {})

    def put_state(self, key: TopicPartition, state: PartitionState) -> None:
        """Replaces or adds a partition's state (A). The topic must exist."""
        self._states[key.topic][key.partition] = state

    def is_topic_being_reassigned(self, name: str) -> bool:
        """Whether a reassignment of one of its partitions is under way, or complete but for what the store has."""
        return any(key.topic == name for key in self.finishing) or any(
            map(is_being_reassigned, self._states[name].values())
        )

    def remove_topic(self, name: str) -> Steps[None]:
        """Forgets a topic that has been deleted."""
        pace = Pace()
        for partition in self._states.get(name, ()):
            key = TopicPartition(name, partition)
            self._partition_phases.pop(key, None)
            self._replica_phases.pop(key, None)
            self.finishing.pop(key, None)
            if pace.step_ends(2):
                yield
        self._states.pop(name, None)
        self.metadata.remove_topic(name)
        self.deletions.pop(name, None)

    def topic(self, name: str) -> TopicMetadata | None:
        """The topic, or None if there is none that is readable."""
        return self.metadata.topic(name)

    def state(self, key: TopicPartition) -> PartitionState | None:
        """The partition's state, or None if it does not exist."""
        return self._states.get(key.topic, {}).get(key.partition)

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionState]]:
        """Every partition that is not to be deleted. Must not be iterated over while topics come and go."""
        for name, states in self._states.items():
            if name not in self.deletions:
                for partition, state in states.items():
                    yield TopicPartition(name, partition), state

    def partitions_of(self, name: str) -> list[TopicPartition]:
        """The partitions of a topic."""
        return [TopicPartition(name, partition) for partition in self._states.get(name, ())]

    def partition_count(self, name: str) -> int:
        """The number of partitions of a topic."""
        return len(self._states.get(name, ()))

    def stored_states(self, name: str) -> list[PartitionState]:
        """The topic's partitions with the assignment that is stored (E)."""
        states = self._states[name]
        if not self.finishing:
            return list(states.values())
        found = (self.finishing.get(TopicPartition(name, partition)) for partition in states)
        return [
            state if finishing is None else _assigned(state, finishing.stored)
            for state, finishing in zip(states.values(), found, strict=True)
        ]

    def reassigning(self) -> dict[TopicPartition, PartitionState]:
        """The partitions being reassigned, with the replicas being added and removed."""
        found = {}
        for key, state in self.partitions():
            finishing = self.finishing.get(key)
            if finishing is not None:
                found[key] = _assigned(state, finishing.stored)
            elif is_being_reassigned(state):
                found[key] = state
        return found

    # Phases

    def phase(self, key: TopicPartition) -> PartitionPhase:
        """The partition's phase."""
        return self._partition_phases.get(key, PartitionPhase.NON_EXISTENT)

    def move_partition(self, key: TopicPartition, phase: PartitionPhase) -> None:
        """Moves a partition. Raises IllegalMove."""
        before = self.phase(key)
        if (before, phase) not in PARTITION_MOVES:
            raise IllegalMove(f"partition {key} from {before.value} to {phase.value}")
        if phase is PartitionPhase.NON_EXISTENT:
            self._partition_phases.pop(key, None)
        else:
            self._partition_phases[key] = phase

    def load_phases(self, key: TopicPartition, state: PartitionState) -> None:
        """Gives a partition that existed before this controller, and its replicas, their phases."""
        phase = PartitionPhase.ONLINE if self.is_present(state.leader, key) else PartitionPhase.OFFLINE
        self._partition_phases[key] = PartitionPhase.NEW if is_new(state) else phase
        self._replica_phases[key] = {broker: self._replica_phase_for(key, state, broker) for broker in state.replicas}

    def replica_phase(self, key: TopicPartition, broker_id: int) -> ReplicaPhase:
        """The replica's phase."""
        return self._replica_phases.get(key, {}).get(broker_id, ReplicaPhase.NON_EXISTENT)

    def replicas_in(self, name: str, phase: ReplicaPhase) -> Iterator[tuple[TopicPartition, int]]:
        """The replicas of a topic that are in this phase. They may be moved meanwhile."""
        for partition in self._states.get(name, ()):
            key = TopicPartition(name, partition)
            for broker, found in list(self._replica_phases.get(key, {}).items()):
                if found is phase:
                    yield key, broker

    def move_replica(self, key: TopicPartition, broker_id: int, phase: ReplicaPhase) -> None:
        """Moves a replica. Raises IllegalMove."""
        phases = self._replica_phases.setdefault(key, {})
        before = phases.get(broker_id, ReplicaPhase.NON_EXISTENT)
        if (before, phase) not in REPLICA_MOVES:
            raise IllegalMove(f"replica {broker_id} of {key} from {before.value} to {phase.value}")
        if phase is ReplicaPhase.NON_EXISTENT:
            phases.pop(broker_id, None)
        else:
            phases[broker_id] = phase

    def update_phases(self, key: TopicPartition, state: PartitionState) -> None:
        """Moves a partition and its replicas as brokers, log directories and in-sync replicas change."""
        if not is_new(state):
            is_led = self.is_present(state.leader, key)
            self.move_partition(key, PartitionPhase.ONLINE if is_led else PartitionPhase.OFFLINE)
        for broker in state.replicas:
            if self.replica_phase(key, broker) is ReplicaPhase.NON_EXISTENT:
                self.move_replica(key, broker, ReplicaPhase.NEW)
            after = self._replica_phase_for(key, state, broker)
            if after is not self.replica_phase(key, broker):
                self.move_replica(key, broker, after)

    def _replica_phase_for(self, key: TopicPartition, state: PartitionState, broker: int) -> ReplicaPhase:
        if not self.is_present(broker, key) or (broker in self.shutting_down and broker not in state.isr):
            return ReplicaPhase.OFFLINE
        is_joining = is_new(state) or (broker in state.adding and broker not in state.isr)
        is_first = self.replica_phase(key, broker) in (ReplicaPhase.NON_EXISTENT, ReplicaPhase.NEW)
        return ReplicaPhase.NEW if is_joining and is_first else ReplicaPhase.ONLINE

    # Numbers

    def numbers(self) -> ControllerNumbers:
        """The metrics as of the last event."""
        if self._numbers is None:
            self._numbers = self._count()
        return self._numbers

    def event_ended(self) -> None:
        """The metrics may have changed."""
        self._numbers = None

    def _count(self) -> ControllerNumbers:
        offline = imbalanced = with_leader = 0
        for key, state in self.partitions():
            offline += self.phase(key) is PartitionPhase.OFFLINE
            imbalanced += not is_new(state) and not is_led_by_preferred(state)
        for states in self._states.values():
            with_leader += sum(not is_new(state) for state in states.values())
        doomed = [phase for name in self.deletions for phase in self._phases_of(name)]
        return ControllerNumbers(
            active=1,
            offline_partitions=offline,
            preferred_replica_imbalance=imbalanced,
            topics=len(self._states),
            partitions=with_leader,
            topics_to_delete=len(self.deletions),
            replicas_to_delete=sum(phase is not ReplicaPhase.DELETION_SUCCESSFUL for phase in doomed),
            topics_ineligible_to_delete=sum(deletion.is_halted for deletion in self.deletions.values()),
            replicas_ineligible_to_delete=sum(phase is ReplicaPhase.DELETION_INELIGIBLE for phase in doomed),
            active_brokers=len(self.metadata.brokers),
        )

    def _phases_of(self, name: str) -> Iterator[ReplicaPhase]:
        for key in self.partitions_of(name):
            yield from self._replica_phases.get(key, {}).values()


def _assigned(state: PartitionState, assignment: PartitionState) -> PartitionState:
    return state._replace(replicas=assignment.replicas, adding=assignment.adding, removing=assignment.removing)
