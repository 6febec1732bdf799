"""Each API's response to a request that failed as a whole: the error in every field that the API has for it.

There are three shapes. `top_level`: the response has an error code of its own. `per_item`: the code is repeated for
every topic or resource of the request. `per_partition`: for every partition of every topic. The fields that a shape
copies from the request are given as names, or as (name in the request, name in the response) if the two differ;
`values` are further fields that differ from the schema's defaults; the classes of the response's structures come from
its schema.

All builders are generators (broker/background/stepwise.py). Long arrays are created while they are encoded.

Source: `getErrorResponse` of Kafka's requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.broker.background.stepwise import Steps, each_when_written
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.schema import Message

Name = str | tuple[str, str]
ErrorResponse = Callable[[Any, ErrorCode, str | None], Steps[Message]]


def top_level(response_class: type[Message], **values: Any) -> ErrorResponse:
    def build(_request: Any, code: ErrorCode, message: str | None) -> Steps[Message]:
        yield from ()
        return _with_error(response_class, code, message, **values)

    return build


def per_item(response_class: type[Message], items: Name, *identity: str, **values: Any) -> ErrorResponse:
    """`items`: the array; `identity`: the fields that name an item. A null array becomes an empty one.

    In the request, items may be structures or bare names."""
    request_items, response_items = _pair(items)
    item_class = _structure(response_class, response_items)

    def build(request: Any, code: ErrorCode, message: str | None) -> Steps[Message]:
        yield from ()
        answers = each_when_written(
            getattr(request, request_items) or (),
            lambda item: _with_error(item_class, code, message, **values, **named(item)),
        )
        return _with_error(response_class, code, message, **{response_items: answers})

    def named(item: Any) -> dict[str, Any]:
        return {identity[0]: item} if isinstance(item, str) else {name: getattr(item, name) for name in identity}

    return build


def per_partition(
    response_class: type[Message], topics: Name, topic: str, partitions: Name, partition: Name, **values: Any
) -> ErrorResponse:
    """`topics` and `partitions`: the arrays; `topic` and `partition`: the fields with the name and number.

    In the request, partitions may be structures or bare numbers. Null topics become an empty array."""
    request_topics, response_topics = _pair(topics)
    request_partitions, response_partitions = _pair(partitions)
    request_index, response_index = _pair(partition)
    topic_class = _structure(response_class, response_topics)
    partition_class = _structure(topic_class, response_partitions)

    def build_partition(asked: Any, code: ErrorCode, message: str | None) -> Message:
        index = asked if isinstance(asked, int) else getattr(asked, request_index)
        return _with_error(partition_class, code, message, **values, **{response_index: index})

    def build_topic(asked: Any, code: ErrorCode, message: str | None) -> Message:
        partitions = getattr(asked, request_partitions)
        refused = each_when_written(partitions, lambda one: build_partition(one, code, message))
        return topic_class(**{topic: getattr(asked, topic), response_partitions: refused})

    def build(request: Any, code: ErrorCode, message: str | None) -> Steps[Message]:
        yield from ()
        topics = getattr(request, request_topics) or ()
        refused = each_when_written(topics, lambda one: build_topic(one, code, message))
        return _with_error(response_class, code, message, **{response_topics: refused})

    return build


def find_coordinator_error(request: FindCoordinatorRequest, code: ErrorCode, message: str | None) -> Steps[Message]:
    """Before version 4 the response has one error, without a node; from then on one for each key."""
    yield from ()
    coordinators = each_when_written(
        request.coordinator_keys,
        lambda key: FindCoordinatorResponse.Coordinator(
            key=key, node_id=-1, port=-1, error_code=code, error_message=message
        ),
    )
    return FindCoordinatorResponse(
        error_code=code, error_message=message, node_id=-1, port=-1, coordinators=coordinators
    )


def metadata_error(request: MetadataRequest, code: ErrorCode, message: str | None = None) -> Steps[MetadataResponse]:
    """Returns the error for each topic. A topic without a name gets an empty one, since the field is not nullable."""
    yield from ()
    topics = each_when_written(
        request.topics or (),
        lambda topic: MetadataResponse.MetadataResponseTopic(
            error_code=code, name=topic.name or "", topic_id=topic.topic_id
        ),
    )
    return MetadataResponse(topics=topics)


def _pair(name: Name) -> tuple[str, str]:
    return (name, name) if isinstance(name, str) else name


def _structure(owner: type[Message], attribute: str) -> type[Message]:
    return next(field for field in owner.__schema__.fields if field.attribute == attribute).structure


def _with_error(cls: type[Message], code: ErrorCode, message: str | None, **values: Any) -> Message:
    """Returns an object with the error code and, if the class has the field, the message."""
    made: Any = cls(**values)
    attributes = cls.__slots__
    if "error_code" in attributes:
        made.error_code = int(code)
    if "error_message" in attributes:
        made.error_message = message
    return made  # type: ignore[no-any-return]
