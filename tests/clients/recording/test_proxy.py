"""Clients of all kinds work through the proxy, connect only to it, and everything that passes is in the file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from structlog.testing import capture_logs

from odradek.broker.settings.properties import parse_properties
from odradek.clients.admin.client import AdminClient, parse_addresses
from odradek.clients.admin.client_properties import security_of_properties
from odradek.clients.network_client import NetworkClient
from odradek.clients.network_errors import Disconnected
from odradek.clients.recording.proxy import ClockedRecorder, Proxy, recording_proxy
from odradek.clients.recording.recording_file import Kind, Recording, RecordingWriter
from odradek.clients.recording.relay import CannotRecord
from odradek.clients.recording.room import Room
from odradek.clients.recording.streams import Dial, Stream, asked
from odradek.clients.recording.target import Target
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compiler import decode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.framing import LENGTH_BYTES
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.sasl import SaslAuthenticateRequest
from odradek.storage.files import OsFiles
from odradek.testing import InProcessBroker, Security, in_process_broker, in_process_cluster
from odradek.timer import SystemClock
from tests.clients.recording.proxied import bootstrap, entries_of, frames_of, proxied
from tests.clients.recording.requests import request_frame, response_frame
from tests.clients.recording.test_recording_file import FullDisk
from tests.patience import PATIENCE_S, until
from tests.spawned_broker import free_port

MB = 1024 * 1024


def rebalancing_broker(**settings: Any) -> AbstractAsyncContextManager[InProcessBroker]:
    return in_process_broker(group_initial_rebalance_delay_ms=0, **settings)


async def produce_and_consume(bootstrap_servers: str, topic: str = "orders", **settings: Any) -> list[bytes]:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers, acks="all", **settings) as producer:
        for value in (b"one", b"two"):
            await producer.send_and_wait(topic, value)
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap_servers, group_id="readers", auto_offset_reset="earliest", **settings
    ) as consumer:
        return [(await consumer.getone()).value for _ in range(2)]


async def test_a_client_that_knows_only_the_proxy_produces_and_consumes(tmp_path: Path) -> None:
    file = tmp_path / "file"
    async with rebalancing_broker() as broker, proxied(broker.bootstrap, file) as proxy:
        assert await produce_and_consume(bootstrap(proxy)) == [b"one", b"two"]
    shown = frames_of(file)
    passed = {one.asked.api_name for one in shown if one.asked is not None}
    assert {"ApiVersions", "Metadata", "Produce", "Fetch", "FindCoordinator", "JoinGroup", "SyncGroup"} <= passed
    assert all(one.decoded is not None for one in shown)
    kinds = [entry.kind for entry in entries_of(file)]
    assert kinds.count(Kind.OPENED) == kinds.count(Kind.CLOSED) > 1
    assert any("orders" in one.topics for one in shown)


async def test_the_recording_has_what_the_broker_said_and_the_client_gets_the_address_of_the_proxy(
    tmp_path: Path,
) -> None:
    file = tmp_path / "file"
    async with in_process_broker() as broker, proxied(broker.bootstrap, file) as proxy:
        client = await NetworkClient.connect(*proxy.address)
        seen = await client.send(MetadataRequest(topics=None))
        await client.close()
    (recorded,) = (
        one.decoded.document
        for one in frames_of(file)
        if one.direction == "response" and one.decoded and one.asked and one.asked.api_key == ApiKey.METADATA
    )
    assert f"127.0.0.1:{recorded['Brokers'][0]['Port']}" == broker.bootstrap
    assert [(node.host, node.port) for node in seen.brokers] == [("127.0.0.1", proxy.address[1])]


async def test_each_broker_of_a_cluster_has_a_port_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "file"
    async with in_process_cluster(3) as cluster, proxied(cluster.bootstrap, file) as proxy:
        brokers = set(cluster.bootstrap.split(","))
        admin = AdminClient(bootstrap(proxy))
        own = {(node.host, node.port) for node in (await admin.describe_cluster()).brokers}
        await admin.close()
        assert len(own) == 3
        assert not own & set(parse_addresses(cluster.bootstrap))
        values = await produce_and_consume(bootstrap(proxy))
        for address in own:
            client = await NetworkClient.connect(*address)
            await client.close()
    assert values == [b"one", b"two"]
    reached = {entry.facts["broker"] for entry in entries_of(file) if entry.kind is Kind.OPENED}
    assert reached == brokers


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_client_logs_in_through_the_proxy_and_its_password_is_not_recorded(
    tmp_path: Path, mechanism: str
) -> None:
    security = Security("SASL_PLAINTEXT", mechanism=mechanism, users={"alice": "a very secret password"})
    file = tmp_path / "file"
    async with rebalancing_broker(security=security) as broker, proxied(broker.bootstrap, file) as proxy:
        settings = broker.client_settings("aiokafka") | {"bootstrap_servers": bootstrap(proxy)}
        assert await produce_and_consume(**settings) == [b"one", b"two"]
    data = (tmp_path / "file").read_bytes()
    assert b"a very secret password" not in data
    logins = [
        one
        for one in frames_of(tmp_path / "file")
        if one.asked is not None and one.asked.api_key == ApiKey.SASL_AUTHENTICATE
    ]
    assert logins
    for one in logins:
        assert one.entry.is_redacted or (one.direction == "response" and mechanism == "PLAIN")
        assert one.decoded is not None
        assert one.decoded.document["AuthBytes"] == ""


async def test_the_proxy_connects_and_logs_in_as_its_settings_say(tmp_path: Path) -> None:
    async with rebalancing_broker(security="SASL_SSL") as broker:
        properties = parse_properties(broker.client_properties().encode())
        security = security_of_properties(properties, OsFiles(), {})
        async with proxied(
            broker.bootstrap, tmp_path / "file", Dial.secured(security.tls, security.login, Random(1))
        ) as proxy:
            assert await produce_and_consume(bootstrap(proxy)) == [b"one", b"two"]
    passed = {one.asked.api_key for one in frames_of(tmp_path / "file") if one.asked is not None}
    assert ApiKey.SASL_HANDSHAKE not in passed


async def test_a_broker_that_is_not_reached_ends_the_connection_with_a_line_in_the_log(tmp_path: Path) -> None:
    async with in_process_broker() as broker:
        gone = broker.bootstrap
    with capture_logs() as logs:
        async with proxied(gone, tmp_path / "file") as proxy:
            with pytest.raises(Disconnected):
                await NetworkClient.connect(*proxy.address)
    (line,) = (line for line in logs if line["event"] == "broker not reached")
    assert gone in line["error"]


async def test_a_broker_that_answers_nothing_is_named_in_the_log_with_what_may_be_wrong(tmp_path: Path) -> None:
    with capture_logs() as logs:
        async with in_process_broker(security="SSL") as broker, proxied(broker.bootstrap, tmp_path / "file") as proxy:
            with pytest.raises(Disconnected):
                await NetworkClient.connect(*proxy.address)
            await until(lambda: any(line["event"] == "connection ended" for line in logs))
            with pytest.raises(Disconnected, match="its listener may have TLS or logins"):
                await Target(parse_addresses(broker.bootstrap)[0], Dial(), 20).start()
    (line,) = (line for line in logs if line["event"] == "connection ended")
    assert (line["broker"], "may have TLS" in line["reason"]) == (broker.bootstrap, True)


async def test_a_request_that_cannot_be_read_ends_the_connection(tmp_path: Path) -> None:
    async with in_process_broker() as broker, proxied(broker.bootstrap, tmp_path / "file") as proxy:
        stream = await Dial().connect(*proxy.address)
        frame = bytearray(request_frame(MetadataRequest(), 9))
        frame[3] = 99
        with capture_logs() as logs:
            await stream.send(bytes(frame))
            assert await stream.frame() is None
            await until(lambda: logs)
        stream.abort()
    assert "Metadata 99 is newer than what the proxy can read" in logs[0]["reason"]


async def test_a_client_that_is_newer_than_the_proxy_learns_which_version_of_api_versions_it_has(
    tmp_path: Path,
) -> None:
    file = tmp_path / "file"
    async with in_process_broker() as broker, proxied(broker.bootstrap, file) as proxy:
        stream = await Dial().connect(*proxy.address)
        newer = bytearray(request_frame(ApiVersionsRequest(), 4))
        newer[3] = 9
        await stream.send(bytes(newer))
        async with asyncio.timeout(PATIENCE_S):
            answer = await stream.frame()
        assert answer is not None
        refusal = decode(ApiVersionsResponse, 0, answer, 4)
        own = next(each for each in refusal.api_keys if each.api_key == ApiKey.API_VERSIONS)
        assert refusal.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert await asked(stream, ApiVersionsRequest(), own.max_version)
        stream.abort()
    request = next(one for one in frames_of(file) if one.direction == "request")
    assert request.entry.data == bytes(newer), "the file has the request as the client has sent it"


async def test_a_proxy_at_a_name_with_two_addresses_is_reached_at_both(tmp_path: Path) -> None:
    """localhost is 127.0.0.1 and ::1, where listeners get different free ports."""
    hosts = {info[4][0] for info in await asyncio.get_running_loop().getaddrinfo("localhost", None)}
    listen = ("localhost", free_port())
    async with in_process_broker() as broker:
        upstream = parse_addresses(f"{broker.bootstrap},{broker.bootstrap}")  # The entrance has a port of its own.
        opened = recording_proxy(upstream, listen, str(tmp_path / "file"), Dial(), OsFiles(), SystemClock())
        async with opened as proxy:
            assert proxy.address == listen
            for host in hosts:
                async with await NetworkClient.connect(host, listen[1]) as client:
                    (node,) = (await client.send(MetadataRequest(topics=[]))).brokers
                assert (node.host, node.port != listen[1]) == (host, True)
                async with await NetworkClient.connect(node.host, node.port) as client:
                    assert (await client.send(MetadataRequest(topics=[]))).brokers


async def test_the_first_listener_is_no_brokers_if_it_may_lead_to_several(tmp_path: Path) -> None:
    async with (
        in_process_cluster(2) as cluster,
        proxied(cluster.bootstrap, tmp_path / "file") as proxy,
        await NetworkClient.connect(*proxy.address) as client,
    ):
        ports = {node.port for node in (await client.send(MetadataRequest(topics=[]))).brokers}
    assert (len(ports), proxy.address[1] in ports) == (2, False)


async def test_a_proxy_whose_cluster_is_itself_ends_the_connection(tmp_path: Path) -> None:
    itself = ("127.0.0.1", free_port())
    opened = recording_proxy([itself], itself, str(tmp_path / "file"), Dial(), OsFiles(), SystemClock())
    with capture_logs() as logs:
        async with opened as proxy, asyncio.timeout(PATIENCE_S):
            stream = await Dial().connect(*proxy.address)
            assert await stream.frame() is None
            stream.abort()
            assert proxy.recorder.connections == 0
    assert any(f"{itself[0]}:{itself[1]} is the proxy itself" in line.get("error", "") for line in logs)


async def test_a_proxy_that_cannot_listen_leaves_no_file_behind(tmp_path: Path) -> None:
    file = tmp_path / "file"
    async with in_process_broker() as broker:
        taken = parse_addresses(broker.bootstrap)[0]
        with pytest.raises(OSError, match="in use"):
            async with recording_proxy([taken], taken, str(file), Dial(), OsFiles(), SystemClock()):
                pass
        disk = FullDisk()
        disk.room = 0
        with pytest.raises(OSError, match="No space"):
            async with proxied(broker.bootstrap, file, files=disk):
                pass
    assert not file.exists()


# A broker that answers as the test says


Answering = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def scripted(answering: Answering) -> AsyncIterator[str]:
    async def answer_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answering(reader, writer)
        writer.close()

    server = await asyncio.start_server(answer_and_close, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    try:
        yield f"{host}:{port}"
    finally:
        server.close()


async def test_a_client_that_does_not_read_stops_the_broker_and_takes_no_memory(tmp_path: Path) -> None:
    size = 64 * MB
    taken = 0

    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
        request = await reader.readexactly(length)
        writer.write((size + 4).to_bytes(4, "big") + request[4:8])
        for _ in range(size // MB):
            writer.write(bytes(MB))
            await writer.drain()
            taken += MB

    file = tmp_path / "file"
    async with scripted(answering) as upstream, proxied(upstream, file) as proxy:
        stream = await Dial().connect(*proxy.address)
        tracemalloc.start()
        try:
            await stream.send(request_frame(FetchRequest(), 4))
            await until(lambda: taken > 0)
            before = -1
            while before != taken:
                before = taken
                await asyncio.sleep(0.2)
            assert taken < size / 2, "what waits is in the buffers of sockets"
            tracemalloc.reset_peak()
            received = await drained(stream, size + 4)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            stream.abort()
    assert received == size + 4
    assert taken == size
    assert peak < 8 * MB
    (response,) = (one for one in frames_of(file) if one.direction == "response")
    assert len(response.entry.data) == size + 4


async def drained(stream: Stream, expected: int) -> int:
    length = await stream.length()
    assert length == expected
    return sum([len(piece) async for piece in stream.pieces(length)])


async def test_a_client_that_reads_nothing_while_others_wait_for_memory_is_disconnected(tmp_path: Path) -> None:
    """The responses may have addresses, so they are held, one at a time: together they exceed the room."""
    partition = FetchResponse.PartitionData(records=bytes(32 * MB))
    topic = FetchResponse.FetchableTopicResponse(partitions=[partition])
    response = response_frame(FetchResponse(responses=[topic]), 16)

    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
            await reader.readexactly(length)
            writer.write(len(response).to_bytes(4, "big") + response)
            await writer.drain()
            await reader.read()

    writer = RecordingWriter(OsFiles(), str(tmp_path / "file"), {})
    recorder = ClockedRecorder(writer, SystemClock())
    async with scripted(answering) as upstream:
        proxy = Proxy(parse_addresses(upstream), ("127.0.0.1", 0), recorder, Dial(), Room(40 * MB), slow_s=0.2)
        await proxy.start()
        with capture_logs() as logs:
            idle, eager = [await Dial().connect(*proxy.address) for _ in range(2)]
            await idle.send(request_frame(FetchRequest(), 16))
            await until(lambda: writer.size > len(response))
            await eager.send(request_frame(FetchRequest(), 16))
            assert await drained(eager, len(response)) == len(response)
        idle.abort()
        eager.abort()
        await proxy.close()
    writer.close()
    assert any("reads nothing for 0.2 s while others wait for memory" in line.get("reason", "") for line in logs)


@asynccontextmanager
async def short_of_memory(upstream: str, file: Path) -> AsyncIterator[Proxy]:
    """A proxy with little room for frames that are held, and little patience."""
    writer = RecordingWriter(OsFiles(), str(file), {})
    recorder = ClockedRecorder(writer, SystemClock())
    proxy = Proxy(parse_addresses(upstream), ("127.0.0.1", 0), recorder, Dial(), Room(MB), slow_s=0.2)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.close()
        writer.close()


async def test_a_client_that_stops_within_a_frame_while_others_wait_for_memory_is_disconnected(tmp_path: Path) -> None:
    login = request_frame(SaslAuthenticateRequest(auth_bytes=bytes(2 * MB)), 1)
    async with in_process_broker() as broker, short_of_memory(broker.bootstrap, tmp_path / "file") as proxy:
        stalled = await Dial().connect(*proxy.address)
        stalled.writer.write(len(login).to_bytes(4, "big") + login[:MB])
        await until(lambda: proxy._room._taken > MB)
        with capture_logs() as logs:
            async with asyncio.timeout(PATIENCE_S), await NetworkClient.connect(*proxy.address) as client:
                assert (await client.send(MetadataRequest(topics=None))).brokers
        stalled.abort()
    assert any("sends nothing for 0.2 s while others wait for memory" in line.get("reason", "") for line in logs)


async def test_a_broker_that_stops_within_a_response_while_others_wait_for_memory_is_disconnected(
    tmp_path: Path,
) -> None:
    partition = FetchResponse.PartitionData(records=bytes(2 * MB))
    topic = FetchResponse.FetchableTopicResponse(partitions=[partition])
    response = response_frame(FetchResponse(responses=[topic]), 16)
    stalled = True

    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal stalled
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
            await reader.readexactly(length)
            sent, stalled = response[:MB] if stalled else response, False
            writer.write(len(response).to_bytes(4, "big") + sent)
            await writer.drain()
            await reader.read()

    async with scripted(answering) as upstream, short_of_memory(upstream, tmp_path / "file") as proxy:
        waiting, eager = [await Dial().connect(*proxy.address) for _ in range(2)]
        await waiting.send(request_frame(FetchRequest(), 16))
        await until(lambda: proxy._room._taken > MB)
        await eager.send(request_frame(FetchRequest(), 16))
        async with asyncio.timeout(PATIENCE_S):
            assert await drained(eager, len(response)) == len(response)
            assert await waiting.frame() is None
        waiting.abort()
        eager.abort()


async def test_a_frame_is_in_the_file_before_it_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "file"
    seen: list[int] = []

    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
        request = await reader.readexactly(length)
        with file.open("rb") as stream:
            entries = list(Recording(stream, "file").entries())
        seen.append(len([entry for entry in entries if entry.data == request]))
        writer.write((8).to_bytes(4, "big") + request[4:8] + b"done")

    async with scripted(answering) as upstream, proxied(upstream, file) as proxy:
        stream = await Dial().connect(*proxy.address)
        for number in range(20):
            request = request_frame(FetchRequest(), 4, number)
            seen.clear()
            other = await Dial().connect(*proxy.address) if number else stream
            await other.send(request)
            answer = await other.frame()
            with file.open("rb") as opened:
                entries = list(Recording(opened, "file").entries())
            assert any(entry.data == answer for entry in entries)
            assert seen == [1]
            other.abort()


async def test_a_full_disk_ends_the_recording_with_what_was_recorded(tmp_path: Path) -> None:
    disk, file = FullDisk(), tmp_path / "file"
    async with in_process_broker() as broker, proxied(broker.bootstrap, file, files=disk) as proxy:
        async with await NetworkClient.connect(*proxy.address) as client:
            await client.send(MetadataRequest(topics=None))
            disk.room = file.stat().st_size
            with pytest.raises(Disconnected):
                await client.send(MetadataRequest(topics=None))
        with pytest.raises(CannotRecord, match="No space left"):
            await proxy.run()
    assert len([one for one in frames_of(file) if one.asked and one.asked.api_key == ApiKey.METADATA]) == 2


def started(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


async def test_what_was_answered_survives_a_kill(tmp_path: Path) -> None:
    file = tmp_path / "file"
    async with in_process_broker() as broker:
        command = [sys.executable, "-m", "odradek.cli", "record", "--upstream", broker.bootstrap]
        process = started([*command, "--to", str(file), "--listen", "127.0.0.1:0"])
        assert process.stdout is not None
        try:
            ready = await asyncio.to_thread(process.stdout.readline)
            address = ready.removeprefix("ready ").strip()
            async with AIOKafkaProducer(bootstrap_servers=address, acks="all") as producer:
                for number in range(200):
                    await producer.send_and_wait("orders", b"%d" % number)
                os.kill(process.pid, signal.SIGKILL)
                await asyncio.to_thread(process.wait)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
    with file.open("rb") as stream:
        recording = Recording(stream, str(file))
        entries = list(recording.entries())
    assert not recording.torn
    data = b"".join(entry.data for entry in entries if entry.kind is Kind.REQUEST)
    assert all(b"%d" % number in data for number in range(200))
    produced = [entry for entry in entries if entry.kind is Kind.REQUEST and entry.data[:2] == b"\0\0"]
    assert len(produced) == 200
