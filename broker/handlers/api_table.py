"""The table of the APIs that are served. Dispatching, ApiVersions and the generated documentation use it.

The versions that every listener serves are those of one release, Apache Kafka 3.9, since clients infer the release from
them; `version_history.py` says what its versions add to those of 3.0. Between brokers they are those of the protocol
of Kafka 3.0 (broker/peers/inter_broker_protocol.py). Produce and Fetch are served from 0 although message formats 0 and
1 are refused for each partition: librdkafka before 2.12 disables features unless the ranges contain the old versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from odradek.broker.background.stepwise import Steps
from odradek.broker.handlers.add_partitions import add_partitions_error, partitions_to_add_or_verify
from odradek.broker.handlers.api_row import ApiRow, ApiTable
from odradek.broker.handlers.error_responses import (
    find_coordinator_error,
    metadata_error,
    per_item,
    per_partition,
    top_level,
)
from odradek.broker.handlers.fetch import fetch_error
from odradek.broker.handlers.log_dirs import (
    alter_replica_log_dirs_error,
    replicas_to_move,
)
from odradek.broker.handlers.offset_fetch import offset_fetch_error
from odradek.broker.handlers.offset_fetch import partitions_asked as offsets_to_fetch
from odradek.broker.handlers.topics import (
    partitions_to_add,
    partitions_to_create,
)
from odradek.broker.handlers.transactions import (
    partitions_of_markers,
    write_txn_markers_error,
)
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.acls import CreateAclsResponse, DeleteAclsResponse, DescribeAclsResponse
from odradek.protocol.messages.api_versions import ApiVersionsResponse
from odradek.protocol.messages.cluster import DescribeClusterResponse
from odradek.protocol.messages.configs import (
    AlterConfigsResponse,
    DescribeConfigsResponse,
    IncrementalAlterConfigsResponse,
)
from odradek.protocol.messages.delete_records import DeleteRecordsResponse
from odradek.protocol.messages.group_admin import DeleteGroupsResponse, DescribeGroupsResponse, ListGroupsResponse
from odradek.protocol.messages.groups import HeartbeatResponse, JoinGroupResponse, LeaveGroupResponse, SyncGroupResponse
from odradek.protocol.messages.list_offsets import ListOffsetsResponse, OffsetForLeaderEpochResponse
from odradek.protocol.messages.log_dirs import DescribeLogDirsResponse
from odradek.protocol.messages.offsets import OffsetCommitResponse, OffsetDeleteResponse
from odradek.protocol.messages.produce import ProduceResponse
from odradek.protocol.messages.producers import (
    AllocateProducerIdsResponse,
    DescribeProducersResponse,
    InitProducerIdResponse,
)
from odradek.protocol.messages.reassignments import (
    AlterPartitionReassignmentsResponse,
    ElectLeadersResponse,
    ListPartitionReassignmentsResponse,
)
from odradek.protocol.messages.replica_control import (
    AlterPartitionResponse,
    ControlledShutdownResponse,
    LeaderAndIsrResponse,
    StopReplicaResponse,
    UpdateMetadataResponse,
)
from odradek.protocol.messages.sasl import SaslAuthenticateResponse, SaslHandshakeResponse
from odradek.protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsResponse,
)
from odradek.protocol.messages.topics import (
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from odradek.protocol.messages.transactions import (
    AddOffsetsToTxnResponse,
    DescribeTransactionsResponse,
    EndTxnResponse,
    ListTransactionsResponse,
    TxnOffsetCommitResponse,
)
from odradek.protocol.schema import Message
from odradek.protocol.wire_codes import AclOperation


def _count(topics: str, partitions: str) -> Any:
    """Counts the partitions of each topic of a request: `topics` and `partitions` are the names of the arrays."""

    def count(request: Any) -> Iterator[int]:
        return (len(getattr(topic, partitions)) for topic in getattr(request, topics) or ())

    return count


def _delete_topics_error(request: DeleteTopicsRequest, code: ErrorCode, message: str | None) -> Steps[Message]:
    """Before version 6 topics are bare names; later they are structures with a name or an id."""
    return (_DELETION_BY_NAME if request.topic_names else _DELETION)(request, code, message)


def _alter_scram_error(
    request: AlterUserScramCredentialsRequest, code: ErrorCode, message: str | None
) -> Steps[Message]:
    """One result for each user."""
    items: list[Any] = [*request.deletions, *request.upsertions]
    users = dict.fromkeys(item.name for item in items)
    result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
    yield
    return AlterUserScramCredentialsResponse(
        results=[result(user=user, error_code=code, error_message=message) for user in users]
    )


_DELETION_BY_NAME = per_item(DeleteTopicsResponse, ("topic_names", "responses"), "name")
_DELETION = per_item(DeleteTopicsResponse, ("topics", "responses"), "name", "topic_id")


def api_table() -> ApiTable:
    """Returns the APIs that a broker serves."""
    return ApiTable(
        [
            ApiRow(
                ApiKey.PRODUCE,
                (0, 11),
                lambda handlers: handlers.produce.produce,
                per_partition(
                    ProduceResponse,
                    ("topic_data", "responses"),
                    "name",
                    ("partition_data", "partition_responses"),
                    "index",
                    base_offset=-1,
                ),
                partitions_asked=_count("topic_data", "partition_data"),
                keeps_parked_requests=False,
            ),
            ApiRow(
                ApiKey.FETCH,
                (0, 17),
                lambda handlers: handlers.fetch.fetch,
                fetch_error,
                partitions_asked=_count("topics", "partitions"),
                bounds_its_answer=True,
            ),
            ApiRow(
                ApiKey.LIST_OFFSETS,
                (0, 9),
                lambda handlers: handlers.list_offsets.list_offsets,
                per_partition(ListOffsetsResponse, "topics", "name", "partitions", "partition_index"),
                partitions_asked=_count("topics", "partitions"),
            ),
            ApiRow(
                ApiKey.METADATA,
                (0, 12),
                lambda handlers: handlers.metadata.metadata,
                metadata_error,
            ),
            ApiRow(
                ApiKey.OFFSET_COMMIT,
                (0, 9),
                lambda handlers: handlers.offsets.offset_commit,
                per_partition(OffsetCommitResponse, "topics", "name", "partitions", "partition_index"),
                partitions_asked=_count("topics", "partitions"),
            ),
            ApiRow(
                ApiKey.OFFSET_FETCH,
                (0, 9),
                lambda handlers: handlers.offset_fetch.offset_fetch,
                offset_fetch_error,
                partitions_asked=offsets_to_fetch,
            ),
            ApiRow(
                ApiKey.FIND_COORDINATOR,
                (0, 6),
                lambda handlers: handlers.coordinators.find_coordinator,
                find_coordinator_error,
            ),
            ApiRow(
                ApiKey.JOIN_GROUP,
                (0, 9),
                lambda handlers: handlers.groups.join_group,
                top_level(JoinGroupResponse, protocol_name=""),
                partitions_asked=lambda request: (len(request.protocols),),
                bytes_per_partition=3,
            ),
            ApiRow(ApiKey.HEARTBEAT, (0, 4), lambda handlers: handlers.groups.heartbeat, top_level(HeartbeatResponse)),
            ApiRow(
                ApiKey.LEAVE_GROUP,
                (0, 5),
                lambda handlers: handlers.groups.leave_group,
                top_level(LeaveGroupResponse),
            ),
            ApiRow(
                ApiKey.SYNC_GROUP, (0, 5), lambda handlers: handlers.groups.sync_group, top_level(SyncGroupResponse)
            ),
            ApiRow(
                ApiKey.DESCRIBE_GROUPS,
                (0, 5),
                lambda handlers: handlers.group_admin.describe_groups,
                per_item(DescribeGroupsResponse, "groups", "group_id"),
            ),
            ApiRow(
                ApiKey.LIST_GROUPS,
                (0, 5),
                lambda handlers: handlers.group_admin.list_groups,
                top_level(ListGroupsResponse),
            ),
            ApiRow(
                ApiKey.DELETE_GROUPS,
                (0, 2),
                lambda handlers: handlers.group_admin.delete_groups,
                per_item(DeleteGroupsResponse, ("groups_names", "results"), "group_id"),
            ),
            ApiRow(
                ApiKey.OFFSET_DELETE,
                (0, 0),
                lambda handlers: handlers.offsets.offset_delete,
                top_level(OffsetDeleteResponse),
                partitions_asked=_count("topics", "partitions"),
            ),
            ApiRow(
                ApiKey.TXN_OFFSET_COMMIT,
                (0, 4),
                lambda handlers: handlers.offsets.txn_offset_commit,
                per_partition(TxnOffsetCommitResponse, "topics", "name", "partitions", "partition_index"),
                partitions_asked=_count("topics", "partitions"),
            ),
            ApiRow(
                ApiKey.SASL_HANDSHAKE,
                (0, 1),
                lambda handlers: handlers.sasl.sasl_handshake,
                top_level(SaslHandshakeResponse),
            ),
            ApiRow(
                ApiKey.API_VERSIONS,
                (0, 4),
                lambda handlers: handlers.api_versions.api_versions,
                top_level(ApiVersionsResponse),
            ),
            ApiRow(
                ApiKey.CREATE_TOPICS,
                (0, 7),
                lambda handlers: handlers.cluster_changes.for_controller,
                per_item(CreateTopicsResponse, "topics", "name"),
                partitions_asked=partitions_to_create,
                bytes_per_partition=0,
            ),
            ApiRow(ApiKey.DELETE_TOPICS, (0, 6), lambda handlers: handlers.topics.delete_topics, _delete_topics_error),
            ApiRow(
                ApiKey.DELETE_RECORDS,
                (0, 2),
                lambda handlers: handlers.delete_records.delete_records,
                per_partition(
                    DeleteRecordsResponse, "topics", "name", "partitions", "partition_index", low_watermark=-1
                ),
                partitions_asked=_count("topics", "partitions"),
            ),
            ApiRow(
                ApiKey.INIT_PRODUCER_ID,
                (0, 5),
                lambda handlers: handlers.transactions.init_producer_id,
                top_level(InitProducerIdResponse, producer_id=-1, producer_epoch=-1),
            ),
            ApiRow(
                ApiKey.OFFSET_FOR_LEADER_EPOCH,
                (0, 4),
                lambda handlers: handlers.offset_for_leader_epoch.offset_for_leader_epoch,
                per_partition(OffsetForLeaderEpochResponse, "topics", "topic", "partitions", "partition"),
                partitions_asked=_count("topics", "partitions"),
            ),
            ApiRow(
                ApiKey.ADD_PARTITIONS_TO_TXN,
                (0, 5),
                lambda handlers: handlers.add_partitions.add_partitions_to_txn,
                add_partitions_error,
                partitions_asked=partitions_to_add_or_verify,
            ),
            ApiRow(
                ApiKey.ADD_OFFSETS_TO_TXN,
                (0, 4),
                lambda handlers: handlers.transactions.add_offsets_to_txn,
                top_level(AddOffsetsToTxnResponse),
            ),
            ApiRow(ApiKey.END_TXN, (0, 4), lambda handlers: handlers.transactions.end_txn, top_level(EndTxnResponse)),
            ApiRow(
                ApiKey.WRITE_TXN_MARKERS,
                (0, 1),
                lambda handlers: handlers.transactions.write_txn_markers,
                write_txn_markers_error,
                partitions_asked=partitions_of_markers,
            ),
            ApiRow(
                ApiKey.DESCRIBE_TRANSACTIONS,
                (0, 0),
                lambda handlers: handlers.transactions.describe_transactions,
                per_item(DescribeTransactionsResponse, ("transactional_ids", "transaction_states"), "transactional_id"),
            ),
            ApiRow(
                ApiKey.LIST_TRANSACTIONS,
                (0, 1),
                lambda handlers: handlers.transactions.list_transactions,
                top_level(ListTransactionsResponse),
            ),
            ApiRow(
                ApiKey.ALTER_REPLICA_LOG_DIRS,
                (0, 2),
                lambda handlers: handlers.log_dirs.alter_replica_log_dirs,
                alter_replica_log_dirs_error,
                partitions_asked=replicas_to_move,
            ),
            ApiRow(
                ApiKey.DESCRIBE_LOG_DIRS,
                (0, 4),
                lambda handlers: handlers.log_dirs.describe_log_dirs,
                top_level(DescribeLogDirsResponse),
                partitions_asked=_count("topics", "partitions"),
            ),
            ApiRow(
                ApiKey.SASL_AUTHENTICATE,
                (0, 2),
                lambda handlers: handlers.sasl.sasl_authenticate,
                top_level(SaslAuthenticateResponse),
            ),
            ApiRow(
                ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
                (0, 0),
                lambda handlers: handlers.scram.describe_user_scram_credentials,
                top_level(DescribeUserScramCredentialsResponse),
                partitions_asked=lambda request: (len(request.users or ()),),
                bytes_per_partition=2,
            ),
            ApiRow(
                ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
                (0, 0),
                lambda handlers: handlers.scram.alter_user_scram_credentials,
                _alter_scram_error,
                partitions_asked=lambda request: (len(request.deletions), len(request.upsertions)),
                bytes_per_partition=3,
            ),
            ApiRow(
                ApiKey.DESCRIBE_ACLS,
                (0, 3),
                lambda handlers: handlers.acls.describe_acls,
                top_level(DescribeAclsResponse),
            ),
            ApiRow(
                ApiKey.CREATE_ACLS,
                (0, 3),
                lambda handlers: handlers.acls.create_acls,
                per_item(CreateAclsResponse, ("creations", "results")),
                partitions_asked=lambda request: (len(request.creations),),
                bytes_per_partition=8,
            ),
            ApiRow(
                ApiKey.DELETE_ACLS,
                (0, 3),
                lambda handlers: handlers.acls.delete_acls,
                per_item(DeleteAclsResponse, ("filters", "filter_results")),
                partitions_asked=lambda request: (len(request.filters),),
                bytes_per_partition=8,
            ),
            ApiRow(
                ApiKey.ELECT_LEADERS,
                (0, 2),
                lambda handlers: handlers.elections.elect_leaders,
                per_partition(
                    ElectLeadersResponse,
                    ("topic_partitions", "replica_election_results"),
                    "topic",
                    ("partitions", "partition_result"),
                    "partition_id",
                ),
                partitions_asked=_count("topic_partitions", "partitions"),
            ),
            ApiRow(
                ApiKey.ALTER_PARTITION_REASSIGNMENTS,
                (0, 0),
                lambda handlers: handlers.reassignments.alter_partition_reassignments,
                per_partition(
                    AlterPartitionReassignmentsResponse,
                    ("topics", "responses"),
                    "name",
                    "partitions",
                    "partition_index",
                ),
                partitions_asked=_count("topics", "partitions"),
            ),
            ApiRow(
                ApiKey.LIST_PARTITION_REASSIGNMENTS,
                (0, 0),
                lambda handlers: handlers.reassignments.list_partition_reassignments,
                top_level(ListPartitionReassignmentsResponse),
                partitions_asked=_count("topics", "partition_indexes"),
            ),
            ApiRow(
                ApiKey.DESCRIBE_CONFIGS,
                (0, 4),
                lambda handlers: handlers.describe_configs.describe_configs,
                per_item(DescribeConfigsResponse, ("resources", "results"), "resource_type", "resource_name"),
            ),
            ApiRow(
                ApiKey.ALTER_CONFIGS,
                (0, 2),
                lambda handlers: handlers.alter_configs.alter_configs,
                per_item(AlterConfigsResponse, ("resources", "responses"), "resource_type", "resource_name"),
            ),
            ApiRow(
                ApiKey.INCREMENTAL_ALTER_CONFIGS,
                (0, 1),
                lambda handlers: handlers.alter_configs.incremental_alter_configs,
                per_item(IncrementalAlterConfigsResponse, ("resources", "responses"), "resource_type", "resource_name"),
            ),
            ApiRow(
                ApiKey.CREATE_PARTITIONS,
                (0, 3),
                lambda handlers: handlers.topics.create_partitions,
                per_item(CreatePartitionsResponse, ("topics", "results"), "name"),
                partitions_asked=partitions_to_add,
                bytes_per_partition=0,
            ),
            ApiRow(
                ApiKey.DESCRIBE_CLUSTER,
                (0, 1),
                lambda handlers: handlers.cluster.describe_cluster,
                top_level(DescribeClusterResponse),
            ),
            ApiRow(
                ApiKey.DESCRIBE_PRODUCERS,
                (0, 0),
                lambda handlers: handlers.producers.describe_producers,
                per_partition(
                    DescribeProducersResponse,
                    "topics",
                    "name",
                    ("partition_indexes", "partitions"),
                    "partition_index",
                ),
                partitions_asked=_count("topics", "partition_indexes"),
            ),
            ApiRow(
                ApiKey.LEADER_AND_ISR,
                None,
                lambda handlers: handlers.cluster_changes.from_controller,
                top_level(LeaderAndIsrResponse),
                between_brokers=(5, 5),
                authorization=AclOperation.CLUSTER_ACTION,
            ),
            ApiRow(
                ApiKey.STOP_REPLICA,
                None,
                lambda handlers: handlers.cluster_changes.from_controller,
                top_level(StopReplicaResponse),
                between_brokers=(3, 3),
                authorization=AclOperation.CLUSTER_ACTION,
            ),
            ApiRow(
                ApiKey.UPDATE_METADATA,
                None,
                lambda handlers: handlers.cluster_changes.from_controller,
                top_level(UpdateMetadataResponse),
                between_brokers=(7, 7),
                authorization=AclOperation.CLUSTER_ACTION,
            ),
            ApiRow(
                ApiKey.CONTROLLED_SHUTDOWN,
                None,
                lambda handlers: handlers.cluster_changes.for_controller,
                top_level(ControlledShutdownResponse),
                between_brokers=(3, 3),
                authorization=AclOperation.CLUSTER_ACTION,
            ),
            ApiRow(
                ApiKey.ALTER_PARTITION,
                None,
                lambda handlers: handlers.cluster_changes.for_controller,
                top_level(AlterPartitionResponse),
                between_brokers=(0, 0),
                authorization=AclOperation.CLUSTER_ACTION,
            ),
            ApiRow(
                ApiKey.ALLOCATE_PRODUCER_IDS,
                None,
                lambda handlers: handlers.cluster_changes.for_controller,
                top_level(AllocateProducerIdsResponse),
                between_brokers=(0, 0),
                authorization=AclOperation.CLUSTER_ACTION,
            ),
        ]
    )
