"""AdminClient: administers a cluster over `NetworkClient`. Each method sends one request.

    async with AdminClient("127.0.0.1:9092") as admin:
        await admin.create_topic(NewTopic("orders", 3))

Changes to topics are sent to the controller, requests about one broker's settings to that broker, requests about groups
and transactions to their coordinators, everything else to any broker (connections.py). If the request or its one item
fails, the method raises ProtocolError with the broker's code and text. If a broker cannot be reached, it raises
NetworkError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from odradek.broker.metadata.new_topic import NewPartitions, NewTopic
from odradek.clients.admin.connections import Connections
from odradek.clients.network_client import DEFAULT_TIMEOUT_MS, Connect, NetworkClient
from odradek.clients.network_errors import Disconnected, NetworkError, NodeUnreachable
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
from odradek.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from odradek.protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import ConfigOperation, ConfigResourceType, CoordinatorType

DEFAULT_PORT = 9092
PASSING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


Reassignment = ListPartitionReassignmentsResponse.OngoingPartitionReassignment
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
    """Connects to the first address in `bootstrap` (HOST:PORT,...) that responds, and to other brokers on demand.
    `connect` makes the connections, by default plain ones (client_properties.py).
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "odradek-admin",
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        connect: Connect = NetworkClient.connect,
    ) -> None:
        self._connections = Connections(parse_addresses(bootstrap), client_id, timeout_ms, connect)
        self._timeout_ms = timeout_ms
        self.until = self._connections.until
        self.ask_any = self._connections.ask_any
        self.ask_controller = self._connections.ask_controller

    async def __aenter__(self) -> AdminClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections."""
        await self._connections.close()

    # Reading

    async def describe_cluster(self) -> DescribeClusterResponse:
        """Returns the cluster id, the controller and the brokers."""
        response: DescribeClusterResponse = await self.ask_any(DescribeClusterRequest())
        check(response.error_code, response.error_message)
        return response

    async def topics(self, names: Sequence[str] | None = None) -> list[MetadataResponse.MetadataResponseTopic]:
        """Returns the named topics, or all, sorted by name. Each has its own `error_code`. No topic is created."""
        asked = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        response: MetadataResponse = await self.ask_any(request)
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
        (result,) = (await self._ask_about(kind, name, request)).results
        check(result.error_code, result.error_message)
        return sorted(result.configs, key=lambda config: config.name)

    async def describe_log_dirs(self) -> dict[int, list[DescribeLogDirsResponse.DescribeLogDirsResult]]:
        """Returns the log directories of all brokers, with the sizes of all partitions."""
        found = {}
        for broker_id in await self.broker_ids():
            response: DescribeLogDirsResponse = await self.ask_broker(broker_id, DescribeLogDirsRequest(topics=None))
            check(response.error_code, None)
            found[broker_id] = response.results
        return found

    async def reassignments(self) -> dict[TopicPartition, Reassignment]:
        """Returns the reassignments under way, by partition."""
        request = ListPartitionReassignmentsRequest(topics=None, timeout_ms=self._timeout_ms)
        response: ListPartitionReassignmentsResponse = await self.ask_controller(request)
        check(response.error_code, response.error_message)
        return {
            TopicPartition(topic.name, partition.partition_index): partition
            for topic in response.topics
            for partition in topic.partitions
        }

    # Single brokers

    async def broker_ids(self) -> list[int]:
        """Returns the ids of the cluster's brokers, ascending."""
        return sorted(broker.node_id for broker in (await self._connections.cluster()).brokers)

    async def coordinator(self, kind: CoordinatorType, key: str) -> int:
        """Returns the broker that coordinates a group or a transactional id.

        Retries until the timeout, because the first request creates the internal topic. Then raises
        COORDINATOR_NOT_AVAILABLE.
        """
        request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])

        async def ask() -> Any:
            response = await self.ask_any(request)
            return response.coordinators[0] if response.coordinators else response

        found = await self.until(ask, lambda found: found.error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE)
        check(found.error_code, found.error_message)
        return int(found.node_id)

    async def ask_coordinator(self, kind: CoordinatorType, key: str, request: Message) -> tuple[int, Any]:
        """Returns the coordinator's broker id and its response. Retries errors in PASSING until the timeout, and looks
        for another coordinator if the connection to this one fails: such a request may be carried out twice.
        """

        async def ask() -> tuple[int, Any]:
            broker_id = await self.coordinator(kind, key)
            try:
                return broker_id, await self.ask_broker(broker_id, request)
            except (Disconnected, NodeUnreachable) as error:
                return broker_id, error

        coordinator, found = await self.until(
            ask, lambda found: not isinstance(found[1], NetworkError) and not _is_passing(found[1])
        )
        if isinstance(found, NetworkError):
            raise found
        return coordinator, found

    async def ask_when_loaded(self, broker_id: int, request: Message) -> Any:
        """Returns the response of one broker. Retries as `ask_coordinator` does."""
        return await self.until(lambda: self.ask_broker(broker_id, request), lambda response: not _is_passing(response))

    async def ask_broker(self, broker_id: int, request: Message) -> Any:
        """Sends a request to one broker and returns its response."""
        return await self._connections.ask_broker(broker_id, request)

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
        (result,) = (await self.ask_controller(request)).topics
        check(result.error_code, result.error_message)

    async def delete_topic(self, name: str) -> None:
        """Deletes a topic and all its records. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        request = DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.DeleteTopicState(name=name)], topic_names=[name], timeout_ms=self._timeout_ms
        )
        (result,) = (await self.ask_controller(request)).responses
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
        (result,) = (await self.ask_controller(request)).results
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
        (result,) = (await self._ask_about(kind, name, request)).responses
        check(result.error_code, result.error_message)

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, ProtocolError]:
        """Gives partitions new replicas; None cancels what is under way. Returns the errors of those that failed."""
        topics: dict[str, list[AlterPartitionReassignmentsRequest.ReassignablePartition]] = {}
        for key, replicas in targets.items():
            asked = AlterPartitionReassignmentsRequest.ReassignablePartition(
                partition_index=key.partition, replicas=None if replicas is None else list(replicas)
            )
            topics.setdefault(key.topic, []).append(asked)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=self._timeout_ms,
            topics=[
                AlterPartitionReassignmentsRequest.ReassignableTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        response: AlterPartitionReassignmentsResponse = await self.ask_controller(request)
        check(response.error_code, response.error_message)
        return {
            TopicPartition(topic.name, one.partition_index): ProtocolError(
                ErrorCode.of(one.error_code), one.error_message
            )
            for topic in response.responses
            for one in topic.partitions
            if one.error_code != ErrorCode.NONE
        }

    async def _ask_about(self, kind: ConfigResourceType, name: str, request: Message) -> Any:
        """Sends a request about the settings of a topic to any broker, about those of one broker to that one."""
        is_of_one_broker = kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
        if is_of_one_broker and name.isascii() and name.isdigit():
            return await self.ask_broker(int(name), request)
        return await self.ask_any(request)


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
