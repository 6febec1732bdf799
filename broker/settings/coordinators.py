"""Broker settings of consumer groups, share groups and committed offsets, and of producer state and transactions."""

from __future__ import annotations

from odradek.broker.settings.rules import Assignors, AtLeast, OneOf, OneOfAnyCase
from odradek.broker.settings.setting import (
    BOOLEAN,
    CLUSTER_WIDE,
    HIGH,
    INT,
    INT_MAX,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    SHORT,
    STRING,
    Setting,
    SettingValues,
)


# fmt: off
class GroupsSettings(SettingValues):
    group_consumer_assignment_interval_ms = Setting(INT, 1000, MEDIUM, valid=AtLeast(0), update_mode=CLUSTER_WIDE,
        doc="The least time between two target assignments of a group of the newer protocol.")
    group_consumer_assignors = Setting(LIST, ["uniform", "range"], MEDIUM, valid=Assignors(),
        doc="The assignors of the newer group protocol (KIP-848); the first one is the default.")
    group_consumer_heartbeat_interval_ms = Setting(INT, 5000, MEDIUM, valid=AtLeast(1),
        doc="The heartbeat interval for members of the newer group protocol.")
    group_consumer_max_assignment_interval_ms = Setting(INT, 15000, MEDIUM, valid=AtLeast(0),
        doc="The maximum of the setting consumer.assignment.interval.ms of groups.")
    group_consumer_max_heartbeat_interval_ms = Setting(INT, 15000, MEDIUM, valid=AtLeast(1),
        doc="The maximum heartbeat interval of a group of the newer protocol.")
    group_consumer_max_session_timeout_ms = Setting(INT, 60000, MEDIUM, valid=AtLeast(1),
        doc="The maximum session timeout of a group of the newer protocol.")
    group_consumer_max_size = Setting(INT, INT_MAX, MEDIUM, valid=AtLeast(1),
        doc="The maximum number of members of a group of the newer protocol.")
    group_consumer_migration_policy = Setting(STRING, "bidirectional", MEDIUM,
        valid=OneOfAnyCase("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"),
        doc="Whether groups with members may be converted between the classic and the newer protocol.")
    group_consumer_min_assignment_interval_ms = Setting(INT, 0, MEDIUM, valid=AtLeast(0),
        doc="The minimum of the setting consumer.assignment.interval.ms of groups.")
    group_consumer_min_heartbeat_interval_ms = Setting(INT, 5000, MEDIUM, valid=AtLeast(1),
        doc="The minimum heartbeat interval of a group of the newer protocol.")
    group_consumer_min_session_timeout_ms = Setting(INT, 45000, MEDIUM, valid=AtLeast(1),
        doc="The minimum session timeout of a group of the newer protocol.")
    group_consumer_regex_refresh_interval_ms = Setting(INT, 600000, MEDIUM, valid=AtLeast(10000), internal=True,
        doc="How often the regular expressions of a group of the newer protocol are resolved again.")
    group_consumer_session_timeout_ms = Setting(INT, 45000, MEDIUM, valid=AtLeast(1),
        doc="The session timeout for members of the newer group protocol.")
    group_coordinator_rebalance_protocols = Setting(LIST, ["classic", "consumer", "streams"], MEDIUM,
        valid=OneOf("consumer", "classic", "share", "streams"),
        doc="The enabled group protocols.")
    group_initial_rebalance_delay_ms = Setting(INT, 3000, MEDIUM,
        doc="How long the first rebalance of an empty group waits for further members.")
    group_max_session_timeout_ms = Setting(INT, 1800000, MEDIUM,
        doc="The maximum session timeout that a member may request.")
    group_max_size = Setting(INT, INT_MAX, MEDIUM, valid=AtLeast(1),
        doc="The maximum number of members of a group.")
    group_min_session_timeout_ms = Setting(INT, 6000, MEDIUM,
        doc="The minimum session timeout that a member may request.")
    offset_metadata_max_bytes = Setting(INT, 4096, HIGH,
        doc="The maximum size of the metadata of a committed offset.")
    offsets_commit_required_acks = Setting(SHORT, -1, HIGH, removed_in="4.0",
        doc="The number of acknowledgments that an offset commit waits for.")
    offsets_commit_timeout_ms = Setting(INT, 5000, HIGH, valid=AtLeast(1),
        doc="How long an offset commit waits for its acknowledgments.")
    offsets_load_buffer_size = Setting(INT, 5242880, HIGH, valid=AtLeast(1),
        doc="The number of bytes read at a time when a coordinator loads its partitions.")
    offsets_retention_check_interval_ms = Setting(LONG, 600000, HIGH, valid=AtLeast(1),
        doc="How often committed offsets are checked for expiration.")
    offsets_retention_minutes = Setting(INT, 10080, HIGH, valid=AtLeast(1),
        doc="How long the offsets of an empty group are kept.")
    offsets_topic_compression_codec = Setting(INT, 0, HIGH,
        doc="The number of the codec for batches in __consumer_offsets.")
    offsets_topic_num_partitions = Setting(INT, 50, HIGH, valid=AtLeast(1),
        doc="The number of partitions with which __consumer_offsets is created.")
    offsets_topic_replication_factor = Setting(SHORT, 3, HIGH, valid=AtLeast(1),
        doc="The replication factor with which __consumer_offsets is created.")
    offsets_topic_segment_bytes = Setting(INT, 104857600, HIGH, valid=AtLeast(1),
        doc="The segment size of __consumer_offsets.")


