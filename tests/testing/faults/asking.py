"""A blocking client that sends decoded requests and returns decoded responses."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compiler import decode
from odradek.protocol.headers import response_header_version
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.messages.registry import response_class
from odradek.protocol.messages.topics import CreateTopicsRequest
from odradek.protocol.records import Record, build_batch
from odradek.protocol.schema import Message
from tests.scenarios.raw_client import RawClient, request_payload


class Client:
    """One connection."""

    def __init__(self, bootstrap: str, client_id: str = "raw", timeout: float = 20) -> None:
        self.raw = RawClient(bootstrap, timeout)
        self.client_id = client_id

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.raw.socket.close()

    def send(self, request: Message, version: int) -> None:
        self.raw.send(request_payload(request, version, client_id=self.client_id))

    def receive(self, api_key: int, version: int) -> Any:
        return body_of(self.raw.receive(), api_key, version)

    def ask(self, request: Message, version: int) -> Any:
        self.send(request, version)
        return self.receive(request.__schema__.api_key or 0, version)

    def create(self, topic: str, partitions: int = 1) -> None:
        topics = [CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1)]
        assert self.ask(CreateTopicsRequest(topics=topics, timeout_ms=20_000), 7).topics[0].error_code == 0


def body_of(frame: bytes, api_key: int, version: int) -> Any:
    key = ApiKey(api_key)
    return decode(response_class(key), version, frame, 4 + response_header_version(key, version))


def produce(topics: dict[str, list[int]], acks: int = -1, value: bytes = b"value") -> ProduceRequest:
    """Returns a request with one record for each partition."""
    batch = build_batch([Record(offset=0, timestamp=0, key=None, value=value, headers=[])])
    return ProduceRequest(
        acks=acks,
        timeout_ms=20_000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=name,
                partition_data=[ProduceRequest.PartitionProduceData(index=each, records=batch) for each in partitions],
            )
            for name, partitions in topics.items()
        ],
    )


def codes(response: Any) -> dict[tuple[str, int], int]:
    """Returns the error code of each partition of a response to Produce."""
    return {
        (topic.name, partition.index): partition.error_code
        for topic in response.responses
        for partition in topic.partition_responses
    }
