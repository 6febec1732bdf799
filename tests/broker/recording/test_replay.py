"""A recording that is sent again finds nothing where nothing differs, and what differs where something does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from odradek.broker.admin.client import AdminClient, parse_addresses
from odradek.broker.controller.topic_planner import NewTopic as PlannedTopic
from odradek.broker.peers.network_errors import RequestTimedOut
from odradek.broker.recording.comparison import DAY_MS, comparable
from odradek.broker.recording.recording_file import Entry, Kind, Recording, RecordingError
from odradek.broker.recording.replay import Difference, Replay, Summary, _rules
from odradek.broker.recording.streams import Dial
from odradek.broker.recording.target import Target
from odradek.broker.testing import Security, in_process_broker, in_process_cluster
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from odradek.timer import SystemClock
from tests.broker.recording.proxied import bootstrap, proxied
from tests.broker.recording.requests import request_frame, response_frame
from tests.patience import PATIENCE_S

SETTINGS = {
    "group.initial.rebalance.delay.ms": "300",  # members that join at once are in one generation, in whatever order
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
Workload = Callable[[str], Awaitable[None]]


@contextlib.asynccontextmanager
async def fresh(**settings: Any) -> AsyncIterator[str]:
    async with in_process_broker(SETTINGS, **settings) as broker:
        yield broker.bootstrap


async def replay(file: Path, *addresses: str, timeout_s: float = 20) -> tuple[list[Difference], Summary]:
    found: list[Difference] = []
    targets = [Target(parse_addresses(address)[0], Dial(), timeout_s) for address in addresses]
    with file.open("rb") as stream:
        recording = Recording(stream, str(file))
        replaying = Replay(targets, recording.started_ms, SystemClock(), found.append)
        summary = await replaying.run(recording.entries)
    assert summary.differences == len(found)
    return found, summary


async def recording_of(workload: Workload, file: Path) -> Path:
    async with fresh() as upstream, proxied(upstream, file) as proxy:
        await workload(bootstrap(proxy))
    return file


async def create(servers: str, topic: str, partitions: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    await admin.create_topics([NewTopic(topic, partitions, 1)])
    await admin.close()


async def transactions(servers: str) -> None:
    """A transaction that is committed and one that is aborted, of two producers one after the other."""
    await create(servers, "orders", 2)
    for _ in range(2):
        async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id="clerk") as producer:
            async with producer.transaction():
                await producer.send("orders", b"committed", partition=0)
                offsets = {TopicPartition("orders", 0): 7}
                await producer.send_offsets_to_transaction(offsets, "readers")
            await producer.begin_transaction()
            await producer.send("orders", b"aborted", partition=0)
            await producer.flush()
            await producer.abort_transaction()
    async with AIOKafkaConsumer(
        "orders", bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        assert [(await consumer.getone()).value for _ in range(2)] == [b"committed"] * 2


async def a_group(servers: str) -> None:
    """A group of two consumers that commit, and one that comes back."""
    await create(servers, "orders", 4)
    async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
        for number in range(40):
            await producer.send("orders", b"%d" % number, partition=number % 4)
    for _ in range(2):
        consumers = [
            AIOKafkaConsumer("orders", bootstrap_servers=servers, group_id="readers", auto_offset_reset="earliest")
            for _ in range(2)
        ]
        await asyncio.gather(*(consumer.start() for consumer in consumers))
        for consumer in consumers:
            await consumer.getmany(timeout_ms=1000)
            await consumer.commit()
        for consumer in consumers:
            await consumer.stop()


@pytest.mark.parametrize("workload", [transactions, a_group])
async def test_a_recording_of_odradek_has_no_difference_to_odradek(workload: Workload, tmp_path: Path) -> None:
    file = await recording_of(workload, tmp_path / "file")
    async with fresh() as target:
        differences, summary = await replay(file, target)
    assert differences == []
    assert summary.requests >= summary.responses > 20
    assert summary.undecoded == summary.skipped == 0


async def test_ids_of_the_target_are_used_where_the_recording_has_its_own(tmp_path: Path) -> None:
    """The target has given away the producer ids of the recording."""
    file = await recording_of(transactions, tmp_path / "file")
    async with fresh() as target:
        for number in range(3):
            name = f"other-{number}"
            producer = AIOKafkaProducer(bootstrap_servers=target, transactional_id=name, acks="all")
            async with producer, producer.transaction():
                await producer.send(name, b"", partition=0)
        differences, _ = await replay(file, target)
    assert [difference for difference in differences if not difference.where.startswith("Metadata")] == []


async def test_what_differs_is_reported(tmp_path: Path) -> None:
    file = await recording_of(a_group, tmp_path / "file")
    async with fresh() as target:
        async with AdminClient(target) as admin:
            await admin.create_topic(PlannedTopic("orders", 2))
        differences, _ = await replay(file, target)
    created = next(difference for difference in differences if difference.where.startswith("CreateTopics"))
    assert created.where.endswith(".Topics[orders].ErrorCode") or ".TopicErrors[orders].ErrorCode" in created.where
    assert (created.expected, created.found) == (0, 36)
    assert "recorded 0, target 36" in created.line("recorded", "target")


async def test_batches_that_are_missing_at_the_target_are_reported(tmp_path: Path) -> None:
    async def read(servers: str) -> None:
        async with AIOKafkaConsumer("orders", bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            assert (await consumer.getone()).value == b"here"

    async def produced(servers: str, value: bytes) -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            await producer.send_and_wait("orders", value, timestamp_ms=1)

    file = tmp_path / "file"
    async with fresh() as upstream:
        await produced(upstream, b"here")
        async with proxied(upstream, file) as proxy:
            await read(bootstrap(proxy))
    async with fresh() as same, fresh() as other:
        await produced(same, b"here")
        await produced(other, b"there")
        assert (await replay(file, same))[0] == []
        differences, _ = await replay(file, other)
        between, _ = await replay(file, same, other)
    assert [difference.where for difference in differences] == ["Fetch.orders-0.batch[0]"]
    assert [difference.where for difference in between] == ["Fetch.orders-0.batch[0]"]


async def test_two_clusters_are_compared_with_each_other(tmp_path: Path) -> None:
    file = await recording_of(a_group, tmp_path / "file")
    async with fresh() as one, fresh() as other:
        differences, _ = await replay(file, one, other)
    assert differences == []


async def test_a_recording_of_one_broker_is_sent_to_a_cluster_with_other_ids(tmp_path: Path) -> None:
    """Brokers have ids 1 and up there, and 0 in the recording."""
    file = await recording_of(transactions, tmp_path / "file")
    async with in_process_cluster(1, SETTINGS | {"offsets.topic.replication.factor": "1"}) as cluster:
        differences, _ = await replay(file, cluster.bootstrap)
    assert [difference for difference in differences if not difference.where.startswith("ApiVersions")] == []


async def test_logins_are_left_out_and_counted(tmp_path: Path) -> None:
    security = Security("SASL_PLAINTEXT", mechanism="PLAIN", users={"alice": "secret-of-alice"})
    file = tmp_path / "file"
    async with in_process_broker(SETTINGS, security=security) as broker, proxied(broker.bootstrap, file) as proxy:
        settings = broker.client_settings("aiokafka") | {"bootstrap_servers": bootstrap(proxy)}
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait("orders", b"an order")
    async with fresh() as target:
        differences, summary = await replay(file, target)
    assert summary.skipped >= 2
    assert differences == []


async def test_a_broker_that_does_not_answer_at_all_is_an_error_in_time(tmp_path: Path) -> None:
    file = await recording_of(lambda servers: create(servers, "orders", 1), tmp_path / "file")
    stays = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await stays.wait()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    with pytest.raises(RequestTimedOut, match=f"{host}:{port} did not answer Metadata in 0.1 s"):
        async with asyncio.timeout(PATIENCE_S):
            await replay(file, f"{host}:{port}", timeout_s=0.1)
    stays.set()
    server.close()


async def test_an_old_recording_has_no_difference_where_the_times_of_records_are_returned(tmp_path: Path) -> None:
    """The records have the times of the recording, weeks before the replay."""

    async def by_time(servers: str) -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            await producer.send_and_wait("orders", b"an order", partition=0)
        async with AIOKafkaConsumer("orders", bootstrap_servers=servers) as consumer:
            partition = TopicPartition("orders", 0)
            assert (await consumer.offsets_for_times({partition: 0}))[partition] is not None

    class Weeks(SystemClock):
        def wall_ms(self) -> int:
            return super().wall_ms() + 30 * DAY_MS

    file = await recording_of(by_time, tmp_path / "file")
    found: list[Difference] = []
    async with fresh() as target:
        with file.open("rb") as stream:
            recording = Recording(stream, str(file))
            targets = [Target(parse_addresses(target)[0], Dial(), 20)]
            await Replay(targets, recording.started_ms, Weeks(), found.append).run(recording.entries)
    assert found == []


def test_addresses_of_clients_and_sizes_of_disks_are_not_compared() -> None:
    rules = _rules(0, 0)
    for there, here in (
        ({"ClientHost": "/10.0.0.7"}, {"ClientHost": "/127.0.0.1"}),
        ({"TotalBytes": 10, "UsableBytes": 5}, {"TotalBytes": 99, "UsableBytes": 98}),
    ):
        assert comparable(there, rules) == comparable(here, rules)
    assert comparable({"TotalBytes": -1}, rules) != comparable({"TotalBytes": 10}, rules)


async def test_a_recording_without_requests_is_an_error(tmp_path: Path) -> None:
    async with fresh() as upstream, proxied(upstream, tmp_path / "file"):
        pass
    async with fresh() as target:
        with pytest.raises(RecordingError, match="no request that can be sent: did clients connect to the proxy"):
            await replay(tmp_path / "file", target)


class Watched(Target):
    """Says to which of the brokers connections go, and sends nothing."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 1), Dial(), 1)
        self.places: dict[int, tuple[int, int] | None] = {}

    async def start(self) -> None:
        pass

    async def open(self, connection: int, place: tuple[int, int] | None) -> None:
        self.places[connection] = place


