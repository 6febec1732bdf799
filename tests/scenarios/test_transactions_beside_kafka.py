"""Transactions of both versions beside Apache Kafka 4.4.0: equal answers to random requests, and equal logs after them.

Two requests are left out, to which the brokers answer differently (docs/differences.md): an InitProducerId with an
outdated epoch while a transaction is open, and a sequence after a refused one of a known producer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from odradek.broker.coordinator.runtime.record import decode_key, decode_value
from odradek.clients.network_client import NetworkClient
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.producers import InitProducerIdRequest
from odradek.protocol.messages.transaction_records import TransactionLogKey, TransactionLogValue
from odradek.protocol.messages.transactions import DescribeTransactionsRequest
from odradek.protocol.records import Record, build_batch, iter_batches, read_records
from odradek.protocol.topic_partition import TopicPartition
from odradek.testing import in_process_broker
from tests.beside_kafka.control import apache_node
from tests.patience import until
from tests.soak import rounds
from tests.wire import requests
from tests.wire.records import connect

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

SETTINGS = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
STEPS = 40
STRANGER = 4711
BUSY = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
Producer = tuple[int, int]
"""The id by the order in which a transactional id was given it, and the epoch."""
Answer = tuple[int, Any]
"""The error code, and the producer that an InitProducerId or EndTxn returns."""


class Side:
    """One of the two brokers, and the producer ids that it has given to a transactional id."""

    def __init__(self, client: NetworkClient) -> None:
        self.client = client
        self.name = self.group = ""
        self.ids: list[int] = []

    async def send(self, request: Any, version: int) -> Any:
        return await self.client.send(request, version=version, timeout_ms=20_000)

    async def begin(self, name: str) -> None:
        """Goes on with another transactional id, and a group of its own."""
        self.name, self.group, self.ids = name, f"group of {name}", []
        for key, kind in ((self.name, 1), (self.group, 0)):

            async def is_found(key: str = key, kind: int = kind) -> bool:
                return bool((await self.send(FindCoordinatorRequest(key=key, key_type=kind), 3)).error_code == 0)

            await until(is_found)

    def real(self, producer: Producer) -> Producer:
        return (self.ids[producer[0]] if producer[0] < len(self.ids) else STRANGER), producer[1]

    def ranked(self, producer_id: int) -> int:
        if producer_id >= 0 and producer_id not in self.ids:
            self.ids.append(producer_id)
        return self.ids.index(producer_id) if producer_id >= 0 else producer_id

    async def do(self, kind: str, *arguments: Any) -> tuple[Answer, Any]:
        """Sends the request until its answer is final; returns it, and what the transaction is like then."""
        answers: list[Answer] = []

        async def is_final() -> bool:
            answers.append(await getattr(self, f"_{kind}")(*arguments))
            return answers[-1][0] not in BUSY

        await until(is_final)
        return answers[-1], await self._settled()

    async def _settled(self) -> Any:
        found: list[Any] = []

        async def is_settled() -> bool:
            (state,) = (
                await self.send(DescribeTransactionsRequest(transactional_ids=[self.name]), 0)
            ).transaction_states
            found.append(state)
            return not state.transaction_state.startswith("Prepare")

        await until(is_settled)
        state = found[-1]
        topics = sorted((topic.topic, sorted(topic.partitions)) for topic in state.topics)
        return state.error_code, state.transaction_state, self.ranked(state.producer_id), state.producer_epoch, topics

    async def _init(self, expected: Producer | None) -> Answer:
        producer_id, epoch = (-1, -1) if expected is None else self.real(expected)
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=60_000, producer_id=producer_id, producer_epoch=epoch
        )
        answer = await self.send(request, 5)
        return answer.error_code, (self.ranked(answer.producer_id), answer.producer_epoch)

    async def _add(self, producer: Producer, partition: int) -> Answer:
        answer = await self.send(requests.add_partition(self.name, self.real(producer), "orders", partition), 3)
        return answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code, None

    async def _end(self, producer: Producer, version: int, committed: bool) -> Answer:
        answer = await self.send(requests.end(self.name, self.real(producer), committed), version)
        return answer.error_code, (self.ranked(answer.producer_id), answer.producer_epoch) if version >= 5 else None

    async def _produce(self, producer: Producer, version: int, partition: int, sequence: int) -> Answer:
        producer_id, epoch = self.real(producer)
        batch = build_batch(
            [Record(0, int(time.time() * 1000), None, b"v")],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        answer = await self.send(requests.produce("orders", batch, partition, transactional_id=self.name), version)
        return answer.responses[0].partition_responses[0].error_code, None

    async def _commit(self, producer: Producer, version: int) -> Answer:
        request = requests.commit_offset(self.name, self.real(producer), self.group, "orders", 0, 3)
        answer = await self.send(request, version)
        return answer.topics[0].partitions[0].error_code, None

    async def logged(self, prefix: str) -> list[Any]:
        """The records of the transactional ids that begin so. Producer ids by their order, and no times."""
        found: list[Any] = []
        offset, order = 0, dict[tuple[str, int], int]()
        while True:
            request = requests.fetch((TopicPartition("__transaction_state", 0), offset), min_bytes=0)
            data = (await self.send(request, 11)).responses[0].partitions[0].records
            if not data:
                return found
            for position, header in iter_batches(data):
                for record in read_records(data, position, header):
                    name = decode_key(TransactionLogKey, record.key or b"").transactional_id
                    if name.startswith(prefix) and record.value is not None:
                        found.append(self._shown(name, record.value, order))
                offset = header.base_offset + header.last_offset_delta + 1

    def _shown(self, name: str, data: bytes, order: dict[tuple[str, int], int]) -> Any:
        version, value = decode_value(TransactionLogValue, data)
        topics = sorted((each.topic, sorted(each.partition_ids)) for each in value.transaction_partitions or ())
        ids = [value.producer_id, value.previous_producer_id, value.next_producer_id]
        ranks = [each if each < 0 else order.setdefault((name, each), len(order)) for each in ids]
        begun = value.transaction_start_timestamp_ms < 0
        client = value.client_transaction_version
        return name, version, value.transaction_status, ranks, value.producer_epoch, topics, begun, client, len(data)


@pytest.fixture
async def sides(kafka_control: list[str], tmp_path: Path) -> AsyncIterator[list[Side]]:
    """Kafka's and ours."""
    (tmp_path / "kafka").mkdir()
    async with AsyncExitStack() as stack:
        newest = ["env", "KAFKA_VERSION=4.4.0", *kafka_control]
        port = stack.enter_context(apache_node(newest, tmp_path / "kafka", SETTINGS))
        ours = await stack.enter_async_context(in_process_broker(SETTINGS))
        sides = []
        for bootstrap in (f"127.0.0.1:{port}", ours.bootstrap):
            sides.append(Side(await stack.enter_async_context(await connect(bootstrap))))
            await sides[-1].send(requests.create_topics("orders", partitions=3), 5)
        yield sides


