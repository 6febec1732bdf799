"""DescribeConfigs: the settings of topics, of this broker, of the whole cluster, of this broker's loggers, of groups
and of subscriptions to client metrics. The last two need not exist.

    (A) The response has each resource once, in the order of first occurrence. If a request names a resource again, the
        keys are merged; without keys, all settings are returned. Kafka describes each occurrence separately.
    (B) Repeated parts of a response are created once. A setting that a thousand topics inherit is one object, and so is
        a broker's setting, under however many names the request has the broker ("0", "00").

Source: Kafka's `ConfigHelper`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container
from copy import copy
from functools import cached_property

from odradek.broker.background.stepwise import Pace, Steps, each_in_steps
from odradek.broker.handlers.config_resources import check_has_name, check_is_this_broker, loggers, no_such_type
from odradek.broker.metadata.metadata_cache import MetadataCache
from odradek.broker.metadata.topic_names import topic_name_fault
from odradek.broker.requests.request_context import RequestContext
from odradek.broker.settings import TOPIC
from odradek.broker.settings.config import BrokerConfig
from odradek.broker.settings.config_description import (
    ConfigDescription,
    ConfigSource,
    TopicDescriptions,
    describe_broker_setting,
    describe_client_metrics,
    describe_cluster_setting,
    describe_group_settings,
    shown_settings,
)
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResponse
from odradek.protocol.wire_codes import ConfigResourceType

AskedResource = DescribeConfigsRequest.DescribeConfigsResource
DescribedResource = DescribeConfigsResponse.DescribeConfigsResult
DescribedConfig = DescribeConfigsResponse.DescribeConfigsResourceResult
NO_CONFIGS: list[DescribedConfig] = []
"""The settings of every resource that cannot be described, shared by all responses."""
DescribedSynonym = DescribeConfigsResponse.DescribeConfigsSynonym


class DescribeConfigsHandler:
    """DescribeConfigs (key 32)."""

    def __init__(self, config: BrokerConfig, metadata: MetadataCache) -> None:
        self._config = config
        self._metadata = metadata

    def describe_configs(
        self, request: DescribeConfigsRequest, context: RequestContext
    ) -> Steps[DescribeConfigsResponse]:
        """Describes each resource, or returns why it cannot."""
        pace = Pace()
        first: dict[int, dict[str, AskedResource]] = {}
        for resource in request.resources:
            of_type = first.setdefault(resource.resource_type, {})
            earlier = of_type.setdefault(resource.resource_name, resource)
            if earlier is not resource:
                _merge(earlier, resource)
            if pace.step_ends():
                yield
        results = []
        describer = _Describer(request, self._config, self._metadata, pace)
        for resource in request.resources:
            if first[resource.resource_type][resource.resource_name] is resource:
                results.append((yield from describer.described(resource)))
            elif pace.step_ends():
                yield
        return DescribeConfigsResponse(results=results)


def _merge(earlier: AskedResource, later: AskedResource) -> None:
    """Merges the keys of a repeated resource (A)."""
    if earlier.configuration_keys and later.configuration_keys:
        earlier.configuration_keys += later.configuration_keys
    else:
        earlier.configuration_keys = None


class _EachOnce:
    """Settings that several resources of a request may share. Each is created once, and so is the list of all."""

    def __init__(self, names: Collection[str], make: Callable[[str], DescribedConfig]) -> None:
        self.names = names
        self._make = make
        self._made: dict[str, DescribedConfig] = {}
        self._all: list[DescribedConfig] | None = None

    def some(self, names: set[str], pace: Pace) -> Steps[list[DescribedConfig]]:
        """Returns the settings with these names, sorted."""
        return (yield from each_in_steps(sorted(names), self._one, pace))

    def all(self, pace: Pace) -> Steps[list[DescribedConfig]]:
        if self._all is None:
            self._all = yield from each_in_steps(sorted(self.names), self._one, pace)
        return self._all

    def _one(self, name: str) -> DescribedConfig:
        known = self._made.get(name)
        if known is None:
            known = self._made[name] = self._make(name)
        return known


class _Describer:
    """Describes the resources of one request, using the settings as they were when it began."""

    def __init__(
        self, request: DescribeConfigsRequest, config: BrokerConfig, metadata: MetadataCache, pace: Pace
    ) -> None:
        self._with_synonyms = request.include_synonyms
        self._with_documentation = request.include_documentation
        self._metadata = metadata
        self._pace = pace
        self._config = copy(config)
        self._topics = TopicDescriptions(self._config, self._shown)

    @cached_property
    def _broker(self) -> _EachOnce:
        config = self._config
        return _EachOnce(shown_settings(config), lambda name: self._shown(describe_broker_setting(config, name)))

    @cached_property
    def _cluster(self) -> _EachOnce:
        config = self._config
        names = config.cluster_wide.keys()
        return _EachOnce(names, lambda name: self._shown(describe_cluster_setting(config, name)))

    def described(self, asked: AskedResource) -> Steps[DescribedResource]:
        """Returns the result for one resource, which may be an error."""
        name = asked.resource_name
        result = DescribedResource(
            resource_type=asked.resource_type, resource_name=name, error_message="", configs=NO_CONFIGS
        )
        try:
            result.configs = yield from self._configs(asked.resource_type, name, asked.configuration_keys or None)
        except ProtocolError as error:
            result.error_code, result.error_message = error.code, error.error_message or ""
        if self._pace.step_ends(1 + len(result.configs)):
            yield
        return result

    def _configs(self, resource_type: int, name: str, keys: list[str] | None) -> Steps[list[DescribedConfig]]:
        if resource_type == ConfigResourceType.TOPIC:
            self._check_topic(name)
            names = yield from self._existing(keys, TOPIC)
            return self._topics.of(self._metadata.topic_config(name), names)
        if resource_type == ConfigResourceType.BROKER:
            if name:
                check_is_this_broker(name, self._metadata.broker_id)
            settings = self._broker if name else self._cluster
            names = yield from self._existing(keys, settings.names)
            return (yield from settings.all(self._pace) if names is None else settings.some(names, self._pace))
        if resource_type == ConfigResourceType.BROKER_LOGGER:
            check_is_this_broker(name, self._metadata.broker_id)
            levels = loggers().levels()
            names = yield from self._existing(keys, levels)
            return [self._logger(each, level) for each, level in levels.items() if names is None or each in names]
        if resource_type in (ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS):
            check_has_name(ConfigResourceType(resource_type), name)
            own = self._metadata.named_config(ConfigResourceType(resource_type), name)
            is_group = resource_type == ConfigResourceType.GROUP
            described = (describe_group_settings if is_group else describe_client_metrics)(self._config, own)
            wanted = yield from self._existing(keys, {each.name for each in described})
            return [self._shown(each) for each in described if wanted is None or each.name in wanted]
        raise no_such_type(resource_type)

    def _check_topic(self, name: str) -> None:
        fault = topic_name_fault(name)
        if fault is not None:
            raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
        if self._metadata.topic(name) is None:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _existing(self, keys: list[str] | None, names: Container[str]) -> Steps[set[str] | None]:
        """Returns the keys that exist; None stands for all."""
        if keys is None:
            return None
        found = set()
        for key in keys:
            if key in names:
                found.add(key)
            if self._pace.step_ends():
                yield
        return found

    def _logger(self, name: str, level: str) -> DescribedConfig:
        return self._shown(
            ConfigDescription(
                name,
                level,
                ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
                read_only=False,
                is_sensitive=False,
                synonyms=[],
                type=0,
                documentation=None,
            )
        )

    def _shown(self, each: ConfigDescription) -> DescribedConfig:
        synonyms = []
        if self._with_synonyms:
            synonyms = [DescribedSynonym(name=one, value=value, source=source) for one, value, source in each.synonyms]
        return DescribedConfig(
            name=each.name,
            value=each.value,
            read_only=each.read_only,
            is_default=each.source is ConfigSource.DEFAULT_CONFIG,
            config_source=each.source,
            is_sensitive=each.is_sensitive,
            synonyms=synonyms,
            config_type=each.type,
            documentation=each.documentation if self._with_documentation else None,
        )
