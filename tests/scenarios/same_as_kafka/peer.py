"""One of the two brokers that get the same requests, and the comparison of their answers.

tests/beside_kafka/documents.py says what requests and answers are.
"""

from __future__ import annotations

import time
from typing import Any

from odradek.clients.recording.comparison import comparable
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compiler import decode
from odradek.protocol.documents import to_document
from odradek.protocol.errors import ErrorCode
from odradek.protocol.headers import response_header_version
from odradek.protocol.messages.registry import request_class, response_class
from tests.beside_kafka.documents import RULES, Document, message_of
from tests.scenarios.same_as_kafka.changed_settings import without_changed
from tests.wire.blocking_client import RawClient
from tests.wire.frames import request_payload

TIMEOUT = 5
"""In seconds; longer than any case makes a broker wait."""


class Peer:
    """A connection to one broker that records its answers, made comparable.

    `prefix` begins the names of a case's topics, so that no case meets another's."""

    def __init__(self, bootstrap: str, prefix: str, version: int) -> None:
        self.bootstrap = bootstrap
        self.prefix = prefix
        self.version = version
        self.transcript: list[tuple[str, Any]] = []
        self.asked: set[tuple[ApiKey, int]] = set()
        """The APIs and versions of the requests whose answers are compared, or that have the version of the case."""
        self._client = RawClient(bootstrap, TIMEOUT)

    def close(self) -> None:
        self._client.socket.close()

    def name(self, suffix: str = "t") -> str:
        return f"{self.prefix}-{suffix}"

    def ask(
        self,
        api: ApiKey,
        document: Document,
        version: int | None = None,
        *,
        client_id: str = "raw",
        is_answered: bool = True,
        is_noted: bool = True,
        about: str = "",
    ) -> Document:
        """Returns the unchanged answer; records it, made comparable, with `about` to distinguish it.

        `{"closed": True}` if the connection ended instead, `{"silent": True}` if no answer came.
        """
        asked = self._version_of(api, version, is_noted=is_noted)
        request = message_of(request_class(api), document)
        try:
            self._client.send(request_payload(request, asked, client_id=client_id))
            answer = _answer(api, asked, self._client.receive()) if is_answered else {}
        except TimeoutError:
            answer = {"silent": True}
            self._reconnect()
        except OSError:
            answer = {"closed": True}
            self._reconnect()
        if is_noted:
            self.note(f"{api.name} {about}".rstrip(), answer)
        return answer

    def begin(self, api: ApiKey, document: Document, version: int | None = None) -> None:
        """Sends a request without waiting for the answer; `finish` waits."""
        request = message_of(request_class(api), document)
        self._client.send(request_payload(request, self._version_of(api, version)))

    def finish(self, api: ApiKey, version: int | None = None, *, about: str = "") -> Document:
        """Returns and records the answer to the request of `begin`."""
        try:
            answer = _answer(api, self.version if version is None else version, self._client.receive())
        except TimeoutError:
            answer = {"silent": True}
        self.note(f"{api.name} {about}".rstrip(), answer)
        return answer

    def _version_of(self, api: ApiKey, version: int | None, *, is_noted: bool = True) -> int:
        asked = self.version if version is None else version
        if is_noted or asked == self.version:
            self.asked.add((api, asked))
        return asked

    def note(self, label: str, answer: Any) -> None:
        self.transcript.append((label, comparable(without_changed(answer), RULES)))

    def _reconnect(self) -> None:
        self._client.socket.close()
        self._client = RawClient(self.bootstrap, TIMEOUT)

    # Preparations of many cases, which are not compared.

    def create(self, suffix: str = "t", partitions: int = 1, **configs: str) -> str:
        """A topic; settings with _ for the dots of their names."""
        name = self.name(suffix)
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
        }
        for _ in range(100):
            answer = self.ask(ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout_ms": 30000}, 5, is_noted=False)
            if answer["Topics"][0]["ErrorCode"] != ErrorCode.TOPIC_ALREADY_EXISTS:
                break
            time.sleep(0.1)  # Kafka still has the deleted one
        assert answer["Topics"][0]["ErrorCode"] == 0, answer
        asked = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
        for _ in range(100):
            (found,) = self.ask(ApiKey.METADATA, asked, 8, is_noted=False)["Topics"]
            if found["ErrorCode"] == 0 and len(found["Partitions"]) == partitions:
                return name
            time.sleep(0.02)  # Kafka's broker hears of it from the controller
        raise AssertionError(found)

    def create_internal(self) -> str:
        """Creates a coordinators' topic unless it exists."""
        topic = {"name": "__transaction_state", "num_partitions": 1, "replication_factor": 1}
        self.ask(ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout_ms": 30000}, 5, is_noted=False)
        return "__transaction_state"

    def topic_id(self, topic: str) -> str:
        asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        answer = self.ask(ApiKey.METADATA, asked, 11, is_noted=False)
        return str(answer["Topics"][0]["TopicId"])

    def produce(
        self,
        topic: str,
        records: bytes | None,
        *,
        partition: int = 0,
        acks: int = -1,
        version: int = 8,
        is_noted: bool = False,
        **more: Any,
    ) -> Document:
        """Produces one batch to one partition; returns the partition's answer."""
        document = {
            "acks": acks,
            "timeout_ms": 5000,
            "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": records}]}],
            **more,
        }
        answer = self.ask(ApiKey.PRODUCE, document, version, is_answered=acks != 0, is_noted=is_noted)
        return {} if "Responses" not in answer else answer["Responses"][0]["PartitionResponses"][0]

    def log_start_and_end(self, topic: str, partition: int = 0) -> None:
        """Records where the partition's log begins and ends."""
        for timestamp in (-2, -1):
            asked = {"partition_index": partition, "timestamp": timestamp}
            self.ask(ApiKey.LIST_OFFSETS, {"replica_id": -1, "topics": [{"name": topic, "partitions": [asked]}]}, 5)


def _answer(api: ApiKey, version: int, frame: bytes) -> Document:
    header = 5 if response_header_version(api, version) else 4
    return to_document(decode(response_class(api), version, frame, header), version)