class Script:
    """Random requests of one transactional id. `known` are the producers that it has had."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.known: list[Producer] = []
        self.sequences: dict[tuple[Producer, int], int] = {}
        self.is_open = False
        self.ended_in = 0
        """The version of the last EndTxn that had an effect."""

    def step(self) -> tuple[str, tuple[Any, ...]]:
        chance = self.random
        if not self.known:
            return "init", (None,)
        current = self.known[-1]
        strange = [(current[0], current[1] + 1), (current[0], max(current[1] - 1, 0)), (77, current[1])]
        producer = chance.choice([current] * 8 + self.known[-4:] + strange)
        kind = chance.choices(("init", "add", "end", "produce", "commit"), (2, 3, 6, 8, 2))[0]
        partition = chance.randrange(3)
        sequence = self.sequences.get((producer, partition), 0)
        resuming = current if self.is_open else producer
        arguments: dict[str, tuple[Any, ...]] = {
            "init": (chance.choice((None, None, resuming)),),
            "add": (producer, partition),
            "end": (producer, chance.choice((5, 5, 5, 4)), chance.random() < 0.6),
            "produce": (producer, chance.choice((12, 12, 12, 11, 9)), partition, sequence),
            "commit": (producer, chance.choice((5, 5, 4, 3))),
        }
        return kind, arguments[kind]

    def is_of_fenced(self, kind: str, arguments: tuple[Any, ...], kafkas: Any, ours: Any) -> bool:
        """Whether Kafka tells a fenced producer that its transaction has ended as its successor's (differences.md)."""
        (answer, state), (our_answer, our_state) = kafkas, ours
        rank, epoch = state[2], state[3]
        is_asked = kind == "end" and arguments[1] == 5 and arguments[0] == (rank, epoch - 1) and self.ended_in < 5
        is_told = answer == (ErrorCode.NONE, (rank, epoch))
        return is_asked and is_told and our_answer[0] == ErrorCode.PRODUCER_FENCED and our_state == state

    def done(self, kind: str, arguments: tuple[Any, ...], answer: Answer, state: Any) -> None:
        code, producer = answer
        if kind == "end" and code == ErrorCode.NONE and self.is_open:
            self.ended_in = arguments[1]
        self.is_open = state[1] == "Ongoing"
        if code == ErrorCode.NONE and producer is not None:
            self.known.append(producer)
        if code == ErrorCode.NONE and kind == "produce":
            self.sequences[arguments[0], arguments[2]] = arguments[3] + 1


