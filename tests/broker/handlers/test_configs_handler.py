"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, step by step beside Apache Kafka 3.9.1 in ZooKeeper mode.

`tests/vectors/config_changes.jsonl`: the broker's own settings, then requests in order with Kafka's responses. Since
Kafka 4, `advertised.listeners` is a list that is fixed at the start, and client metrics have settings.
`tests/vectors/kafka_4.4/described_configs.json`: every setting of a broker, a topic and a group, as Kafka 4.4.0
described them.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from odradek.broker.background.stepwise import finished
from odradek.broker.background.turns import Turns
from odradek.broker.handlers.access import Access
from odradek.broker.handlers.configs import AlterConfigsHandlers
from odradek.broker.handlers.describe_configs import DescribeConfigsHandler
from odradek.broker.logging.structured_logging import configure_logging
from odradek.broker.requests.endpoint import Endpoint
from odradek.broker.requests.request_context import ConnectionInfo, RequestContext
from odradek.broker.settings import BROKER as SETTINGS
from odradek.broker.settings.config import BrokerConfig
from odradek.broker.settings.config_changes import NoCertificates
from odradek.broker.settings.config_description import (
    ConfigDescription,
    TopicDescriptions,
    describe_broker_setting,
    describe_group_settings,
    shown_settings,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
)
from tests.broker.cluster.configs_harness import SingleNode

BROKER_ID = 7
VECTORS = Path(__file__).parents[2] / "vectors"
TOPIC, BROKER, LOGGER, CLIENT_METRICS = 2, 4, 8, 16
SET, DELETE, APPEND = 0, 1, 2
KINDER = {
    ("t", "no.such", APPEND): (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_CONFIG),
    ("t", "retention.ms", 9): (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_REQUEST),
}
"""Where Kafka fails with an internal exception: (its code, ours)."""


@pytest.fixture
def levels() -> Iterator[None]:
    """Configures our loggers for one test and discards their lines."""
    before, was_configured = structlog.get_config(), structlog.is_configured()
    configure_logging(lambda: 0, stream=io.StringIO(), is_final=False)
    yield
    structlog.reset_defaults()
    if was_configured:
        structlog.configure(**before)


class Client:
    """Sends requests to the handlers of a broker with a metadata store on a disk in memory."""

    def __init__(self, harness: SingleNode) -> None:
        self.harness = harness
        self._describing = DescribeConfigsHandler(harness.config, harness.cache)
        self.altering = AlterConfigsHandlers(
            harness.configs, harness.config, NoCertificates(), harness.cache.broker_id, Access(), Turns()
        )
        connection = ConnectionInfo(Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092, "127.0.0.1", 9092))
        self.context = RequestContext(connection, 32, 4, 1, "client", 0)

    def describe(
        self, resource_type: int, name: str, keys: list[str] | None = None, *, documentation: bool = False
    ) -> DescribeConfigsResponse.DescribeConfigsResult:
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=resource_type, resource_name=name, configuration_keys=keys
        )
        request = DescribeConfigsRequest(
            resources=[resource], include_synonyms=True, include_documentation=documentation
        )
        return finished(self._describing.describe_configs(request, self.context)).results[0]

    async def alter(self, resource_type: int, name: str, items: list[list[Any]], validate_only: bool = False) -> Any:
        configs = [AlterConfigsRequest.AlterableConfig(name=each, value=value) for each, value in items]
        resource = AlterConfigsRequest.AlterConfigsResource(
            resource_type=resource_type, resource_name=name, configs=configs
        )
        request = AlterConfigsRequest(resources=[resource], validate_only=validate_only)
        return (await self.altering.alter_configs(request, self.context)).responses[0]

    async def modify(self, resource_type: int, name: str, items: list[list[Any]], validate_only: bool = False) -> Any:
        configs = [
            IncrementalAlterConfigsRequest.AlterableConfig(name=each, config_operation=operation, value=value)
            for each, operation, value in items
        ]
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=resource_type, resource_name=name, configs=configs
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        return (await self.altering.incremental_alter_configs(request, self.context)).responses[0]


async def client(settings: dict[str, str] | None = None) -> Client:
    return Client(await SingleNode(settings).start())


def fields_of(result: DescribeConfigsResponse.DescribeConfigsResult) -> dict[str, Any]:
    return {
        "error": result.error_code,
        "configs": {
            config.name: {
                "value": config.value,
                "readOnly": config.read_only,
                "source": config.config_source,
                "sensitive": config.is_sensitive,
                "type": config.config_type,
                "synonyms": [[each.name, each.value, each.source] for each in config.synonyms],
            }
            for config in result.configs
        },
    }


