"""AlterConfigs and IncrementalAlterConfigs, resource by resource.

    (A) A resource is a topic, this broker (no other), the empty broker name for the dynamic settings of the whole
        cluster, the loggers of this broker (KIP-412), a group, or a subscription to client metrics (KIP-714). The last
        two need not exist, and are gone with their last setting.
    (B) A resource that a request names twice fails both times with INVALID_REQUEST; the others are processed. The items
        of a resource take effect all together or not at all.
    (C) AlterConfigs replaces all settings of a resource and does not support loggers.
    (D) Authorization comes behind the names of settings and of the broker, and before all else: a client that may not
        change the broker's settings does not learn which values it would take.
    (E) Changes take effect on this broker before they are answered, and on the others soon after. So do files of keys
        and certificates that have changed, even if the settings are those from before.

Results are in the order of the request. Source: Kafka's `ConfigAdminManager`, `ZkAdminManager` and
`RuntimeLoggerManager`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import structlog

from odradek.broker.background.stepwise import EachMade, others_between
from odradek.broker.background.turns import Turns
from odradek.broker.cluster.dynamic_configs import DynamicConfigs
from odradek.broker.handlers.access import DENIALS, Access, Check
from odradek.broker.handlers.config_resources import (
    check_has_name,
    check_is_this_broker,
    loggers,
    no_such_type,
    resource_with_settings,
)
from odradek.broker.logging.structured_logging import LEVELS, ROOT, Loggers
from odradek.broker.requests.request_context import RequestContext
from odradek.broker.settings import CLIENT_METRICS, GROUP, TOPIC, ConfigError, Setting, Value
from odradek.broker.settings.client_metrics import check_client_metrics
from odradek.broker.settings.config import BrokerConfig, broker_setting, is_without_effect
from odradek.broker.settings.config_changes import (
    MOST_NAMES,
    Item,
    ReloadedCertificates,
    check_items,
    checked_for_brokers,
    followed_by,
    modification,
    replacement,
)
from odradek.broker.settings.group_values import check_group_settings
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from odradek.protocol.wire_codes import AclOperation, AclResourceType, ConfigOperation, ConfigResourceType

COST_OF_CHANGE = 30
"""How many items of a step a change of a resource's settings counts as."""
NAMED = {ConfigResourceType.GROUP: GROUP, ConfigResourceType.CLIENT_METRICS: CLIENT_METRICS}
"""The settings of resources that need not exist."""
CHECKS = {
    resource_type: Check(AclOperation.ALTER_CONFIGS, resource_type, names, "each resource")
    for resource_type, names in (
        (AclResourceType.TOPIC, "resources.resource_name"),
        (AclResourceType.GROUP, "resources.resource_name"),
        (AclResourceType.CLUSTER, "any other resource"),
    )
}
"""What a client must be allowed, by the resource that ACLs protect."""

log = structlog.get_logger("broker.handlers")


# AlterConfigs and IncrementalAlterConfigs


