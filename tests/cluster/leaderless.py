"""How long the partitions of a broker have no leader, counted from the moment its ephemeral entry vanishes.

    loss = Loss(cluster, zookeeper, broker_id)      # looks at ZooKeeper and at the other brokers from now on
    ...                                             # a fault
    loss.seconds()                                  # waits until all that the broker led is led again

A partition is led again when another broker shows a new leader, and that leader answers a request that only leaders
answer. So what the other brokers and the new leader have to be told counts, and what a client has to find out does not.
The time until ZooKeeper ends a session does not count either: zookeeper.session.timeout.ms decides on it. If all is led
again before the entry vanishes, as in a controlled shutdown, the time is 0, or that of one look: each look asks over
new connections, and contends with the clients of the test for the processor. So the times are upper bounds.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Mapping

from odradek.broker.metadata_store import znodes
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.list_offsets import ListOffsetsRequest
from odradek.protocol.topic_partition import TopicPartition
from tests.cluster.cluster import NOBODY, PATIENCE_S, Cluster
from tests.cluster.zookeeper_client import ZooKeeperClient
from tests.wire.blocking_client import Client

LOOK_S = 0.005
LATEST = -1


class Loss:
    """See above."""

    def __init__(self, cluster: Cluster, zookeeper: ZooKeeperClient, broker_id: int) -> None:
        self._cluster = cluster
        self._broker_id = broker_id
        view = cluster.view(broker_id)
        self._left = {key: part for key, part in view.partitions.items() if part.leader == broker_id}
        self._vanished_at: float | None = None
        self._led_at = 0.0
        self._is_over = threading.Event()
        assert zookeeper.exists(znodes.broker_path(broker_id), self._vanished), f"broker {broker_id} is not registered"
        self._thread = threading.Thread(target=self._look, name="time without a leader")
        self._thread.start()

    def seconds(self) -> float:
        """Waits until it is over, and returns the longest time of any partition."""
        self._thread.join(PATIENCE_S)
        self._is_over.set()
        self._thread.join()
        assert not self._left, f"no leader for {PATIENCE_S} s: {list(self._left)}"
        assert self._vanished_at is not None, "the entry of the broker is still there"
        return max(0.0, self._led_at - self._vanished_at)

    def _vanished(self, _event: object) -> None:
        if self._vanished_at is None:
            self._vanished_at = time.monotonic()

    def _look(self) -> None:
        while not self._is_over.is_set() and (self._left or self._vanished_at is None):
            with contextlib.suppress(OSError):
                self._look_once()
            time.sleep(LOOK_S)

    def _look_once(self) -> None:
        other = next(one for one in self._cluster.running if one != self._broker_id)
        now = self._cluster.view(other).partitions
        self._left = {key: part for key, part in self._left.items() if key in now}  # others are being deleted
        claimed: defaultdict[int, dict[TopicPartition, int]] = defaultdict(dict)
        for key, before in self._left.items():
            part = now[key]
            if part.leader not in (self._broker_id, NOBODY) and part.epoch > before.epoch:
                claimed[part.leader][key] = part.epoch
        for leader, epochs in claimed.items():
            for key in led_by(self._cluster.nodes[leader].address, epochs):
                del self._left[key]
                self._led_at = time.monotonic()


def led_by(address: str, epochs: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    """Which of the partitions a broker leads, in these leader epochs. Raises OSError."""
    topics: defaultdict[str, list[ListOffsetsRequest.ListOffsetsPartition]] = defaultdict(list)
    for key, epoch in epochs.items():
        asked = ListOffsetsRequest.ListOffsetsPartition(
            partition_index=key.partition, current_leader_epoch=epoch, timestamp=LATEST
        )
        topics[key.topic].append(asked)
    listed = [ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=parts) for name, parts in topics.items()]
    with Client(address) as connection:
        answer = connection.ask(ListOffsetsRequest(replica_id=-1, topics=listed))
    return [
        TopicPartition(topic.name, part.partition_index)
        for topic in answer.topics
        for part in topic.partitions
        if part.error_code == ErrorCode.NONE
    ]
