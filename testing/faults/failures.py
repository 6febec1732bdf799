"""Responses with an error code: of the whole request, or of the selected items only.

(A) A request that is selected as a whole gets its API's own error response, and is not handled.
(B) If only some items are selected, the broker handles the others, and both responses are put together. An API
    that has only one error code for all of its items fails as a whole.
(C) Metadata, and requests for all topics, are handled first, and then the code is put into the selected items.
(D) Fetch: see fetches.py.
(E) DescribeLogDirs before version 3 has a code for each directory only: the broker handles it, and each gets the code.
(F) ApiVersions with UNSUPPORTED_VERSION is answered in version 0, as by brokers that do not know the version.
"""

from __future__ import annotations

from typing import Any

from odradek.broker.background.stepwise import Steps, finished
from odradek.broker.handlers.api_row import ApiRow
from odradek.broker.handlers.error_responses import ErrorResponse, per_partition
from odradek.broker.requests.request_metrics import ERROR_FIELDS
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsResponse
from odradek.protocol.messages.offsets import OffsetDeleteResponse, OffsetFetchResponse
from odradek.testing.faults.answers import settled
from odradek.testing.faults.selection import (
    PARTITION_NUMBERS,
    TOPIC_NAMES,
    Selection,
    TopicName,
)

IDENTITY = (
    *TOPIC_NAMES,
    *PARTITION_NUMBERS,
    "topic_id",
    "transactional_id",
    "group_id",
    "producer_id",
    "key",
    "resource_type",
    "user",
)
_OFFSETS = per_partition(
    OffsetFetchResponse, "topics", "name", ("partition_indexes", "partitions"), "partition_index", committed_offset=-1
)
_OFFSETS_OF_GROUP = per_partition(
    OffsetFetchResponse.OffsetFetchResponseGroup,
    "topics",
    ("name", "topic_id"),
    ("partition_indexes", "partitions"),
    "partition_index",
    committed_offset=-1,
)


def _offsets_error(request: Any, code: ErrorCode, message: str | None) -> Steps[OffsetFetchResponse]:
    """The error for each partition of each group, and for the groups, whose offsets may all be selected."""
    if not request.groups:
        response: Any = yield from _OFFSETS(request, code, message)
        return response  # type: ignore[no-any-return]
    groups: list[Any] = []
    for group in request.groups:
        failed: Any = yield from _OFFSETS_OF_GROUP(group, code, message)
        failed.group_id = group.group_id
        groups.append(failed)
    return OffsetFetchResponse(groups=groups)


ITEM_ERRORS: dict[ApiKey, ErrorResponse] = {
    ApiKey.OFFSET_DELETE: per_partition(OffsetDeleteResponse, "topics", "name", "partitions", "partition_index"),
    ApiKey.OFFSET_FETCH: _offsets_error,
}
"""APIs that have an error code for each item, which their own error response does not use."""
WITHOUT_ITEM_ERRORS = (ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.DESCRIBE_LOG_DIRS)
"""APIs that can name all topics, and have no error code for each."""
FIRST_LOG_DIRS_WITH_ERROR = 3


def whole_error(row: ApiRow, version: int, request: Any, code: ErrorCode, message: str | None) -> Any:
    """Case A."""
    return settled(row, version, finished(row.error_response(request, code, message)))


def unsupported_version(row: ApiRow) -> ApiVersionsResponse:
    """Case F."""
    own = ApiVersionsResponse.ApiVersion(api_key=row.key, max_version=row.served.highest)
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])


def items_error(row: ApiRow, version: int, chosen: Any, code: ErrorCode, message: str | None) -> Any:
    """Case B: returns the response to the selected items, None if the API has no error code for each."""
    error_response = ITEM_ERRORS.get(row.key, row.error_response)
    response = settled(row, version, finished(error_response(chosen, code, message)))
    arrays = (getattr(response, field.attribute) for field in response.__schema__.fields if field.type == "array")
    return response if any(map(has_error, filter(None, arrays))) else None


def has_error(items: Any) -> bool:
    """Whether there is an error code in the items of an array."""
    return any(_error_in(item) for item in items if hasattr(item, "__schema__"))


def _error_in(structure: Any) -> bool:
    for field in structure.__schema__.fields:
        value = getattr(structure, field.attribute)
        if (field.name in ERROR_FIELDS and value) or (field.type == "array" and value and has_error(value)):
            return True
    return False


def put_together(response: Any, errors: Any) -> None:
    """Adds the items of another response. Both are of the same class; what is not an array stays."""
    for field in response.__schema__.fields:
        if field.type == "array" and field.struct_class is not None:
            items = getattr(errors, field.attribute) or []
            setattr(response, field.attribute, _joined(getattr(response, field.attribute) or [], items))


def _joined(items: list[Any], more: list[Any]) -> list[Any]:
    """Joins items of the same name. An item without arrays of its own is not joined."""
    by_identity = {_identity(item): item for item in items if _has_arrays(item)}
    for item in more:
        same = by_identity.get(_identity(item)) if _has_arrays(item) else None
        if same is None:
            items = [*items, item]
        else:
            put_together(same, item)
    return items


def _identity(item: Any) -> tuple[Any, ...]:
    return tuple(getattr(item, name, None) for name in IDENTITY)


def _has_arrays(item: Any) -> bool:
    return any(field.type == "array" and field.struct_class is not None for field in item.__schema__.fields)


def put_into_log_dirs(response: Any, code: ErrorCode) -> None:
    """Case E."""
    for result in response.results:
        result.error_code = int(code)
        result.topics = []


def put_into_items(response: Any, items: Selection, code: ErrorCode, topic_name: TopicName) -> bool:
    """Case C: puts the code into the selected topics and partitions of a response. Returns whether there are any."""
    found = False
    for field in response.__schema__.fields:
        if field.type != "array" or field.struct_class is None:
            continue
        for item in getattr(response, field.attribute) or ():
            if not _is_about_a_topic(item):
                found = put_into_items(item, items, code, topic_name) or found
            elif items.has_topic(item, topic_name):
                found = _put_into_topic(item, items, code) or found
    return found


def _is_about_a_topic(item: Any) -> bool:
    return any(hasattr(item, name) for name in (*TOPIC_NAMES, "topic_id")) and not hasattr(item, "host")


def _put_into_topic(topic: Any, items: Selection, code: ErrorCode) -> bool:
    if items.partition is None and hasattr(topic, "error_code"):
        topic.error_code = int(code)
        topic.partitions = []
        return True
    found = False
    for field in topic.__schema__.fields:
        if field.type != "array" or field.struct_class is None:
            continue
        for partition in getattr(topic, field.attribute):
            if items.has_partition(partition) and hasattr(partition, "error_code"):
                partition.error_code = int(code)
                if hasattr(partition, "leader_id"):
                    partition.leader_id = -1
                if hasattr(partition, "committed_offset"):
                    partition.committed_offset = -1
                found = True
    return found
