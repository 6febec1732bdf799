"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, resource by resource.

    (A) Resources: a topic; a broker, which must be this one; the empty broker name, which stands for the dynamic
        settings of the whole cluster; the loggers of this broker (KIP-412).
    (B) A resource that a request to change names twice fails both times with INVALID_REQUEST; the others are carried
        out. All items of a resource take effect or none.
    (C) AlterConfigs replaces all settings of a resource and knows no loggers.
    (D) Changes hold at once: the controller stores them and hands them to the logs.

Answers stand in the order of the request. Source: Kafka's `ConfigHelper`, `ConfigAdminManager`, `ZkAdminManager`,
`RuntimeLoggerManager`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from enum import IntEnum
from typing import Any

import structlog

from odradek.broker.config import broker_setting, without_effect
from odradek.broker.config_changes import Item, Operation, check_items, checked_for_brokers, modification, replacement
from odradek.broker.config_description import (
    ConfigDescription,
    ConfigSource,
    describe_broker,
    describe_cluster,
    describe_topic,
)
from odradek.broker.handlers.request_context import RequestContext
from odradek.broker.settings import TOPIC
from odradek.broker.steps import Pace, Steps, others_between
from odradek.broker.structured_logging import LEVELS, ROOT, Loggers, current_loggers
from odradek.broker.topic_names import topic_name_fault
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

DescribedResource = DescribeConfigsResponse.DescribeConfigsResult
DescribedConfig = DescribeConfigsResponse.DescribeConfigsResourceResult
DescribedSynonym = DescribeConfigsResponse.DescribeConfigsSynonym

log = structlog.get_logger("broker.handlers")


class ResourceType(IntEnum):
    """What settings belong to; Kafka's `ConfigResource.Type`."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8


# DescribeConfigs


def handle_describe_configs(request: DescribeConfigsRequest, context: RequestContext) -> Steps[DescribeConfigsResponse]:
    """Describes each resource, or says why not."""
    results = []
    pace = Pace()
    for resource in request.resources:
        result = _described(resource, request, context)
        results.append(result)
        if pace.step_ends(1 + len(result.configs)):
            yield
    return DescribeConfigsResponse(results=results)


def _described(
    resource: DescribeConfigsRequest.DescribeConfigsResource, request: DescribeConfigsRequest, context: RequestContext
) -> DescribedResource:
    result = DescribedResource(
        resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=""
    )
    names = frozenset(resource.configuration_keys) if resource.configuration_keys else None
    try:
        descriptions = _descriptions(resource.resource_type, resource.resource_name, names, context)
    except ProtocolError as error:
        result.error_code, result.error_message = error.code, error.error_message or ""
        return result
    result.configs = [
        DescribedConfig(
            name=each.name,
            value=each.value,
            read_only=each.read_only,
            is_default=each.source is ConfigSource.DEFAULT_CONFIG,
            config_source=each.source,
            is_sensitive=each.is_sensitive,
            synonyms=[DescribedSynonym(name=name, value=value, source=source) for name, value, source in each.synonyms]
            if request.include_synonyms
            else [],
            config_type=each.type,
            documentation=each.documentation if request.include_documentation else None,
        )
        for each in descriptions
    ]
    return result


def _descriptions(
    resource_type: int, name: str, names: frozenset[str] | None, context: RequestContext
) -> list[ConfigDescription]:
    broker = context.broker
    if resource_type == ResourceType.TOPIC:
        fault = topic_name_fault(name)
        if fault is not None:
            raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
        if broker.metadata.topic(name) is None:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return describe_topic(broker.config, broker.metadata.topic_config(name), names)
    if resource_type == ResourceType.BROKER:
        if not name:
            return describe_cluster(broker.config, names)
        _check_is_this_broker(name, context)
        return describe_broker(broker.config, names)
    if resource_type == ResourceType.BROKER_LOGGER:
        _check_is_this_broker(name, context)
        levels = _loggers().levels().items()
        return [_logger_description(logger, level) for logger, level in levels if names is None or logger in names]
    raise _no_such_type(resource_type)


def _logger_description(name: str, level: str) -> ConfigDescription:
    return ConfigDescription(
        name,
        level,
        ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
        read_only=False,
        is_sensitive=False,
        synonyms=[],
        type=0,
        documentation=None,
    )


# AlterConfigs and IncrementalAlterConfigs


async def handle_alter_configs(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    """Replaces the settings of each resource, or says why not."""

    async def alter(resource: AlterConfigsRequest.AlterConfigsResource) -> None:
        items = [Item(config.name, Operation.SET, config.value) for config in resource.configs]
        await _replace(resource.resource_type, resource.resource_name, items, request.validate_only, context)

    answer = AlterConfigsResponse.AlterConfigsResourceResponse
    return AlterConfigsResponse(responses=await _outcomes(request.resources, alter, answer))


async def handle_incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Changes single settings of each resource, or says why not."""

    async def alter(resource: IncrementalAlterConfigsRequest.AlterConfigsResource) -> None:
        items = [Item(config.name, config.config_operation, config.value) for config in resource.configs]
        await _modify(resource.resource_type, resource.resource_name, items, request.validate_only, context)

    answer = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    return IncrementalAlterConfigsResponse(responses=await _outcomes(request.resources, alter, answer))


