"""EpochProducer: transactions with an epoch each (KIP-890), one after the other, and what must be left of them.

Each has records in some partitions and, mostly, the same offset for two partitions of a group. It is committed, or
aborted, or given up: then a new epoch aborts it. Every request is repeated until it is answered, so that the outcome is
always known.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Any
from uuid import UUID

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offsets import OffsetFetchRequest
from odradek.protocol.messages.producers import InitProducerIdRequest
from odradek.protocol.messages.transactions import TxnOffsetCommitRequest
from odradek.protocol.records import Record, build_batch
from odradek.protocol.topic_partition import TopicPartition
from tests.scenarios.worker import Worker
from tests.wire import requests
from tests.wire.coordinators import field_of
from tests.wire.roaming_client import Coordinated

TIMEOUT_MS = 600_000
"""No transaction times out, so the producer alone decides."""
PAUSE_S = 0.02
"""Between two transactions: a broker takes longer to load more of them."""
NO_PRODUCER = (-1, -1)
CONSUMED = (0, 1)
"""The partitions of which a transaction commits offsets."""
PRODUCED = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


class EpochProducer(Worker):
    """`records`: all values of committed transactions in order, by partition. `completed`: how many have ended."""

    def __init__(self, bootstrap: str, name: str, topic: str, topic_id: UUID, partitions: int, chance: Random) -> None:
        super().__init__(bootstrap, name)
        self.records: dict[int, list[str]] = defaultdict(list)
        self.completed = 0
        self._topic, self._topic_id, self._partitions = topic, topic_id, partitions
        self._chance = chance
        self._key, self._group = Coordinated(1, name), Coordinated(0, f"{name}-group")
        self._producer = NO_PRODUCER
        self._offset = -1
        """What the last committed transaction that has offsets committed."""

    def _work(self) -> None:
        self._begin_epoch()
        while not self._is_over.wait(PAUSE_S):
            self._transact(self.completed)
            self.completed += 1
        self._check_offsets()

    def _begin_epoch(self) -> None:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=TIMEOUT_MS)
        answer = self._client.ask(self._key, request, 5, lambda answer: answer.error_code)
        assert answer.error_code == 0, ErrorCode.of(answer.error_code)
        self._producer = answer.producer_id, answer.producer_epoch

    def _transact(self, number: int) -> None:
        chance = self._chance
        partitions = chance.sample(range(self._partitions), chance.randint(1, 3))
        written: dict[int, list[str]] = defaultdict(list)
        for partition in partitions:
            for _ in range(chance.randint(1, 2)):
                values = [f"{self.name}/{number}/{len(written[partition]) + n}" for n in range(chance.randint(1, 3))]
                self._write(partition, values, first_sequence=len(written[partition]))
                written[partition] += values
        has_offsets = chance.random() < 0.8
        if has_offsets:
            self._send_offsets(number)
        ending = chance.choices(("commit", "abort", "give up"), (7, 2, 1))[0]
        if ending == "give up":
            self._begin_epoch()
        else:
            self._end(is_committed=ending == "commit")
        if ending == "commit":
            for partition, values in written.items():
                self.records[partition] += values
            self._offset = number if has_offsets else self._offset
        if chance.random() < 0.5:
            self._check_offsets()

    def _write(self, partition: int, values: list[str], first_sequence: int) -> None:
        batch = build_batch(
            [Record(number, 1_700_000_000_000, None, value.encode()) for number, value in enumerate(values)],
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=first_sequence,
            is_transactional=True,
        )
        request = requests.produce(self._topic, batch, partition, transactional_id=self.name)
        request.topic_data[0].topic_id = self._topic_id
        error = "responses.partition_responses.error_code"
        self._ask(TopicPartition(self._topic, partition), request, self._chance.choice((12, 13)), error, PRODUCED)

    def _send_offsets(self, offset: int) -> None:
        of_partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
            name=self._topic,
            topic_id=self._topic_id,
            partitions=[
                of_partition(partition_index=each, committed_offset=offset, committed_metadata="") for each in CONSUMED
            ],
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self._group.name,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            topics=[topic],
        )

        def code_of(answer: Any) -> int:
            return max(int(each.error_code) for each in answer.topics[0].partitions)

        answer = self._client.ask(self._group, request, self._chance.choice((5, 6)), code_of)
        assert code_of(answer) == 0, ErrorCode.of(code_of(answer))

    def _end(self, *, is_committed: bool) -> None:
        answer = self._ask(self._key, requests.end(self.name, self._producer, is_committed), 5, "error_code")
        self._producer = answer.producer_id, answer.producer_epoch

    def _ask(
        self, key: Coordinated | TopicPartition, request: Any, version: int, error: str, expected: Any = (0,)
    ) -> Any:
        answer = self._client.ask(key, request, version, lambda answer: field_of(answer, error))
        code = field_of(answer, error)
        assert code in expected, f"{type(request).__name__} {version}: {ErrorCode.of(code).name}"
        return answer

    def _check_offsets(self) -> None:
        """Fails unless the group has the offsets of the last committed transaction."""
        topic = OffsetFetchRequest.OffsetFetchRequestTopics(name=self._topic, partition_indexes=list(CONSUMED))
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=self._group.name, topics=[topic])

        def code_of(answer: Any) -> int:
            (found,) = answer.groups
            codes = [int(each.error_code) for topic in found.topics for each in topic.partitions]
            return max([int(found.error_code), *codes])

        answer = self._client.ask(self._group, OffsetFetchRequest(groups=[group], require_stable=True), 9, code_of)
        assert code_of(answer) == 0, ErrorCode.of(code_of(answer))
        found = [each.committed_offset for each in answer.groups[0].topics[0].partitions]
        assert found == [self._offset] * len(CONSUMED), f"{self.name}: {found}, not {self._offset}"