async def test_a_long_series_of_config_changes_matches_kafka(levels: None) -> None:
    first, *steps = [json.loads(line) for line in (VECTORS / "config_changes.jsonl").read_text().splitlines()]
    ours = await client(first["static"])
    kinder_met = set()
    for step in steps:
        resource = (step["resourceType"], step["resourceName"])
        if step["call"] == "DescribeConfigs":
            found, kafkas = fields_of(ours.describe(*resource, step["keys"])), step["answer"]
            for configs in (found["configs"], kafkas["configs"]):
                configs.pop("advertised.listeners", None)
            assert resource[0] == CLIENT_METRICS or found == kafkas, step
            continue
        alter = ours.modify if step["call"] == "IncrementalAlterConfigs" else ours.alter
        answer = await alter(*resource, step["items"], step["validateOnly"])
        kinder = KINDER.get((step["resourceName"], *step["items"][0][:2])) if step["items"] else None
        if kinder is not None and kinder[0] == step["error"]:
            kinder_met.add(kinder)
            assert answer.error_code == kinder[1], step
        else:
            assert answer.error_code == step["error"], (step, answer.error_message)
        assert (answer.error_message is None) == (answer.error_code == ErrorCode.NONE)
    assert kinder_met == set(KINDER.values())


def described(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {row.pop("Name"): row for row in rows}


def as_in_the_vectors(descriptions: Iterable[ConfigDescription]) -> dict[str, Any]:
    return {
        each.name: {
            "Value": each.value,
            "ReadOnly": each.read_only,
            "ConfigSource": each.source,
            "IsSensitive": each.is_sensitive,
            "Synonyms": [{"Name": name, "Value": value, "Source": source} for name, value, source in each.synonyms],
            "ConfigType": each.type,
        }
        for each in descriptions
        if not each.name.startswith("odradek.")
    }


PATHS = {"log.dir", "log.dirs", "metadata.log.dir"}
"""The vectors omit these."""
NOT_REQUIRED = {"node.id", "process.roles"}
"""These have defaults here. Besides, a KRaft controller stores min.insync.replicas, for eligible leader replicas."""


def test_every_setting_is_described_as_kafka_describes_it() -> None:
    vectors = json.loads((VECTORS / "kafka_4.4" / "described_configs.json").read_text())
    static = {
        synonym["Name"]: synonym["Value"]
        for row in vectors["broker"]
        for synonym in row["Synonyms"]
        if synonym["Source"] == 4
    }
    config = BrokerConfig.from_mapping({**static, "log.dirs": "left out"})
    ours = as_in_the_vectors(describe_broker_setting(config, name) for name in sorted(shown_settings(config)))
    gone = {name for name, setting in SETTINGS.items() if setting.removed_in is not None and setting.takes_effect}
    assert gone <= ours.keys()
    kafkas = described(vectors["broker"])
    for name in NOT_REQUIRED:
        *_, default = ours[name]["Synonyms"]
        kafkas[name]["Synonyms"].append(default)
    del ours["min.insync.replicas"], kafkas["min.insync.replicas"]
    assert {name: row for name, row in ours.items() if name not in gone | PATHS} == kafkas
    topic = TopicDescriptions(config, lambda each: each).of({"retention.ms": "123456789"})
    kafkas = described(vectors["topic"])
    ours = as_in_the_vectors(topic)
    del ours["message.timestamp.difference.max.ms"]
    del ours["min.insync.replicas"], kafkas["min.insync.replicas"]
    assert ours == kafkas
    group = describe_group_settings(config, {"consumer.session.timeout.ms": "46000"})
    assert as_in_the_vectors(group) == described(vectors["group"])


async def test_a_config_change_reaches_the_open_logs_at_once() -> None:
    ours = await client()
    await ours.modify(TOPIC, "t", [["retention.ms", SET, "5000"]])
    assert ours.harness.applied["t"].retention_ms == 5000
    await ours.modify(BROKER, "", [["log.segment.bytes", SET, "4000"]])
    assert ours.harness.applied["t"].segment_bytes == 4000
    await ours.modify(BROKER, str(BROKER_ID), [["log.segment.bytes", SET, "3000"]])
    assert ours.harness.applied["t"].segment_bytes == 3000
    assert ours.harness.config.log_segment_bytes == 3000
    await ours.alter(BROKER, str(BROKER_ID), [])
    assert ours.harness.applied["t"].segment_bytes == 4000


async def test_config_changes_survive_a_restart() -> None:
    ours = await client()
    await ours.modify(TOPIC, "t", [["retention.ms", SET, "5000"]])
    await ours.modify(BROKER, "", [["log.segment.bytes", SET, "4000"]])
    again = await ours.harness.again()
    assert again.in_effect.log_config("t").retention_ms == 5000
    assert again.in_effect.log_config("t").segment_bytes == 4000
    assert again.config.log_segment_bytes == 4000


async def test_a_refused_config_change_changes_nothing() -> None:
    ours = await client()
    answer = await ours.modify(TOPIC, "t", [["retention.ms", SET, "5000"], ["segment.bytes", SET, "13"]])
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert dict(ours.harness.cache.topic_config("t")) == {}
    assert ours.harness.applied == {}


async def test_a_full_disk_refuses_a_config_change_and_keeps_the_old_value() -> None:
    ours = await client()
    ours.harness.files.room = 0
    answer = await ours.modify(TOPIC, "t", [["retention.ms", SET, "5000"]])
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert dict(ours.harness.cache.topic_config("t")) == {}


async def test_a_resource_named_twice_fails_twice_and_the_others_are_changed() -> None:
    ours = await client()
    topic = IncrementalAlterConfigsRequest.AlterConfigsResource
    item = IncrementalAlterConfigsRequest.AlterableConfig(name="retention.ms", config_operation=SET, value="5")
    resources = [topic(resource_type=TOPIC, resource_name=name, configs=[item]) for name in ("none", "t", "none")]
    answers = await ours.altering.incremental_alter_configs(
        IncrementalAlterConfigsRequest(resources=resources), ours.context
    )
    assert [answer.resource_name for answer in answers.responses] == ["none", "t", "none"]
    assert [answer.error_code for answer in answers.responses] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]


