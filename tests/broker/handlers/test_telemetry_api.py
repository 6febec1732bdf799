"""GetTelemetrySubscriptions and PushTelemetry of a broker: Kafka's errors, and what `/metrics` and the console show.

The order of the errors, and which bytes are which error, were asked of Kafka 4.4.0 with a plugin that takes everything.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest

from odradek.broker.metadata.kafka_uuid import uuid_text
from odradek.clients.network_client import SOFTWARE_NAME
from odradek.clients.network_errors import NetworkError
from odradek.protocol.compression import compress
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.configs import IncrementalAlterConfigsRequest
from odradek.protocol.messages.telemetry import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from odradek.protocol.wire_codes import ConfigResourceType
from odradek.testing import in_process_broker
from odradek.timer import ManualClock
from tests.broker.metrics.test_metrics import Samples, ask, samples_of, value
from tests.broker.telemetry.otlp_messages import RECORDED, gauge, histogram, metrics_data, total
from tests.patience import until
from tests.wire.api import Api, api_of, api_of_a_broker
from tests.wire.records import connect

ENABLED = {"odradek.client.metrics.enable": "true", "odradek.metrics.port": "0"}
ONE = UUID(int=0x11 << 120)
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
_Config = IncrementalAlterConfigsRequest.AlterableConfig


class Telemetry:
    """A client of one broker, and what the broker's metrics port says."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.subscription_id = 0

    async def subscribe(self, name: str = "s", **settings: str) -> None:
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=ConfigResourceType.CLIENT_METRICS,
            resource_name=name,
            configs=[_Config(name=key.replace("_", "."), value=text) for key, text in settings.items()],
        )
        changed = await self.api(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert changed.responses[0].error_code == 0
        metadata = self.api.broker.metadata
        await until(lambda: name in metadata.named_configs(ConfigResourceType.CLIENT_METRICS))

    async def get(self, client_instance_id: UUID = ONE) -> Any:
        response = await self.api(GetTelemetrySubscriptionsRequest(client_instance_id=client_instance_id), 0)
        self.subscription_id = response.subscription_id or self.subscription_id
        return response

    async def push(self, metrics: bytes = b"", codec: int = 0, *, client_instance_id: UUID = ONE, **fields: Any) -> int:
        request = PushTelemetryRequest(
            client_instance_id=client_instance_id,
            compression_type=codec,
            metrics=metrics,
            **{"subscription_id": self.subscription_id, **fields},
        )
        response = await self.api(request, 0)
        return int(response.error_code)

    async def pushed(self, metrics: bytes, codec: int = 0) -> None:
        assert await self.push(metrics, codec) == 0
        self.next_interval()

    def next_interval(self) -> None:
        """Lets the client push again at once: nothing of it but its interval changes."""
        telemetry = self.api.broker.telemetry
        assert telemetry is not None
        for instance in telemetry.instances:
            instance._last_push_ms -= instance.wanted.interval_ms
            instance._last_get_ms -= instance.wanted.interval_ms

    async def samples(self) -> Samples:
        assert self.api.broker.metrics_server is not None
        status, _, body = await ask(self.api.broker.metrics_server.port)
        assert status == 200
        return samples_of(body)

    async def own(self) -> dict[str, float]:
        """The clients' own metrics without the labels that name the client."""
        found = {}
        for (name, labels), measured in (await self.samples()).items():
            if name.startswith("kafka_client_"):
                shown = sorted((key, text) for key, text in labels if not key.startswith("client_"))
                found[name + "".join(f" {key}={text}" for key, text in shown)] = measured
        return found

    async def console(self, path: str) -> Any:
        assert self.api.broker.metrics_server is not None
        status, _, body = await ask(self.api.broker.metrics_server.port, f"/api/{path}")
        assert status == 200, body
        return json.loads(body)


@pytest.fixture
async def client() -> AsyncIterator[Telemetry]:
    async with api_of_a_broker(ENABLED) as api:
        client = Telemetry(api)
        await client.subscribe(metrics="*", interval_ms="3600000")
        assert (await client.get()).error_code == 0
        yield client


# --- whether ------------------------------------------------------------------------------------------------------


async def listed(api: Api) -> set[int]:
    request = ApiVersionsRequest(client_software_name="soft", client_software_version="1")
    versions = await api(request, 3)
    return {each.api_key for each in versions.api_keys} & {71, 72}


async def test_a_broker_serves_neither_unless_it_is_told_to() -> None:
    async with api_of_a_broker() as api:
        assert await listed(api) == set()
        for request in (GetTelemetrySubscriptionsRequest(), PushTelemetryRequest()):
            async with await connect(api.broker.bootstrap) as other:
                with pytest.raises(NetworkError):
                    await other.send(request, version=0)


async def test_a_broker_that_is_told_to_lists_both(client: Telemetry) -> None:
    assert await listed(client.api) == {71, 72}


@pytest.mark.parametrize(("release", "keys"), [("3.9", set()), ("4.0", {71, 72}), ("4.4", {71, 72})])
async def test_an_older_release_has_neither(release: str, keys: set[int]) -> None:
    async with api_of_a_broker({**ENABLED, "odradek.as.version": release}) as api:
        assert await listed(api) == keys


# --- the subscription -----------------------------------------------------------------------------------------------


async def test_a_client_without_an_id_gets_one(client: Telemetry) -> None:
    first, second = await client.get(UUID(int=0)), await client.get(UUID(int=0))
    assert len({first.client_instance_id, second.client_instance_id, ONE, UUID(int=0)}) == 4
    assert (await client.get(first.client_instance_id)).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


async def test_a_subscription_is_described(client: Telemetry) -> None:
    await client.subscribe(metrics="b.,a.", interval_ms="2000")
    found = await client.get()
    assert (found.error_code, found.client_instance_id, found.throttle_time_ms) == (0, ONE, 0)
    assert (found.requested_metrics, found.push_interval_ms) == (["a.", "b."], 2000)
    assert (found.accepted_compression_types, found.telemetry_max_bytes) == ([ZSTD, LZ4, GZIP, SNAPPY], 1048576)
    assert found.delta_temporality


async def test_a_client_that_asks_too_often_gets_nothing_but_the_error(client: Telemetry) -> None:
    found = await client.get()
    assert (found.error_code, found.client_instance_id) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, UUID(int=0))
    assert (found.subscription_id, found.push_interval_ms, found.requested_metrics) == (0, 0, [])
    await client.subscribe("other", metrics="b.")
    assert (await client.get()).error_code == 0


