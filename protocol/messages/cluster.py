"""DescribeCluster (key 60)."""

from __future__ import annotations

from odradek.protocol.schema import ALWAYS, Message, array, bool_, int8, int16, int32, message, since, string


@message(api_key=60, kind="request", versions=(0, 2), flexible=0)
class DescribeClusterRequest(Message):
    """Requests the cluster id, the controller and the brokers."""

    include_cluster_authorized_operations: bool = bool_()
    endpoint_type: int = int8(default=1, versions=since(1))  # KIP-919
    include_fenced_brokers: bool = bool_(versions=since(2))  # KIP-1073


@message(api_key=60, kind="response", versions=(0, 2), flexible=0)
class DescribeClusterResponse(Message):
    """Cluster id, controller and brokers, and the client's authorized operations on the cluster."""

    class DescribeClusterBroker(Message):
        broker_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string(default=None, nullable=ALWAYS)
        is_fenced: bool = bool_(versions=since(2))  # KIP-1073

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=ALWAYS)
    endpoint_type: int = int8(default=1, versions=since(1))
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array()
    cluster_authorized_operations: int = int32(default=-2147483648)
