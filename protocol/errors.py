"""Kafka's error codes, in one table, and the exceptions of this package.

Names, codes and the two flags are those of Kafka's `org.apache.kafka.common.protocol.Errors`. `retriable`: the same
request may succeed later. `invalid_metadata`: the client should fetch metadata before it retries.
"""

from __future__ import annotations

from enum import IntEnum


class MalformedMessage(ValueError):
    """The bytes do not decode as the message: truncated, a count or length too large, null where it is not allowed."""


class UnwritableMessage(ValueError):
    """The message does not fit the wire: null where it is not allowed, a number out of range, a string too long."""


class UnsupportedMessageVersion(ValueError):
    """The codec does not know this version of the message."""


FINAL, RETRIABLE, REFRESH = (False, False), (True, False), (True, True)  # (retriable, invalid_metadata)


class ErrorCode(IntEnum):
    """An error code of the protocol, with `retriable`, `invalid_metadata` and a one-sentence `message`."""

    retriable: bool
    invalid_metadata: bool
    message: str

    def __new__(cls, code: int, kind: tuple[bool, bool] = FINAL, message: str = "") -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable, member.invalid_metadata = kind
        member.message = message
        return member

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """Returns the error with this code; UNKNOWN_SERVER_ERROR for a code that is not in the table."""
        return _BY_CODE.get(code, cls.UNKNOWN_SERVER_ERROR)

    UNKNOWN_SERVER_ERROR = -1, FINAL, "An unexpected error occurred in the broker."
    NONE = 0, FINAL, "No error."
    OFFSET_OUT_OF_RANGE = 1, FINAL, "The log does not hold this offset."
    CORRUPT_MESSAGE = 2, RETRIABLE, "A record batch is damaged, or a compacted topic was sent a record without a key."
    UNKNOWN_TOPIC_OR_PARTITION = 3, REFRESH, "This broker has no such topic or partition."
    INVALID_FETCH_SIZE = 4, FINAL, "The requested fetch size is not valid."
    LEADER_NOT_AVAILABLE = 5, REFRESH, "The partition has no leader at the moment."
    NOT_LEADER_OR_FOLLOWER = 6, REFRESH, "This broker does not lead the partition, or holds no replica of it."
    REQUEST_TIMED_OUT = 7, RETRIABLE, "The request timed out."
    BROKER_NOT_AVAILABLE = 8, FINAL, "The broker cannot be reached."
    REPLICA_NOT_AVAILABLE = 9, REFRESH, "A replica of the partition is not available."
    MESSAGE_TOO_LARGE = 10, FINAL, "A record batch is larger than the topic allows."
    STALE_CONTROLLER_EPOCH = 11, FINAL, "Another broker has become the controller."
    OFFSET_METADATA_TOO_LARGE = 12, FINAL, "The text committed with the offset is too long."
    NETWORK_EXCEPTION = 13, REFRESH, "The connection was closed before the response arrived."
    COORDINATOR_LOAD_IN_PROGRESS = 14, RETRIABLE, "The coordinator is still loading its state."
    COORDINATOR_NOT_AVAILABLE = 15, RETRIABLE, "There is no coordinator at the moment."
    NOT_COORDINATOR = 16, RETRIABLE, "Another broker coordinates this group or transactional id."
    INVALID_TOPIC_EXCEPTION = 17, FINAL, "The topic's name is not valid, or this operation on the topic is not allowed."
    RECORD_LIST_TOO_LARGE = 18, FINAL, "The record batches are larger than a segment of the log."
    NOT_ENOUGH_REPLICAS = 19, RETRIABLE, "Fewer replicas are in sync than min.insync.replicas requires."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        RETRIABLE,
        "Written, but to fewer replicas than min.insync.replicas requires.",
    )
    INVALID_REQUIRED_ACKS = 21, FINAL, "acks must be 0, 1 or -1."
    ILLEGAL_GENERATION = 22, FINAL, "The group's generation has changed."
    INCONSISTENT_GROUP_PROTOCOL = 23, FINAL, "The member shares no protocol with the group, or named none."
    INVALID_GROUP_ID = 24, FINAL, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, FINAL, "The group has no such member."
    INVALID_SESSION_TIMEOUT = 26, FINAL, "The session timeout is outside the broker's bounds."
    REBALANCE_IN_PROGRESS = 27, FINAL, "The group is being rebalanced; join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, FINAL, "The commit is too large to be stored."
    TOPIC_AUTHORIZATION_FAILED = 29, FINAL, "Not authorized for the topic."
    GROUP_AUTHORIZATION_FAILED = 30, FINAL, "Not authorized for the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, FINAL, "Not authorized for the cluster."
    INVALID_TIMESTAMP = 32, FINAL, "A record's timestamp is outside the allowed range."
    UNSUPPORTED_SASL_MECHANISM = 33, FINAL, "The broker does not support this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, FINAL, "The SASL request is not allowed in this state."
    UNSUPPORTED_VERSION = 35, FINAL, "This version of the API is not supported."
    TOPIC_ALREADY_EXISTS = 36, FINAL, "A topic with this name already exists."
    INVALID_PARTITIONS = 37, FINAL, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = 38, FINAL, "The replication factor is below 1 or above the number of brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, FINAL, "The assignment of replicas is not valid."
    INVALID_CONFIG = 40, FINAL, "A setting is not valid."
    NOT_CONTROLLER = 41, RETRIABLE, "This broker is not the controller."
    INVALID_REQUEST = 42, FINAL, "The request contradicts itself or the protocol."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, FINAL, "The log's message format does not allow this."
    POLICY_VIOLATION = 44, FINAL, "A policy of the broker forbids this."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, FINAL, "The producer's sequence number does not follow its last one."
    DUPLICATE_SEQUENCE_NUMBER = 46, FINAL, "The producer's sequence number was used before."
    INVALID_PRODUCER_EPOCH = 47, FINAL, "The producer's epoch is older than the current one."
    INVALID_TXN_STATE = 48, FINAL, "The transaction's state does not allow this."
    INVALID_PRODUCER_ID_MAPPING = 49, FINAL, "The producer id does not belong to the transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, FINAL, "The transaction timeout is above transaction.max.timeout.ms."
    CONCURRENT_TRANSACTIONS = 51, RETRIABLE, "An earlier operation on the transaction is still in progress."
    TRANSACTION_COORDINATOR_FENCED = 52, FINAL, "A newer transaction coordinator has fenced this one."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, FINAL, "Not authorized for the transactional id."
    SECURITY_DISABLED = 54, FINAL, "The broker runs without an authorizer."
    OPERATION_NOT_ATTEMPTED = 55, FINAL, "Not tried, because another part of the request failed."
    KAFKA_STORAGE_ERROR = 56, REFRESH, "The log's disk failed."
    LOG_DIR_NOT_FOUND = 57, FINAL, "The broker has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, FINAL, "Authentication failed."
    UNKNOWN_PRODUCER_ID = 59, FINAL, "The broker has no state for this producer id."
    REASSIGNMENT_IN_PROGRESS = 60, FINAL, "A reassignment of the partition is in progress."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, FINAL, "Delegation tokens are disabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, FINAL, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, FINAL, "The principal neither owns the token nor may renew it."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, FINAL, "Delegation tokens may not be managed over this connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, FINAL, "Not authorized for the delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, FINAL, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, FINAL, "The principal's type is not supported."
    NON_EMPTY_GROUP = 68, FINAL, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, FINAL, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, RETRIABLE, "There is no such fetch session."
    INVALID_FETCH_SESSION_EPOCH = 71, RETRIABLE, "The fetch session expects another epoch."
    LISTENER_NOT_FOUND = 72, REFRESH, "The leader has no listener with the requested name."
    TOPIC_DELETION_DISABLED = 73, FINAL, "delete.topic.enable is false."
    FENCED_LEADER_EPOCH = 74, REFRESH, "The partition has a newer leader epoch."
    UNKNOWN_LEADER_EPOCH = 75, RETRIABLE, "This broker does not know the leader epoch yet."
    UNSUPPORTED_COMPRESSION_TYPE = 76, FINAL, "The request's version does not allow the batch's compression."
    STALE_BROKER_EPOCH = 77, FINAL, "The broker has registered again with a newer epoch."
    OFFSET_NOT_AVAILABLE = 78, RETRIABLE, "A new leader does not know the high watermark yet."
    MEMBER_ID_REQUIRED = 79, FINAL, "Join again with the member id of this response."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, REFRESH, "The preferred leader is not available."
    GROUP_MAX_SIZE_REACHED = 81, FINAL, "The group has group.max.size members."
    FENCED_INSTANCE_ID = 82, FINAL, "Another consumer uses the same group.instance.id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, REFRESH, "No replica is eligible as leader at the moment."
    ELECTION_NOT_NEEDED = 84, REFRESH, "The partition already has the requested leader."
    NO_REASSIGNMENT_IN_PROGRESS = 85, FINAL, "No reassignment of the partition is in progress."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, FINAL, "The group subscribes to the topic; its offsets cannot be deleted."
    INVALID_RECORD = 87, FINAL, "The broker refuses a record."
    UNSTABLE_OFFSET_COMMIT = 88, RETRIABLE, "A transaction with offsets of the group is still open."
    THROTTLING_QUOTA_EXCEEDED = 89, RETRIABLE, "A quota is exceeded."
    PRODUCER_FENCED = 90, FINAL, "A newer producer uses the same transactional id."
    RESOURCE_NOT_FOUND = 91, FINAL, "The request names a resource that does not exist."
    DUPLICATE_RESOURCE = 92, FINAL, "The request names the same resource twice."
    UNACCEPTABLE_CREDENTIAL = 93, FINAL, "The credential does not meet the requirements."
    INCONSISTENT_VOTER_SET = 94, FINAL, "Sender or receiver is not among the expected voters."
    INVALID_UPDATE_VERSION = 95, FINAL, "The version to update from or to is not valid."
    FEATURE_UPDATE_FAILED = 96, FINAL, "The features could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, FINAL, "A forwarded request's principal cannot be read."
    SNAPSHOT_NOT_FOUND = 98, FINAL, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, FINAL, "The position is outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, REFRESH, "This broker has no topic with this id."
    DUPLICATE_BROKER_REGISTRATION = 101, FINAL, "The broker id is already in use."
    BROKER_ID_NOT_REGISTERED = 102, FINAL, "No broker with this id is registered."
    INCONSISTENT_TOPIC_ID = 103, REFRESH, "The log belongs to a topic with another id."
    INCONSISTENT_CLUSTER_ID = 104, FINAL, "The request is for another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, FINAL, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, RETRIABLE, "The fetch session mixes topic names and topic ids."
    INELIGIBLE_REPLICA = 107, FINAL, "A replica is not eligible for the in-sync set."
    NEW_LEADER_ELECTED = 108, FINAL, "The partition was changed and has a new leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, FINAL, "The offset is in tiered storage now."
    FENCED_MEMBER_EPOCH = 110, FINAL, "The member's epoch is old; revoke all partitions and join again."
    UNRELEASED_INSTANCE_ID = 111, FINAL, "Another member of the group still holds the instance id."
    UNSUPPORTED_ASSIGNOR = 112, FINAL, "The group does not support this assignor."
    STALE_MEMBER_EPOCH = 113, FINAL, "The member's epoch is old; try again after the next heartbeat."
    MISMATCHED_ENDPOINT_TYPE = 114, FINAL, "This endpoint is not of the requested type."
    UNSUPPORTED_ENDPOINT_TYPE = 115, FINAL, "Endpoints of this type are not supported."
    UNKNOWN_CONTROLLER_ID = 116, FINAL, "There is no controller with this id."
    UNKNOWN_SUBSCRIPTION_ID = 117, FINAL, "The telemetry subscription is unknown or old."
    TELEMETRY_TOO_LARGE = 118, FINAL, "The telemetry is larger than the broker accepts at once."
    INVALID_REGISTRATION = 119, FINAL, "The controller does not accept the broker's registration."
    TRANSACTION_ABORTABLE = 120, FINAL, "The transaction failed; abort it and continue with the same id."
    INVALID_RECORD_STATE = 121, FINAL, "The record's state does not allow the acknowledgment."
    SHARE_SESSION_NOT_FOUND = 122, RETRIABLE, "There is no such share session."
    INVALID_SHARE_SESSION_EPOCH = 123, RETRIABLE, "The share session expects another epoch."
    FENCED_STATE_EPOCH = 124, FINAL, "The share group's state has another epoch."
    INVALID_VOTER_KEY = 125, FINAL, "The voter's key does not match the addressed replica."
    DUPLICATE_VOTER = 126, FINAL, "The voter is already in the set of voters."
    VOTER_NOT_FOUND = 127, FINAL, "The voter is not among the voters."
    INVALID_REGULAR_EXPRESSION = 128, FINAL, "The regular expression does not compile."
    REBOOTSTRAP_REQUIRED = 129, FINAL, "The client is connected to another cluster or broker than it expects."
    STREAMS_INVALID_TOPOLOGY = 130, FINAL, "The topology of the streams application is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, FINAL, "The epoch of the streams application's topology is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, FINAL, "The streams group has a newer topology."
    SHARE_SESSION_LIMIT_REACHED = 133, RETRIABLE, "The broker holds as many share sessions as it may."
    GROUP_DELETION_FAILED = 134, FINAL, "The group could not be deleted."
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = (
        135,
        FINAL,
        "The description of the streams group's topology could not be stored.",
    )
    CONTROLLER_ID_NOT_REGISTERED = 136, FINAL, "No controller with this id is registered."


_BY_CODE = {code.value: code for code in ErrorCode}


LONGEST_ERROR_MESSAGE = 1000


class ProtocolError(Exception):
    """A failure with an error code for the client: of a whole request, or of one item in it.

    `error_message` is None if the response carries no text of its own. Messages quote data from clients, so a long
    message is truncated: a string of a response holds 32,767 bytes, and a request has many items.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        if message is not None and len(message) > LONGEST_ERROR_MESSAGE:
            message = f"{message[:LONGEST_ERROR_MESSAGE]} ..."
        super().__init__(message or code.message)
        self.code = code
        self.error_message = message

    def __str__(self) -> str:
        return f"{self.code.name}: {self.args[0]}"