class AlterConfigsHandlers:
    """AlterConfigs and IncrementalAlterConfigs (keys 33 and 44)."""

    def __init__(
        self,
        configs: DynamicConfigs,
        config: BrokerConfig,
        certificates: ReloadedCertificates,
        broker_id: int,
        access: Access,
        turns: Turns,
    ) -> None:
        self._access = access
        self._configs = configs
        self._config = config
        self._certificates = certificates
        self._broker_id = broker_id
        self._turns = turns

    async def alter_configs(self, request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
        """Replaces the settings of each resource, or returns why it cannot."""

        async def alter(resource: AlterConfigsRequest.AlterConfigsResource) -> None:
            items = EachMade(resource.configs, lambda one: Item(one.name, ConfigOperation.SET, one.value))
            await self._replace(resource, items, request.validate_only, context)

        answer = AlterConfigsResponse.AlterConfigsResourceResponse
        return AlterConfigsResponse(responses=await _outcomes(request.resources, alter, answer))

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, context: RequestContext
    ) -> IncrementalAlterConfigsResponse:
        """Changes single settings of each resource, or returns why it cannot."""

        async def alter(resource: IncrementalAlterConfigsRequest.AlterConfigsResource) -> None:
            items = EachMade(resource.configs, lambda one: Item(one.name, one.config_operation, one.value))
            await self._modify(resource, items, request.validate_only, context)

        answer = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
        return IncrementalAlterConfigsResponse(responses=await _outcomes(request.resources, alter, answer))

    async def _replace(
        self, resource: Any, items: Iterable[Item], validate_only: bool, context: RequestContext
    ) -> None:
        resource_type, name = resource.resource_type, resource.resource_name
        await self._turns.take(check_items(items))
        if resource_type == ConfigResourceType.BROKER:
            per_broker = self._is_one_broker(name)
            self._check_access(resource_type, name, context)
            await self._store_for_brokers(per_broker, replacement(items), items, validate_only)
        elif resource_type == ConfigResourceType.TOPIC:
            self._check_access(resource_type, name, context)
            await self._store_for_topic(name, replacement(items), items, validate_only)
        elif resource_type in NAMED:
            self._check_access(resource_type, name, context)
            await self._store_named(ConfigResourceType(resource_type), name, replacement(items), items, validate_only)
        else:
            raise no_such_type(resource_type)

    async def _modify(self, resource: Any, items: Iterable[Item], validate_only: bool, context: RequestContext) -> None:
        resource_type, name = resource.resource_type, resource.resource_name
        await self._turns.take(check_items(items))
        if resource_type == ConfigResourceType.BROKER:
            per_broker = self._is_one_broker(name)
            self._check_access(resource_type, name, context)
            await self._store_for_brokers(per_broker, modification(items, broker_setting), items, validate_only)
        elif resource_type == ConfigResourceType.TOPIC:
            self._check_access(resource_type, name, context)
            await self._store_for_topic(name, modification(items, TOPIC.get), items, validate_only)
        elif resource_type in NAMED:
            self._check_access(resource_type, name, context)
            change = modification(items, NAMED[ConfigResourceType(resource_type)].get)
            await self._store_named(ConfigResourceType(resource_type), name, change, items, validate_only)
        elif resource_type == ConfigResourceType.BROKER_LOGGER:
            self._check_access(resource_type, name, context)
            check_is_this_broker(name, self._broker_id)
            _change_levels(items, validate_only)
        else:
            raise no_such_type(resource_type)

    def _check_access(self, resource_type: int, name: str, context: RequestContext) -> None:
        """Raises TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED or CLUSTER_AUTHORIZATION_FAILED (D)."""
        protected = resource_with_settings(resource_type, name)
        if protected is not None and not self._access.allows(context, CHECKS[protected[0]], protected[1]):
            raise ProtocolError(DENIALS[protected[0]])

    async def _store_for_topic(self, topic: str, change: Any, items: Iterable[Item], validate_only: bool) -> None:
        if not topic:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST, "The topic has no name: defaults of topics are broker settings"
            )
        await self._configs.alter_topic_config(topic, change, validate_only=validate_only)
        if not validate_only:
            await _warn(items, TOPIC.get, topic=topic)

    async def _store_named(
        self, resource_type: ConfigResourceType, name: str, change: Any, items: Iterable[Item], validate_only: bool
    ) -> None:
        check_has_name(resource_type, name)
        check = self._check_group if resource_type is ConfigResourceType.GROUP else check_client_metrics
        checked = followed_by(change, check)
        await self._configs.alter_named_config(resource_type, name, checked, validate_only=validate_only)
        if not validate_only:
            await _warn(items, NAMED[resource_type].get, type=resource_type.name, name=name)

    def _check_group(self, settings: Mapping[str, str]) -> None:
        try:
            check_group_settings(settings, self._config)
        except ConfigError as error:
            raise ProtocolError(ErrorCode.INVALID_CONFIG, str(error)) from error

    async def _store_for_brokers(
        self, per_broker: bool, change: Any, items: Iterable[Item], validate_only: bool
    ) -> None:
        broker_id = self._broker_id if per_broker else None
        checked = checked_for_brokers(change, self._config, self._certificates, per_broker=per_broker)
        await self._configs.alter_broker_config(broker_id, checked, validate_only=validate_only)
        if not validate_only:
            self._certificates.reload()
            await _warn(items, broker_setting, broker=broker_id)

    def _is_one_broker(self, name: str) -> bool:
        """Returns False for the empty name, the whole cluster. Any other name must be this broker's."""
        if name:
            check_is_this_broker(name, self._broker_id)
        return bool(name)


async def _outcomes(resources: Sequence[Any], alter: Callable[[Any], Awaitable[None]], answer: type[Any]) -> list[Any]:
    """Alters one resource after the other (B). `answer` is the class of a result."""
    repeated = await _repeated(resources)
    answers = []
    async for resource in others_between(resources, COST_OF_CHANGE):
        identity = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
        try:
            if (resource.resource_type, resource.resource_name) in repeated:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, "The request names this resource more than once")
            await alter(resource)
        except ProtocolError as error:
            answers.append(answer(error_code=error.code, error_message=error.error_message, **identity))
        else:
            answers.append(answer(error_message=None, **identity))
    return answers


async def _repeated(resources: Sequence[Any]) -> set[tuple[int, str]]:
    """Returns the types and names of the resources that are named more than once."""
    seen: defaultdict[int, set[str]] = defaultdict(set)
    repeated = set()
    async for resource in others_between(resources):
        of_type = seen[resource.resource_type]
        if resource.resource_name in of_type:
            repeated.add((resource.resource_type, resource.resource_name))
        of_type.add(resource.resource_name)
    return repeated


async def _warn(items: Iterable[Item], setting_of: Callable[[str], Setting[Value] | None], **resource: object) -> None:
    """Logs a warning if the request sets settings that have no effect yet."""
    names = [
        item.name
        async for item in others_between(items)
        if item.operation != ConfigOperation.DELETE and is_without_effect(item.name, setting_of(item.name))
    ]
    if names:
        log.warning("settings have no effect yet", names=sorted(names)[:MOST_NAMES], count=len(names), **resource)


# Loggers


def _change_levels(items: Iterable[Item], validate_only: bool) -> None:
    """KIP-412: SET assigns one of Kafka's levels, DELETE inherits the parent's. All items take effect, or none."""
    levels = loggers()
    for item in items:
        _check_level(item, levels)
    for item in () if validate_only else items:
        if item.operation == ConfigOperation.SET and item.value is not None:
            levels.set_level(item.name, item.value)
        else:
            levels.unset_level(item.name)
        log.info("log level changed", changed=item.name, to=item.value)


def _check_level(item: Item, known: Loggers) -> None:
    if item.operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "A log level can only be set or deleted")
    if item.name not in known:
        raise ProtocolError(ErrorCode.INVALID_CONFIG, f"Logger {item.name} does not exist")
    if item.operation == ConfigOperation.SET and item.value not in LEVELS:
        raise ProtocolError(
            ErrorCode.INVALID_CONFIG, f"{item.value} is not a log level; use one of {', '.join(LEVELS)}"
        )
    if item.operation == ConfigOperation.DELETE and item.name == ROOT:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "The level of the root logger cannot be deleted")
