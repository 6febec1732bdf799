"""DescribeCluster. Source: Kafka's `AuthHelper.computeDescribeClusterResponse`."""

from __future__ import annotations

from odradek.broker.handlers.access import NOT_ASKED, Access
from odradek.broker.metadata.metadata_cache import MetadataCache
from odradek.broker.requests.request_context import RequestContext
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse

BROKER_ENDPOINT, CONTROLLER_ENDPOINT = 1, 2


class DescribeClusterHandler:
    """DescribeCluster (key 60)."""

    def __init__(self, metadata: MetadataCache, access: Access) -> None:
        self._metadata = metadata
        self._access = access

    def describe_cluster(self, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
        """Returns the cluster id, the controller and the brokers that have an endpoint on this listener."""
        if request.endpoint_type != BROKER_ENDPOINT:
            is_known = request.endpoint_type == CONTROLLER_ENDPOINT
            code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            return DescribeClusterResponse(error_code=code, error_message=code.message)
        metadata = self._metadata
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
            cluster_authorized_operations=self._access.operations_on_cluster(context)
            if request.include_cluster_authorized_operations
            else NOT_ASKED,
        )
