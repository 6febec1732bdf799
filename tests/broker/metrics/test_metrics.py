"""/metrics and /health over real sockets, and the counters behind them."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families

from odradek.broker.http.request import MAX_HEAD_BYTES
from odradek.broker.metadata.new_topic import NewTopic
from odradek.broker.metadata_store.interface import Operation, Outcome
from odradek.broker.metadata_store.session_metrics import STATES
from odradek.broker.metrics.exposition import SAMPLES_PER_CHUNK, Exposition, RecentTimes, quantile_ms, request_times
from odradek.broker.metrics.families import FAMILIES, TOTAL
from odradek.broker.metrics.routes import MetricsRoutes, serve_metrics
from odradek.broker.replica.partition.topic_stats import AllTopicStats
from odradek.broker.requests.request_metrics import (
    FINE_TIMES,
    TIME_BUCKETS,
    BrokerMetrics,
    bucket_time_ms,
    error_finder,
    time_bucket,
)
from odradek.broker.server import Broker
from odradek.broker.start_error import StartError
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchResponse
from odradek.protocol.messages.metadata import MetadataResponse
from odradek.protocol.messages.produce import ProduceResponse
from odradek.testing import in_process_broker
from odradek.timer import ManualClock
from tests.patience import until
from tests.zookeeper.model import ZooKeeperModel

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
Answer = tuple[int, dict[str, str], bytes]


async def ask(port: int, path: str = "/metrics", method: str = "GET", raw: bytes | None = None) -> Answer:
    """Sends one request on a new connection and returns status, headers and body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw if raw is not None else f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:])
    return int(lines[0].split()[1]), headers, body


def samples_of(text: bytes) -> Samples:
    """Returns every sample by name and labels, read by Prometheus's own parser. Asserts that none is repeated."""
    found: Samples = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, f"{key} is repeated"
            found[key] = sample.value
    return found


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[(name, frozenset(labels.items()))]


@asynccontextmanager
async def broker_with_metrics() -> AsyncIterator[tuple[Broker, int]]:
    """Yields a broker with a metrics port, and the port."""
    async with in_process_broker({"odradek.metrics.port": "0"}) as broker:
        assert broker.metrics_server is not None
        yield broker, broker.metrics_server.port


async def produce_and_fetch(broker: Broker, records: int) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, acks="all") as producer:
        for number in range(records):
            await producer.send_and_wait("counted", b"%d" % number, partition=0)
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    async with consumer:
        consumer.assign([TopicPartition("counted", 0)])
        for _ in range(records):
            await consumer.getone()


async def test_client_activity_is_exported_under_the_names_of_kafkas_jmx_exporter() -> None:
    async with broker_with_metrics() as (broker, port):
        await produce_and_fetch(broker, 10)
        status, headers, body = await ask(port)
        assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        samples = samples_of(body)
    assert value(samples, "kafka_server_brokertopicmetrics_messagesin_total", topic="counted") == 10
    assert value(samples, "kafka_server_brokertopicmetrics_messagesin_total") == 10
    bytes_in = value(samples, "kafka_server_brokertopicmetrics_bytesin_total", topic="counted")
    assert bytes_in > 10 * 61
    assert value(samples, "kafka_server_brokertopicmetrics_bytesout_total", topic="counted") == bytes_in
    assert value(samples, "kafka_server_brokertopicmetrics_totalproducerequests_total", topic="counted") == 10
    assert value(samples, "kafka_log_log_size", topic="counted", partition="0") == bytes_in
    assert value(samples, "kafka_log_log_logendoffset", topic="counted", partition="0") == 10
    assert value(samples, "kafka_log_log_logstartoffset", topic="counted", partition="0") == 0
    assert value(samples, "kafka_log_log_numlogsegments", topic="counted", partition="0") == 1
    produced = [
        count
        for (name, labels), count in samples.items()
        if name == "kafka_network_requestmetrics_requests_total" and ("request", "Produce") in labels
    ]
    assert produced == [10]
    assert value(samples, f"{TOTAL}_count", request="Produce") == 10
    assert value(samples, "kafka_network_requestmetrics_errors_total", request="Produce", error="NONE") == 10
    assert value(samples, "kafka_server_kafkaserver_brokerstate") == 3
    assert value(samples, "kafka_server_socket_server_metrics_connection_creation_total") >= 2
    assert value(samples, "kafka_server_replicamanager_leadercount") == 1
    assert value(samples, "kafka_controller_kafkacontroller_globaltopiccount") == 1
    assert value(samples, "kafka_server_delayedoperationpurgatory_numdelayedoperations", delayedOperation="Fetch") == 0


