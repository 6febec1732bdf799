"""Requests as brokers send them to the controller, that it must refuse: from an earlier registration, from a broker
that is not there, and proposals of in-sync replicas for partitions that are not there, or that no leader would make.
Requests to delete records, of those who do not lead; there is nothing to delete even if they do. And a Fetch of a
consumer that has read records of an epoch to come: this log does not have them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.delete_records import DeleteRecordsRequest
from odradek.protocol.messages.producers import AllocateProducerIdsRequest
from odradek.protocol.messages.replica_control import AlterPartitionRequest
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client.impostor import Impostor, Proposable
from tests.simulation.client.requests import FetchFrom, fetch_request
from tests.simulation.client.wire import NotSent, Unanswered
from tests.simulation.history import Outcome, Request
from tests.simulation.proposal_history import StrayRequest

PAUSE_S = (1.0, 4.0)
NOBODY, NOWHERE = 1000, "nowhere"
LATER, MOST_BYTES = 1000, 1000


class StrayBroker(Impostor):
    """See the head of this file."""

    async def run(self) -> None:
        """Asks until the end."""
        while not self.is_ending:
            await asyncio.sleep(self._source.uniform(*PAUSE_S))
            found = [each for each in self._read() if each.leader_id in each.broker_epochs]
            if found:
                known, way = self._source.choice(found), self._source.random()
                if way < 0.2:
                    await self._delete_records(known)
                elif way < 0.4:
                    await self._read_on(known)
                else:
                    what, request = self._source.choice(self._requests(known))
                    await self._ask_controller(self._history.begin(StrayRequest(process=self.name, what=what)), request)

    async def _delete_records(self, known: Proposable) -> None:
        broker_id, key = self._source.choice(known.replicas), known.partition
        asked = self._history.begin(Request(process=self.name, what=f"broker {broker_id} to delete nothing of {key}"))
        partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=key.partition, offset=0)
        topic = DeleteRecordsRequest.DeleteRecordsTopic(name=key.topic, partitions=[partition])
        try:
            response = await self._cluster.ask_broker(broker_id, DeleteRecordsRequest(topics=[topic], timeout_ms=1000))
        except (NotSent, Unanswered) as error:
            self._history.end(asked, Outcome.UNKNOWN, str(error))
            return
        code = ErrorCode.of(response.topics[0].partitions[0].error_code)
        self._history.end(asked, Outcome.FAILED if code else Outcome.OK, code.name)

    async def _read_on(self, known: Proposable) -> None:
        broker_id, key = self._source.choice(known.replicas), known.partition
        asked = StrayRequest(process=self.name, what=f"broker {broker_id} for {key} after an epoch to come")
        self._history.begin(asked)
        start = FetchFrom(1, MOST_BYTES, last_fetched_epoch=known.leader_epoch + LATER)
        request = fetch_request({key: start}, max_wait_ms=0, min_bytes=0, max_bytes=MOST_BYTES, isolation_level=0)
        try:
            response = await self._cluster.ask_broker(broker_id, request)
        except (NotSent, Unanswered) as error:
            self._history.end(asked, Outcome.UNKNOWN, str(error))
            return
        code = ErrorCode.of(response.responses[0].partitions[0].error_code)
        self._history.end(asked, Outcome.FAILED if code else Outcome.OK, code.name)

    def _requests(self, known: Proposable) -> Sequence[tuple[str, Any]]:
        """What it may ask next."""
        leader_id, key = known.leader_id, known.partition
        epoch = known.broker_epochs[leader_id]
        others = [broker for broker in known.replicas if broker != leader_id]
        return (
            ("for producer ids, from before", AllocateProducerIdsRequest(broker_id=leader_id, broker_epoch=epoch - 1)),
            ("for producer ids, as nobody", AllocateProducerIdsRequest(broker_id=NOBODY, broker_epoch=0)),
            (f"{NOWHERE} for in-sync replicas", _proposal(known, TopicPartition(NOWHERE, 0), known.in_sync)),
            (f"a {NOBODY}th part of {key.topic}", _proposal(known, key._replace(partition=NOBODY), known.in_sync)),
            (f"{key} without its leader", _proposal(known, key, others)),
            (f"{key} with a broker that has no replica", _proposal(known, key, [*known.in_sync, NOBODY])),
            (f"{key} in a leader epoch to come", _proposal(known, key, known.in_sync, later=LATER)),
        )


def _proposal(
    known: Proposable, key: TopicPartition, in_sync: Sequence[int], *, later: int = 0
) -> AlterPartitionRequest:
    """From the leader of a partition, in its epochs, or in a `later` one."""
    proposed = AlterPartitionRequest.PartitionData(
        partition_index=key.partition,
        leader_epoch=known.leader_epoch + later,
        new_isr=[*in_sync],
        partition_epoch=known.partition_epoch,
    )
    topic = AlterPartitionRequest.TopicData(topic_name=key.topic, partitions=[proposed])
    epoch = known.broker_epochs[known.leader_id]
    return AlterPartitionRequest(broker_id=known.leader_id, broker_epoch=epoch, topics=[topic])
