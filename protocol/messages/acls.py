"""Access control lists (keys 29-31). Enumerations are the int8 codes of Kafka's AclOperation and related enums."""

from __future__ import annotations

from odradek.protocol.schema import ALWAYS, Message, array, int8, int16, int32, message, since, string


@message(api_key=29, kind="request", versions=(0, 3), flexible=2)
class DescribeAclsRequest(Message):
    """A filter; null matches anything."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable=ALWAYS)
    pattern_type_filter: int = int8(default=3, versions=since(1))
    principal_filter: str | None = string(nullable=ALWAYS)
    host_filter: str | None = string(nullable=ALWAYS)
    operation: int = int8()
    permission_type: int = int8()


@message(api_key=29, kind="response", versions=(0, 3), flexible=2)
class DescribeAclsResponse(Message):
    """The bindings that match, by resource."""

    class AclDescription(Message):
        principal: str = string()
        host: str = string()
        operation: int = int8()
        permission_type: int = int8()

    class DescribeAclsResource(Message):
        resource_type: int = int8()
        resource_name: str = string()
        pattern_type: int = int8(default=3, versions=since(1))
        acls: list[DescribeAclsResponse.AclDescription] = array()

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=ALWAYS)
    resources: list[DescribeAclsResource] = array()


@message(api_key=30, kind="request", versions=(0, 3), flexible=2)
class CreateAclsRequest(Message):
    """Bindings to add."""

    class AclCreation(Message):
        resource_type: int = int8()
        resource_name: str = string()
        resource_pattern_type: int = int8(default=3, versions=since(1))
        principal: str = string()
        host: str = string()
        operation: int = int8()
        permission_type: int = int8()

    creations: list[AclCreation] = array()


@message(api_key=30, kind="response", versions=(0, 3), flexible=2)
class CreateAclsResponse(Message):
    """Whether each binding was added."""

    class AclCreationResult(Message):
        error_code: int = int16()
        error_message: str | None = string(nullable=ALWAYS)

    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array()


@message(api_key=31, kind="request", versions=(0, 3), flexible=2)
class DeleteAclsRequest(Message):
    """Filters; all matching bindings are deleted."""

    class DeleteAclsFilter(Message):
        resource_type_filter: int = int8()
        resource_name_filter: str | None = string(nullable=ALWAYS)
        pattern_type_filter: int = int8(default=3, versions=since(1))
        principal_filter: str | None = string(nullable=ALWAYS)
        host_filter: str | None = string(nullable=ALWAYS)
        operation: int = int8()
        permission_type: int = int8()

    filters: list[DeleteAclsFilter] = array()


@message(api_key=31, kind="response", versions=(0, 3), flexible=2)
class DeleteAclsResponse(Message):
    """The bindings that each filter deleted."""

    class DeleteAclsMatchingAcl(Message):
        error_code: int = int16()
        error_message: str | None = string(nullable=ALWAYS)
        resource_type: int = int8()
        resource_name: str = string()
        pattern_type: int = int8(default=3, versions=since(1))
        principal: str = string()
        host: str = string()
        operation: int = int8()
        permission_type: int = int8()

    class DeleteAclsFilterResult(Message):
        error_code: int = int16()
        error_message: str | None = string(nullable=ALWAYS)
        matching_acls: list[DeleteAclsResponse.DeleteAclsMatchingAcl] = array()

    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array()