async def test_the_session_with_zookeeper_is_exported_under_kafkas_names() -> None:
    listener, latency = (
        "kafka_server_sessionexpirelistener_",
        "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms",
    )
    model = ZooKeeperModel(tick_s=0.5)
    async with model.served() as address:
        settings = {"odradek.metrics.port": "0", "zookeeper.connect": address}
        async with in_process_broker(settings) as broker:
            assert broker.metrics_server is not None
            store = broker.metadata_store
            model.drop_connections()
            await until(lambda: store.session_metrics is not None and store.session_metrics.connects == 2)
            await store.get("/brokers/ids")
            samples = samples_of((await ask(broker.metrics_server.port))[2])
            model.expire(store.session_id)
            await until(lambda: store.session_epoch == 2)
            later = samples_of((await ask(broker.metrics_server.port))[2])
    states = {state: value(samples, f"{listener}sessionstate", state=state) for state in STATES}
    assert states == {"CONNECTING": 0, "CONNECTED": 1, "AUTH_FAILED": 0, "CLOSED": 0}
    assert value(samples, f"{listener}zookeepersyncconnects_total") == 2
    assert value(samples, f"{listener}zookeeperdisconnects_total") == 1
    assert value(samples, f"{listener}zookeepersaslauthentications_total") == 0
    assert value(samples, f"{listener}zookeeperauthfailures_total") == 0
    assert value(samples, f"{listener}zookeeperexpires_total") == 0
    assert value(later, f"{listener}zookeeperexpires_total") == 1
    assert value(samples, f"{latency}_count") >= 10
    assert value(later, f"{latency}_count") > value(samples, f"{latency}_count")
    assert value(samples, f"{latency}_sum") > 0
    assert value(samples, latency, quantile="0.99") >= value(samples, latency, quantile="0.50") >= 0


async def test_every_family_is_exported_with_help_and_type_before_any_activity() -> None:
    async with broker_with_metrics() as (_, port):
        _, _, body = await ask(port)
    text = body.decode()
    for family in FAMILIES:
        name = f"{family.name}_total" if family.kind == "counter" else family.name
        assert text.count(f"# TYPE {name} {family.kind}\n") == 1
        assert f"# HELP {name} {family.documentation}\n" in text
    assert "process_cpu_seconds_total" in text


async def test_a_waiting_fetch_is_counted_in_its_purgatory() -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async with broker_with_metrics() as (broker, port):
        await produce_and_fetch(broker, 1)
        consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, fetch_max_wait_ms=60_000)
        async with consumer:
            consumer.assign([TopicPartition("counted", 0)])
            consumer.seek(TopicPartition("counted", 0), 1)
            waiting = asyncio.ensure_future(consumer.getone())
            for _ in range(10_000):
                if broker.replica_manager.fetch_purgatory.delayed:
                    break
                await asyncio.sleep(0.001)
            samples = samples_of((await ask(port))[2])
            waiting.cancel()
    assert value(samples, "kafka_server_delayedoperationpurgatory_numdelayedoperations", delayedOperation="Fetch") == 1
    assert value(samples, "kafka_server_delayedoperationpurgatory_purgatorysize", delayedOperation="Fetch") >= 1
    assert value(samples, "kafka_server_delayedfetchmetrics_expires_total", fetcherType="follower") == 0


