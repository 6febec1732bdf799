"""DescribeCluster and DescribeLogDirs. Source: Kafka's `AuthHelper.computeDescribeClusterResponse`, `KafkaApis`."""

from __future__ import annotations

from itertools import groupby

from broker.handlers.authorized_operations import ALL_ON_CLUSTER, NOT_ASKED
from broker.handlers.request_context import RequestContext
from broker.replica.log_dirs import LogDirDescription
from protocol.errors import ErrorCode
from protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse
from protocol.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from protocol.topic_partition import TopicPartition

BROKER_ENDPOINT, CONTROLLER_ENDPOINT = 1, 2


def handle_describe_cluster(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    """Cluster id, controller and the brokers that have an address on this listener."""
    if request.endpoint_type != BROKER_ENDPOINT:
        is_known = request.endpoint_type == CONTROLLER_ENDPOINT
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        return DescribeClusterResponse(error_code=code, error_message=code.message)
    metadata = context.broker.metadata
    brokers = []
    for broker in metadata.brokers.values():
        endpoint = broker.endpoint(context.listener.name)
        if endpoint is not None:
            brokers.append(
                DescribeClusterResponse.DescribeClusterBroker(
                    broker_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack
                )
            )
    is_listed = any(broker.broker_id == metadata.controller_id for broker in brokers)
    return DescribeClusterResponse(
        cluster_id=metadata.cluster_id,
        controller_id=metadata.controller_id if is_listed else -1,
        brokers=brokers,
        cluster_authorized_operations=ALL_ON_CLUSTER if request.include_cluster_authorized_operations else NOT_ASKED,
    )


def handle_describe_log_dirs(request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    """Every log directory with the partitions asked for (null: all)."""
    wanted = None
    if request.topics is not None:
        wanted = {TopicPartition(asked.topic, number) for asked in request.topics for number in asked.partitions}
    described = context.broker.replica_manager.describe_log_dirs(wanted)
    return DescribeLogDirsResponse(results=[_log_dir(directory) for directory in described])


def _log_dir(directory: LogDirDescription) -> DescribeLogDirsResponse.DescribeLogDirsResult:
    topics = []
    for name, replicas in groupby(directory.replicas, key=lambda replica: replica.topic_partition.topic):
        partitions = [
            DescribeLogDirsResponse.DescribeLogDirsPartition(
                partition_index=replica.topic_partition.partition,
                partition_size=replica.size,
                offset_lag=replica.offset_lag,
                is_future_key=replica.is_future,
            )
            for replica in replicas
        ]
        topics.append(DescribeLogDirsResponse.DescribeLogDirsTopic(name=name, partitions=partitions))
    return DescribeLogDirsResponse.DescribeLogDirsResult(
        error_code=directory.error,
        log_dir=directory.path,
        topics=topics,
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
    )
