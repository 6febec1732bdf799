"""The versions of each API that the releases of Kafka served; `odradek.as.version` serves clients those.

(A) An API, or a version, that the release did not have is not listed, and a request of it ends the connection.
(B) Releases before 4.0 served every API from version 0 on. Since 4.0 many of the oldest versions are gone (KIP-896).
(C) A release before 2.4 answers an unknown version of ApiVersions with an empty list, and one before 2.7 has no epoch
    of features (api_versions.py).
(D) A release before 2.3 has no texts in FindCoordinator, also where there is no error (coordinators.py).
(E) What is wrong with a batch has a code of its own since 2.1 and 2.4 (produce.py).
(F) A release before 2.4 has no default for the counts of a new topic (KIP-464, create_topics.py).

Only what clients ask is taken from the release. What brokers say to each other stays as it is: the inter-broker
listener answers their versions of Fetch and others, too.

Source: `ApiKeys` of the released kafka-clients, each the last of its minor release, as brokers on ZooKeeper list them,
and since 4.0 brokers; running brokers of 1.0, 2.0 and 2.8 (tests/broker/releases), and of 4.0 to 4.4.
"""

from __future__ import annotations

from odradek.broker.handlers.api_row import ApiTable
from odradek.broker.peers.inter_broker_protocol import INTER_BROKER_VERSIONS
from odradek.broker.settings.odradek import RELEASES
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.schema import NEVER, Versions

