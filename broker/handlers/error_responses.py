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

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from odradek.broker.background.stepwise import Steps, each_when_written
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.schema import Message

Name = str | tuple[str, str]
ErrorResponse = Callable[[Any, ErrorCode, str | None], Steps[Message]]


def top_level(response_class: type[Message], **values: Any) -> ErrorResponse:
    fixed = MappingProxyType(values)

    def build(_request: Any, code: ErrorCode, message: str | None) -> Steps[Message]:
        yield from ()
        return _with_error(response_class, code, message, **fixed)

    return build


class RefusedItems(Protocol):
    """The shapes that repeat the code for each item. Also called for items alone, whose requests go on without them."""

    @property
    def request_items(self) -> str:
        """The array in the request."""

    @property
    def response_items(self) -> str: ...

    def __call__(self, request: Any, code: ErrorCode, message: str | None) -> Steps[Message]: ...

    def refused(self, item: Any, code: ErrorCode, message: str | None) -> Message:
        """Returns the response to one item of the request's array."""
        ...


def per_item(response_class: type[Message], items: Name, *identity: str, **values: Any) -> RefusedItems:
    """`items`: the array; `identity`: the fields that name an item. A null array becomes an empty one.

    In the request, items may be structures or bare names."""
    item_class = _structure(response_class, _pair(items)[1])
    return _PerItem(response_class, *_pair(items), item_class, identity, MappingProxyType(values))


def per_partition(
    response_class: type[Message],
    topics: Name,
    topic: str | tuple[str, ...],
    partitions: Name,
    partition: Name,
    **values: Any,
) -> RefusedItems:
    """`topics` and `partitions`: the arrays; `topic` and `partition`: the fields with the name and number. `topic` has
    several fields if topics are named by their ids in some versions.

    In the request, partitions may be structures or bare numbers. Null topics become an empty array."""
    topic_class = _structure(response_class, _pair(topics)[1])
    return _PerPartition(
        response_class,
        *_pair(topics),
        topic_class,
        (topic,) if isinstance(topic, str) else topic,
        *_pair(partitions),
        _structure(topic_class, _pair(partitions)[1]),
        *_pair(partition),
        MappingProxyType(values),
    )


class _PerItem(NamedTuple):
    response_class: type[Message]
    request_items: str
    response_items: str
    item_class: type[Message]
    identity: tuple[str, ...]
    values: Mapping[str, Any]

    def __call__(self, request: Any, code: ErrorCode, message: str | None) -> Steps[Message]:
        return (yield from _repeated(self, self.response_class, request, code, message))

    def refused(self, item: Any, code: ErrorCode, message: str | None) -> Message:
        return _with_error(self.item_class, code, message, **self.values, **self._named(item))

    def _named(self, item: Any) -> dict[str, Any]:
        if isinstance(item, str):
            return {self.identity[0]: item}
        return {name: getattr(item, name) for name in self.identity}


class _PerPartition(NamedTuple):
    response_class: type[Message]
    request_items: str
    response_items: str
    topic_class: type[Message]
    topic: tuple[str, ...]
    request_partitions: str
    response_partitions: str
    partition_class: type[Message]
    request_index: str
    response_index: str
    values: Mapping[str, Any]

    def __call__(self, request: Any, code: ErrorCode, message: str | None) -> Steps[Message]:
        return (yield from _repeated(self, self.response_class, request, code, message))

    def refused(self, item: Any, code: ErrorCode, message: str | None) -> Message:
        partitions = getattr(item, self.request_partitions)
        refused = each_when_written(partitions, lambda one: self._refused_partition(one, code, message))
        identity = {name: getattr(item, name) for name in self.topic}
        return self.topic_class(**identity, **{self.response_partitions: refused})

    def _refused_partition(self, asked: Any, code: ErrorCode, message: str | None) -> Message:
        index = asked if isinstance(asked, int) else getattr(asked, self.request_index)
        return _with_error(self.partition_class, code, message, **self.values, **{self.response_index: index})


def _repeated(
    shape: RefusedItems, response_class: type[Message], request: Any, code: ErrorCode, message: str | None
) -> Steps[Message]:
    """Builds the response of either shape."""
    yield from ()
    items = getattr(request, shape.request_items) or ()
    refused = each_when_written(items, lambda item: shape.refused(item, code, message))
    return _with_error(response_class, code, message, **{shape.response_items: refused})


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
    return MetadataResponse(topics=topics, error_code=code)


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