async def test_a_subscription_may_concern_the_software_and_the_address_of_a_client(client: Telemetry) -> None:
    await client.api(ApiVersionsRequest(client_software_name="soft", client_software_version="1.2"), 3)
    match = "client_software_name=soft,client_software_version=1[.].*,client_source_address=127[.]0[.]0[.]1"
    await client.subscribe(metrics="a", match=match)
    assert (await client.get(UUID(int=7))).requested_metrics == ["a"]
    await client.subscribe(metrics="a", match=match.replace("soft,", "hard,"))
    assert (await client.get(UUID(int=7))).requested_metrics == []


# --- the errors of a push -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1])
async def test_a_push_has_an_id_that_a_client_may_have(client: Telemetry, number: int) -> None:
    assert await client.push(client_instance_id=UUID(int=number)) == ErrorCode.INVALID_REQUEST


async def test_the_first_push_may_come_at_once_and_the_next_waits(client: Telemetry) -> None:
    assert await client.push() == 0
    assert await client.push() == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert await client.push(subscription_id=1, codec=9) == ErrorCode.THROTTLING_QUOTA_EXCEEDED


async def test_a_push_for_another_subscription_is_refused_and_the_client_may_ask_again(client: Telemetry) -> None:
    assert await client.push(subscription_id=client.subscription_id + 1) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert (await client.get()).error_code == 0
    assert (await client.get()).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


async def test_a_subscription_that_changes_is_asked_for_again(client: Telemetry) -> None:
    await client.subscribe(metrics="a", interval_ms="200000")
    assert await client.push() == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert (await client.get()).requested_metrics == ["a"]
    assert await client.push() == ErrorCode.THROTTLING_QUOTA_EXCEEDED


@pytest.mark.parametrize("codec", [-1, 5, 127])
async def test_a_push_in_an_unknown_codec_is_refused_whatever_its_size(client: Telemetry, codec: int) -> None:
    assert await client.push(b"x" * 1048577, codec) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert (await client.get()).error_code == 0


async def test_a_push_that_is_too_large_is_refused(client: Telemetry) -> None:
    assert await client.push(b"\x0a\x00" * 524288 + b"\x0a") == ErrorCode.TELEMETRY_TOO_LARGE
    client.next_interval()
    assert await client.push(b"\x0a\x00" * 524288) == 0


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
async def test_a_push_that_inflates_beyond_the_limit_does_not_decode(client: Telemetry, codec: int) -> None:
    whole = b"\x0a\x00" * 524288
    assert await client.push(compress(codec, whole + b"\x0a\x00"), codec) == ErrorCode.INVALID_RECORD
    client.next_interval()
    assert await client.push(compress(codec, whole), codec) == 0


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("what", ["junk", "cut", "another codec"])
async def test_a_push_that_is_not_what_it_says_does_not_decode(client: Telemetry, codec: int, what: str) -> None:
    data = {
        "junk": b"not compressed",
        "cut": compress(codec, bytes(range(256)) * 40)[:-5],
        "another codec": compress(GZIP if codec != GZIP else ZSTD, metrics_data(gauge("a", 1.0))),
    }[what]
    assert await client.push(data, codec) == ErrorCode.INVALID_RECORD