NOT_SERVED = "-"
# RELEASES: 0.11, 1.0, 1.1, 2.0 to 2.8, 3.0 to 3.9, 4.0 to 4.4
SERVED = {
    ApiKey.PRODUCE: "3 5 5 6 7 7 7 8 8 8 8 9 9 9 9 9 9 9 9 10 11 11 12 13 13 13 13",
    ApiKey.FETCH: "5 6 7 8 10 10 11 11 11 11 12 12 12 13 13 13 13 15 15 16 16 17 4-17 4-18 4-18 4-18 4-18",
    ApiKey.LIST_OFFSETS: "2 2 2 3 4 5 5 5 5 5 5 6 7 7 7 7 7 8 8 8 8 9 1-10 1-10 1-11 1-11 1-11",
    ApiKey.METADATA: "4 5 5 6 7 7 8 9 9 9 9 11 11 12 12 12 12 12 12 12 12 12 13 13 13 13 13",
    ApiKey.OFFSET_COMMIT: "3 3 3 4 6 6 7 8 8 8 8 8 8 8 8 8 8 8 8 9 9 9 2-9 2-9 2-10 2-10 2-10",
    ApiKey.OFFSET_FETCH: "3 3 3 4 5 5 5 6 7 7 7 7 8 8 8 8 8 8 8 9 9 9 1-9 1-9 1-10 1-10 1-10",
    ApiKey.FIND_COORDINATOR: "1 1 1 2 2 2 2 3 3 3 3 3 4 4 4 4 4 4 4 4 5 6 6 6 6 6 6",
    ApiKey.JOIN_GROUP: "2 2 2 3 3 4 5 6 7 7 7 7 7 7 9 9 9 9 9 9 9 9 9 9 9 9 9",
    ApiKey.HEARTBEAT: "1 1 1 2 2 2 3 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4",
    ApiKey.LEAVE_GROUP: "1 1 1 2 2 2 2 4 4 4 4 4 4 4 5 5 5 5 5 5 5 5 5 5 5 5 5",
    ApiKey.SYNC_GROUP: "1 1 1 2 2 2 3 4 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5",
    ApiKey.DESCRIBE_GROUPS: "1 1 1 2 2 2 3 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 6 6 6 6 6",
    ApiKey.LIST_GROUPS: "1 1 1 2 2 2 2 3 3 4 4 4 4 4 4 4 4 4 4 4 5 5 5 5 5 5 5",
    ApiKey.SASL_HANDSHAKE: "0 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
    ApiKey.API_VERSIONS: "1 1 1 2 2 2 2 3 3 3 3 3 3 3 3 3 3 3 3 3 3 4 4 4 4 4 5",
    ApiKey.CREATE_TOPICS: "2 2 2 3 3 3 3 5 5 5 6 7 7 7 7 7 7 7 7 7 7 7 2-7 2-7 2-7 2-7 2-7",
    ApiKey.DELETE_TOPICS: "1 1 1 2 3 3 3 4 4 4 5 6 6 6 6 6 6 6 6 6 6 6 1-6 1-6 1-6 1-6 1-6",
    ApiKey.DELETE_RECORDS: "0 0 0 1 1 1 1 1 1 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2",
    ApiKey.INIT_PRODUCER_ID: "0 0 0 1 1 1 1 2 3 3 4 4 4 4 4 4 4 4 4 4 5 5 5 5 5 5 5",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "0 0 0 1 2 2 3 3 3 3 3 4 4 4 4 4 4 4 4 4 4 4 2-4 2-4 2-4 2-4 2-4",
    ApiKey.ADD_PARTITIONS_TO_TXN: "0 0 0 1 1 1 1 1 1 1 2 3 3 3 3 3 3 3 4 4 5 5 5 5 5 5 5",
    ApiKey.ADD_OFFSETS_TO_TXN: "0 0 0 1 1 1 1 1 1 1 2 3 3 3 3 3 3 3 3 3 4 4 4 4 4 4 4",
    ApiKey.END_TXN: "0 0 0 1 1 1 1 1 1 1 2 3 3 3 3 3 3 3 3 3 4 4 5 5 5 5 5",
    ApiKey.WRITE_TXN_MARKERS: "0 0 0 0 0 0 0 0 0 0 0 1 1 1 1 1 1 1 1 1 1 1 1-1 1-1 1-2 1-2 1-2",
    ApiKey.TXN_OFFSET_COMMIT: "0 0 0 1 2 2 2 2 3 3 3 3 3 3 3 3 3 3 3 3 4 4 5 5 5 5 6",
    ApiKey.DESCRIBE_ACLS: "0 0 0 1 1 1 1 1 2 2 2 2 2 2 2 3 3 3 3 3 3 3 1-3 1-3 1-3 1-3 1-3",
    ApiKey.CREATE_ACLS: "0 0 0 1 1 1 1 1 2 2 2 2 2 2 2 3 3 3 3 3 3 3 1-3 1-3 1-3 1-3 1-3",
    ApiKey.DELETE_ACLS: "0 0 0 1 1 1 1 1 2 2 2 2 2 2 2 3 3 3 3 3 3 3 1-3 1-3 1-3 1-3 1-3",
    ApiKey.DESCRIBE_CONFIGS: "0 0 1 2 2 2 2 2 2 3 3 4 4 4 4 4 4 4 4 4 4 4 1-4 1-4 1-4 1-4 1-4",
    ApiKey.ALTER_CONFIGS: "0 0 0 1 1 1 1 1 1 1 1 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "- 0 0 1 1 1 1 1 1 1 1 2 2 2 2 2 2 2 2 2 2 2 1-2 1-2 1-2 1-2 1-2",
    ApiKey.DESCRIBE_LOG_DIRS: "- 0 0 1 1 1 1 1 1 2 2 2 2 2 3 4 4 4 4 4 4 4 1-4 1-4 1-4 1-5 1-5",
    ApiKey.SASL_AUTHENTICATE: "- 0 0 0 0 1 1 1 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2",
    ApiKey.CREATE_PARTITIONS: "- 0 0 1 1 1 1 1 2 2 3 3 3 3 3 3 3 3 3 3 3 3 3 3 3 3 3",
    ApiKey.CREATE_DELEGATION_TOKEN: "- - 0 1 1 1 1 2 2 2 2 2 2 2 2 3 3 3 3 3 3 3 1-3 1-3 1-3 1-3 1-3",
    ApiKey.RENEW_DELEGATION_TOKEN: "- - 0 1 1 1 1 1 2 2 2 2 2 2 2 2 2 2 2 2 2 2 1-2 1-2 1-2 1-2 1-2",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "- - 0 1 1 1 1 1 2 2 2 2 2 2 2 2 2 2 2 2 2 2 1-2 1-2 1-2 1-2 1-2",
    ApiKey.DESCRIBE_DELEGATION_TOKEN: "- - 0 1 1 1 1 1 2 2 2 2 2 2 2 3 3 3 3 3 3 3 1-3 1-3 1-3 1-3 1-3",
    ApiKey.DELETE_GROUPS: "- - 0 1 1 1 1 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 3",
    ApiKey.ELECT_LEADERS: "- - - - - 0 0 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "- - - - - - 0 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "- - - - - - - 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 1 1 1",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "- - - - - - - 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
    ApiKey.OFFSET_DELETE: "- - - - - - - 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "- - - - - - - - - 0 0 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
    ApiKey.ALTER_CLIENT_QUOTAS: "- - - - - - - - - 0 0 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "- - - - - - - - - - 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "- - - - - - - - - - 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
    ApiKey.DESCRIBE_QUORUM: "- - - - - - - - - - - - - - - - - - - - - - 2 2 2 2 2",
    ApiKey.UPDATE_FEATURES: "- - - - - - - - - - 0 0 0 0 0 1 1 1 1 1 1 1 2 2 2 2 2",
    ApiKey.DESCRIBE_CLUSTER: "- - - - - - - - - - - 0 0 0 0 0 0 0 0 1 1 1 2 2 2 2 2",
    ApiKey.DESCRIBE_PRODUCERS: "- - - - - - - - - - - 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
    ApiKey.UNREGISTER_BROKER: "- - - - - - - - - - - - - - - - - - - - - - 0 0 0 0 0",
    ApiKey.DESCRIBE_TRANSACTIONS: "- - - - - - - - - - - - 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
    ApiKey.LIST_TRANSACTIONS: "- - - - - - - - - - - - 0 0 0 0 0 0 0 0 1 1 1 2 2 2 2",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "- - - - - - - - - - - - - - - - - - - 0 0 0 1 1 1 1 1",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "- - - - - - - - - - - - - - - - - - - - 0 0 1 1 1 1 1",
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: "- - - - - - - - - - - - - - - - - - - - - - 0 0 0 0 0",
    ApiKey.PUSH_TELEMETRY: "- - - - - - - - - - - - - - - - - - - - - - 0 0 0 0 0",
    ApiKey.LIST_CONFIG_RESOURCES: "- - - - - - - - - - - - - - - - - - - - - - 0 1 1 1 1",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "- - - - - - - - - - - - - - - - - - - - - - 0 0 0 0 0",
    ApiKey.SHARE_GROUP_HEARTBEAT: "- - - - - - - - - - - - - - - - - - - - - - - 1-1 1-1 1-1 1-1",
    ApiKey.SHARE_GROUP_DESCRIBE: "- - - - - - - - - - - - - - - - - - - - - - - 1-1 1-1 1-1 1-1",
    ApiKey.SHARE_FETCH: "- - - - - - - - - - - - - - - - - - - - - - - 1-1 1-2 1-2 1-2",
    ApiKey.SHARE_ACKNOWLEDGE: "- - - - - - - - - - - - - - - - - - - - - - - 1-1 1-2 1-2 1-2",
    ApiKey.ADD_RAFT_VOTER: "- - - - - - - - - - - - - - - - - - - - - - 0 0 1 1 1",
    ApiKey.REMOVE_RAFT_VOTER: "- - - - - - - - - - - - - - - - - - - - - - 0 0 0 0 0",
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: "- - - - - - - - - - - - - - - - - - - - - - - 0 0 0 0",
    ApiKey.READ_SHARE_GROUP_STATE: "- - - - - - - - - - - - - - - - - - - - - - - 0 0 0 0",
    ApiKey.WRITE_SHARE_GROUP_STATE: "- - - - - - - - - - - - - - - - - - - - - - - 0 1 1 1",
    ApiKey.DELETE_SHARE_GROUP_STATE: "- - - - - - - - - - - - - - - - - - - - - - - 0 0 0 0",
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: "- - - - - - - - - - - - - - - - - - - - - - - 0 1 1 1",
    ApiKey.STREAMS_GROUP_HEARTBEAT: "- - - - - - - - - - - - - - - - - - - - - - - - 0 0 1",
    ApiKey.STREAMS_GROUP_DESCRIBE: "- - - - - - - - - - - - - - - - - - - - - - - - 0 0 1",
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: "- - - - - - - - - - - - - - - - - - - - - - - 0 1 1 1",
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: "- - - - - - - - - - - - - - - - - - - - - - - 0 0 0 0",
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: "- - - - - - - - - - - - - - - - - - - - - - - 0 0 0 0",
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: "- - - - - - - - - - - - - - - - - - - - - - - - - - 0",
    ApiKey.UNREGISTER_CONTROLLER: "- - - - - - - - - - - - - - - - - - - - - - - - - - 0",
}
"""The versions in each of RELEASES: the lowest and the highest, or only the highest if the lowest is 0."""


def versions_in(release: str) -> dict[ApiKey, Versions]:
    """Returns the versions of each API that one of RELEASES served to clients, also of those not served here."""
    column = RELEASES.index(release)
    cells = {key: versions.split()[column] for key, versions in SERVED.items()}
    return {key: _parsed(cell) for key, cell in cells.items() if cell != NOT_SERVED}


def _parsed(cell: str) -> Versions:
    lowest, _, highest = cell.rpartition("-")
    return Versions(int(lowest or 0), int(highest))


def table_of(release: str, table: ApiTable) -> ApiTable:
    """Returns the table with the APIs and versions that clients found in one of RELEASES, as far as they are served."""
    versions = versions_in(release)
    between_brokers = [row for row in table.rows() if row.served == NEVER]
    return ApiTable.of(
        between_brokers
        + [
            row.within(versions[row.key], INTER_BROKER_VERSIONS.get(row.key))
            for row in table.client_rows()
            if row.key in versions
        ]
    )
