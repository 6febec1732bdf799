"""The table of the APIs that are served. Dispatching, ApiVersions and the generated documentation use it.

The versions that every listener serves begin with those of Apache Kafka 3.9 and end with those of 4.4, so that clients
from 0.11 on are served; `version_history.py` says what they add to those of 3.0. Between brokers they are those of the
protocol of Kafka 3.0 (broker/peers/inter_broker_protocol.py). Produce and Fetch are served from 0 although message
formats 0 and 1 are refused for each partition: librdkafka before 2.12 disables features unless the ranges contain the
old versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

from odradek.broker.background.stepwise import Steps
from odradek.broker.handlers import (
    add_partitions,
    configs,
    consumer_groups,
    coordinators,
    create_topics,
    fetch,
    group_admin,
    groups,
    log_dirs,
    metadata,
    offset_fetch,
    offsets,
    producers,
    topic_partitions,
    topics,
    transactions,
)
from odradek.broker.handlers.access import CLUSTER_OPERATIONS
from odradek.broker.handlers.api_row import ApiTable, api_row
from odradek.broker.handlers.authorization import (
    FETCH_AS_CONSUMER,
    FETCH_AS_FOLLOWER,
    NOTHING_ASKED,
    PRODUCE_IN_TRANSACTION,
    PRODUCE_TO_TOPIC,
    before,
    in_handler,
    on_cluster,
    on_each,
    on_each_with_settings,
    on_group,
    on_transactional_id,
    says_nothing,
    says_who,
)
from odradek.broker.handlers.error_responses import (
    find_coordinator_error,
    metadata_error,
    per_item,
    per_partition,
    top_level,
)
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.acls import CreateAclsResponse, DeleteAclsResponse, DescribeAclsResponse
from odradek.protocol.messages.api_versions import ApiVersionsResponse
from odradek.protocol.messages.client_quotas import DescribeClientQuotasResponse
from odradek.protocol.messages.cluster import DescribeClusterResponse
from odradek.protocol.messages.config_resources import ListConfigResourcesResponse
from odradek.protocol.messages.configs import (
    AlterConfigsResponse,
    DescribeConfigsResponse,
    IncrementalAlterConfigsResponse,
)
from odradek.protocol.messages.consumer_groups import ConsumerGroupDescribeResponse, ConsumerGroupHeartbeatResponse
from odradek.protocol.messages.delete_records import DeleteRecordsResponse
from odradek.protocol.messages.features import UpdateFeaturesResponse
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
from odradek.protocol.messages.topic_partitions import DescribeTopicPartitionsResponse
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
from odradek.protocol.wire_codes import AclOperation, AclResourceType

_NOT_CONTROLLER = partial(ProtocolError, ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER.message)


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


@cache
def api_table() -> ApiTable:
    """Returns the APIs that a broker serves. Made once for all brokers of the process."""
    return ApiTable.of(
        [
            api_row(
                ApiKey.PRODUCE,
                (0, 13),
                lambda handlers: handlers.produce.produce,
                per_partition(
                    ProduceResponse,
                    ("topic_data", "responses"),
                    ("name", "topic_id"),
                    ("partition_data", "partition_responses"),
                    "index",
                    base_offset=-1,
                ),
                partitions_asked=_count("topic_data", "partition_data"),
                keeps_parked_requests=False,
                authorization=in_handler(PRODUCE_IN_TRANSACTION, PRODUCE_TO_TOPIC),
            ),
            api_row(
                ApiKey.FETCH,
                (0, 18),
                lambda handlers: handlers.fetch.fetch,
                fetch.fetch_error,
                partitions_asked=_count("topics", "partitions"),
                bounds_its_answer=True,
                authorization=in_handler(FETCH_AS_FOLLOWER, FETCH_AS_CONSUMER),
            ),
            api_row(
                ApiKey.LIST_OFFSETS,
                (0, 11),
                lambda handlers: handlers.list_offsets.list_offsets,
                per_partition(ListOffsetsResponse, "topics", "name", "partitions", "partition_index"),
                partitions_asked=_count("topics", "partitions"),
                authorization=before(items=on_each(AclOperation.DESCRIBE, AclResourceType.TOPIC, "topics", "name")),
            ),
            api_row(
                ApiKey.METADATA,
                (0, 13),
                lambda handlers: handlers.metadata.metadata,
                metadata_error,
                authorization=in_handler(
                    metadata.SEE_TOPIC, metadata.CREATE_ALL, metadata.CREATE_EACH, CLUSTER_OPERATIONS
                ),
            ),
            api_row(
                ApiKey.OFFSET_COMMIT,
                (0, 10),
                lambda handlers: handlers.offsets.offset_commit,
                per_partition(OffsetCommitResponse, "topics", ("name", "topic_id"), "partitions", "partition_index"),
                partitions_asked=_count("topics", "partitions"),
                topic_ids_since=offsets.FIRST_VERSION_WITH_IDS,
                authorization=before(
                    on_group(AclOperation.READ),
                    items=on_each(AclOperation.READ, AclResourceType.TOPIC, "topics", "name"),
                ),
            ),
            api_row(
                ApiKey.OFFSET_FETCH,
                (0, 10),
                lambda handlers: handlers.offset_fetch.offset_fetch,
                offset_fetch.offset_fetch_error,
                partitions_asked=offset_fetch.partitions_asked,
                authorization=in_handler(offset_fetch.SEE_GROUP, offset_fetch.SEE_TOPIC),
            ),
            api_row(
                ApiKey.FIND_COORDINATOR,
                (0, 6),
                lambda handlers: handlers.coordinators.find_coordinator,
                find_coordinator_error,
                authorization=in_handler(*coordinators.CHECKS.values()),
            ),
            api_row(
                ApiKey.JOIN_GROUP,
                (0, 9),
                lambda handlers: handlers.groups.join_group,
                top_level(JoinGroupResponse, protocol_name=None),
                partitions_asked=lambda request: (len(request.protocols),),
                bytes_per_partition=3,
                authorization=before(on_group(AclOperation.READ)),
            ),
            api_row(
                ApiKey.HEARTBEAT,
                (0, 4),
                lambda handlers: handlers.groups.heartbeat,
                top_level(HeartbeatResponse),
                authorization=before(on_group(AclOperation.READ)),
            ),
            api_row(
                ApiKey.LEAVE_GROUP,
                (0, 5),
                lambda handlers: handlers.groups.leave_group,
                top_level(LeaveGroupResponse),
                authorization=before(on_group(AclOperation.READ)),
            ),
            api_row(
                ApiKey.SYNC_GROUP,
                (0, 5),
                lambda handlers: handlers.groups.sync_group,
                top_level(SyncGroupResponse),
                authorization=in_handler(groups.READ_GROUP),
            ),
            api_row(
                ApiKey.DESCRIBE_GROUPS,
                (0, 6),
                lambda handlers: handlers.group_admin.describe_groups,
                per_item(DescribeGroupsResponse, "groups", "group_id"),
                authorization=before(items=on_each(AclOperation.DESCRIBE, AclResourceType.GROUP, "groups")),
            ),
            api_row(
                ApiKey.LIST_GROUPS,
                (0, 5),
                lambda handlers: handlers.group_admin.list_groups,
                top_level(ListGroupsResponse),
                authorization=in_handler(group_admin.LIST_ALL, group_admin.LIST_EACH),
            ),
            api_row(
                ApiKey.DELETE_GROUPS,
                (0, 3),
                lambda handlers: handlers.group_admin.delete_groups,
                per_item(DeleteGroupsResponse, ("groups_names", "results"), "group_id"),
                authorization=before(items=on_each(AclOperation.DELETE, AclResourceType.GROUP, "groups_names")),
            ),
            api_row(
                ApiKey.CONSUMER_GROUP_HEARTBEAT,
                (0, 1),
                lambda handlers: handlers.consumer_groups.heartbeat,
                top_level(ConsumerGroupHeartbeatResponse),
                partitions_asked=consumer_groups.items_named,
                bytes_per_partition=2,
                authorization=in_handler(
                    consumer_groups.READ_GROUP, consumer_groups.SEE_TOPICS, consumer_groups.SEE_MATCHED
                ),
            ),
            api_row(
                ApiKey.CONSUMER_GROUP_DESCRIBE,
                (0, 1),
                lambda handlers: handlers.consumer_groups.describe,
                per_item(ConsumerGroupDescribeResponse, ("group_ids", "groups"), "group_id"),
                authorization=before(
                    items=on_each(AclOperation.DESCRIBE, AclResourceType.GROUP, "group_ids")
                ).and_in_handler(consumer_groups.SEE_ASSIGNED),
            ),
            api_row(
                ApiKey.OFFSET_DELETE,
                (0, 0),
                lambda handlers: handlers.offsets.offset_delete,
                top_level(OffsetDeleteResponse),
                partitions_asked=_count("topics", "partitions"),
                authorization=before(
                    on_group(AclOperation.DELETE),
                    items=on_each(
                        AclOperation.READ,
                        AclResourceType.TOPIC,
                        "topics",
                        "name",
                        denial=per_partition(OffsetDeleteResponse, "topics", "name", "partitions", "partition_index"),
                    ),
                ),
            ),
            api_row(
                ApiKey.TXN_OFFSET_COMMIT,
                (0, 6),
                lambda handlers: handlers.offsets.txn_offset_commit,
                per_partition(TxnOffsetCommitResponse, "topics", ("name", "topic_id"), "partitions", "partition_index"),
                partitions_asked=_count("topics", "partitions"),
                topic_ids_since=offsets.FIRST_TRANSACTIONAL_VERSION_WITH_IDS,
                authorization=before(
                    on_transactional_id(AclOperation.WRITE),
                    on_group(AclOperation.READ),
                    items=on_each(AclOperation.READ, AclResourceType.TOPIC, "topics", "name"),
                ),
            ),
            api_row(
                ApiKey.SASL_HANDSHAKE,
                (0, 1),
                lambda handlers: handlers.sasl.sasl_handshake,
                top_level(SaslHandshakeResponse),
                authorization=NOTHING_ASKED,
            ),
            api_row(
                ApiKey.API_VERSIONS,
                (0, 5),
                lambda handlers: handlers.api_versions.api_versions,
                top_level(ApiVersionsResponse),
                authorization=NOTHING_ASKED,
            ),
            api_row(
                ApiKey.UPDATE_FEATURES,
                (0, 2),
                lambda handlers: handlers.features.update_features,
                top_level(UpdateFeaturesResponse),
                authorization=before(on_cluster(AclOperation.ALTER)),
                not_controller=_NOT_CONTROLLER,
            ),
            api_row(
                ApiKey.CREATE_TOPICS,
                (0, 7),
                lambda handlers: handlers.create_topics.create_topics,
                per_item(CreateTopicsResponse, "topics", "name"),
                partitions_asked=topics.partitions_to_create,
                bytes_per_partition=0,
                authorization=in_handler(
                    create_topics.CREATE_ALL, create_topics.CREATE_EACH, create_topics.SEE_SETTINGS
                ),
                not_controller=_NOT_CONTROLLER,
            ),
            api_row(
                ApiKey.DELETE_TOPICS,
                (0, 6),
                lambda handlers: handlers.topics.delete_topics,
                _delete_topics_error,
                authorization=in_handler(topics.NAME_BY_ID, topics.DELETE_TOPIC),
                not_controller=partial(ProtocolError, ErrorCode.NOT_CONTROLLER),
            ),
            api_row(
                ApiKey.DELETE_RECORDS,
                (0, 2),
                lambda handlers: handlers.delete_records.delete_records,
                per_partition(
                    DeleteRecordsResponse, "topics", "name", "partitions", "partition_index", low_watermark=-1
                ),
                partitions_asked=_count("topics", "partitions"),
                authorization=before(items=on_each(AclOperation.DELETE, AclResourceType.TOPIC, "topics", "name")),
            ),
            api_row(
                ApiKey.INIT_PRODUCER_ID,
                (0, 5),
                lambda handlers: handlers.transactions.init_producer_id,
                top_level(InitProducerIdResponse, producer_id=-1, producer_epoch=-1),
                authorization=in_handler(
                    transactions.TRANSACTIONAL_PRODUCER, transactions.IDEMPOTENT_PRODUCER, transactions.WRITES_ANY_TOPIC
                ),
            ),
            api_row(
                ApiKey.OFFSET_FOR_LEADER_EPOCH,
                (0, 4),
                lambda handlers: handlers.offset_for_leader_epoch.offset_for_leader_epoch,
                per_partition(OffsetForLeaderEpochResponse, "topics", "topic", "partitions", "partition"),
                partitions_asked=_count("topics", "partitions"),
                authorization=before(
                    items=on_each(
                        AclOperation.DESCRIBE,
                        AclResourceType.TOPIC,
                        "topics",
                        "topic",
                        unless=AclOperation.CLUSTER_ACTION,
                    )
                ),
            ),
            api_row(
                ApiKey.ADD_PARTITIONS_TO_TXN,
                (0, 5),
                lambda handlers: handlers.add_partitions.add_partitions_to_txn,
                add_partitions.add_partitions_error,
                partitions_asked=add_partitions.partitions_to_add_or_verify,
                authorization=in_handler(
                    add_partitions.OF_BROKER, add_partitions.WRITE_TRANSACTION, add_partitions.WRITE_TOPIC
                ),
            ),
            api_row(
                ApiKey.ADD_OFFSETS_TO_TXN,
                (0, 4),
                lambda handlers: handlers.transactions.add_offsets_to_txn,
                top_level(AddOffsetsToTxnResponse),
                authorization=before(on_transactional_id(AclOperation.WRITE), on_group(AclOperation.READ)),
            ),
            api_row(
                ApiKey.END_TXN,
                (0, 5),
                lambda handlers: handlers.transactions.end_txn,
                top_level(EndTxnResponse),
                authorization=before(on_transactional_id(AclOperation.WRITE)),
            ),
            api_row(
                ApiKey.WRITE_TXN_MARKERS,
                (0, 2),
                lambda handlers: handlers.transactions.write_txn_markers,
                transactions.write_txn_markers_error,
                partitions_asked=transactions.partitions_of_markers,
                authorization=before(on_cluster(AclOperation.ALTER, AclOperation.CLUSTER_ACTION)),
            ),
            api_row(
                ApiKey.DESCRIBE_TRANSACTIONS,
                (0, 0),
                lambda handlers: handlers.transactions.describe_transactions,
                per_item(DescribeTransactionsResponse, ("transactional_ids", "transaction_states"), "transactional_id"),
                authorization=before(
                    items=on_each(AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, "transactional_ids")
                ).and_in_handler(transactions.TOPIC_OF_TRANSACTION),
            ),
            api_row(
                ApiKey.LIST_TRANSACTIONS,
                (0, 2),
                lambda handlers: handlers.transactions.list_transactions,
                top_level(ListTransactionsResponse),
                authorization=in_handler(transactions.LISTED_TRANSACTION),
            ),
            api_row(
                ApiKey.ALTER_REPLICA_LOG_DIRS,
                (0, 2),
                lambda handlers: handlers.log_dirs.alter_replica_log_dirs,
                log_dirs.alter_replica_log_dirs_error,
                partitions_asked=log_dirs.replicas_to_move,
                authorization=before(on_cluster(AclOperation.ALTER)),
            ),
            api_row(
                ApiKey.DESCRIBE_LOG_DIRS,
                (0, 5),
                lambda handlers: handlers.log_dirs.describe_log_dirs,
                top_level(DescribeLogDirsResponse),
                partitions_asked=_count("topics", "partitions"),
                authorization=before(on_cluster(AclOperation.DESCRIBE)),
            ),
            api_row(
                ApiKey.SASL_AUTHENTICATE,
                (0, 2),
                lambda handlers: handlers.sasl.sasl_authenticate,
                top_level(SaslAuthenticateResponse),
                authorization=NOTHING_ASKED,
            ),
            api_row(
                ApiKey.DESCRIBE_CLIENT_QUOTAS,
                (0, 1),
                lambda handlers: handlers.client_quotas.describe_client_quotas,
                top_level(DescribeClientQuotasResponse, entries=None),
                authorization=before(on_cluster(AclOperation.DESCRIBE_CONFIGS)),
            ),
            api_row(
                ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
                (0, 0),
                lambda handlers: handlers.scram.describe_user_scram_credentials,
                per_item(DescribeUserScramCredentialsResponse, ("users", "results")),
                partitions_asked=lambda request: (len(request.users or ()),),
                bytes_per_partition=2,
                authorization=before(on_cluster(AclOperation.DESCRIBE)),
            ),
            api_row(
                ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
                (0, 0),
                lambda handlers: handlers.scram.alter_user_scram_credentials,
                _alter_scram_error,
                partitions_asked=lambda request: (len(request.deletions), len(request.upsertions)),
                bytes_per_partition=3,
                authorization=before(on_cluster(AclOperation.ALTER)),
            ),
            api_row(
                ApiKey.DESCRIBE_ACLS,
                (0, 3),
                lambda handlers: handlers.acls.describe_acls,
                top_level(DescribeAclsResponse),
                authorization=before(on_cluster(AclOperation.DESCRIBE, says=says_who)),
            ),
            api_row(
                ApiKey.CREATE_ACLS,
                (0, 3),
                lambda handlers: handlers.acls.create_acls,
                per_item(CreateAclsResponse, ("creations", "results")),
                authorization=before(on_cluster(AclOperation.ALTER, says=says_who)),
                partitions_asked=lambda request: (len(request.creations),),
                bytes_per_partition=8,
            ),
            api_row(
                ApiKey.DELETE_ACLS,
                (0, 3),
                lambda handlers: handlers.acls.delete_acls,
                per_item(DeleteAclsResponse, ("filters", "filter_results")),
                authorization=before(on_cluster(AclOperation.ALTER, says=says_who)),
                partitions_asked=lambda request: (len(request.filters),),
                bytes_per_partition=8,
            ),
            api_row(
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
                authorization=before(on_cluster(AclOperation.ALTER, says=says_nothing)),
            ),
            api_row(
                ApiKey.ALTER_PARTITION_REASSIGNMENTS,
                (0, 1),
                lambda handlers: handlers.reassignments.alter_partition_reassignments,
                per_partition(
                    AlterPartitionReassignmentsResponse,
                    ("topics", "responses"),
                    "name",
                    "partitions",
                    "partition_index",
                ),
                partitions_asked=_count("topics", "partitions"),
                authorization=before(on_cluster(AclOperation.ALTER, says=says_who)),
            ),
            api_row(
                ApiKey.LIST_PARTITION_REASSIGNMENTS,
                (0, 0),
                lambda handlers: handlers.reassignments.list_partition_reassignments,
                per_partition(
                    ListPartitionReassignmentsResponse,
                    "topics",
                    "name",
                    ("partition_indexes", "partitions"),
                    "partition_index",
                ),
                partitions_asked=_count("topics", "partition_indexes"),
                authorization=before(on_cluster(AclOperation.DESCRIBE, says=says_who)),
            ),
            api_row(
                ApiKey.DESCRIBE_CONFIGS,
                (0, 4),
                lambda handlers: handlers.describe_configs.describe_configs,
                per_item(DescribeConfigsResponse, ("resources", "results"), "resource_type", "resource_name"),
                authorization=before(items=on_each_with_settings(AclOperation.DESCRIBE_CONFIGS, "resources")),
            ),
            api_row(
                ApiKey.ALTER_CONFIGS,
                (0, 2),
                lambda handlers: handlers.alter_configs.alter_configs,
                per_item(AlterConfigsResponse, ("resources", "responses"), "resource_type", "resource_name"),
                authorization=in_handler(*configs.CHECKS.values()),
            ),
            api_row(
                ApiKey.INCREMENTAL_ALTER_CONFIGS,
                (0, 1),
                lambda handlers: handlers.alter_configs.incremental_alter_configs,
                per_item(IncrementalAlterConfigsResponse, ("resources", "responses"), "resource_type", "resource_name"),
                authorization=in_handler(*configs.CHECKS.values()),
            ),
            api_row(
                ApiKey.LIST_CONFIG_RESOURCES,
                (0, 1),
                lambda handlers: handlers.config_listing.list_config_resources,
                top_level(ListConfigResourcesResponse),
                authorization=before(on_cluster(AclOperation.DESCRIBE_CONFIGS)),
            ),
            api_row(
                ApiKey.DESCRIBE_TOPIC_PARTITIONS,
                (0, 0),
                lambda handlers: handlers.topic_partitions.describe_topic_partitions,
                per_item(DescribeTopicPartitionsResponse, "topics", "name"),
                authorization=in_handler(topic_partitions.SEE_TOPIC),
            ),
            api_row(
                ApiKey.CREATE_PARTITIONS,
                (0, 3),
                lambda handlers: handlers.topics.create_partitions,
                per_item(CreatePartitionsResponse, ("topics", "results"), "name"),
                partitions_asked=topics.partitions_to_add,
                bytes_per_partition=0,
                authorization=in_handler(topics.ADD_PARTITIONS),
                not_controller=_NOT_CONTROLLER,
            ),
            api_row(
                ApiKey.DESCRIBE_CLUSTER,
                (0, 2),
                lambda handlers: handlers.cluster.describe_cluster,
                top_level(DescribeClusterResponse),
                authorization=in_handler(CLUSTER_OPERATIONS),
            ),
            api_row(
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
                authorization=in_handler(producers.READ_TOPIC),
            ),
            api_row(
                ApiKey.LEADER_AND_ISR,
                None,
                lambda handlers: handlers.cluster_changes.from_controller,
                top_level(LeaderAndIsrResponse),
                between_brokers=(5, 5),
                authorization=before(on_cluster(AclOperation.CLUSTER_ACTION, says=says_who)),
            ),
            api_row(
                ApiKey.STOP_REPLICA,
                None,
                lambda handlers: handlers.cluster_changes.from_controller,
                top_level(StopReplicaResponse),
                between_brokers=(3, 3),
                authorization=before(on_cluster(AclOperation.CLUSTER_ACTION, says=says_who)),
            ),
            api_row(
                ApiKey.UPDATE_METADATA,
                None,
                lambda handlers: handlers.cluster_changes.from_controller,
                top_level(UpdateMetadataResponse),
                between_brokers=(7, 7),
                authorization=before(on_cluster(AclOperation.CLUSTER_ACTION, says=says_who)),
            ),
            api_row(
                ApiKey.CONTROLLED_SHUTDOWN,
                None,
                lambda handlers: handlers.cluster_changes.for_controller,
                top_level(ControlledShutdownResponse),
                between_brokers=(3, 3),
                authorization=before(on_cluster(AclOperation.CLUSTER_ACTION, says=says_who)),
            ),
            api_row(
                ApiKey.ALTER_PARTITION,
                None,
                lambda handlers: handlers.cluster_changes.for_controller,
                top_level(AlterPartitionResponse),
                between_brokers=(0, 0),
                authorization=before(on_cluster(AclOperation.CLUSTER_ACTION, says=says_who)),
            ),
            api_row(
                ApiKey.ALLOCATE_PRODUCER_IDS,
                None,
                lambda handlers: handlers.cluster_changes.for_controller,
                top_level(AllocateProducerIdsResponse),
                between_brokers=(0, 0),
                authorization=before(on_cluster(AclOperation.CLUSTER_ACTION, says=says_who)),
            ),
        ]
    )