async def test_a_push_that_is_not_otlp_does_not_decode_and_nothing_of_it_is_taken_over(client: Telemetry) -> None:
    assert await client.push(metrics_data(gauge("a", 1.0)) + b"\x0a") == ErrorCode.INVALID_RECORD
    assert await client.own() == {}
    samples = await client.samples()
    assert value(samples, "kafka_server_client_metrics_plugin_error_total") == 1
    assert value(samples, "kafka_server_client_metrics_plugin_export_total") == 0


async def test_the_last_push_may_come_at_any_time_and_none_after_it(client: Telemetry) -> None:
    assert await client.push(metrics_data(gauge("a", 1.0))) == 0
    assert await client.push(metrics_data(gauge("a", 2.0)), terminating=True) == 0
    assert (await client.own())["kafka_client_a"] == 2.0
    assert await client.push(terminating=True) == ErrorCode.INVALID_REQUEST
    assert await client.push() == ErrorCode.INVALID_REQUEST
    assert await client.push() == ErrorCode.THROTTLING_QUOTA_EXCEEDED


async def test_a_push_without_metrics_is_accepted(client: Telemetry) -> None:
    assert await client.push(b"", ZSTD) == 0
    assert value(await client.samples(), "kafka_server_client_metrics_plugin_export_total") == 0


# --- what is shown --------------------------------------------------------------------------------------------------


async def test_what_is_pushed_is_on_the_metrics_port_with_the_names_of_the_client(client: Telemetry) -> None:
    await client.pushed(metrics_data(gauge("org.apache.kafka.a.avg", 2.5, topic="t")), 0)
    samples = await client.samples()
    labels = {"client_id": SOFTWARE_NAME, "client_instance_id": uuid_text(ONE), "topic": "t"}
    assert value(samples, "kafka_client_a_avg", **labels) == 2.5
    assert value(samples, "odradek_client_series") == 1
    [instance] = [dict(labels) for name, labels in samples if name == "odradek_client_instance"]
    assert instance["client_instance_id"] == uuid_text(ONE)
    assert instance["client_software_name"] == SOFTWARE_NAME
    assert instance["client_source_address"] == "127.0.0.1"


@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4, ZSTD])
async def test_every_codec_is_read(client: Telemetry, codec: int) -> None:
    data = metrics_data(gauge("a", 2.5))
    await client.pushed(compress(codec, data) if codec else data, codec)
    assert await client.own() == {"kafka_client_a": 2.5}


async def test_deltas_are_added_up_and_totals_replaced(client: Telemetry) -> None:
    await client.pushed(metrics_data(total("a.total", 2), total("b.total", 7, temporality=2), gauge("c", 5)))
    await client.pushed(metrics_data(total("a.total", 3), total("b.total", 8, temporality=2), gauge("c", 4)))
    assert await client.own() == {"kafka_client_a_total": 5, "kafka_client_b_total": 8, "kafka_client_c": 4}


async def test_a_histogram_has_prometheus_buckets(client: Telemetry) -> None:
    await client.pushed(metrics_data(histogram("h", [0.5, 2.0], [1, 0, 4], 9.5, topic="t")))
    await client.pushed(metrics_data(histogram("h", [0.5, 2.0], [0, 1, 0], 1.5, topic="t")))
    assert await client.own() == {
        "kafka_client_h_bucket le=0.5 topic=t": 1,
        "kafka_client_h_bucket le=2.0 topic=t": 2,
        "kafka_client_h_bucket le=+Inf topic=t": 6,
        "kafka_client_h_sum topic=t": 11,
        "kafka_client_h_count topic=t": 6,
    }


async def test_what_is_no_number_and_a_hostile_label_are_text_that_prometheus_reads(client: Telemetry) -> None:
    await client.pushed(metrics_data(gauge("a", math.nan, topic='"} 1\r\n#\x00\\'), gauge("b", math.inf)))
    found = await client.own()
    assert found["kafka_client_b"] == math.inf
    assert math.isnan(found['kafka_client_a topic="} 1\\r\\n#\\x00\\'])


async def test_pushes_of_real_clients_are_shown(client: Telemetry) -> None:
    await client.pushed(compress(ZSTD, (RECORDED / "java-producer-4.4.0.otlp").read_bytes()), ZSTD)
    found = await client.own()
    assert found["kafka_client_producer_record_send_total"] == 13
    assert found["kafka_client_producer_node_request_size_max node_id=node-1"] == 2349
    assert len(found) == 108
    await client.pushed(compress(ZSTD, (RECORDED / "librdkafka-consumer-2.16.0.otlp").read_bytes()), ZSTD)
    found = await client.own()
    [instance] = [dict(labels) for name, labels in await client.samples() if name == "odradek_client_instance"]
    assert instance["group_id"] == "g"
    assert found["kafka_client_consumer_node_request_latency_avg node_id=1"] == 11.127
    assert len(found) == 15


