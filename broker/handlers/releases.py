"""The versions of each API that older releases of Kafka served; `odradek.as.version` serves clients those.

(A) An API, or a version, that the release did not have is not listed, and a request of it ends the connection.
(B) All of these releases served every API from version 0 on.
(C) A release before 2.4 answers an unknown version of ApiVersions with an empty list, and one before 2.7 has no epoch
    of features (api_versions.py).
(D) A release before 2.3 has no texts in FindCoordinator, also where there is no error (coordinators.py).
(E) What is wrong with a batch has a code of its own since 2.1 and 2.4 (produce.py).
(F) A release before 2.4 has no default for the counts of a new topic (KIP-464, create_topics.py).

Only what clients ask is taken from the release. What brokers say to each other stays as it is: the inter-broker
listener answers their versions of Fetch and others, too.

Source: `ApiKeys` of the released kafka-clients, each the last of its minor release, and running brokers of 1.0, 2.0
and 2.8 (tests/broker/releases).
"""

from __future__ import annotations

from odradek.broker.handlers.api_row import ApiTable
from odradek.broker.peers.inter_broker_protocol import INTER_BROKER_VERSIONS
from odradek.broker.settings.odradek import RELEASES
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.schema import NEVER

NOT_SERVED = "-"
#   RELEASES:  0.11, 1.0, 1.1, 2.0, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6, 2.7, 2.8, 3.0
HIGHEST = {
    ApiKey.PRODUCE: "3 5 5 6 7 7 7 8 8 8 8 9 9",
    ApiKey.FETCH: "5 6 7 8 10 10 11 11 11 11 12 12 12",
    ApiKey.LIST_OFFSETS: "2 2 2 3 4 5 5 5 5 5 5 6 7",
    ApiKey.METADATA: "4 5 5 6 7 7 8 9 9 9 9 11 11",
    ApiKey.OFFSET_COMMIT: "3 3 3 4 6 6 7 8 8 8 8 8 8",
    ApiKey.OFFSET_FETCH: "3 3 3 4 5 5 5 6 7 7 7 7 8",
    ApiKey.FIND_COORDINATOR: "1 1 1 2 2 2 2 3 3 3 3 3 4",
    ApiKey.JOIN_GROUP: "2 2 2 3 3 4 5 6 7 7 7 7 7",
    ApiKey.HEARTBEAT: "1 1 1 2 2 2 3 4 4 4 4 4 4",
    ApiKey.LEAVE_GROUP: "1 1 1 2 2 2 2 4 4 4 4 4 4",
    ApiKey.SYNC_GROUP: "1 1 1 2 2 2 3 4 5 5 5 5 5",
    ApiKey.DESCRIBE_GROUPS: "1 1 1 2 2 2 3 5 5 5 5 5 5",
    ApiKey.LIST_GROUPS: "1 1 1 2 2 2 2 3 3 4 4 4 4",
    ApiKey.SASL_HANDSHAKE: "0 1 1 1 1 1 1 1 1 1 1 1 1",
    ApiKey.API_VERSIONS: "1 1 1 2 2 2 2 3 3 3 3 3 3",
    ApiKey.CREATE_TOPICS: "2 2 2 3 3 3 3 5 5 5 6 7 7",
    ApiKey.DELETE_TOPICS: "1 1 1 2 3 3 3 4 4 4 5 6 6",
    ApiKey.DELETE_RECORDS: "0 0 0 1 1 1 1 1 1 2 2 2 2",
    ApiKey.INIT_PRODUCER_ID: "0 0 0 1 1 1 1 2 3 3 4 4 4",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "0 0 0 1 2 2 3 3 3 3 3 4 4",
    ApiKey.ADD_PARTITIONS_TO_TXN: "0 0 0 1 1 1 1 1 1 1 2 3 3",
    ApiKey.ADD_OFFSETS_TO_TXN: "0 0 0 1 1 1 1 1 1 1 2 3 3",
    ApiKey.END_TXN: "0 0 0 1 1 1 1 1 1 1 2 3 3",
    ApiKey.WRITE_TXN_MARKERS: "0 0 0 0 0 0 0 0 0 0 0 1 1",
    ApiKey.TXN_OFFSET_COMMIT: "0 0 0 1 2 2 2 2 3 3 3 3 3",
    ApiKey.DESCRIBE_ACLS: "0 0 0 1 1 1 1 1 2 2 2 2 2",
    ApiKey.CREATE_ACLS: "0 0 0 1 1 1 1 1 2 2 2 2 2",
    ApiKey.DELETE_ACLS: "0 0 0 1 1 1 1 1 2 2 2 2 2",
    ApiKey.DESCRIBE_CONFIGS: "0 0 1 2 2 2 2 2 2 3 3 4 4",
    ApiKey.ALTER_CONFIGS: "0 0 0 1 1 1 1 1 1 1 1 2 2",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "- 0 0 1 1 1 1 1 1 1 1 2 2",
    ApiKey.DESCRIBE_LOG_DIRS: "- 0 0 1 1 1 1 1 1 2 2 2 2",
    ApiKey.SASL_AUTHENTICATE: "- 0 0 0 0 1 1 1 2 2 2 2 2",
    ApiKey.CREATE_PARTITIONS: "- 0 0 1 1 1 1 1 2 2 3 3 3",
    ApiKey.DELETE_GROUPS: "- - 0 1 1 1 1 2 2 2 2 2 2",
    ApiKey.ELECT_LEADERS: "- - - - - 0 0 2 2 2 2 2 2",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "- - - - - - 0 1 1 1 1 1 1",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "- - - - - - - 0 0 0 0 0 0",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "- - - - - - - 0 0 0 0 0 0",
    ApiKey.OFFSET_DELETE: "- - - - - - - 0 0 0 0 0 0",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "- - - - - - - - - 0 0 1 1",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "- - - - - - - - - - 0 0 0",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "- - - - - - - - - - 0 0 0",
    ApiKey.DESCRIBE_CLUSTER: "- - - - - - - - - - - 0 0",
    ApiKey.DESCRIBE_PRODUCERS: "- - - - - - - - - - - 0 0",
    ApiKey.DESCRIBE_TRANSACTIONS: "- - - - - - - - - - - - 0",
    ApiKey.LIST_TRANSACTIONS: "- - - - - - - - - - - - 0",
}
"""The highest version in each of RELEASES."""


def highest_in(release: str) -> dict[ApiKey, int]:
    """Returns the highest version of each API that one of RELEASES served."""
    column = RELEASES.index(release)
    columns = {key: versions.split()[column] for key, versions in HIGHEST.items()}
    return {key: int(version) for key, version in columns.items() if version != NOT_SERVED}


def table_of(release: str, table: ApiTable) -> ApiTable:
    """Returns the table with the APIs and versions that clients found in one of RELEASES."""
    highest = highest_in(release)
    between_brokers = [row for row in table.rows() if row.served == NEVER]
    return ApiTable.of(
        between_brokers
        + [
            row.up_to(highest[row.key], INTER_BROKER_VERSIONS.get(row.key))
            for row in table.client_rows()
            if row.key in highest
        ]
    )