async def _outcomes(resources: Sequence[Any], alter: Callable[[Any], Awaitable[None]], answer: type[Any]) -> list[Any]:
    """Case (B), one resource after the other. `answer` is the class of an answer."""
    seen: Counter[tuple[int, str]] = Counter()
    async for resource in others_between(resources):
        seen[resource.resource_type, resource.resource_name] += 1
    answers = []
    async for resource in others_between(resources):
        identity = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
        try:
            if seen[resource.resource_type, resource.resource_name] > 1:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, "The request names this resource more than once")
            await alter(resource)
        except ProtocolError as error:
            answers.append(answer(error_code=error.code, error_message=error.error_message, **identity))
        else:
            answers.append(answer(error_message=None, **identity))
    return answers


async def _replace(
    resource_type: int, name: str, items: Sequence[Item], validate_only: bool, context: RequestContext
) -> None:
    check_items(items)
    if resource_type == ResourceType.BROKER:
        per_broker = _is_one_broker(name, context)
        change = checked_for_brokers(replacement(items), context.broker.config, per_broker=per_broker)
        await _store_for_brokers(per_broker, change, items, validate_only, context)
    elif resource_type == ResourceType.TOPIC:
        await _store_for_topic(name, replacement(items), items, validate_only, context)
    else:
        raise _no_such_type(resource_type)


async def _modify(
    resource_type: int, name: str, items: Sequence[Item], validate_only: bool, context: RequestContext
) -> None:
    check_items(items)
    if resource_type == ResourceType.BROKER:
        per_broker = _is_one_broker(name, context)
        change = checked_for_brokers(modification(items, broker_setting), context.broker.config, per_broker=per_broker)
        await _store_for_brokers(per_broker, change, items, validate_only, context)
    elif resource_type == ResourceType.TOPIC:
        await _store_for_topic(name, modification(items, TOPIC.get), items, validate_only, context)
    elif resource_type == ResourceType.BROKER_LOGGER:
        _check_is_this_broker(name, context)
        _change_levels(items, validate_only)
    else:
        raise _no_such_type(resource_type)


async def _store_for_topic(
    topic: str, change: Any, items: Sequence[Item], validate_only: bool, context: RequestContext
) -> None:
    if not topic:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "A topic must be named: topics' defaults are broker settings")
    await context.broker.controller.alter_topic_config(topic, change, validate_only=validate_only)
    _warn(without_effect(_set_names(items), TOPIC.get), validate_only, topic=topic)


async def _store_for_brokers(
    per_broker: bool, change: Any, items: Sequence[Item], validate_only: bool, context: RequestContext
) -> None:
    broker = context.broker
    broker_id = broker.metadata.broker_id if per_broker else None
    await broker.controller.alter_broker_config(broker_id, change, validate_only=validate_only)
    _warn(without_effect(_set_names(items), broker_setting), validate_only, broker=broker_id)


def _set_names(items: Sequence[Item]) -> list[str]:
    return [item.name for item in items if item.operation != Operation.DELETE]


def _warn(names: list[str], validate_only: bool, **resource: object) -> None:
    if names and not validate_only:
        log.warning("these settings have no effect yet", names=names, **resource)


# Loggers


def _change_levels(items: Sequence[Item], validate_only: bool) -> None:
    """KIP-412: SET a level of Kafka's names, DELETE to follow the logger above. All or none."""
    loggers = _loggers()
    for item in items:
        _check_level(item, loggers)
    for item in () if validate_only else items:
        if item.operation == Operation.SET and item.value is not None:
            loggers.set_level(item.name, item.value)
        else:
            loggers.unset_level(item.name)
        log.info("a log level was changed", changed=item.name, to=item.value)


def _check_level(item: Item, loggers: Loggers) -> None:
    if item.operation not in (Operation.SET, Operation.DELETE):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "A log level can only be set or deleted")
    if item.name not in loggers:
        raise ProtocolError(ErrorCode.INVALID_CONFIG, f"There is no logger {item.name}")
    if item.operation == Operation.SET and item.value not in LEVELS:
        raise ProtocolError(ErrorCode.INVALID_CONFIG, f"{item.value} is no log level: {', '.join(LEVELS)} are")
    if item.operation == Operation.DELETE and item.name == ROOT:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "The root logger always has a level")


def _loggers() -> Loggers:
    loggers = current_loggers()
    if loggers is None:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "The program that this broker runs in keeps its own log levels")
    return loggers


# Names


def _is_one_broker(name: str, context: RequestContext) -> bool:
    """False for the empty name, the whole cluster; else it must be this broker."""
    if name:
        _check_is_this_broker(name, context)
    return bool(name)


def _check_is_this_broker(name: str, context: RequestContext) -> None:
    expected = context.broker.metadata.broker_id
    try:
        broker_id = int(name)
    except ValueError:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"A broker is named by its number, not '{name}'") from None
    if broker_id != expected:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Ask broker {broker_id} itself: this is broker {expected}")


def _no_such_type(resource_type: int) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_REQUEST, f"Resources of type {resource_type} have no settings here")
