"""A recording that is sent again finds nothing where nothing differs, and what differs where something does."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from odradek.broker.metadata.new_topic import NewTopic as PlannedTopic
from odradek.broker.replica.partition.partition_offsets import EARLIEST, LATEST
from odradek.clients.admin.client import AdminClient, parse_addresses
from odradek.clients.network_errors import RequestTimedOut
from odradek.clients.recording.comparison import DAY_MS, comparable
from odradek.clients.recording.conversation import Asked
from odradek.clients.recording.recording_file import Entry, Kind, Recording, RecordingError
from odradek.clients.recording.replay import Difference, Replay, _rules
from odradek.clients.recording.streams import Dial, asked
from odradek.clients.recording.target import Target
from odradek.clients.recording.topic_names import TopicNames
from odradek.protocol.framing import frame as framed
from odradek.protocol.messages.delete_records import DeleteRecordsRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.schema import Message
from odradek.testing import Security, in_process_broker, in_process_cluster
from odradek.timer import SystemClock
from tests.clients.recording.proxied import bootstrap, entries_of, proxied
from tests.clients.recording.requests import request_frame, response_frame
from tests.clients.recording.workloads import (
    SETTINGS,
    Workload,
    a_group,
    create,
    fresh,
    recording_of,
    replay,
    transactions,
)
from tests.patience import PATIENCE_S
from tests.wire import requests


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


@pytest.mark.parametrize(("isolation_level", "timestamp"), [(1, LATEST), (0, LATEST), (1, EARLIEST)])
async def test_only_last_stable_offsets_are_not_compared(isolation_level: int, timestamp: int, tmp_path: Path) -> None:
    """A coordinator writes its markers after the answer to EndTxn."""

    async def filled(servers: str, records: int) -> None:
        async with AdminClient(servers) as admin:
            await admin.create_topic(PlannedTopic("orders", 1))
            async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
                for _ in range(records):
                    await producer.send_and_wait("orders", b"")
        start = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=records - 1)
        topic = DeleteRecordsRequest.DeleteRecordsTopic(name="orders", partitions=[start])
        await ask(servers, DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), 1)

    async def ask(servers: str, request: Message, version: int) -> None:
        stream = await Dial().connect(*parse_addresses(servers)[0])
        await asked(stream, request, version)
        stream.abort()

    request = requests.list_offsets("orders", timestamp=timestamp, isolation_level=isolation_level)

    async with fresh() as upstream, fresh() as target:
        await filled(upstream, 3)
        await filled(target, 2)
        async with proxied(upstream, tmp_path / "file") as proxy:
            await ask(bootstrap(proxy), request, 5)
        differences, _ = await replay(tmp_path / "file", target)
    offset = "ListOffsets 5.Topics[orders].Partitions[0].Offset"
    is_stable_end = (isolation_level, timestamp) == (1, LATEST)
    assert [difference.where for difference in differences] == ([] if is_stable_end else [offset])


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


async def test_internal_topics_that_only_one_cluster_has_are_no_difference(tmp_path: Path) -> None:
    """Brokers create them when somebody first needs them, which another connection may do at the same time."""

    async def topics(servers: str) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        await admin.list_topics()
        await admin.close()

    without = await recording_of(topics, tmp_path / "without")
    async with fresh() as has_them:
        await transactions(has_them)
        async with proxied(has_them, tmp_path / "with") as proxy:
            await topics(bootstrap(proxy))
        extra, _ = await replay(without, has_them)
        same, _ = await replay(tmp_path / "with", has_them)
    async with fresh() as has_not:
        missing, _ = await replay(tmp_path / "with", has_not)
    assert same == []
    for differences in (extra, missing):
        (topic,) = differences
        assert topic.where.endswith(".Topics")
        assert "orders" in repr(topic)
        assert "__" not in repr(topic)


async def test_lookups_are_repeated_also_if_later_requests_are_under_way(tmp_path: Path) -> None:
    """librdkafka asks for the coordinators of a group and of a transaction at once, and the topics do not exist yet."""
    lookups = [FindCoordinatorRequest(key="clerk", key_type=kind) for kind in (1, 0)]
    frames = [request_frame(lookup, 2, number) for number, lookup in enumerate(lookups)]
    file = tmp_path / "file"
    async with fresh() as upstream:
        await transactions(upstream)
        async with proxied(upstream, file) as proxy:
            stream = await Dial().connect(*proxy.address)
            for frame in frames:
                stream.writer.write(framed(frame))
            for _ in frames:
                assert await stream.frame()
            stream.abort()
    kinds = [entry.kind for entry in entries_of(file)]
    requests, responses = [Kind.REQUEST] * 2, [Kind.RESPONSE] * 2
    assert kinds[:5] == [Kind.OPENED, *requests, *responses], "the second was sent after the first answer"
    async with fresh() as target:
        assert (await replay(file, target))[0] == []


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
    rules = _rules(0, 0, TopicNames())
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

    def why_not(self, connection: int, asked: Asked) -> str:
        return ""


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
