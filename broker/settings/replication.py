"""Broker settings of replication, leadership and the related purgatories."""

from __future__ import annotations

from odradek.broker.settings.rules import AtLeast, ProtocolBetweenBrokers
from odradek.broker.settings.setting import (
    BOOLEAN,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LONG,
    LONG_MAX,
    LOW,
    MEDIUM,
    STRING,
    Setting,
    SettingValues,
)


# fmt: off
class ReplicationSettings(SettingValues):
    controller_socket_timeout_ms = Setting(INT, 30000, MEDIUM,
        doc="How long the controller waits for a broker's response.")
    delete_records_purgatory_purge_interval_requests = Setting(INT, 1, MEDIUM,
        doc="The number of completed DeleteRecords requests in their purgatory that triggers a purge.")
    fetch_purgatory_purge_interval_requests = Setting(INT, 1000, MEDIUM,
        doc="The number of completed fetches in their purgatory that triggers a purge.")
    inter_broker_protocol_version = Setting(STRING, "3.0-IV1", MEDIUM, valid=ProtocolBetweenBrokers(),
        removed_in="4.0",
        doc="The release whose protocol is used between nodes; only 3.0 is supported.")
    leader_imbalance_check_interval_seconds = Setting(LONG, 300, HIGH, valid=AtLeast(1),
        doc="How often the controller checks for leaders that are not the preferred replica.")
    leader_imbalance_per_broker_percentage = Setting(INT, 10, HIGH, removed_in="4.0",
        doc="The percentage of leaders on other than preferred replicas, per node, above which leadership is returned "
            "to preferred replicas.")
    num_replica_alter_log_dirs_threads = Setting(INT, None, HIGH,
        doc="The number of replicas moved between log directories concurrently; by default one per directory.")
    num_replica_fetchers = Setting(INT, 1, HIGH, valid=AtLeast(1), update_mode=CLUSTER_WIDE,
        doc="The number of connections per source node over which followers fetch.")
    producer_purgatory_purge_interval_requests = Setting(INT, 1000, MEDIUM,
        doc="The number of completed acks=all produce requests in their purgatory that triggers a purge.")
    replica_fetch_backoff_ms = Setting(INT, 1000, MEDIUM, valid=AtLeast(0),
        doc="The delay of a follower after a failed fetch.")
    replica_fetch_max_bytes = Setting(INT, 1048576, MEDIUM, valid=AtLeast(0),
        doc="The number of bytes per partition that a follower requests.")
    replica_fetch_min_bytes = Setting(INT, 1, HIGH,
        doc="The minimum number of bytes that a follower's fetch waits for.")
    replica_fetch_response_max_bytes = Setting(INT, 10485760, MEDIUM, valid=AtLeast(0),
        doc="The maximum size of the records that a follower requests in one fetch.")
    replica_fetch_wait_max_ms = Setting(INT, 500, HIGH,
        doc="How long a follower's fetch may wait.")
    replica_high_watermark_checkpoint_interval_ms = Setting(LONG, 5000, HIGH,
        doc="How often high watermarks are checkpointed.")
    replica_lag_time_max_ms = Setting(LONG, 30000, HIGH,
        doc="How long a follower may lag before it is removed from the in-sync replicas.")
    replica_socket_timeout_ms = Setting(INT, 30000, HIGH,
        doc="How long a follower waits for the response to a fetch.")
    replication_quota_window_num = Setting(INT, 11, LOW, valid=AtLeast(1),
        doc="The number of samples over which the rates of throttled replicas are measured.")
    replication_quota_window_size_seconds = Setting(INT, 1, LOW, valid=AtLeast(1),
        doc="The length of one sample of the rates of throttled replicas.")
    unclean_leader_election_enable = Setting(BOOLEAN, False, HIGH, update_mode=CLUSTER_WIDE,
        doc="The default of the topic setting unclean.leader.election.enable.")


class DynamicOnlySettings(SettingValues):
    """Those that can be set only while the broker runs, for one broker or for all. They are not in server.properties,
    and DescribeConfigs shows them only where they are set, as read-only and without a text, as Kafka does.
    `kafka-reassign-partitions --throttle` sets them, and `--verify` removes them.

    Source: Kafka's `DynamicConfig.Broker`.
    """

    follower_replication_throttled_rate = Setting(LONG, LONG_MAX, MEDIUM, valid=AtLeast(0), update_mode=CLUSTER_WIDE,
        doc="The bytes per second that this broker's throttled followers together receive while they are not in sync.")
    leader_replication_throttled_rate = Setting(LONG, LONG_MAX, MEDIUM, valid=AtLeast(0), update_mode=CLUSTER_WIDE,
        doc="The bytes per second that this broker's throttled leaders together send to followers that are not in "
            "sync.")
    replica_alter_log_dirs_io_max_bytes_per_second = Setting(LONG, LONG_MAX, MEDIUM, valid=AtLeast(0),
        update_mode=CLUSTER_WIDE,
        doc="The bytes per second that moves between the log directories of this broker copy together.")