async def test_a_client_that_disconnects_takes_its_series_along(client: Telemetry) -> None:
    async with api_of(client.api.broker) as other:
        another = Telemetry(other)
        assert (await another.get(UUID(int=9))).error_code == 0
        assert await another.push(metrics_data(gauge("a", 2.5)), client_instance_id=UUID(int=9)) == 0
        assert await client.own() == {"kafka_client_a": 2.5}
    telemetry = client.api.broker.telemetry
    assert telemetry is not None
    await until(lambda: len(telemetry.instances) == 1)
    assert await client.own() == {}
    assert value(await client.samples(), "kafka_server_client_metrics_instance_count") == 1


async def test_a_silent_client_takes_its_series_along() -> None:
    clock = ManualClock()
    async with in_process_broker(ENABLED, clock=clock) as broker, api_of(broker) as api:
        client = Telemetry(api)
        await client.subscribe(metrics="*", interval_ms="1000")
        await client.get()
        assert await client.push(metrics_data(gauge("a", 2.5))) == 0
        assert broker.telemetry is not None
        clock.advance(59_999)
        broker.timer.advance_clock()
        assert (len(broker.telemetry.instances), broker.telemetry.series.size) == (1, 1)
        clock.advance(1)
        broker.timer.advance_clock()
        assert (len(broker.telemetry.instances), broker.telemetry.series.size) == (0, 0)


async def test_series_beyond_the_setting_are_dropped_and_counted() -> None:
    async with api_of_a_broker({**ENABLED, "odradek.client.metrics.max.series": "2"}) as api:
        client = Telemetry(api)
        await client.get()
        assert await client.push(metrics_data(*(gauge(f"a{n}", 1.0) for n in range(5)))) == 0
        assert len(await client.own()) == 2
        assert value(await client.samples(), "odradek_client_series_dropped_total") == 3


async def test_the_limit_of_a_push_is_a_setting() -> None:
    async with api_of_a_broker({**ENABLED, "telemetry.max.bytes": "100"}) as api:
        client = Telemetry(api)
        assert (await client.get()).telemetry_max_bytes == 100
        assert await client.push(b"x" * 101) == ErrorCode.TELEMETRY_TOO_LARGE


async def test_what_clients_do_too_early_is_counted(client: Telemetry) -> None:
    await client.get()
    await client.push(subscription_id=3)
    await client.push()
    samples = await client.samples()
    assert value(samples, "kafka_server_client_metrics_throttle_total") == 2
    assert value(samples, "kafka_server_client_metrics_unknown_subscription_request_total") == 1


# --- the console ----------------------------------------------------------------------------------------------------


async def test_the_console_lists_the_clients_and_what_each_has_pushed(client: Telemetry) -> None:
    await client.pushed(
        metrics_data(gauge("a", 2.5, topic="t"), gauge("b", math.nan), histogram("h", [1.0], [1, 2], 4.5))
    )
    listing = await client.console("clients")
    [row] = listing["rows"]
    assert (listing["total"], row["name"], row["software"]) == (1, uuid_text(ONE), "odradek")
    assert (row["metrics"], row["interval_ms"], row["series"]) == (["*"], 300_000, 4)
    assert row["pushed_ms_ago"] is not None
    assert 0 < row["forgotten_in_ms"] <= 900_000
    found = (await client.console(f"series?name={quote(row['name'])}"))["rows"]
    assert found == [
        {"name": "kafka_client_a", "kind": "gauge", "labels": {"topic": "t"}, "value": 2.5},
        {"name": "kafka_client_b", "kind": "gauge", "labels": {}, "value": None},
        {"name": "kafka_client_h", "kind": "histogram", "labels": {}, "value": None, "count": 3, "sum": 4.5},
    ]
    assert [each["name"] for each in (await client.console(f"series?name={row['name']}&search=topic=t"))["rows"]] == [
        "kafka_client_a"
    ]


async def test_the_console_knows_no_client_that_has_gone(client: Telemetry) -> None:
    assert client.api.broker.metrics_server is not None
    port = client.api.broker.metrics_server.port
    for name in ("x", uuid_text(UUID(int=5)), "%22" * 1000):
        status, _, body = await ask(port, f"/api/series?name={name}")
        assert status == 400
        assert len(body) < 200
    assert (await client.console("clients?search=nobody"))["rows"] == []


async def test_the_console_has_no_clients_if_they_push_nothing() -> None:
    async with in_process_broker({"odradek.metrics.port": "0"}) as broker:
        assert broker.metrics_server is not None
        status, _, body = await ask(broker.metrics_server.port, "/api/clients")
        assert (status, json.loads(body)["rows"]) == (200, [])
