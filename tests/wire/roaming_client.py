"""RoamingClient: requests to whoever is responsible, repeated while brokers die, move what they lead, and come back."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition
from tests.wire.blocking_client import Client

GIVE_UP_S = 90
PAUSE_S = 0.03
TIMEOUT_S = 15
"""Of a response. A JoinGroup waits for less."""
MOVED = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
"""Another broker may be responsible now."""
RETRIABLE = MOVED | {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
}


class Coordinated(NamedTuple):
    """A group (`kind` 0) or a transactional id (1): its coordinator is responsible."""

    kind: int
    name: str


Key = Coordinated | TopicPartition
"""The leader of a partition is responsible for it."""


class RoamingClient:
    def __init__(self, bootstrap: str) -> None:
        self._addresses = bootstrap.split(",")
        self._connections: dict[str, Client] = {}
        self._responsible: dict[Key, str] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def ask(self, key: Key, request: Message, version: int, code_of: Callable[[Any], int]) -> Any:
        """Returns the first response whose error code is not one of RETRIABLE. The request may have been carried out
        several times by then: before a broker died, too.
        """
        give_up = time.monotonic() + GIVE_UP_S
        while True:
            try:
                response = self._at(self._address_for(key)).ask(request, version)
            except OSError as error:
                self._lose(key)
                problem: object = error
            else:
                code = code_of(response)
                if code not in RETRIABLE:
                    return response
                problem = ErrorCode.of(code).name
                if code in MOVED:
                    self._responsible.pop(key, None)
            assert time.monotonic() < give_up, f"{key}, {type(request).__name__}: {problem} for {GIVE_UP_S} s"
            time.sleep(PAUSE_S)

    def _lose(self, key: Key) -> None:
        """The connection for the key has ended, or nobody was found."""
        address = self._responsible.pop(key, None)
        if address in self._connections:
            self._connections.pop(address).close()

    def _at(self, address: str) -> Client:
        if address not in self._connections:
            self._connections[address] = Client(address, timeout=TIMEOUT_S)
        return self._connections[address]

    def _address_for(self, key: Key) -> str:
        """Raises OSError if no broker knows who is responsible."""
        if key not in self._responsible:
            for address in list(self._addresses):
                try:
                    found = self._asked(self._at(address), key)
                except OSError:
                    if address in self._connections:
                        self._connections.pop(address).close()
                    self._addresses.append(self._addresses.pop(0))
                    continue
                if found is not None:
                    self._responsible[key] = found
                    break
            else:
                raise ConnectionError("nobody knows who is responsible")
        return self._responsible[key]

    @staticmethod
    def _asked(connection: Client, key: Key) -> str | None:
        if isinstance(key, Coordinated):
            found = connection.ask(FindCoordinatorRequest(key=key.name, key_type=key.kind))
            return None if found.error_code else f"{found.host}:{found.port}"
        answer = connection.ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=key.topic)]))
        brokers = {broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers}
        leaders = {part.partition_index: part.leader_id for part in answer.topics[0].partitions}
        return brokers.get(leaders.get(key.partition, -1))
