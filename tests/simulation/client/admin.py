"""An administrator: topics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.topics import CreateTopicsRequest
from tests.simulation.client.cluster import Cluster
from tests.simulation.client.wire import NotSent, Unanswered
from tests.simulation.history import History, Outcome, Request


class Admin:
    """Asks until the cluster agrees."""

    def __init__(self, cluster: Cluster, history: History, *, name: str = "admin") -> None:
        self.name = name
        self.cluster = cluster
        self.history = history

    async def create_topic(
        self, topic: str, partitions: int, replicas: int, configs: Mapping[str, str] | None = None
    ) -> None:
        """Creates a topic; returns when the metadata name a leader for every partition."""
        operation = self.history.begin(Request(process=self.name, what=f"create topic {topic}"))
        creatable = CreateTopicsRequest.CreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=replicas,
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)
                for name, value in (configs or {}).items()
            ],
        )
        request = CreateTopicsRequest(topics=[creatable], timeout_ms=2000)
        while True:
            await self.cluster.refresh()
            try:
                answer = await self.cluster.ask_broker(self.cluster.controller_id, request)
            except (NotSent, Unanswered):
                await self.cluster.back_off()
                continue
            code = ErrorCode.of(answer.topics[0].error_code)
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                break
            await self.cluster.back_off()
        while not self._is_led(topic, partitions):
            await self.cluster.refresh([topic])
            await asyncio.sleep(0.05)
        self.history.end(operation, Outcome.OK)

    def _is_led(self, topic: str, partitions: int) -> bool:
        found = self.cluster.partitions_of(topic)
        return len(found) == partitions and all(self.cluster.leader_of(partition) for partition in found)
