"""What a cluster within the process looks like from outside: its brokers, and who leads what (see cluster.py).

What has been decided is read from the metadata store, what has been done about it from the brokers.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path

from odradek.broker.metadata.metadata_cache import PartitionState
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import Entry
from odradek.broker.metadata_store.shared.shared_store import SharedStore
from odradek.broker.replica.partition.partition import Partition
from odradek.broker.server import Broker
from odradek.protocol.topic_partition import TopicPartition
from odradek.testing.network import Network
from odradek.testing.node_loop import NodeLoop

HOST = "127.0.0.1"
SHOWN_PARTITIONS = 20
SHOWN_TOPICS = 20


def no_broker(broker_id: object, ids: Iterable[int]) -> str:
    """Says that there is no such broker, and which there are."""
    return f"there is no broker {broker_id!r}; the brokers are {', '.join(map(str, ids))}"


class BrokerStatus(Enum):
    """What has been done to a broker last."""

    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    KILLED = "killed"


ENDED = (BrokerStatus.STOPPED, BrokerStatus.KILLED)


class Member:
    """One broker of the cluster, whether it runs or not. `settings` are all that differ from those of a single node;
    `reserved` holds its port for as long as the cluster lives.
    """

    def __init__(self, broker_id: int, settings: Mapping[str, str], reserved: socket.socket) -> None:
        self.broker_id = broker_id
        self.name = f"broker-{broker_id}"
        self.settings = settings
        self.reserved = reserved
        self.status = BrokerStatus.STOPPED
        self.is_cut_from_store = False
        self.broker: Broker | None = None
        self.loop: NodeLoop | None = None


class ClusterView:
    """`members` are all brokers of the cluster, by id. Methods raise ValueError for any other id."""

    def __init__(self, members: dict[int, Member], store: SharedStore, network: Network) -> None:
        self.members = members
        self.store = store
        self.network = network
        self._assignments: dict[str, tuple[Entry, znodes.TopicAssignment]] = {}

    def member(self, broker_id: int) -> Member:
        """Returns the broker of this id. Raises ValueError."""
        if broker_id not in self.members:
            raise ValueError(no_broker(broker_id, self.members))
        return self.members[broker_id]

    def _expect(self, broker_id: int, *statuses: BrokerStatus) -> Member:
        """Returns the broker if it has one of these. Raises ValueError."""
        member = self.member(broker_id)
        if member.status not in statuses:
            raise ValueError(f"broker {broker_id} is {member.status.value}")
        return member

    @property
    def ids(self) -> list[int]:
        """The ids of all brokers, whether they run or not."""
        return list(self.members)

    @property
    def brokers(self) -> dict[int, Broker]:
        """The brokers by id; of one that does not run, the last one that did."""
        return {member.broker_id: member.broker for member in self.members.values() if member.broker is not None}

    @property
    def running(self) -> list[int]:
        """The ids of the brokers that run and are not paused."""
        return [broker_id for broker_id in self.members if self.status(broker_id) is BrokerStatus.RUNNING]

    @property
    def bootstrap(self) -> str:
        """HOST:PORT,... of all brokers, whether they run or not."""
        return ",".join(self.bootstrap_of(broker_id) for broker_id in self.members)

    def bootstrap_of(self, broker_id: int) -> str:
        """HOST:PORT of one broker."""
        return f"{HOST}:{self.member(broker_id).reserved.getsockname()[1]}"

    def ports(self) -> set[int]:
        """Where all brokers listen."""
        return {int(member.reserved.getsockname()[1]) for member in self.members.values()}

    def data_dir(self, broker_id: int) -> Path:
        """The log directory of one broker."""
        return Path(self.member(broker_id).settings["log.dirs"])

    def status(self, broker_id: int) -> BrokerStatus:
        """What has been done to a broker last."""
        return self.member(broker_id).status

    @property
    def controller(self) -> int | None:
        """The id of the broker that is the controller and at work, None at the moment."""
        entry = self.store.entry(znodes.CONTROLLER)
        controller_id = None if entry is None else znodes.parse_controller(entry.data)
        if controller_id not in self.running or not self.brokers[controller_id].controller.terms.is_active:
            return None
        return controller_id

    def leader(self, topic: str, partition: int) -> int | None:
        """The id of the broker that leads the partition; None if the elected one does not run, is cut off from the
        metadata store, or does not know yet. Raises ValueError if there is no such partition.
        """
        state = self._known(topic, partition)
        led = None if state is None else self.led(topic, state)
        return None if state is None or led is None else state.leader

    def isr(self, topic: str, partition: int) -> set[int]:
        """The ids of the partition's in-sync replicas, as the metadata store has them. Raises ValueError if there is
        no such partition.
        """
        state = self._known(topic, partition)
        return set() if state is None else set(state.isr)

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        """The partition's state as the metadata store has it, None if there is no such partition."""
        assignment = self._assignment(topic)
        entry = self.store.entry(znodes.state_path(topic, partition))
        if assignment is None or entry is None:
            return None
        replicas = assignment.replicas.get(partition, ())
        return znodes.parse_state(topic, partition, replicas, entry.data, entry.version)._replace(
            adding=assignment.adding.get(partition, ()), removing=assignment.removing.get(partition, ())
        )

    def _known(self, topic: str, partition: int) -> PartitionState | None:
        """As `partition`; None only while the controller has not stored the state of a new partition yet. Raises
        ValueError if there is no such partition.
        """
        assignment = self._assignment(topic)
        if assignment is None:
            names = self._topic_names()
            shown = ", ".join(names[:SHOWN_TOPICS]) or "there are none"
            more = f" and {len(names) - SHOWN_TOPICS} more" if len(names) > SHOWN_TOPICS else ""
            raise ValueError(f"there is no topic {topic!r}; the topics: {shown}{more}")
        if partition not in assignment.replicas:
            raise ValueError(f"topic {topic} has no partition {partition!r}; it has {len(assignment.replicas)}")
        return self.partition(topic, partition)

    def _topic_names(self) -> list[str]:
        """The topics that a broker knows, sorted."""
        return sorted({name for broker in self.brokers.values() for name in broker.metadata.topic_names()})

    def is_reassigned(self, topic: str) -> bool:
        """Whether replicas of the topic are being added or removed."""
        assignment = self._assignment(topic)
        return assignment is not None and bool(assignment.adding or assignment.removing)

    def _assignment(self, topic: str) -> znodes.TopicAssignment | None:
        """A topic's replicas as the metadata store has them; parsed once as long as they are the same."""
        entry = self.store.entry(znodes.topic_path(topic))
        if entry is None:
            return None
        known = self._assignments.get(topic)
        if known is None or known[0] is not entry:
            known = self._assignments[topic] = (entry, znodes.parse_topic(topic, entry.data))
        return known[1]

    def replica(self, broker_id: int, topic: str, partition: int) -> Partition | None:
        """A broker's replica of the partition, with its log and, on the leader, its in-sync replicas."""
        broker = self.member(broker_id).broker
        return None if broker is None else broker.replica_manager.partitions.get(TopicPartition(topic, partition))

    def led(self, topic: str, state: PartitionState) -> Partition | None:
        """The leader's own partition, if it runs, can be replaced, and has taken up this leadership."""
        if state.leader not in self.running or self.members[state.leader].is_cut_from_store:
            return None
        led = self.replica(state.leader, topic, state.partition)
        return led if led is not None and led.is_leader and led.leader_epoch == state.leader_epoch else None

    def in_touch(self) -> list[int]:
        """The running brokers that controller and metadata store reach."""
        controller = self.controller
        return [
            broker_id
            for broker_id in self.running
            if not self.members[broker_id].is_cut_from_store and controller not in self.network.cuts_of(broker_id)
        ]

    def describe(self) -> str:
        """Returns the state of the cluster as text: brokers, and partitions with their leaders and offsets, those with
        problems first.
        """
        lines = [self._describe_broker(member) for member in self.members.values()]
        states = [(name, state) for name in self._topic_names() for state in self.states(name)]
        states.sort(key=lambda each: len(each[1].isr) == len(each[1].replicas) and each[1].leader in each[1].isr)
        lines += [self._describe_partition(name, state) for name, state in states[:SHOWN_PARTITIONS]]
        if len(states) > SHOWN_PARTITIONS:
            lines.append(f"  and {len(states) - SHOWN_PARTITIONS} partitions more")
        return "\n".join(lines)

    def states(self, name: str) -> list[PartitionState]:
        """The states of a topic's partitions, as the metadata store has them."""
        assignment = self._assignment(name)
        numbers = () if assignment is None else assignment.replicas
        return [state for number in numbers if (state := self.partition(name, number)) is not None]

    def _describe_broker(self, member: Member) -> str:
        words = [f"broker {member.broker_id}", member.status.value]
        if member.broker is not None and member.status is BrokerStatus.RUNNING:
            metadata = member.broker.metadata
            if self.controller == member.broker_id:
                words.append("controller")
            words.append(f"knows brokers {sorted(metadata.brokers)} and controller {metadata.controller_id}")
        cuts = [str(other) for other in self.network.cuts_of(member.broker_id)]
        cuts += ["the store"] if member.is_cut_from_store else []
        if cuts:
            words.append(f"cut off from {', '.join(cuts)}")
        if self.network.is_frozen(member.broker_id):
            words.append("replication frozen")
        return ", ".join(words)

    def _describe_partition(self, name: str, state: PartitionState) -> str:
        words = [f"  {name}-{state.partition}: leader {state.leader} (epoch {state.leader_epoch})"]
        words.append(f"replicas {list(state.replicas)} ISR {sorted(state.isr)}")
        for broker_id in state.replicas:
            replica = self.replica(broker_id, name, state.partition) if broker_id in self.running else None
            if replica is not None:
                role = "leader" if replica.is_leader else "follower"
                offsets = replica.log.state
                words.append(
                    f"{broker_id} is {role} in epoch {replica.leader_epoch} with offsets {offsets.log_start_offset} to "
                    f"{offsets.log_end_offset}, high watermark {offsets.high_watermark}"
                )
        return "; ".join(words)