@pytest.mark.soak("300 scripts", minutes=10)
async def test_random_requests_of_both_versions_have_kafkas_answers_and_leave_its_log(sides: list[Side]) -> None:
    codes = set()
    for seed in range(rounds(12, in_soak=300)):
        script, told = Script(seed), list[Any]()
        for side in sides:
            await side.begin(f"script-{seed}")
        for _ in range(STEPS):
            kind, arguments = script.step()
            kafkas, ours = await asyncio.gather(*(side.do(kind, *arguments) for side in sides))
            told.append((kind, arguments, kafkas))
            assert ours == kafkas or script.is_of_fenced(kind, arguments, kafkas, ours), f"seed {seed}: {told[-6:]}"
            script.done(kind, arguments, *kafkas)
            codes.add((kind, kafkas[0][0]))
    kafkas_log, our_log = [await side.logged("script-") for side in sides]
    assert len(kafkas_log) > STEPS
    assert our_log == kafkas_log
    refused = (47, 49, 90, 48, 120)
    assert {code for _, code in codes} >= {0, *refused}


async def test_where_the_epochs_end_the_producer_goes_on_as_in_kafka(sides: list[Side]) -> None:
    """32,764 producers take turns before; then transactions end, are repeated and fenced."""
    for side in sides:
        await side.begin("ends")

    async def last_epochs(side: Side, epoch: int) -> Producer:
        while True:
            code, (rank, reached) = await side._init(None)
            if code == ErrorCode.NONE and reached >= epoch:
                return int(rank), int(reached)

    async def story(side: Side) -> list[Any]:
        told: list[Any] = []
        producer = await last_epochs(side, 32_764)
        for number in range(5):
            told.append(await side.do("produce", producer, 12, 0, 0))
            told.append(await side.do("end", producer, 5, number != 2))
            following = told[-1][0][1]
            told.append(await side.do("end", producer, 5, number != 2))
            told.append(await side.do("end", producer, 5, number == 2))
            producer = following
        told.append(producer)
        producer = await last_epochs(side, 32_766)
        told.append(await side.do("produce", producer, 12, 0, 0))
        told.append(await side._init(None))
        told.append(await side.do("end", producer, 5, False))
        told.append(await side.do("init", None))
        return told

    kafkas, ours = [await story(side) for side in sides]
    assert ours == kafkas
    assert (1, 0) in [step[0][1] for step in kafkas if isinstance(step[0], tuple)]
