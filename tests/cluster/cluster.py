"""A cluster under test, whatever its brokers are: what tests do to them, and what a client sees of them.

process_cluster.py has brokers that are processes, thread_cluster.py brokers that share a thread of the test's process.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.group_admin import DescribeGroupsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.reassignments import ElectLeadersRequest
from odradek.protocol.messages.topics import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from odradek.protocol.topic_partition import TopicPartition
from tests.wire.blocking_client import Client
from tests.wire.coordinators import field_of

PATIENCE_S = 60
PAUSE_S = 0.02
NOBODY = -1
GROUP, TRANSACTION = range(2)
"""What a coordinator coordinates."""
SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "5",
    "transaction.state.log.min.isr": "2",
    "replica.lag.time.max.ms": "3000",
    "controlled.shutdown.max.retries": "1",
    "group.initial.rebalance.delay.ms": "0",
}
PATIENT_SETTINGS = {**SETTINGS, "zookeeper.connection.timeout.ms": "60000"}
"""For brokers whose ZooKeeper may have only just begun to listen."""


@dataclass(frozen=True, slots=True)
class Leadership:
    """A partition as a broker shows it to clients."""

    leader: int
    epoch: int
    replicas: tuple[int, ...]
    isr: frozenset[int]


@dataclass(frozen=True, slots=True)
class View:
    """What one broker shows of the cluster."""

    controller: int
    brokers: frozenset[int]
    partitions: Mapping[TopicPartition, Leadership]

    def is_whole(self, brokers: int) -> bool:
        """Whether all brokers are there, and all replicas are in sync."""
        return len(self.brokers) == brokers and all(
            part.leader in part.isr and part.isr == frozenset(part.replicas) for part in self.partitions.values()
        )


@dataclass(frozen=True, slots=True)
class Node:
    """What a broker keeps over restarts: its address and its log directory."""

    address: str
    data: Path


class Cluster(ABC):
    """Brokers that keep their addresses and their data over restarts."""

    nodes: Mapping[int, Node]
    session_timeout_ms: int

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(node.address for node in self.nodes.values())

    # The brokers' lives

    @property
    @abstractmethod
    def running(self) -> list[int]:
        """The brokers that are up and not stopped."""

    @property
    @abstractmethod
    def stopped(self) -> Collection[int]:
        """The brokers that `stop` holds."""

    @abstractmethod
    def launch(self, broker_id: int) -> None:
        """Starts a broker that is down; returns when it serves."""

    @abstractmethod
    def kill(self, broker_id: int) -> None:
        """kill -9, or the like."""

    @abstractmethod
    def terminate(self, broker_id: int) -> None:
        """SIGTERM, or the like: a controlled shutdown. Returns when the broker is down."""

    @abstractmethod
    def stop(self, broker_id: int) -> None:
        """SIGSTOP, or the like: the broker does nothing until `go_on`, but its sockets are open."""

    @abstractmethod
    def go_on(self, broker_id: int) -> None:
        """SIGCONT, or the like."""

    def stop_for_long(self, broker_id: int) -> None:
        """Stops a broker for twice the session time-out, and at least until others have replaced it."""
        self.stop(broker_id)
        time.sleep(2 * self.session_timeout_ms / 1000)
        self.until_replaced(broker_id)
        self.go_on(broker_id)

    def terminate_all(self) -> None:
        """Terminates all running brokers, one after the other."""
        for broker_id in self.running:
            self.terminate(broker_id)

    # What it looks like

    def view(self, broker_id: int) -> View:
        """What a broker shows now. Raises OSError."""
        with Client(self.nodes[broker_id].address) as connection:
            answer = connection.ask(MetadataRequest(topics=None))
        partitions = {
            TopicPartition(topic.name or "", part.partition_index): Leadership(
                part.leader_id, part.leader_epoch, tuple(part.replica_nodes), frozenset(part.isr_nodes)
            )
            for topic in answer.topics
            for part in topic.partitions
        }
        return View(answer.controller_id, frozenset(broker.node_id for broker in answer.brokers), partitions)

    def until(self, condition: Callable[[View], object], patience_s: float = PATIENCE_S) -> View:
        """Waits until every running broker's view meets the condition; returns the last one's."""
        give_up = time.monotonic() + patience_s
        views: dict[int, View] = {}
        while True:
            views = {broker_id: self.view(broker_id) for broker_id in self.running}
            if all(condition(view) for view in views.values()):
                return views[self.running[-1]]
            assert time.monotonic() < give_up, f"not for {patience_s} s: {views}"
            time.sleep(PAUSE_S)

    def until_whole(self) -> View:
        """Waits until all brokers are there and all replicas are in sync."""
        return self.until(lambda view: view.is_whole(len(self.nodes)))

    def leader(self, topic: str, partition: int) -> int:
        """The leader of a partition, as the first running broker sees it."""
        return self.view(self.running[0]).partitions[TopicPartition(topic, partition)].leader

    def controller(self) -> int:
        """The controller, as the first running broker sees it."""
        return self.view(self.running[0]).controller

    def until_led_by_another(self, topic: str, partition: int, before: int) -> View:
        """Waits until a partition has a leader that is not `before`."""
        key = TopicPartition(topic, partition)
        return self.until(lambda view: view.partitions[key].leader not in (before, NOBODY))

    def until_replaced(self, broker_id: int) -> View:
        """Waits until a broker is neither the controller nor the leader of anything."""
        return self.until(
            lambda view: (
                view.controller not in (broker_id, NOBODY)
                and all(part.leader not in (broker_id, NOBODY) for part in view.partitions.values())
            )
        )

    def elect_preferred_leaders(self) -> None:
        """Lets each partition be led by its first replica; waits until all brokers know it."""
        with Client(self.nodes[self.controller()].address) as connection:
            request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=20_000)
            assert connection.ask(request).error_code == 0
        self.until(lambda view: all(part.leader == part.replicas[0] for part in view.partitions.values()))

    def coordinator(self, key: str, key_type: int = GROUP) -> int:
        """The coordinator of a group or a transactional id, as a running broker names it; NOBODY if it does not."""
        with Client(self.nodes[self.running[0]].address) as connection:
            request = FindCoordinatorRequest(key=key, key_type=key_type)
            answer = connection.ask(request)
        return NOBODY if answer.error_code else answer.node_id

    def until_coordinator(self, key: str, key_type: int = GROUP, other_than: int = NOBODY) -> int:
        """Waits for a coordinator that is not `other_than`; returns it."""
        give_up = time.monotonic() + PATIENCE_S
        while (found := self.coordinator(key, key_type)) in (NOBODY, other_than):
            assert time.monotonic() < give_up, f"no coordinator of {key}"
            time.sleep(PAUSE_S)
        return found

    def group_state(self, group: str) -> str:
        """The state of a group, as its coordinator describes it. Takes some milliseconds: rebalances are short."""
        with Client(self.nodes[self.coordinator(group)].address) as connection:
            answer = connection.ask(DescribeGroupsRequest(groups=[group]))
        (described,) = answer.groups
        return str(described.group_state)

    def create_offsets_topic(self) -> None:
        """Without it, librdkafka's first consumer waits for two seconds when it closes, even without a group."""
        self.until_coordinator("any group")

    def create_topic(self, name: str, partitions: int, **configs: object) -> None:
        """Creates a topic with three replicas of each partition; waits until all brokers know it."""
        topic = self._topic(name, partitions)
        topic.configs = [
            CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=str(value))
            for key, value in configs.items()
        ]
        self.create(topic)

    def _topic(self, name: str, partitions: int) -> CreateTopicsRequest.CreatableTopic:
        return CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=len(self.nodes)
        )

    def try_to_create(self, name: str) -> ErrorCode:
        """Asks for a topic, whatever becomes of it. Returns what the controller answers."""
        return ErrorCode.of(field_of(self._create(self._topic(name, 1)), "topics.error_code"))

    def create(self, topic: CreateTopicsRequest.CreatableTopic) -> None:
        """Creates a topic as asked for; waits until all brokers know it and it is in sync."""
        answer = self._create(topic)
        assert field_of(answer, "topics.error_code") == 0, answer
        last = TopicPartition(topic.name, max(topic.num_partitions, len(topic.assignments)) - 1)
        self.until(lambda view: last in view.partitions and view.is_whole(len(self.nodes)))

    def _create(self, topic: CreateTopicsRequest.CreatableTopic) -> Any:
        with Client(self.nodes[self.controller()].address) as connection:
            return connection.ask(CreateTopicsRequest(topics=[topic], timeout_ms=20_000))

    def delete_topic(self, name: str, timeout_ms: int = 1000) -> None:
        """Asks for the deletion of a topic, and waits for `timeout_ms` for its end."""
        with Client(self.nodes[self.controller()].address) as connection:
            request = DeleteTopicsRequest(topic_names=[name], timeout_ms=timeout_ms)
            answer = connection.ask(request)
        assert field_of(answer, "responses.error_code") in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT), answer


class Start(Protocol):
    """Starts a cluster of one kind, with data below `directory`, and ends it in the end."""

    def __call__(
        self, directory: Path, settings: Mapping[str, str] | None = None, *, brokers: int = 3
    ) -> AbstractContextManager[Cluster]: ...
