"""DescribeConfigs (key 32), AlterConfigs (key 33) and IncrementalAlterConfigs (key 44)."""

from __future__ import annotations

from odradek.protocol.schema import (
    ALWAYS,
    Message,
    array,
    bool_,
    int8,
    int16,
    int32,
    message,
    since,
    string,
    until,
)


@message(api_key=32, kind="request", versions=(0, 4), flexible=4)
class DescribeConfigsRequest(Message):
    """Requests settings of resources (2 topic, 4 broker, 8 broker loggers ...); null keys request all."""

    class DescribeConfigsResource(Message):
        resource_type: int = int8()
        resource_name: str = string()
        configuration_keys: list[str] | None = array(string, nullable=ALWAYS)

    resources: list[DescribeConfigsResource] = array()
    include_synonyms: bool = bool_(versions=since(1))
    include_documentation: bool = bool_(versions=since(3))


@message(api_key=32, kind="response", versions=(0, 4), flexible=4)
class DescribeConfigsResponse(Message):
    """The value, source, type and synonyms of each setting."""

    class DescribeConfigsSynonym(Message):
        name: str = string(versions=since(1))
        value: str | None = string(versions=since(1), nullable=ALWAYS)
        source: int = int8(versions=since(1))

    class DescribeConfigsResourceResult(Message):
        name: str = string()
        value: str | None = string(nullable=ALWAYS)
        read_only: bool = bool_()
        is_default: bool = bool_(versions=until(0))
        config_source: int = int8(default=-1, versions=since(1))
        is_sensitive: bool = bool_()
        synonyms: list[DescribeConfigsResponse.DescribeConfigsSynonym] = array(versions=since(1))
        config_type: int = int8(versions=since(3))
        documentation: str | None = string(versions=since(3), nullable=ALWAYS)

    class DescribeConfigsResult(Message):
        error_code: int = int16()
        error_message: str | None = string(nullable=ALWAYS)
        resource_type: int = int8()
        resource_name: str = string()
        configs: list[DescribeConfigsResponse.DescribeConfigsResourceResult] = array()

    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array()


@message(api_key=33, kind="request", versions=(0, 2), flexible=2)
class AlterConfigsRequest(Message):
    """Replaces all dynamic settings of resources."""

    class AlterableConfig(Message):
        name: str = string()
        value: str | None = string(nullable=ALWAYS)

    class AlterConfigsResource(Message):
        resource_type: int = int8()
        resource_name: str = string()
        configs: list[AlterConfigsRequest.AlterableConfig] = array()

    resources: list[AlterConfigsResource] = array()
    validate_only: bool = bool_()


@message(api_key=33, kind="response", versions=(0, 2), flexible=2)
class AlterConfigsResponse(Message):
    """Whether each resource's settings were changed."""

    class AlterConfigsResourceResponse(Message):
        error_code: int = int16()
        error_message: str | None = string(nullable=ALWAYS)
        resource_type: int = int8()
        resource_name: str = string()

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array()


@message(api_key=44, kind="request", versions=(0, 1), flexible=1)
class IncrementalAlterConfigsRequest(Message):
    """Changes single settings: 0 set, 1 delete, 2 append, 3 subtract."""

    class AlterableConfig(Message):
        name: str = string()
        config_operation: int = int8()
        value: str | None = string(nullable=ALWAYS)

    class AlterConfigsResource(Message):
        resource_type: int = int8()
        resource_name: str = string()
        configs: list[IncrementalAlterConfigsRequest.AlterableConfig] = array()

    resources: list[AlterConfigsResource] = array()
    validate_only: bool = bool_()


@message(api_key=44, kind="response", versions=(0, 1), flexible=1)
class IncrementalAlterConfigsResponse(Message):
    """Whether each resource's settings were changed."""

    class AlterConfigsResourceResponse(Message):
        error_code: int = int16()
        error_message: str | None = string(nullable=ALWAYS)
        resource_type: int = int8()
        resource_name: str = string()

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array()
