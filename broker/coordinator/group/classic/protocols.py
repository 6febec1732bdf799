"""The protocols of a classic group's members: which ones all of them support, and what they are subscribed to.

A member supports several protocols and sends its metadata for each. In a consumer group a protocol is an assignor, and
the metadata is the member's subscription.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from odradek.protocol.compiler import read
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolSubscription

CONSUMER = "consumer"
"""The protocol type of consumer groups. The broker can decode the metadata of their members."""
Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) pairs in the member's order of preference."""
_VERSION_BYTES = 2


def can_found(protocol_type: str, protocols: Protocols) -> bool:
    """Whether a client with these protocols can be the first member of a group."""
    return bool(protocol_type and protocols)


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str]:
    """Returns the topics that any of the members of a consumer group is subscribed to. Works for later versions too:
    all of them begin with the fields of version 0. Raises MalformedMessage.
    """
    topics: set[str] = set()
    for metadata in subscriptions:
        if len(metadata) < _VERSION_BYTES:
            raise MalformedMessage("the subscription has no version")
        topics.update(read(ConsumerProtocolSubscription, 0, metadata, _VERSION_BYTES)[0].topics)
    return frozenset(topics)


class Support(Counter[str]):
    """The number of members that support each protocol."""

    def add(self, protocols: Protocols) -> None:
        """A member supports these protocols."""
        self.update({name for name, _ in protocols})

    def withdraw(self, protocols: Protocols) -> None:
        """A member that supports these protocols leaves, or changes them."""
        for name in {name for name, _ in protocols}:
            if self[name] > 1:
                self[name] -= 1
            else:
                del self[name]