async def test_a_slow_topic_creation_is_counted_in_the_topic_purgatory() -> None:
    labels = {"delayedOperation": "topic"}
    async with broker_with_metrics() as (broker, port):
        gate = asyncio.Event()
        put = broker.metadata_store.pipeline

        async def slowly(groups: Sequence[Iterable[Operation]]) -> list[Outcome]:
            await gate.wait()
            return await put(groups)

        broker.metadata_store.pipeline = slowly  # type: ignore[method-assign]
        topics = [NewTopic("a", 1, 1), NewTopic("b", 1, 1)]
        creating = asyncio.ensure_future(broker.controller.topics.create(topics, timeout_ms=60_000))
        while not broker.links.waits.topics.delayed:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0)
        waiting = samples_of((await ask(port))[2])
        gate.set()
        await creating
        over = samples_of((await ask(port))[2])
    assert value(waiting, "kafka_server_delayedoperationpurgatory_purgatorysize", **labels) == 2
    assert value(waiting, "kafka_server_delayedoperationpurgatory_numdelayedoperations", **labels) == 1
    assert value(over, "kafka_server_delayedoperationpurgatory_purgatorysize", **labels) == 0


async def test_more_partitions_than_fit_a_chunk_are_exported_once_each_under_one_header() -> None:
    count = 2 * SAMPLES_PER_CHUNK + 1
    async with broker_with_metrics() as (broker, port):
        stats = broker.replica_manager.topic_stats
        for number in range(count):
            stats.of(f"topic-{number}").messages_in = number
        _, _, body = await ask(port)
    samples = samples_of(body)
    exported_topics = [
        labels for name, labels in samples if name == "kafka_server_brokertopicmetrics_messagesin_total" and labels
    ]
    assert len(exported_topics) == count
    assert value(samples, "kafka_server_brokertopicmetrics_messagesin_total") == sum(range(count))
    assert body.count(b"# TYPE kafka_server_brokertopicmetrics_messagesin_total counter\n") == 1


async def test_the_text_is_built_in_chunks_of_a_bounded_number_of_samples() -> None:
    async with broker_with_metrics() as (broker, _):
        for number in range(3 * SAMPLES_PER_CHUNK):
            broker.replica_manager.topic_stats.of(f"topic-{number}")
        chunks = list(Exposition(broker.clock, broker.metrics).chunks(broker.status()))
    sizes = [sum(not line.startswith(b"#") for line in chunk.splitlines()) for chunk in chunks]
    assert max(sizes) == SAMPLES_PER_CHUNK


async def test_names_that_need_escaping_are_exported_correctly() -> None:
    async with broker_with_metrics() as (broker, port):
        broker.replica_manager.topic_stats.of('a"b\\c\nd').messages_in = 7
        samples = samples_of((await ask(port))[2])
    assert value(samples, "kafka_server_brokertopicmetrics_messagesin_total", topic='a"b\\c\nd') == 7


# Health


async def test_health_is_200_while_clients_are_served() -> None:
    async with broker_with_metrics() as (broker, port):
        status, headers, body = await ask(port, "/health")
        assert (status, headers["Content-Type"]) == (200, "application/json")
        assert json.loads(body) == {
            "status": "up",
            "broker_id": broker.broker_id,
            "cluster_id": broker.metadata.cluster_id,
            "offline_partitions": [],
        }


async def test_health_is_503_when_a_partitions_disk_fails() -> None:
    from odradek.broker.replica.partition.offline_replica import OfflineReplica
    from odradek.protocol.topic_partition import TopicPartition

    async with broker_with_metrics() as (broker, port):
        broker.replica_manager.partitions.offline[TopicPartition("lost", 3)] = OfflineReplica("the disk", 0)
        status, _, body = await ask(port, "/health")
    document = json.loads(body)
    assert (status, document["status"], document["offline_partitions"]) == (503, "degraded", ["lost-3"])


