"""Requests that the recorded cluster has answered with "not yet", and responses of a target that say so.

How long it takes until a topic, a coordinator or the end of a transaction is there is a matter of timing. Clients send
such a request again. So a replay does not send what was answered with "not yet", only the client's repetition. And if a
target says "not yet" where the recording has another response, the request is repeated, as a client does.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.clients.recording.conversation import Conversation
from odradek.clients.recording.decoding import Document, decoded_response
from odradek.clients.recording.recording_file import Entry, Kind
from odradek.clients.recording.topic_names import documents_in
from odradek.protocol.errors import ErrorCode

NOT_YET = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
Request = tuple[int, int]
"""A connection and the number of a request on it."""


def says_not_yet(response: Document) -> bool:
    return any(
        field.endswith("ErrorCode") and value in NOT_YET
        for structure in documents_in(response)
        for field, value in structure.items()
    )


def answered_not_yet(entries: Iterable[Entry]) -> set[Request]:
    """Returns the requests of a recording that were answered so."""
    conversations: dict[int, Conversation] = {}
    found: set[Request] = set()
    for entry in entries:
        if entry.kind is Kind.OPENED:
            conversations[entry.connection] = Conversation()
        elif entry.kind is Kind.CLOSED:
            conversations.pop(entry.connection, None)
        elif (conversation := conversations.get(entry.connection)) is None:
            continue
        elif entry.kind is Kind.REQUEST:
            conversation.asked(entry.data)
        elif (asked := conversation.answered(entry.data)) is not None:
            decoded = decoded_response(asked, entry.data)
            if decoded is not None and says_not_yet(decoded.document):
                found.add((entry.connection, asked.number))
    return found
