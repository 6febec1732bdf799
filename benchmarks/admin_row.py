"""The row of small requests that no other row measures: requests of admin clients, and a consumer's first requests.

One client on one connection repeats the same request and waits for each response. An operation is a request, or the
pair that creates and deletes a topic. Versions are the highest that all brokers serve.
"""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks import wire
from benchmarks.contestants import Contestant
from benchmarks.group_load import until_coordinator
from benchmarks.measurement import LESS, Metric, Reading, Row
from benchmarks.traffic_rows import CpuMeter
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.list_offsets import ListOffsetsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest
from odradek.protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from odradek.protocol.schema import Message

TOPIC, SHORT_LIVED, GROUP = "asked-about", "short-lived", "asked-about"
TOPIC_RESOURCE = 2
COMMIT_VERSION = 7


class Exchange(NamedTuple):
    """`turns`: the requests of the first repetition, the second and so on; then they start over."""

    name: str
    times: int
    turns: Sequence[Sequence[tuple[Message, int]]]


class SmallRequests(Row):
    name = "small requests"

    def __init__(self, scale: float) -> None:
        self._exchanges = exchanges(scale)
        self.metrics = tuple(Metric(exchange.name, "us", LESS) for exchange in self._exchanges)

    def warm_up(self, contestant: Contestant) -> None:
        wire.create_topic(contestant.port, TOPIC)
        until_coordinator(contestant.port)
        answer = wire.call(contestant.port, commit(), OffsetCommitResponse, COMMIT_VERSION)
        expect_success(wire.errors_in(answer), GROUP)
        self.measure(contestant)

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        with wire.connected(contestant.port) as connection:
            return {exchange.name: repeated(exchange, connection, contestant.pid) for exchange in self._exchanges}


def repeated(exchange: Exchange, connection: socket.socket, pid: int) -> Reading:
    """Measures the median of the operations, and the CPU time of the process `pid` meanwhile. Raises RuntimeError."""
    turns = [
        [(wire.framed(request, version), request.__schema__.api_key or 0, version) for request, version in turn]
        for turn in exchange.turns
    ]
    taken = []
    meter = CpuMeter(pid)
    for number in range(exchange.times):
        begin = time.perf_counter()
        answers = []
        for frame, key, version in turns[number % len(turns)]:
            connection.sendall(frame)
            answers.append((wire.receive(connection), key, version))
        taken.append(time.perf_counter() - begin)
        for answer, key, version in answers:
            expect_success(wire.errors_in(wire.decoded(answer, key, version)), exchange.name)
    return Reading(statistics.median(taken) * 1e6, meter.used(), sum(taken), exchange.times)


def expect_success(errors: set[int], name: str) -> None:
    if errors:
        raise RuntimeError(f"{name}: {', '.join(ErrorCode.of(error).name for error in errors)}")


def exchanges(scale: float) -> list[Exchange]:
    """Returns the exchanges in the order of the table."""

    def some(times: int) -> int:
        return max(int(times * scale), 20)

    return [
        Exchange("IncrementalAlterConfigs", some(1000), [[altered("3600000")], [altered("7200000")]]),
        Exchange("CreateTopics and DeleteTopics", some(300), [[created(), deleted()]]),
        Exchange("DescribeConfigs", some(1000), [[described()]]),
        Exchange("ListOffsets", some(4000), [[latest()]]),
        Exchange("Metadata", some(4000), [[metadata()]]),
        Exchange("FindCoordinator", some(4000), [[coordinator()]]),
        Exchange("OffsetFetch", some(4000), [[committed()]]),
    ]


def altered(retention_ms: str) -> tuple[Message, int]:
    setting = IncrementalAlterConfigsRequest.AlterableConfig(
        name="retention.ms", config_operation=0, value=retention_ms
    )
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configs=[setting]
    )
    return IncrementalAlterConfigsRequest(resources=[resource]), 1


def created() -> tuple[Message, int]:
    """The topic's files are removed soon after its deletion."""
    settings = [CreateTopicsRequest.CreatableTopicConfig(name="file.delete.delay.ms", value="1000")]
    topic = CreateTopicsRequest.CreatableTopic(
        name=SHORT_LIVED, num_partitions=1, replication_factor=1, configs=settings
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7


def deleted() -> tuple[Message, int]:
    topics = [DeleteTopicsRequest.DeleteTopicState(name=SHORT_LIVED)]
    return DeleteTopicsRequest(topics=topics, timeout_ms=30_000), 6


def described() -> tuple[Message, int]:
    """Requests all settings of the topic."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configuration_keys=None
    )
    return DescribeConfigsRequest(resources=[resource]), 4


def latest() -> tuple[Message, int]:
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [ListOffsetsRequest.ListOffsetsTopic(name=TOPIC, partitions=[partition])]
    return ListOffsetsRequest(replica_id=-1, topics=topics), 7


def metadata() -> tuple[Message, int]:
    return MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)]), 11


def coordinator() -> tuple[Message, int]:
    return FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), 4


def committed() -> tuple[Message, int]:
    topics = [OffsetFetchRequest.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
    groups = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP, topics=topics)]
    return OffsetFetchRequest(groups=groups, require_stable=True), 8


def commit() -> OffsetCommitRequest:
    """A commit of a group without members."""
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
    return OffsetCommitRequest(group_id=GROUP, topics=topics)