async def test_a_starting_broker_is_503_and_exports_only_process_metrics() -> None:
    async with in_process_broker() as broker:
        running = broker.state
        not_yet = Broker(broker.config)
        routes = MetricsRoutes(not_yet.status, Exposition(not_yet.clock, not_yet.metrics))
        server = await serve_metrics(routes, "127.0.0.1", 0)
        try:
            status, _, body = await ask(server.port, "/health")
            assert (status, json.loads(body)["status"]) == (503, "down")
            status, _, body = await ask(server.port)
            assert status == 200
            assert samples_of(body)[("kafka_server_kafkaserver_brokerstate", frozenset())] == 0
            assert b"kafka_server_brokertopicmetrics" not in body
        finally:
            await server.stop()
        assert running == 3


# HTTP


async def test_a_head_request_gets_only_the_headers() -> None:
    async with broker_with_metrics() as (_, port):
        status, headers, body = await ask(port, method="HEAD")
    assert (status, body) == (200, b"")
    assert headers["Connection"] == "close"


async def test_the_query_is_ignored() -> None:
    async with broker_with_metrics() as (_, port):
        assert (await ask(port, "/health?verbose=1"))[0] == 200


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"\x00\x00\x00\x12\x00\x12\x00\x00 no http \r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n", 400),
    ],
    ids=["unknown path", "unknown method", "not http", "http 0.9", "headers without end"],
)
async def test_a_bad_request_is_answered_and_the_next_is_served(request_bytes: bytes, status: int) -> None:
    async with broker_with_metrics() as (_, port):
        assert (await ask(port, raw=request_bytes))[0] == status
        assert (await ask(port, "/health"))[0] == 200


