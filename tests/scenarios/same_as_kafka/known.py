"""The intended differences between the two brokers, each with its reason. docs/differences.md lists them for users."""

from __future__ import annotations

from typing import Any

from tests.beside_kafka.known import Known


def is_a_kinder_text(where: str, kafka: Any, ours: Any) -> bool:
    """Odradek returns a reason where Kafka returns only the code."""
    return where.endswith("ErrorMessage") and kafka in (None, "", "nothing") and ours == "TEXT"


KNOWN = [
    Known(
        "manual_assignments",
        r"CREATE_TOPICS\.Topics\[.*-negative-index\]\.ErrorCode",
        "Kafka fails with -1 at a partition number below 0",
    ),
    Known(
        "assignments_to_unknown_brokers",
        r"CREATE_TOPICS\.Topics\[.*\]\..*",
        "a topic whose partitions no broker could lead is refused, as in KRaft mode",
    ),
    Known(
        "topic_creations_that_do_not_wait",
        r"CREATE_TOPICS\.Topics\[.*\]\.TopicId",
        "the id of a topic that is still being created is not returned",
    ),
    Known(
        "topics_are_deleted_by_id",
        r"DELETE_TOPICS\.Responses\[.*-a\]\.(Name|ErrorCode)",
        "Kafka's controller forgets the id of a deleted topic a little later",
        is_a_race=True,
    ),
    Known(
        "topics_are_deleted_by_id",
        r"DELETE_TOPICS\.Responses\[None\]\.ErrorCode",
        "INVALID_REQUEST where neither name nor id is given, as in KRaft mode; Kafka: TOPIC_AUTHORIZATION_FAILED",
    ),
    Known(
        "new_partition_counts_of_unknown_topics",
        r"CREATE_PARTITIONS\.Results\[.*\]\.ErrorCode",
        "Kafka fails with -1 in ZooKeeper mode; UNKNOWN_TOPIC_OR_PARTITION, as in KRaft mode",
    ),
    Known(
        "topics_are_created_by_metadata_requests",
        r"METADATA\.Topics\[.*-new\]\..*",
        "the first answer waits for the topic, Kafka's is LEADER_NOT_AVAILABLE",
    ),
    Known(
        "settings_of_a_topic|a_resource_that_is_described_twice|some_settings_of_the_broker",
        r"DESCRIBE_CONFIGS.*\.IsDefault",
        "Kafka 3.9 says in version 0 of no setting that it has its default",
    ),
    Known(
        "groups_are_described",
        r"DESCRIBE_GROUPS\.Groups\[.*\]\.AuthorizedOperations",
        "the operations on a group are those of Kafka 4.4: the group's settings are among them",
    ),
    Known(
        "commits_to_a_group_without_members",
        r"OFFSET_COMMIT\.Topics\[.*\]\.Partitions\[0\]\.ErrorCode",
        "GROUP_ID_NOT_FOUND in version 9 if the group does not exist, as in Kafka 4.4",
    ),
    Known(
        "metadata_of_a_topic_with_neither_name_nor_id",
        r"METADATA\..*",
        "Kafka fails with -1 at a topic without name and id; INVALID_REQUEST",
    ),
    Known(
        "no_transactions_to_add_to",
        r"ADD_PARTITIONS_TO_TXN\..*",
        "Kafka never answers an AddPartitionsToTxn 4 that names no transaction",
    ),
    Known(
        "a_transaction_that_is_named_twice",
        r"ADD_PARTITIONS_TO_TXN\.ResultsByTransaction\[.*",
        "Kafka takes the partitions of one of them for both; here each has its own",
    ),
    Known(
        "a_resource_that_is_(replaced|changed)_twice",
        r"(INCREMENTAL_)?ALTER_CONFIGS\.(silent|ThrottleTimeMs|Responses)",
        "Kafka never answers an AlterConfigs that names a resource twice",
    ),
    Known(
        "(replaced|changed)_broker_settings_are_validated",
        r"(INCREMENTAL_)?ALTER_CONFIGS of (log\.cleaner\.threads=0|num\.io\.threads=100) .*",
        "thread pools do nothing here and may have any size; Kafka's change by two at most",
    ),
    Known(
        "(replaced|changed)_broker_settings_are_validated",
        r"(INCREMENTAL_)?ALTER_CONFIGS of advertised\.listeners=.*",
        "listeners cannot be changed while the broker runs yet",
    ),
    Known(
        "(replaced|changed)_broker_settings_are_validated",
        r"(INCREMENTAL_)?ALTER_CONFIGS of .*sasl\.jaas\.config=x .*",
        "passwords cannot be stored yet",
    ),
    Known(
        "single_settings_of_a_topic_change",
        r"INCREMENTAL_ALTER_CONFIGS\.Responses\[.*\]\.ErrorCode",
        "Kafka fails with -1 at APPEND to an unknown setting, and at unknown operations",
    ),
    Known(
        "a_partition_with_two_batches",
        r"(PRODUCE\.Responses|LIST_OFFSETS\.Topics)\[.*",
        "Kafka drops the first of the batches without a word; both are refused",
    ),
    Known(
        "batches_outside_an_open_transaction",
        r"PRODUCE of a newer epoch\.(ErrorCode|LogStartOffset)",
        "the coordinator is asked, and refuses the epoch, as in Kafka 4.4; Kafka 3.9 compares sequences only",
    ),
    Known(
        "byte_limits",
        r"FETCH of -1 bytes.*",
        "Kafka fails with -1 for the partition where a limit is below 0; it is 0 here",
    ),
    Known(
        "an_id_of_zero",
        r"FETCH (that opens|within) a session.*",
        "Kafka fails with -1 at a topic id of zero in a session; UNKNOWN_TOPIC_ID for its partitions",
    ),
    Known(
        "isolation_levels(_of_offsets)?",
        r"(FETCH|LIST_OFFSETS)\..*",
        "Kafka fails with -1 at an unknown isolation level; INVALID_REQUEST",
    ),
    Known(
        "timestamps_of_deleted_records",
        r"LIST_OFFSETS\.Topics\[.*\]\.Partitions\[0\]\.(Timestamp|Offset|LeaderEpoch)",
        "Kafka searches a segment that is deleted but still present, and finds nothing",
    ),
    Known(
        "markers_with_other_epochs",
        r"WRITE_TXN_MARKERS of epochs 9, -1\..*",
        "Kafka fails with -1 for all of a marker without a producer epoch; INVALID_REQUEST",
    ),
    Known(
        "election_types",
        r"ELECT_LEADERS\.(ErrorCode|ReplicaElectionResults\[.*\]\.ErrorCode)",
        "Kafka fails with -1 at an unknown election type; INVALID_REQUEST",
    ),
    Known(
        "acls_with_unknown_operations_or_permissions",
        r"(DESCRIBE|CREATE|DELETE)_ACLS .*",
        "Kafka ends the connection at an operation or permission 0 (unknown); SECURITY_DISABLED, as for any other",
    ),
    Known(
        "a_group_that_is_described_twice",
        r"DESCRIBE_GROUPS\.Groups",
        "Kafka describes it as often as it is named, which makes large answers of small requests; here once",
    ),
    Known(
        "a_resource_that_is_described_twice",
        r"DESCRIBE_CONFIGS\.Results",
        "Kafka describes it as often as it is named, which makes large answers of small requests; here once",
    ),
    Known(
        "producers_are_described",
        r"DESCRIBE_PRODUCERS\.Topics\[.*\]\.Partitions",
        "Kafka describes a partition as often as it is named, which makes large answers of small requests; here once",
    ),
    Known(
        "coordinators_of_several_keys",
        r"FIND_COORDINATOR\.Coordinators",
        "Kafka answers a key as often as it is named; here once",
    ),
    Known(
        "transactional_ids_are_described",
        r"DESCRIBE_TRANSACTIONS",
        "Kafka describes an id as often as it is named, which makes large answers of small requests; here once",
    ),
    Known(
        "an_empty_group_after_a_refused_join",
        r"DESCRIBE_GROUPS\.Groups\[.*\]\.GroupState",
        "Kafka keeps an empty group whose only member was refused; here there is none",
    ),
    Known(
        "max_num_offsets_of_version_0",
        r"LIST_OFFSETS\.Topics\[.*\]\.Partitions\[0\]\.ErrorCode",
        "Kafka fails with -1 if a negative number of offsets is requested; none are returned",
    ),
    Known(
        "offsets_are_fetched",
        r"OFFSET_FETCH\.Topics\[.*\]\.Partitions\[.\]\.ErrorCode",
        "Kafka fails with -1 at a group without a name in version 0; INVALID_GROUP_ID",
    ),
    Known(
        "offsets_of_several_groups_are_fetched",
        r"OFFSET_FETCH\.(silent|ThrottleTimeMs|Groups)",
        "Kafka never answers an OffsetFetch that names no group",
    ),
    Known(
        "a_zombie_bumps_its_epoch_while_its_successor_has_an_open_transaction",
        r"(INIT_PRODUCER_ID of the zombie|END_TXN of the successor)\.ErrorCode",
        "Kafka aborts the successor's transaction before it fences the zombie; only the zombie is fenced",
    ),
    Known(
        "a_transactional_id_is_described_after_its_next_producer_began",
        r"DESCRIBE_TRANSACTIONS\[0\]\.TransactionStartTimeMs",
        "Kafka returns the start of the last producer's transaction until it reloads; here -1, as in its log",
    ),
]
