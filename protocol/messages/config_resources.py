"""ListConfigResources (key 74): the resources that have settings (KIP-1000, KIP-1142)."""

from __future__ import annotations

from odradek.protocol.schema import Message, array, int8, int16, int32, message, since, string


@message(api_key=74, kind="request", versions=(0, 1), flexible=0)
class ListConfigResourcesRequest(Message):
    """The types of resources to list; none for all."""

    resource_types: list[int] = array(int8, versions=since(1))


@message(api_key=74, kind="response", versions=(0, 1), flexible=0)
class ListConfigResourcesResponse(Message):
    """The names and types of the resources; v0 lists client metrics alone."""

    class ConfigResource(Message):
        resource_name: str = string()
        resource_type: int = int8(default=16, versions=since(1))

    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array()
