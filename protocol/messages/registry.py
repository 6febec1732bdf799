"""The request and response classes of each API key: one table of modules, each imported on first use.

request_class(ApiKey.FETCH)     protocol.messages.fetch.FetchRequest
codec_versions(ApiKey.FETCH)    Versions(0, 18): the versions of the codec, which are more than a broker serves
message_class("OffsetCommitKey")    by the name in Kafka's specification, including headers and coordinator records
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.schema import Message, Versions

_FILES: dict[str, tuple[ApiKey, ...]] = {
    "produce": (ApiKey.PRODUCE,),
    "fetch": (ApiKey.FETCH,),
    "list_offsets": (ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH),
    "metadata": (ApiKey.METADATA,),
    "replica_control": (
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
    ),
    "offsets": (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_DELETE),
    "find_coordinator": (ApiKey.FIND_COORDINATOR,),
    "groups": (ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.SYNC_GROUP),
    "group_admin": (ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS, ApiKey.DELETE_GROUPS),
    "sasl": (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE),
    "api_versions": (ApiKey.API_VERSIONS,),
    "topics": (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS),
    "delete_records": (ApiKey.DELETE_RECORDS,),
    "producers": (ApiKey.INIT_PRODUCER_ID, ApiKey.DESCRIBE_PRODUCERS, ApiKey.ALLOCATE_PRODUCER_IDS),
    "transactions": (
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
    ),
    "acls": (ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS),
    "configs": (ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS),
    "log_dirs": (ApiKey.ALTER_REPLICA_LOG_DIRS, ApiKey.DESCRIBE_LOG_DIRS),
    "delegation_tokens": (
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ),
    "reassignments": (
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ),
    "client_quotas": (ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.ALTER_CLIENT_QUOTAS),
    "scram": (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS),
    "cluster": (ApiKey.DESCRIBE_CLUSTER,),
    "features": (ApiKey.UPDATE_FEATURES,),
    "consumer_groups": (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE),
    "telemetry": (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY),
    "config_resources": (ApiKey.LIST_CONFIG_RESOURCES,),
    "topic_partitions": (ApiKey.DESCRIBE_TOPIC_PARTITIONS,),
    "share_groups": (
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
    ),
    "share_state": (
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    ),
    "share_offsets": (
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    ),
    "streams_groups": (
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        ApiKey.STREAMS_GROUP_DESCRIBE,
        ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
    ),
    "quorum": (
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.UPDATE_RAFT_VOTER,
        ApiKey.UNREGISTER_CONTROLLER,
    ),
    "broker_registration": (
        ApiKey.ENVELOPE,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ),
}
_FILE_OF_KEY = {key: file for file, keys in _FILES.items() for key in keys}

_NAMED_FILES: dict[str, tuple[str, ...]] = {
    "headers": ("RequestHeader", "ResponseHeader"),
    "consumer_protocol": ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment"),
    "group_records": ("OffsetCommitKey", "OffsetCommitValue", "GroupMetadataKey", "GroupMetadataValue"),
    "consumer_group_records": (
        "ConsumerGroupMetadataKey",
        "ConsumerGroupMetadataValue",
        "ConsumerGroupPartitionMetadataKey",
        "ConsumerGroupPartitionMetadataValue",
        "ConsumerGroupMemberMetadataKey",
        "ConsumerGroupMemberMetadataValue",
        "ConsumerGroupTargetAssignmentMetadataKey",
        "ConsumerGroupTargetAssignmentMetadataValue",
        "ConsumerGroupTargetAssignmentMemberKey",
        "ConsumerGroupTargetAssignmentMemberValue",
        "ConsumerGroupCurrentMemberAssignmentKey",
        "ConsumerGroupCurrentMemberAssignmentValue",
        "ConsumerGroupRegularExpressionKey",
        "ConsumerGroupRegularExpressionValue",
    ),
    "share_group_records": (
        "ShareGroupPartitionMetadataKey",
        "ShareGroupPartitionMetadataValue",
        "ShareGroupMemberMetadataKey",
        "ShareGroupMemberMetadataValue",
        "ShareGroupMetadataKey",
        "ShareGroupMetadataValue",
        "ShareGroupTargetAssignmentMetadataKey",
        "ShareGroupTargetAssignmentMetadataValue",
        "ShareGroupTargetAssignmentMemberKey",
        "ShareGroupTargetAssignmentMemberValue",
        "ShareGroupCurrentMemberAssignmentKey",
        "ShareGroupCurrentMemberAssignmentValue",
        "ShareGroupStatePartitionMetadataKey",
        "ShareGroupStatePartitionMetadataValue",
    ),
    "streams_group_records": (
        "StreamsGroupMetadataKey",
        "StreamsGroupMetadataValue",
        "StreamsGroupMemberMetadataKey",
        "StreamsGroupMemberMetadataValue",
        "StreamsGroupTargetAssignmentMetadataKey",
        "StreamsGroupTargetAssignmentMetadataValue",
        "StreamsGroupTargetAssignmentMemberKey",
        "StreamsGroupTargetAssignmentMemberValue",
        "StreamsGroupCurrentMemberAssignmentKey",
        "StreamsGroupCurrentMemberAssignmentValue",
        "StreamsGroupTopologyKey",
        "StreamsGroupTopologyValue",
    ),
    "share_coordinator_records": ("ShareSnapshotKey", "ShareSnapshotValue", "ShareUpdateKey", "ShareUpdateValue"),
    "transaction_records": ("TransactionLogKey", "TransactionLogValue"),
}
_FILE_OF_NAME = {name: file for file, names in _NAMED_FILES.items() for name in names}
_NAMED_APIS = {key.api_name: key for key in _FILE_OF_KEY}

API_KEYS = tuple(sorted(_FILE_OF_KEY))
"""The API keys that the codec knows, ascending."""

NAMES = (*_FILE_OF_NAME, *(name + suffix for name in _NAMED_APIS for suffix in ("Request", "Response")))
"""The names that `message_class` knows."""


def request_class(api_key: int) -> type[Message]:
    """Raises KeyError for a key that the codec does not know."""
    return _api_class(api_key, "Request")


def response_class(api_key: int) -> type[Message]:
    """Raises KeyError for a key that the codec does not know."""
    return _api_class(api_key, "Response")


def codec_versions(api_key: int) -> Versions:
    return request_class(api_key).__schema__.versions


def message_class(name: str) -> type[Message]:
    """Returns the message with this name in Kafka's specifications; KeyError if the codec does not know it."""
    if name in _FILE_OF_NAME:
        return _load(_FILE_OF_NAME[name], name)
    for suffix in ("Request", "Response"):
        if name.endswith(suffix) and name.removesuffix(suffix) in _NAMED_APIS:
            return _api_class(_NAMED_APIS[name.removesuffix(suffix)], suffix)
    raise KeyError(name)


@cache
def _api_class(api_key: int, suffix: str) -> type[Message]:
    if api_key not in _FILE_OF_KEY:
        raise KeyError(api_key)
    key = ApiKey(api_key)
    return _load(_FILE_OF_KEY[key], key.api_name + suffix)


def _load(file: str, name: str) -> type[Message]:
    found: type[Message] = getattr(import_module(f"odradek.protocol.messages.{file}"), name)
    return found
