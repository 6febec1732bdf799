"""The names of topics by their ids, and the structures within a document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from odradek.clients.recording.comparison import ZERO_ID
from odradek.clients.recording.decoding import Document


class TopicNames:
    """Learns from responses with both, such as Metadata, CreateTopics and ConsumerGroupDescribe."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def learn(self, document: Document) -> None:
        for structure in documents_in(document):
            topic_id, name = structure.get("TopicId"), structure.get("Name") or structure.get("TopicName")
            if isinstance(topic_id, str) and topic_id != ZERO_ID and isinstance(name, str) and name:
                self._names[topic_id] = name

    def knows(self, topic_id: str) -> bool:
        return topic_id in self._names

    def name(self, text: str) -> str:
        """Returns the name of a topic by its name or id."""
        return self._names.get(text, text)


def documents_in(document: Any) -> Iterator[Document]:
    """Yields a document and all those in it."""
    if isinstance(document, dict):
        yield document
        for value in document.values():
            yield from documents_in(value)
    elif isinstance(document, list):
        for item in document:
            yield from documents_in(item)
