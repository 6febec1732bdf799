"""What the versions of Apache Kafka 4.4 add to those of 3.0, for the generated documentation.

Versions of APIs that do not stand here are those of 3.0. Source: Kafka's message specifications.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.protocol.api_keys import ApiKey

_ABORTABLE_IS_KNOWN = "the client knows TRANSACTION_ABORTABLE (KIP-890), which this API never returns"
_USER_RESOURCES = "the resource type USER (KIP-373); without an authorizer, SECURITY_DISABLED as before"

VERSION_HISTORY: Mapping[ApiKey, Mapping[int, str]] = {
    ApiKey.PRODUCE: {
        10: "the current leader in the response, if it is another broker (KIP-951)",
        11: "TRANSACTION_ABORTABLE instead of INVALID_TXN_STATE (KIP-890)",
        12: "the first batch adds its partition to the transaction (KIP-890)",
        13: "topics are named by their ids (KIP-516)",
    },
    ApiKey.FETCH: {
        13: "topics are named by their ids (KIP-516)",
        14: "OFFSET_MOVED_TO_TIERED_STORAGE (KIP-405), which this API never returns",
        15: "the replica id moves to a tagged field, beside the broker epoch (KIP-903)",
        16: "the current leader's address in the response, if it is another broker (KIP-951)",
        17: "the follower's directory id (KIP-853)",
        18: "a follower's high watermark, which is ignored (KIP-1166)",
    },
    ApiKey.LIST_OFFSETS: {
        8: "timestamp -4, the earliest offset on the broker's own disk (KIP-405): the log start offset",
        9: "timestamp -5, the latest offset in tiered storage (KIP-1005): there is none",
        10: "a timeout for tiered storage, which is ignored (KIP-1075)",
        11: "timestamp -6, the earliest offset that waits for tiered storage (KIP-1023): there is none",
    },
    ApiKey.METADATA: {
        12: "topics may be named by their ids; UNKNOWN_TOPIC_ID (KIP-516)",
        13: "an error of the whole response (KIP-1102)",
    },
    ApiKey.OFFSET_COMMIT: {
        9: "the epoch of a member of the newer protocol (KIP-848), where the generation was; GROUP_ID_NOT_FOUND",
        10: "topics are named by their ids",
    },
    ApiKey.OFFSET_FETCH: {
        9: "member id and epoch of the newer protocol (KIP-848), which groups of the classic protocol ignore",
        10: "topics are named by their ids",
    },
    ApiKey.FIND_COORDINATOR: {
        5: _ABORTABLE_IS_KNOWN,
        6: "coordinators of share groups (KIP-932): COORDINATOR_NOT_AVAILABLE, as there are none",
    },
    ApiKey.JOIN_GROUP: {
        8: "the reason why a member joins, which is logged (KIP-800)",
        9: "a static leader that returns need not assign again (KIP-814)",
    },
    ApiKey.LEAVE_GROUP: {5: "the reason why a member leaves, which is logged (KIP-800)"},
    ApiKey.DESCRIBE_GROUPS: {6: "GROUP_ID_NOT_FOUND and a text for a group that does not exist (KIP-1043)"},
    ApiKey.LIST_GROUPS: {5: "a filter by type, and each group's type: `classic` (KIP-848)"},
    ApiKey.API_VERSIONS: {
        4: "features that begin at level 0 (KAFKA-17011)",
        5: "the cluster and the node that the client expects: another one is REBOOTSTRAP_REQUIRED (KIP-1242)",
    },
    ApiKey.UPDATE_FEATURES: {
        1: "the type of each update, and a request that only validates (KIP-778)",
        2: "one error for all updates",
    },
    ApiKey.INIT_PRODUCER_ID: {5: _ABORTABLE_IS_KNOWN},
    ApiKey.ADD_PARTITIONS_TO_TXN: {
        4: "several transactions, which may be verified only: other brokers ask so (KIP-890)",
        5: "nothing: TRANSACTION_ABORTABLE, which version 4 returns too (KIP-890)",
    },
    ApiKey.ADD_OFFSETS_TO_TXN: {4: _ABORTABLE_IS_KNOWN},
    ApiKey.END_TXN: {
        4: _ABORTABLE_IS_KNOWN,
        5: "the producer id and the epoch of the next transaction in the response (KIP-890)",
    },
    ApiKey.WRITE_TXN_MARKERS: {2: "the version of transactions of each marker (KIP-1228)"},
    ApiKey.TXN_OFFSET_COMMIT: {
        4: "TRANSACTION_ABORTABLE instead of INVALID_TXN_STATE (KIP-890)",
        5: "the group is added to the transaction (KIP-890)",
        6: "topics are named by their ids; member epochs of the newer protocol (KIP-1319)",
    },
    ApiKey.DESCRIBE_ACLS: {3: _USER_RESOURCES},
    ApiKey.CREATE_ACLS: {3: _USER_RESOURCES},
    ApiKey.DELETE_ACLS: {3: _USER_RESOURCES},
    ApiKey.DESCRIBE_LOG_DIRS: {
        3: "an error code for the request as a whole",
        4: "the total and the usable bytes of each directory's file system (KIP-827)",
        5: "whether a directory takes no new replicas (KIP-1066): each one takes some",
    },
    ApiKey.DESCRIBE_CLUSTER: {
        1: "the type of the endpoint: MISMATCHED_ENDPOINT_TYPE if a controller is meant (KIP-919)",
        2: "fenced brokers (KIP-1073): there are none",
    },
    ApiKey.CONSUMER_GROUP_HEARTBEAT: {
        0: "members of consumer groups whose assignments the broker makes (KIP-848)",
        1: "a regular expression, and member ids that clients make (KIP-1082)",
    },
    ApiKey.CONSUMER_GROUP_DESCRIBE: {
        0: "consumer groups whose assignments the broker makes (KIP-848)",
        1: "which protocol each member speaks (KIP-1099)",
    },
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: {0: "what a client is to push of its own metrics, and how often (KIP-714)"},
    ApiKey.PUSH_TELEMETRY: {0: "a client's own metrics (KIP-714)"},
    ApiKey.LIST_CONFIG_RESOURCES: {
        0: "the subscriptions to client metrics (KIP-1000)",
        1: "everything that has settings, by types (KIP-1142)",
    },
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {0: "topics and their partitions, page by page (KIP-966)"},
    ApiKey.DELETE_GROUPS: {3: "a text for each error"},
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: {1: "whether the number of replicas may change (KIP-860)"},
    ApiKey.LIST_TRANSACTIONS: {
        1: "a filter by the time since a transaction began (KIP-994)",
        2: "a filter by a regular expression, in RE2's syntax, for the whole transactional id (KIP-1152)",
    },
}
