"""Brokers and controllers of a KRaft quorum register with it (keys 58, 62 to 64, 70 and 73).

Sources: KIP-590, KIP-631, KIP-858.
"""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import (
    ALWAYS,
    Message,
    array,
    bool_,
    bytes_,
    int16,
    int32,
    int64,
    message,
    since,
    string,
    uint16,
    uuid,
)


@message(api_key=58, kind="request", versions=(0, 0), flexible=0)
class EnvelopeRequest(Message):
    """A client's request that a broker passes on to the controller, with the client's principal and address."""

    request_data: bytes = bytes_()
    request_principal: bytes | None = bytes_(nullable=ALWAYS)
    client_host_address: bytes = bytes_()


@message(api_key=58, kind="response", versions=(0, 0), flexible=0)
class EnvelopeResponse(Message):
    """The controller's response to the request inside."""

    response_data: bytes | None = bytes_(default=None, nullable=ALWAYS)
    error_code: int = int16()


@message(api_key=62, kind="request", versions=(0, 4), flexible=0)
class BrokerRegistrationRequest(Message):
    """A broker registers with its endpoints, features and log directories."""

    class Listener(Message):
        name: str = string()
        host: str = string()
        port: int = uint16()
        security_protocol: int = int16()

    class Feature(Message):
        name: str = string()
        min_supported_version: int = int16()
        max_supported_version: int = int16()

    broker_id: int = int32()
    cluster_id: str = string()
    incarnation_id: UUID = uuid()
    listeners: list[Listener] = array()
    features: list[Feature] = array()
    rack: str | None = string(nullable=ALWAYS)
    is_migrating_zk_broker: bool = bool_(versions=since(1))
    log_dirs: list[UUID] = array(uuid, versions=since(2))
    previous_broker_epoch: int = int64(default=-1, versions=since(3))


@message(api_key=62, kind="response", versions=(0, 4), flexible=0)
class BrokerRegistrationResponse(Message):
    """The broker's epoch."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    broker_epoch: int = int64(default=-1)


@message(api_key=63, kind="request", versions=(0, 2), flexible=0)
class BrokerHeartbeatRequest(Message):
    """A broker reports its progress and directories."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    current_metadata_offset: int = int64()
    want_fence: bool = bool_()
    want_shut_down: bool = bool_()
    offline_log_dirs: list[UUID] = array(uuid, versions=since(1), tag=0)
    cordoned_log_dirs: list[UUID] | None = array(uuid, default=None, versions=since(2), nullable=since(2), tag=1)


@message(api_key=63, kind="response", versions=(0, 2), flexible=0)
class BrokerHeartbeatResponse(Message):
    """Whether the broker may serve clients or must stop."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    is_caught_up: bool = bool_()
    is_fenced: bool = bool_(default=True)
    should_shut_down: bool = bool_()


@message(api_key=64, kind="request", versions=(0, 0), flexible=0)
class UnregisterBrokerRequest(Message):
    """Removes the registration of a broker."""

    broker_id: int = int32()


@message(api_key=64, kind="response", versions=(0, 0), flexible=0)
class UnregisterBrokerResponse(Message):
    """Whether the registration was removed."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=ALWAYS)


@message(api_key=70, kind="request", versions=(0, 0), flexible=0)
class ControllerRegistrationRequest(Message):
    """A controller registers with its endpoints and features."""

    class Listener(Message):
        name: str = string()
        host: str = string()
        port: int = uint16()
        security_protocol: int = int16()

    class Feature(Message):
        name: str = string()
        min_supported_version: int = int16()
        max_supported_version: int = int16()

    controller_id: int = int32()
    incarnation_id: UUID = uuid()
    zk_migration_ready: bool = bool_()
    listeners: list[Listener] = array()
    features: list[Feature] = array()


@message(api_key=70, kind="response", versions=(0, 0), flexible=0)
class ControllerRegistrationResponse(Message):
    """Whether the controller is registered."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=ALWAYS)


@message(api_key=73, kind="request", versions=(0, 0), flexible=0)
class AssignReplicasToDirsRequest(Message):
    """A broker reports in which directories its replicas are."""

    class PartitionData(Message):
        partition_index: int = int32()

    class TopicData(Message):
        topic_id: UUID = uuid()
        partitions: list[AssignReplicasToDirsRequest.PartitionData] = array()

    class DirectoryData(Message):
        id: UUID = uuid()
        topics: list[AssignReplicasToDirsRequest.TopicData] = array()

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    directories: list[DirectoryData] = array()


@message(api_key=73, kind="response", versions=(0, 0), flexible=0)
class AssignReplicasToDirsResponse(Message):
    """Whether each replica was assigned."""

    class PartitionData(Message):
        partition_index: int = int32()
        error_code: int = int16()

    class TopicData(Message):
        topic_id: UUID = uuid()
        partitions: list[AssignReplicasToDirsResponse.PartitionData] = array()

    class DirectoryData(Message):
        id: UUID = uuid()
        topics: list[AssignReplicasToDirsResponse.TopicData] = array()

    throttle_time_ms: int = int32()
    error_code: int = int16()
    directories: list[DirectoryData] = array()
