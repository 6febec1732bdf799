"""ListConfigResources, and the settings of groups and of subscriptions to client metrics, over a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from odradek.broker.metadata.new_topic import NewTopic
from odradek.broker.security.authorizer.authorizer import CLUSTER_NAME
from odradek.broker.settings.config_description import ConfigSource
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.config_resources import ListConfigResourcesRequest
from odradek.protocol.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from odradek.protocol.wire_codes import AclOperation as Op
from odradek.protocol.wire_codes import AclResourceType as On
from odradek.protocol.wire_codes import ConfigOperation, ConfigResourceType
from tests.broker.handlers.scripted_authorizer import Question, ScriptedAuthorizer, api_with, but
from tests.broker.handlers.test_offsets_api import coordinated
from tests.wire.api import Api, api_of_a_broker

TOPIC, BROKER, LOGGER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER
METRICS, GROUP = ConfigResourceType.CLIENT_METRICS, ConfigResourceType.GROUP
SET, DELETE, APPEND = ConfigOperation.SET, ConfigOperation.DELETE, ConfigOperation.APPEND
SETTINGS: dict[str, object] = {"offsets.topic.num.partitions": 1, "group.consumer.session.timeout.ms": 50000}
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"

Change = tuple[str, ConfigOperation, str | None]


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with api_of_a_broker(SETTINGS) as api:
        yield api


async def listed(api: Api, *types: int, version: int = 1) -> Any:
    response = await api(ListConfigResourcesRequest(resource_types=list(types)), version)
    return response.error_code, [(each.resource_type, each.resource_name) for each in response.config_resources]


async def modify(api: Api, kind: int, name: str, *changes: Change, validate_only: bool = False) -> ErrorCode:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(name=each, config_operation=operation, value=value)
            for each, operation, value in changes
        ],
    )
    response = await api(IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only), 1)
    return ErrorCode.of(response.responses[0].error_code)


async def replace(api: Api, kind: int, name: str, **values: str) -> ErrorCode:
    configs = [
        AlterConfigsRequest.AlterableConfig(name=each.replace("_", "."), value=value) for each, value in values.items()
    ]
    resource = AlterConfigsRequest.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    response = await api(AlterConfigsRequest(resources=[resource]), 2)
    return ErrorCode.of(response.responses[0].error_code)


async def describe(api: Api, kind: int, name: str, keys: Sequence[str] | None = None) -> Any:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None if keys is None else list(keys)
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    return (await api(request, 4)).results[0]


async def own(api: Api, kind: int, name: str) -> dict[str, str]:
    """The settings that a resource has itself."""
    of_its_own = (ConfigSource.GROUP_CONFIG, ConfigSource.CLIENT_METRICS_CONFIG)
    return {
        each.name: each.value for each in (await describe(api, kind, name)).configs if each.config_source in of_its_own
    }


async def test_everything_that_has_settings_is_listed_by_type(api: Api) -> None:
    node = str(api.broker.broker_id)
    await api.broker.controller.topics.create([NewTopic("t")], timeout_ms=10_000)
    await modify(api, GROUP, "g/1", (SESSION, SET, "46000"))
    await modify(api, METRICS, "m", ("metrics", SET, "*"))
    everything = [(GROUP, "g/1"), (METRICS, "m"), (LOGGER, node), (BROKER, node), (TOPIC, "t")]
    assert await listed(api) == (0, everything)
    assert await listed(api, TOPIC, GROUP, TOPIC) == (0, [(GROUP, "g/1"), (TOPIC, "t")])
    assert await listed(api, METRICS) == (0, [(METRICS, "m")])
    assert await listed(api, version=0) == (0, [(METRICS, "m")])
    assert await listed(api, TOPIC, 7) == (ErrorCode.UNSUPPORTED_VERSION, [])


async def test_the_list_needs_the_right_to_describe_the_clusters_settings() -> None:
    denied = Question(Op.DESCRIBE_CONFIGS, On.CLUSTER, CLUSTER_NAME)
    async with api_with(ScriptedAuthorizer(but(denied))) as api:
        for version in (0, 1):
            assert await listed(api, version=version) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


async def test_a_group_has_its_own_settings_above_the_brokers(api: Api) -> None:
    assert await modify(api, GROUP, "g", (SESSION, SET, "46000"), ("share.isolation.level", SET, "read_committed")) == 0
    described = {each.name: each for each in (await describe(api, GROUP, "g")).configs}
    session = described[SESSION]
    assert (session.value, session.config_source, session.read_only) == ("46000", ConfigSource.GROUP_CONFIG, False)
    assert [(each.name, each.value, each.source) for each in session.synonyms] == [
        (SESSION, "46000", ConfigSource.GROUP_CONFIG),
        ("group.consumer.session.timeout.ms", "50000", ConfigSource.STATIC_BROKER_CONFIG),
        ("group.consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT_CONFIG),
    ]
    assert (session.config_type, session.documentation.endswith(".")) == (3, True)
    heartbeat = described[HEARTBEAT]
    assert (heartbeat.value, heartbeat.config_source) == ("5000", ConfigSource.DEFAULT_CONFIG)
    assert "consumer.assignor.offload.enable" not in described
    (only,) = (await describe(api, GROUP, "g", [SESSION, "none"])).configs
    assert only.name == SESSION
    other = {each.name: each.value for each in (await describe(api, GROUP, "of no group")).configs}
    assert (other.keys(), other[SESSION]) == (described.keys(), "50000")


async def test_a_member_gets_the_intervals_of_its_group(api: Api) -> None:
    await coordinated(api, "t")
    await modify(api, GROUP, "g", (HEARTBEAT, SET, "7000"))
    intervals = {}
    for group in ("g", "other"):
        joins = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=9000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        intervals[group] = (await api(joins, 1)).heartbeat_interval_ms
    assert intervals == {"g": 7000, "other": 5000}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (SESSION, "44999"),
        (SESSION, "60001"),
        (SESSION, "soon"),
        (HEARTBEAT, "4999"),
        (HEARTBEAT, "15001"),
        ("consumer.assignment.interval.ms", "15001"),
        ("consumer.assignment.interval.ms", "-1"),
        ("share.delivery.count.limit", "11"),
        ("share.auto.offset.reset", "by_duration:1d"),
        ("share.auto.offset.reset", "EARLIEST"),
        ("share.isolation.level", "none"),
        ("streams.num.standby.replicas", "3"),
        ("streams.task.offset.interval.ms", "14999"),
        ("streams.assignor.name", "none"),
        ("errors.deadletterqueue.topic.name", "__t"),
        ("no.such.setting", "1"),
        ("retention.ms", "1"),
    ],
)
async def test_a_setting_that_no_group_may_have_is_refused(api: Api, name: str, value: str) -> None:
    valid: Change = ("streams.session.timeout.ms", SET, "46000")
    assert await modify(api, GROUP, "g", valid, (name, SET, value)) == ErrorCode.INVALID_CONFIG
    assert await own(api, GROUP, "g") == {}


async def test_a_session_must_be_longer_than_the_heartbeat_interval() -> None:
    bounds = {"group.consumer.min.session.timeout.ms": 1, "group.consumer.max.heartbeat.interval.ms": 60000}
    async with api_of_a_broker(bounds) as api:
        assert await modify(api, GROUP, "g", (SESSION, SET, "5000")) == ErrorCode.INVALID_CONFIG
        assert await modify(api, GROUP, "g", (HEARTBEAT, SET, "45000")) == ErrorCode.INVALID_CONFIG
        assert await modify(api, GROUP, "g", (SESSION, SET, "5001")) == ErrorCode.NONE
        assert await modify(api, GROUP, "g", (HEARTBEAT, SET, "5001")) == ErrorCode.INVALID_CONFIG


async def test_a_resource_is_gone_with_its_last_setting(api: Api) -> None:
    await modify(api, GROUP, "g", (SESSION, SET, "46000"), (HEARTBEAT, SET, "6000"))
    assert await replace(api, GROUP, "g", consumer_session_timeout_ms="47000") == ErrorCode.NONE
    assert await own(api, GROUP, "g") == {SESSION: "47000"}
    assert await modify(api, GROUP, "g", (SESSION, DELETE, None), validate_only=True) == ErrorCode.NONE
    assert await listed(api, GROUP) == (0, [(GROUP, "g")])
    assert await modify(api, GROUP, "g", (SESSION, DELETE, None)) == ErrorCode.NONE
    assert await listed(api, GROUP) == (0, [])
    await modify(api, METRICS, "m", ("metrics", SET, "a"))
    assert await replace(api, METRICS, "m") == ErrorCode.NONE
    assert await listed(api, METRICS) == (0, [])


async def test_a_subscription_to_client_metrics_is_described_with_its_defaults(api: Api) -> None:
    default, own_one = ConfigSource.DEFAULT_CONFIG, ConfigSource.CLIENT_METRICS_CONFIG
    described = (await describe(api, METRICS, "m")).configs
    assert [(each.name, each.value, each.config_source, each.synonyms) for each in described] == [
        ("interval.ms", "300000", default, []),
        ("match", "", default, []),
        ("metrics", "", default, []),
    ]
    changes: list[Change] = [("interval.ms", SET, "100"), ("metrics", SET, "a."), ("metrics", APPEND, "b.")]
    assert await modify(api, METRICS, "m", *changes) == ErrorCode.INVALID_REQUEST, "a name twice"
    assert await modify(api, METRICS, "m", *changes[:2]) == ErrorCode.NONE
    assert await modify(api, METRICS, "m", ("metrics", APPEND, "b.")) == ErrorCode.NONE
    assert await modify(api, METRICS, "m", ("match", SET, "client_id=a.*, client_source_port=9")) == ErrorCode.NONE
    described = (await describe(api, METRICS, "m")).configs
    assert [(each.name, each.value, [one.source for one in each.synonyms]) for each in described] == [
        ("interval.ms", "100", [own_one]),
        ("match", "client_id=a.*,client_source_port=9", [own_one]),
        ("metrics", "a.,b.", [own_one]),
    ]


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("interval.ms", "99", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "3600001", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "often", ErrorCode.INVALID_CONFIG),
        ("no.such.setting", "1", ErrorCode.INVALID_REQUEST),
        ("match", "client_id", ErrorCode.INVALID_CONFIG),
        ("match", "client_name=a", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=(", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=a=b", ErrorCode.INVALID_CONFIG),
    ],
)
async def test_a_subscription_that_cannot_be_is_refused(api: Api, name: str, value: str, code: ErrorCode) -> None:
    assert await modify(api, METRICS, "m", (name, SET, value)) == code
    assert await listed(api, METRICS) == (0, [])


async def test_a_resource_without_a_name_is_refused(api: Api) -> None:
    for kind, setting in ((GROUP, (SESSION, SET, "46000")), (METRICS, ("metrics", SET, "a"))):
        assert await modify(api, kind, "", setting) == ErrorCode.INVALID_REQUEST
        assert (await describe(api, kind, "")).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("name", [".", "..", "a/b", "%2E", "<default>", "ä" * 1000, "a b"])
async def test_a_name_may_be_any_text(api: Api, name: str) -> None:
    assert await modify(api, GROUP, name, (SESSION, SET, "46000")) == ErrorCode.NONE
    assert await own(api, GROUP, name) == {SESSION: "46000"}
    assert await listed(api, GROUP) == (0, [(GROUP, name)])


async def test_settings_of_groups_are_protected_by_the_group_and_client_metrics_by_the_cluster() -> None:
    both = (Op.ALTER_CONFIGS, Op.DESCRIBE_CONFIGS)
    in_group = [Question(each, On.GROUP, "g") for each in both]
    on_cluster = [Question(each, On.CLUSTER, CLUSTER_NAME) for each in both]
    metrics: Change = ("metrics", SET, "a")
    async with api_with(ScriptedAuthorizer(but(*in_group))) as api:
        assert await modify(api, GROUP, "g", ("no.such", SET, "1")) == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert (await describe(api, GROUP, "g")).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert await modify(api, GROUP, "other", (SESSION, SET, "46000")) == ErrorCode.NONE
        assert await modify(api, METRICS, "g", metrics) == ErrorCode.NONE
    async with api_with(ScriptedAuthorizer(but(*on_cluster))) as api:
        assert await modify(api, METRICS, "g", metrics) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert (await describe(api, METRICS, "g")).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert await modify(api, GROUP, "g", (SESSION, SET, "46000")) == ErrorCode.NONE