async def test_a_client_that_disconnects_halfway_does_not_affect_others() -> None:
    async with broker_with_metrics() as (_, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metr")
        writer.close()
        await writer.wait_closed()
        assert (await ask(port, "/health"))[0] == 200


async def test_stopping_closes_silent_connections() -> None:
    async with broker_with_metrics() as (broker, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert (await ask(port, "/health"))[0] == 200
        assert broker.metrics_server is not None
        await broker.metrics_server.stop()
        await broker.metrics_server.stop()
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", port)
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            pass
        writer.close()


async def test_metrics_are_not_served_without_a_port() -> None:
    async with in_process_broker() as broker:
        assert broker.metrics_server is None


@pytest.mark.parametrize(("given", "bound"), [({}, "127.0.0.1"), ({"odradek.metrics.host": "127.0.0.2"}, "127.0.0.2")])
async def test_metrics_are_served_on_loopback_by_default(given: dict[str, str], bound: str) -> None:
    everywhere = {"listeners": "PLAINTEXT://0.0.0.0:0", "advertised.listeners": "PLAINTEXT://localhost:0"}
    async with in_process_broker({"odradek.metrics.port": "0", **everywhere, **given}) as broker:
        assert broker.metrics_server is not None
        assert [address[0] for address in broker.metrics_server.addresses] == [bound]


async def test_an_occupied_metrics_port_keeps_the_broker_from_starting() -> None:
    async with broker_with_metrics() as (_, port):
        with pytest.raises(StartError, match="in use"):
            async with in_process_broker({"odradek.metrics.port": str(port)}):
                raise AssertionError("it started")


# The counters


def test_times_are_exact_below_16_ms_and_within_6_percent_above() -> None:
    assert [time_bucket(ms) for ms in range(FINE_TIMES)] == list(range(FINE_TIMES))
    for elapsed_ms in [*range(100_000), 10**6, 10**8, 2**31 - 1]:
        highest = bucket_time_ms(time_bucket(elapsed_ms))
        assert elapsed_ms <= highest <= elapsed_ms * (1 + 1 / FINE_TIMES)
    assert all(time_bucket(bucket_time_ms(bucket)) == bucket for bucket in range(TIME_BUCKETS))
    assert time_bucket(-1) == 0
    assert time_bucket(2**62) == TIME_BUCKETS - 1


def test_quantiles_are_computed_from_the_buckets() -> None:
    counts = [0] * TIME_BUCKETS
    for elapsed_ms in range(1, 11):
        counts[time_bucket(elapsed_ms)] += 10
    assert [quantile_ms(counts, quantile) for quantile in (0.5, 0.95, 0.99, 1.0)] == [5, 10, 10, 10]
    assert quantile_ms([0] * TIME_BUCKETS, 0.5) != quantile_ms([0] * TIME_BUCKETS, 0.5), "NaN without requests"


def test_errors_are_counted_per_item_in_all_arrays() -> None:
    metrics = BrokerMetrics().of(ApiKey.PRODUCE, 9)
    topic, partition = ProduceResponse.TopicProduceResponse, ProduceResponse.PartitionProduceResponse
    failures = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    response = ProduceResponse(
        responses=[
            topic(name="a", partition_responses=[partition(index=0, error_code=code) for code in failures]),
            topic(name="b", partition_responses=[partition(index=0, error_code=ErrorCode.CORRUPT_MESSAGE)]),
        ]
    )
    metrics.answered(response, 3)
    metrics.answered(ProduceResponse(), 0)
    metrics.answered(None, 1)
    assert metrics.errors == {0: 2, 3: 2, 2: 1}
    assert (metrics.requests, metrics.total_time_ms, sum(metrics.times)) == (3, 4, 3)


def test_a_top_level_error_of_a_response_is_counted() -> None:
    errors = {0: 0}
    assert error_finder(FetchResponse, 12)(FetchResponse(error_code=70), errors)
    assert not error_finder(MetadataResponse, 13)(MetadataResponse(), errors)
    assert errors == {0: 0, 70: 1}


def test_an_error_that_the_version_has_no_field_for_is_not_found() -> None:
    response, errors = MetadataResponse(error_code=ErrorCode.POLICY_VIOLATION), {0: 0}
    assert not error_finder(MetadataResponse, 12)(response, errors)
    assert error_finder(MetadataResponse, 13)(response, errors)


def test_every_api_has_counters_under_kafkas_name_for_it() -> None:
    metrics = BrokerMetrics()
    assert metrics.of(ApiKey.API_VERSIONS, 3).api == "ApiVersions"
    assert metrics.of(ApiKey.FETCH, 12) is metrics.of(ApiKey.FETCH, 12)
    assert metrics.of(ApiKey.FETCH, 11) is not metrics.of(ApiKey.FETCH, 12)


def test_a_deleted_topic_stays_in_the_sum_over_all_topics() -> None:
    stats = AllTopicStats()
    stats.of("gone").messages_in = 5
    stats.of("gone").failed_fetch_requests = 2
    stats.forget("gone")
    stats.forget("never known")
    assert stats.by_topic == {}
    assert (stats.forgotten.messages_in, stats.forgotten.failed_fetch_requests) == (5, 2)


async def test_quantiles_cover_the_last_minute_or_two() -> None:
    clock = ManualClock()
    async with in_process_broker() as running:
        broker = Broker(running.config, clock=clock)
    times = RecentTimes(clock)
    family = next(family for family in FAMILIES if family.name == TOTAL)
    row = broker.metrics.of(ApiKey.FETCH, 12)

    def median() -> float:
        samples = times.metric(family, request_times(broker.metrics)).samples
        return next(sample.value for sample in samples if sample.labels.get("quantile") == "0.50")

    for _ in range(100):
        row.answered(None, 500)
    assert median() == bucket_time_ms(time_bucket(500))
    for _ in range(3):
        clock.advance(60_000)
        median()
    row.answered(None, 2)
    assert median() == 2


async def test_a_returned_error_is_exported_by_its_name() -> None:
    async with broker_with_metrics() as (broker, port):
        broker.metrics.of(ApiKey.FETCH, 12).answered(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND), 1)
        broker.metrics.of(ApiKey.FETCH, 12).answered(FetchResponse(error_code=12345), 1)
        samples = samples_of((await ask(port))[2])
    name = "kafka_network_requestmetrics_errors_total"
    assert value(samples, name, request="Fetch", error="FETCH_SESSION_ID_NOT_FOUND") == 1
    assert value(samples, name, request="Fetch", error="12345") == 1
