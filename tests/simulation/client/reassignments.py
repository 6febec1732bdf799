"""An administrator of replicas: reassigns those of some partitions, cancels, and looks whether a reassignment is under
way. The reassignment of each partition is an operation of the history."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
)
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client.cluster import Cluster
from tests.simulation.client.controller import ask_controller
from tests.simulation.client.wire import NotSent, Unanswered
from tests.simulation.history import History, Outcome, Reassignment

Altered = AlterPartitionReassignmentsRequest.ReassignablePartition
AlteredTopic = AlterPartitionReassignmentsRequest.ReassignableTopic


class ReplicaAdmin:
    """Reassigns partitions of one topic."""

    def __init__(self, cluster: Cluster, history: History, *, name: str, topic: str) -> None:
        self.name = name
        self._cluster = cluster
        self._history = history
        self._topic = topic
        self._asked_for: list[Reassignment] = []
        """Those that were not seen to end."""

    async def reassign(self, targets: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        """Begins reassignments, or cancels those of partitions whose target is None."""
        operations = [
            Reassignment(process=self.name, partition=key, replicas=None if target is None else tuple(target))
            for key, target in sorted(targets.items())
        ]
        altered = [
            Altered(
                partition_index=each.partition.partition, replicas=None if each.replicas is None else [*each.replicas]
            )
            for each in map(self._history.begin, operations)
        ]
        request = AlterPartitionReassignmentsRequest(topics=[AlteredTopic(name=self._topic, partitions=altered)])
        answers = await ask_controller(self._cluster, request, _codes, len(operations))
        for operation, answer in zip(operations, answers, strict=True):
            self._history.end(operation, *answer)
            if answer.outcome is not Outcome.FAILED:
                self._asked_for.append(operation)

    async def under_way(self) -> list[TopicPartition] | None:
        """The partitions of the topic that are being reassigned; None: the controller did not answer."""
        asked_for = list(self._asked_for)
        try:
            response = await self._cluster.ask_broker(
                self._cluster.controller_id, ListPartitionReassignmentsRequest(topics=None)
            )
        except (NotSent, Unanswered):
            response = None
        if response is None or response.error_code != ErrorCode.NONE:
            await self._cluster.refresh()
            return None
        found = {
            TopicPartition(topic.name, partition.partition_index): None
            for topic in response.topics
            for partition in topic.partitions
            if topic.name == self._topic
        }
        now_us = round(asyncio.get_running_loop().time() * 1e6)
        for operation in asked_for:
            if operation.partition not in found:
                operation.seen_to_end_us = now_us
                self._asked_for.remove(operation)
        return list(found)


def _codes(response: Any) -> list[int]:
    if response.error_code != ErrorCode.NONE:
        return []
    return [partition.error_code for topic in response.responses for partition in topic.partitions]