class TransactionsSettings(SettingValues):
    add_partitions_to_txn_retry_backoff_max_ms = Setting(INT, 100, HIGH, valid=AtLeast(0),
        doc="How long a busy transaction coordinator is asked again to add the partitions of a Produce request.")
    add_partitions_to_txn_retry_backoff_ms = Setting(INT, 20, HIGH, valid=AtLeast(1),
        doc="The delay before a busy transaction coordinator is asked again to add partitions.")
    producer_id_expiration_check_interval_ms = Setting(INT, 600000, LOW, valid=AtLeast(1), internal=True,
        doc="How often idle producers are expired.")
    producer_id_expiration_ms = Setting(INT, 86400000, LOW, valid=AtLeast(1), update_mode=CLUSTER_WIDE,
        doc="How long a partition keeps the sequence numbers of a producer that sends no batches.")
    transaction_abort_timed_out_transaction_cleanup_interval_ms = Setting(INT, 10000, LOW, valid=AtLeast(1),
        doc="How often transactions that have timed out are aborted.")
    transaction_max_timeout_ms = Setting(INT, 900000, HIGH, valid=AtLeast(1),
        doc="The maximum timeout that a transactional producer may request.")
    transaction_partition_verification_enable = Setting(BOOLEAN, True, LOW, update_mode=CLUSTER_WIDE,
        doc="Whether a partition verifies, before it accepts a transactional batch, that it was added to the "
            "transaction.")
    transaction_remove_expired_transaction_cleanup_interval_ms = Setting(INT, 3600000, LOW, valid=AtLeast(1),
        doc="How often unused transactional ids are expired.")
    transaction_state_log_load_buffer_size = Setting(INT, 5242880, HIGH, valid=AtLeast(1),
        doc="The number of bytes read at a time when a transaction coordinator loads its partitions.")
    transaction_state_log_min_isr = Setting(INT, 2, HIGH, valid=AtLeast(1),
        doc="The minimum number of in-sync replicas for __transaction_state to accept writes.")
    transaction_state_log_num_partitions = Setting(INT, 50, HIGH, valid=AtLeast(1),
        doc="The number of partitions with which __transaction_state is created.")
    transaction_state_log_replication_factor = Setting(SHORT, 3, HIGH, valid=AtLeast(1),
        doc="The replication factor with which __transaction_state is created.")
    transaction_state_log_segment_bytes = Setting(INT, 104857600, HIGH, valid=AtLeast(1),
        doc="The segment size of __transaction_state.")
    transactional_id_expiration_ms = Setting(INT, 604800000, HIGH, valid=AtLeast(1),
        doc="How long an unused transactional id is kept.")
