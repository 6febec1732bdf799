"""ListConfigResources: the names of everything that has settings. (KIP-1000, KIP-1142)

Source: Kafka's `KafkaApis.handleListConfigResources`.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.metadata.metadata_cache import MetadataCache
from odradek.broker.requests.request_context import RequestContext
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from odradek.protocol.wire_codes import ConfigResourceType

FIRST_VERSION_WITH_TYPES = 1
ORDER = (
    ConfigResourceType.GROUP,
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.BROKER,
    ConfigResourceType.TOPIC,
)
"""The order of the types in the response."""

Resource = ListConfigResourcesResponse.ConfigResource


class ListConfigResourcesHandler:
    """ListConfigResources (key 74)."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    def list_config_resources(
        self, request: ListConfigResourcesRequest, context: RequestContext
    ) -> Steps[ListConfigResourcesResponse]:
        """Lists the resources of the types that are asked for, by default all; version 0 lists client metrics alone.
        Raises UNSUPPORTED_VERSION for another type.
        """
        wanted: frozenset[int] = frozenset(request.resource_types or ORDER)
        if context.api_version < FIRST_VERSION_WITH_TYPES:
            wanted = frozenset((ConfigResourceType.CLIENT_METRICS,))
        if not wanted <= frozenset(ORDER):
            raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION)
        resources = []
        pace = Pace()
        for resource_type in ORDER:
            for name in self._names(resource_type, context.listener.name) if resource_type in wanted else ():
                resources.append(Resource(resource_name=name, resource_type=resource_type))
                if pace.step_ends():
                    yield
        return ListConfigResourcesResponse(config_resources=resources)

    def _names(self, resource_type: ConfigResourceType, listener: str) -> Iterable[str]:
        metadata = self._metadata
        if resource_type is ConfigResourceType.TOPIC:
            return metadata.topic_names()
        if resource_type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
            return [str(broker.broker_id) for broker in metadata.brokers.values() if broker.endpoint(listener)]
        return sorted(metadata.named_configs(resource_type))
