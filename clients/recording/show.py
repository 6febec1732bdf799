"""`odradek show`: the frames of a recording as text or JSON, of some APIs, clients and topics.

(A) A frame that the codec cannot decode is shown with its header and its bytes in hexadecimal.
(B) A response has the client and, for the filters, the topics of its request. Topic ids get the names that Metadata
    and CreateTopics have given them until then. A Fetch request of a session has the topics of the session.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from odradek.clients.recording.conversation import Asked, Conversation, answered_of
from odradek.clients.recording.decoding import Decoded, Document, decoded_request, decoded_response
from odradek.clients.recording.recording_file import Entry, Kind
from odradek.clients.recording.topic_names import TopicNames, documents_in
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.readable import readable_fields

TOPIC_FIELDS = frozenset({"Topic", "TopicName", "Name", "TopicId", "ResourceName", "ResourceNameFilter"})
TOPIC_LISTS = frozenset({"Topics", "TopicNames"})
LONGEST_HEX = 128
NO_SESSION = -1


class Shown(NamedTuple):
    """A frame. `asked` is the request, or the one that a response answers; None: the frame has no header."""

    entry: Entry
    asked: Asked | None
    decoded: Decoded | None
    topics: frozenset[str]

    @property
    def direction(self) -> str:
        return "request" if self.entry.kind is Kind.REQUEST else "response"


class Filters(NamedTuple):
    """What is shown: everything that has one of the values of each filter that is not empty."""

    apis: Collection[str] = ()
    clients: Collection[str] = ()
    topics: Collection[str] = ()

    def pass_on(self, shown: Shown) -> bool:
        asked = shown.asked
        if asked is None:
            return not (self.apis or self.clients or self.topics)
        return (
            (not self.apis or asked.api_name.lower() in {api.lower() for api in self.apis})
            and (not self.clients or asked.client_id in self.clients)
            and (not self.topics or not shown.topics.isdisjoint(self.topics))
        )


def frames(entries: Iterable[Entry]) -> Iterator[Shown]:
    """Yields all frames of a recording, each with what is known about it (B)."""
    connections: dict[int, _Connection] = {}
    names = TopicNames()
    for entry in entries:
        if entry.kind is Kind.OPENED:
            connections[entry.connection] = _Connection(names)
        elif entry.kind is Kind.CLOSED:
            connections.pop(entry.connection, None)
        elif entry.connection in connections:
            connection = connections[entry.connection]
            yield connection.request(entry) if entry.kind is Kind.REQUEST else connection.response(entry)


class _Connection:
    """What is known about a connection of the recording (B)."""

    def __init__(self, names: TopicNames) -> None:
        self._names = names
        self._conversation = Conversation()
        self._topics: dict[int, frozenset[str]] = {}
        """Those of requests that may still be answered."""
        self._of_session: frozenset[str] = frozenset()

    def request(self, entry: Entry) -> Shown:
        asked = self._conversation.asked(entry.data)
        shown = self._shown(entry, asked, None if asked is None else decoded_request(asked, entry.data))
        if asked is None:
            return shown
        if asked.api_key == ApiKey.FETCH and shown.decoded is not None:
            is_next = shown.decoded.document.get("SessionEpoch", NO_SESSION) > 0
            self._of_session = shown.topics | self._of_session if is_next else shown.topics
            shown = shown._replace(topics=self._of_session)
        self._topics[asked.number] = shown.topics
        return shown

    def response(self, entry: Entry) -> Shown:
        asked = self._conversation.answered(entry.data)
        shown = self._shown(entry, asked, None if asked is None else decoded_response(asked, entry.data))
        if asked is None:
            return shown
        of_request = answered_of(self._topics, asked.number)
        return shown if of_request is None else shown._replace(topics=shown.topics | of_request)

    def _shown(self, entry: Entry, asked: Asked | None, decoded: Decoded | None) -> Shown:
        if decoded is None:
            return Shown(entry, asked, None, frozenset())
        document = decoded.document
        self._names.learn(document)
        return Shown(entry, asked, decoded, frozenset(_topics(document, self._names)))


def _topics(document: Document, names: TopicNames) -> Iterator[str]:
    for structure in documents_in(document):
        for field in TOPIC_FIELDS & structure.keys():
            if isinstance(structure[field], str):
                yield names.name(structure[field])
        for field in TOPIC_LISTS & structure.keys():
            if isinstance(structure[field], list):
                yield from (names.name(topic) for topic in structure[field] if isinstance(topic, str))


def as_document(shown: Shown, started_ms: int) -> Document:
    """Returns the frame as a JSON object."""
    entry, asked = shown.entry, shown.asked
    document: Document = {
        "timeMs": started_ms + entry.time_us // 1000,
        "connection": entry.connection,
        "direction": shown.direction,
        "size": len(entry.data),
    }
    if asked is not None:
        document |= {"api": asked.api_name, "apiKey": asked.api_key, "version": asked.version}
        document |= {"correlationId": asked.correlation_id, "clientId": asked.client_id}
    if entry.is_redacted:
        document["isRedacted"] = True
    if shown.decoded is not None:
        document["fields"] = shown.decoded.document
    else:
        document["hex"] = entry.data.hex()
    return document


def as_lines(shown: Shown, *, brief: bool, records: bool) -> Iterator[str]:
    """Yields the frame's lines: one with `brief`, else its fields, too; with `records` the records in them."""
    entry, asked = shown.entry, shown.asked
    arrow = "->" if entry.kind is Kind.REQUEST else "<-"
    what = "a frame without a header" if asked is None else f"{asked.api_name} {asked.version} {shown.direction}"
    who = "" if asked is None or asked.is_token else f", id {asked.correlation_id}, client {asked.client_id}"
    hidden = ", secrets not recorded" if entry.is_redacted else ""
    yield f"{entry.time_us / 1e6:.3f} #{entry.connection} {arrow} {what}{who}, {len(entry.data)} bytes{hidden}"
    if brief:
        return
    if shown.decoded is not None:
        yield from readable_fields(shown.decoded.message, shown.decoded.version, "    ", records=records)
    elif entry.data:
        more = "" if len(entry.data) <= LONGEST_HEX else "..."
        yield f"    not decoded: {entry.data[:LONGEST_HEX].hex()}{more}"
