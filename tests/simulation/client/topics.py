"""An administrator of topics: creates, extends and deletes them. Each change is one operation of the history."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.broker.metadata.new_topic import UNSET
from odradek.protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from odradek.protocol.schema import Message
from tests.simulation.client.cluster import Cluster
from tests.simulation.client.controller import ask_controller
from tests.simulation.history import History, Kind, Outcome, TopicChange

TIMEOUT_MS = 2000


class TopicAdmin:
    """Every method asks once (see controller.py) and returns the outcome."""

    def __init__(self, cluster: Cluster, history: History, *, name: str) -> None:
        self.name = name
        self._cluster = cluster
        self._history = history

    async def create(self, topic: str, partitions: int, replicas: int, *, on: Sequence[int] = ()) -> Outcome:
        """Creates a topic. Or one of a single partition, with its replicas `on` these brokers."""
        creatable = CreateTopicsRequest.CreatableTopic(
            name=topic, num_partitions=partitions, replication_factor=replicas
        )
        if on:
            assigned = CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=[*on])
            creatable = CreateTopicsRequest.CreatableTopic(
                name=topic, num_partitions=UNSET, replication_factor=UNSET, assignments=[assigned]
            )
        request = CreateTopicsRequest(topics=[creatable], timeout_ms=TIMEOUT_MS)
        return await self._change(Kind.CREATE, topic, partitions, request, "topics")

    async def extend(self, topic: str, partitions: int) -> Outcome:
        """Adds partitions to a topic, so that it has `partitions`."""
        extended = CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=partitions, assignments=None)
        request = CreatePartitionsRequest(topics=[extended], timeout_ms=TIMEOUT_MS)
        return await self._change(Kind.EXTEND, topic, partitions, request, "results")

    async def delete(self, topic: str) -> Outcome:
        """Deletes a topic."""
        request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=TIMEOUT_MS)
        return await self._change(Kind.DELETE, topic, 0, request, "responses")

    async def _change(self, kind: Kind, topic: str, partitions: int, request: Message, results: str) -> Outcome:
        """`results`: the field of the response with a result for the topic."""
        change = TopicChange(process=self.name, kind=kind, topic=topic, partitions=partitions)
        self._history.begin(change)
        (answer,) = await ask_controller(
            self._cluster, request, lambda response: [each.error_code for each in getattr(response, results)], 1
        )
        self._history.end(change, *answer)
        return answer.outcome