@pytest.mark.parametrize("name", ["listeners", "advertised.listeners", "listener.security.protocol.map"])
async def test_listeners_cannot_be_changed_while_the_broker_runs(name: str) -> None:
    answer = await (await client()).modify(BROKER, str(BROKER_ID), [[name, SET, "PLAINTEXT://here:1"]])
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert name in answer.error_message


async def test_a_setting_without_effect_is_stored_with_a_warning() -> None:
    ours = await client()
    with capture_logs() as lines:
        await ours.modify(
            TOPIC, "t", [["message.downconversion.enable", SET, "false"], ["segment.bytes", SET, "5000"]], True
        )
        assert lines == []
        await ours.modify(TOPIC, "t", [["message.downconversion.enable", SET, "false"], ["segment.bytes", SET, "5000"]])
        await ours.modify(BROKER, "", [["background.threads", SET, "11"]])
    warnings = [line["names"] for line in lines if line["log_level"] == "warning"]
    assert warnings == [["message.downconversion.enable"], ["background.threads"]]


async def test_documentation_is_returned_on_request() -> None:
    ours = await client()
    (setting,) = ours.describe(TOPIC, "t", ["retention.ms"], documentation=True).configs
    assert setting.documentation is not None
    assert setting.documentation.endswith(".")
    assert ours.describe(TOPIC, "t", ["retention.ms"]).configs[0].documentation is None
    (setting,) = ours.describe(BROKER, str(BROKER_ID), ["num.partitions"], documentation=True).configs
    assert setting.documentation is not None


async def test_odradeks_own_settings_are_described() -> None:
    (setting,) = (await client()).describe(BROKER, str(BROKER_ID), ["odradek.max.decompressed.batch.bytes"]).configs
    assert (setting.value, setting.read_only, setting.is_default) == ("134217728", True, True)


async def test_log_levels_cannot_be_changed_if_the_host_program_configured_logging() -> None:
    ours = await client()
    assert ours.describe(LOGGER, str(BROKER_ID)).error_code == ErrorCode.INVALID_REQUEST


async def test_a_log_level_set_through_the_protocol_takes_effect(levels: None) -> None:
    ours = await client()
    answer = await ours.modify(LOGGER, str(BROKER_ID), [["storage", SET, "DEBUG"]])
    assert answer.error_code == ErrorCode.NONE
    (logger,) = ours.describe(LOGGER, str(BROKER_ID), ["storage"]).configs
    assert logger.value == "DEBUG"
    await ours.modify(LOGGER, str(BROKER_ID), [["storage", DELETE, None]])
    (logger,) = ours.describe(LOGGER, str(BROKER_ID), ["storage"]).configs
    assert logger.value == "INFO"