async def test_connections_go_to_corresponding_brokers_also_while_one_is_gone() -> None:
    hosts = {1: "kafka-1", 2: "::1", 3: "kafka-3"}

    def metadata(*ids: int) -> bytes:
        brokers = [MetadataResponse.MetadataResponseBroker(node_id=each, host=hosts[each], port=9092) for each in ids]
        return response_frame(MetadataResponse(brokers=brokers), 9)

    def entries() -> list[Entry]:
        request = request_frame(MetadataRequest(), 9)
        made = [Entry(Kind.OPENED, 1, 0, b'{"broker":"bootstrap:9092"}')]
        for ids in ((1, 2, 3), (1, 3)):
            made += [Entry(Kind.REQUEST, 1, 0, request), Entry(Kind.RESPONSE, 1, 0, metadata(*ids))]
        for number, name in ((2, "kafka-3:9092"), (3, "[::1]:9092")):
            made.append(Entry(Kind.OPENED, number, 0, json.dumps({"broker": name}).encode()))
        return made

    target = Watched()
    await Replay([target], 0, SystemClock(), lambda _: None).run(entries)
    assert target.places == {1: None, 2: (2, 3), 3: (1, 3)}


async def test_a_target_that_closes_the_connection_differs_once_for_each_response(tmp_path: Path) -> None:
    file = await recording_of(lambda servers: create(servers, "orders", 1), tmp_path / "file")

    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    async with fresh() as target:
        server = await asyncio.start_server(closing, "127.0.0.1", 0)
        found: list[Difference] = []
        lost = Target(server.sockets[0].getsockname()[:2], Dial(), 20)
        lost.start = Target(parse_addresses(target)[0], Dial(), 20).start  # type: ignore[method-assign]
        with file.open("rb") as stream:
            recording = Recording(stream, "file")
            summary = await Replay([lost], 0, SystemClock(), found.append).run(recording.entries)
        server.close()
    assert summary.differences == len(found) == summary.responses > 0
    assert {(difference.expected, difference.found) for difference in found} == {
        ("an answer", "the connection has ended")
    }
    assert re.fullmatch(r"ApiVersions \d+", found[0].where)


async def test_a_target_that_is_silent_differs(tmp_path: Path) -> None:
    file = await recording_of(lambda servers: create(servers, "orders", 1), tmp_path / "file")
    stays = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await stays.wait()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    found: list[Difference] = []
    target = Target(server.sockets[0].getsockname()[:2], Dial(), 0.1)
    async with fresh() as other:
        target.start = Target(parse_addresses(other)[0], Dial(), 20).start  # type: ignore[method-assign]
        with file.open("rb") as stream:
            await Replay([target], 0, SystemClock(), found.append).run(Recording(stream, "file").entries)
    stays.set()
    server.close()
    first, *others = found
    assert (first.expected, first.found) == ("an answer", "no answer in 0.1 s")
    assert all(
        re.fullmatch(r"no answer in 0.1 s|not asked: \w+ \d+ had no answer in 0.1 s", each.found) for each in others
    )
