"""AdminClient: administers a cluster over `NetworkClient`. Each method sends one request.

    async with AdminClient("127.0.0.1:9092") as admin:
        await admin.create_topic(NewTopic("orders", 3))

Changes to topics and settings are sent to the controller, queries to any broker. If the request or its one item fails,
the method raises ProtocolError with the broker's code and text. If a broker cannot be reached, it raises NetworkError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, TypeVar

from odradek.broker.controller.state import NewPartitions, NewTopic
from odradek.broker.network.network_client import DEFAULT_TIMEOUT_MS, NetworkClient, NetworkError, NodeUnreachable
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse
from odradek.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import ConfigOperation, ConfigResourceType, CoordinatorType

T = TypeVar("T")

DEFAULT_PORT = 9092
RETRY_MS = 100
"""The delay between retries. A client is not notified when a coordinator becomes available or finishes its work."""
PASSING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


ConfigChange = tuple[str, ConfigOperation, str | None]
"""A change to one setting: (name, operation, value)."""


def parse_addresses(text: str) -> list[tuple[str, int]]:
    """Parses HOST:PORT,HOST:PORT... into pairs. The port is optional. Raises ValueError."""
    addresses = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = part.rpartition(":")
        if not colon or part.endswith("]"):
            host, port = part, str(DEFAULT_PORT)
        if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536 or not host:
            raise ValueError(f"{part!r} is not HOST:PORT")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise ValueError("HOST:PORT is missing")
    return addresses


class AdminClient:
    """Connects to the first address in `bootstrap` (HOST:PORT,...) that responds, and to other brokers on demand."""

    def __init__(
        self, bootstrap: str, *, client_id: str = "odradek-admin", timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> None:
        self._addresses = parse_addresses(bootstrap)
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._any: NetworkClient | None = None
        self._controller: NetworkClient | None = None
        self._nodes: dict[int, NetworkClient] = {}

    async def __aenter__(self) -> AdminClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections."""
        for client in {self._any, self._controller, *self._nodes.values()} - {None}:
            assert client is not None
            await client.close()
        self._any = self._controller = None
        self._nodes.clear()

    # Reading

    async def describe_cluster(self) -> DescribeClusterResponse:
        """Returns the cluster id, the controller and the brokers."""
        response: DescribeClusterResponse = await self._ask(DescribeClusterRequest())
        check(response.error_code, response.error_message)
        return response

    async def topics(self, names: Sequence[str] | None = None) -> list[MetadataResponse.MetadataResponseTopic]:
        """Returns the named topics, or all, sorted by name. Each has its own `error_code`. No topic is created."""
        asked = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        response: MetadataResponse = await self._ask(request)
        return sorted(response.topics, key=lambda topic: topic.name or "")

    async def topic(self, name: str) -> MetadataResponse.MetadataResponseTopic:
        """Returns one topic. Raises UNKNOWN_TOPIC_OR_PARTITION and INVALID_TOPIC_EXCEPTION."""
        (topic,) = await self.topics([name])
        check(topic.error_code, _why_no_topic(name, topic.error_code))
        return topic

    async def describe_configs(
        self, kind: ConfigResourceType, name: str, *, documentation: bool = False
    ) -> list[DescribeConfigsResponse.DescribeConfigsResourceResult]:
        """Returns all settings of a topic or broker, sorted by name, with their synonyms."""
        asked = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=None
        )
        request = DescribeConfigsRequest(resources=[asked], include_synonyms=True, include_documentation=documentation)
        (result,) = (await self._ask(request)).results
        check(result.error_code, result.error_message)
        return sorted(result.configs, key=lambda config: config.name)

    async def describe_log_dirs(self) -> list[DescribeLogDirsResponse.DescribeLogDirsResult]:
        """Returns the log directories of the connected broker, with the sizes of all partitions."""
        response: DescribeLogDirsResponse = await self._ask(DescribeLogDirsRequest(topics=None))
        check(response.error_code, None)
        return response.results

    # Single brokers

    async def broker_ids(self) -> list[int]:
        """Returns the ids of the cluster's brokers, ascending."""
        return sorted(broker.node_id for broker in (await self._cluster()).brokers)

    async def coordinator(self, kind: CoordinatorType, key: str) -> int:
        """Returns the broker that coordinates a group or a transactional id.

        Retries until the timeout, because the first request creates the internal topic. Then raises
        COORDINATOR_NOT_AVAILABLE.
        """
        request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])

        async def ask() -> Any:
            response = await self._ask(request)
            return response.coordinators[0] if response.coordinators else response

        found = await self.until(ask, lambda found: found.error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE)
        check(found.error_code, found.error_message)
        return int(found.node_id)

    async def ask_coordinator(self, kind: CoordinatorType, key: str, request: Message) -> tuple[int, Any]:
        """Returns the coordinator's broker id and its response. Retries errors in PASSING until the timeout."""

        async def ask() -> tuple[int, Any]:
            broker_id = await self.coordinator(kind, key)
            return broker_id, await self.ask_broker(broker_id, request)

        return await self.until(ask, lambda found: not _is_passing(found[1]))

    async def ask_when_loaded(self, broker_id: int, request: Message) -> Any:
        """Returns the response of one broker. Retries as `ask_coordinator` does."""
        return await self.until(lambda: self.ask_broker(broker_id, request), lambda response: not _is_passing(response))

    async def until(self, ask: Callable[[], Awaitable[T]], is_settled: Callable[[T], bool]) -> T:
        """Calls `ask` until `is_settled` accepts its result or the timeout expires. Returns the last result."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._timeout_ms / 1000
        while True:
            answer = await ask()
            if is_settled(answer) or loop.time() >= give_up:
                return answer
            await asyncio.sleep(RETRY_MS / 1000)

    async def ask_broker(self, broker_id: int, request: Message) -> Any:
        """Sends a request to one broker and returns its response."""
        client = self._nodes.get(broker_id)
        if client is None or not client.is_connected:
            client = self._nodes[broker_id] = await self._find_broker(broker_id)
        return await client.send(request, timeout_ms=self._timeout_ms)

    # Changes

    async def create_topic(self, topic: NewTopic, *, validate_only: bool = False) -> None:
        """Creates a topic, or with `validate_only` only checks whether it could be created."""
        creatable = CreateTopicsRequest.CreatableTopic(
            name=topic.name,
            num_partitions=topic.num_partitions,
            replication_factor=topic.replication_factor,
            assignments=[
                CreateTopicsRequest.CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
                for partition, brokers in topic.assignments.items()
            ],
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)
                for name, value in topic.configs.items()
            ],
        )
        request = CreateTopicsRequest(topics=[creatable], timeout_ms=self._timeout_ms, validate_only=validate_only)
        (result,) = (await self._ask_controller(request)).topics
        check(result.error_code, result.error_message)

    async def delete_topic(self, name: str) -> None:
        """Deletes a topic and all its records. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        request = DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.DeleteTopicState(name=name)], topic_names=[name], timeout_ms=self._timeout_ms
        )
        (result,) = (await self._ask_controller(request)).responses
        check(result.error_code, _why_no_topic(name, result.error_code) or result.error_message)

    async def create_partitions(self, new_partitions: NewPartitions, *, validate_only: bool = False) -> None:
        """Increases a topic's number of partitions."""
        assigned = None
        if new_partitions.assignments is not None:
            assigned = [
                CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=list(brokers))
                for brokers in new_partitions.assignments
            ]
        topic = CreatePartitionsRequest.CreatePartitionsTopic(
            name=new_partitions.topic, count=new_partitions.total_count, assignments=assigned
        )
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=self._timeout_ms, validate_only=validate_only)
        (result,) = (await self._ask_controller(request)).results
        check(result.error_code, result.error_message)

    async def alter_configs(
        self, kind: ConfigResourceType, name: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Changes individual settings of a topic or broker."""
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[
                IncrementalAlterConfigsRequest.AlterableConfig(name=setting, config_operation=operation, value=value)
                for setting, operation, value in changes
            ],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        (result,) = (await self._ask_controller(request)).responses
        check(result.error_code, result.error_message)

    # Connections

    async def _ask(self, request: Message) -> Any:
        """Sends to any broker."""
        return await (await self._broker()).send(request, timeout_ms=self._timeout_ms)

    async def _ask_controller(self, request: Message) -> Any:
        """Sends to the controller."""
        if self._controller is None or not self._controller.is_connected:
            self._controller = await self._find_controller()
        # The broker uses the same timeout; allow extra time for its response to arrive.
        return await self._controller.send(request, timeout_ms=self._timeout_ms + 1000)

    async def _broker(self) -> NetworkClient:
        if self._any is not None and self._any.is_connected:
            return self._any
        failure: NetworkError | None = None
        for host, port in self._addresses:
            try:
                self._any = await self._connect(host, port)
                return self._any
            except NetworkError as error:
                failure = failure or error
        assert failure is not None, "there is at least one address"
        raise failure

    async def _cluster(self) -> MetadataResponse:
        response: MetadataResponse = await self._ask(MetadataRequest(topics=[]))
        return response

    async def _find_controller(self) -> NetworkClient:
        cluster = await self._cluster()
        return await self._find_broker(cluster.controller_id, cluster, "controller")

    async def _find_broker(
        self, broker_id: int, cluster: MetadataResponse | None = None, what: str = "broker"
    ) -> NetworkClient:
        cluster = cluster or await self._cluster()
        broker = await self._broker()
        if len(cluster.brokers) == 1:
            return broker
        found = next((node for node in cluster.brokers if node.node_id == broker_id), None)
        if found is None:
            raise NodeUnreachable(f"{broker.name} does not know {what} {broker_id} at the moment")
        return await self._connect(found.host, found.port)

    async def _connect(self, host: str, port: int) -> NetworkClient:
        return await NetworkClient.connect(host, port, client_id=self._client_id, timeout_ms=self._timeout_ms)


def check(code: int, message: str | None = None) -> None:
    """Raises ProtocolError for a response's error code. Without `message` it has the code's default text."""
    if code != ErrorCode.NONE:
        raise ProtocolError(ErrorCode.of(code), message)


def by_leader(topics: Iterable[MetadataResponse.MetadataResponseTopic]) -> dict[int, list[TopicPartition]]:
    """Returns the partitions of these topics by leader."""
    found: dict[int, list[TopicPartition]] = {}
    for topic in topics:
        for partition in topic.partitions:
            if partition.leader_id >= 0:
                key = TopicPartition(topic.name or "", partition.partition_index)
                found.setdefault(partition.leader_id, []).append(key)
    return found


def _why_no_topic(name: str, code: int) -> str | None:
    return f"There is no topic '{name}'" if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else None


def _is_passing(response: Any) -> bool:
    return any(code in PASSING for code in _codes(response))


def _codes(response: Any) -> Iterable[int]:
    """Yields the error codes of a coordinator's response and of its items, one level deep."""
    yield getattr(response, "error_code", ErrorCode.NONE)
    for name in ("groups", "results", "transaction_states"):
        for item in getattr(response, name, ()):
            yield getattr(item, "error_code", ErrorCode.NONE)
    for topic in getattr(response, "topics", ()):
        for partition in topic.partitions:
            yield partition.error_code
