"""Client errors in single items of a request, for the log.

A partition's failure is a value in the response and raises no exception. Two kinds of errors are not logged: those of
normal operation (a topic that does not exist yet, a leader that moved, an evicted session), and those that are logged
elsewhere (a failing disk, a denial of the authorizer).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from odradek.broker.requests.request_metrics import error_name
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import Message

MOST_ITEMS = 3
LONGEST_ITEM = 300
"""The limits of a log line: the number of items, and the characters of each. Names come from clients."""
ORDINARY = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_NAMES = ("name", "topic", "topic_name", "resource_name", "partition_index", "partition", "index")


MOST_LOOKED_AT = 2000
"""Only the beginning of a long response is examined."""


def item_faults(response: Message) -> list[str]:
    """Returns the first items at fault, as `topic-partition ERROR: reason`; none if all errors are ordinary."""
    faults = filter(None, islice(_faults(response, ""), MOST_LOOKED_AT))
    return [fault[:LONGEST_ITEM] for fault in islice(faults, MOST_ITEMS)]


def _faults(structure: Message, place: str) -> Iterator[str]:
    """Yields for each structure its fault, or an empty text."""
    for attribute in _NAMES:
        value = getattr(structure, attribute, None)
        if value is not None:
            place = f"{place}-{value}" if place else str(value)
    code = getattr(structure, "error_code", 0) or getattr(structure, "partition_error_code", 0)
    if code in ORDINARY:
        yield ""
    else:
        reason = getattr(structure, "error_message", None)
        yield f"{place} {error_name(code)}".lstrip() + (f": {reason}" if reason else "")
    for field in structure.__schema__.fields:
        if field.struct_class is not None:
            inner: Any = getattr(structure, field.attribute)
            for each in (inner,) if isinstance(inner, Message) else inner or ():
                yield from _faults(each, place)
