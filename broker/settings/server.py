"""Broker settings of the node itself: its identity, its features, and the creation of topics; and of KRaft nodes."""

from __future__ import annotations

from odradek.broker.settings.rules import AtLeast, Between, OneOf, UnlessMinusOne, Values
from odradek.broker.settings.setting import (
    BOOLEAN,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    STRING,
    Setting,
    SettingValues,
)


# fmt: off
class ServerSettings(SettingValues):
    auto_create_topics_enable = Setting(BOOLEAN, True, HIGH,
        doc="Whether a Metadata request for an unknown topic creates it.")
    auto_leader_rebalance_enable = Setting(BOOLEAN, True, HIGH,
        doc="Whether leadership is returned to preferred replicas in the background.")
    broker_id = Setting(INT, -1, HIGH,
        doc="This node's id; -1 lets the node choose one and store it in meta.properties.")
    broker_id_generation_enable = Setting(BOOLEAN, True, MEDIUM, removed_in="4.0",
        doc="Whether a node without broker.id may choose an id above reserved.broker.max.id.")
    broker_rack = Setting(STRING, None, MEDIUM,
        doc="The rack of this node, shown in Metadata; replicas of a partition are spread over racks.")
    compression_gzip_level = Setting(INT, -1, MEDIUM, valid=UnlessMinusOne(Between(1, 9)), update_mode=CLUSTER_WIDE,
        doc="The gzip level for batches that the broker compresses itself; -1 is zlib's default.")
    compression_lz4_level = Setting(INT, 9, MEDIUM, valid=Between(1, 17), update_mode=CLUSTER_WIDE,
        doc="The lz4 level for batches that the broker compresses itself.")
    compression_type = Setting(STRING, "producer", HIGH,
        valid=OneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), update_mode=CLUSTER_WIDE,
        doc="The codec in which batches are stored; `producer` keeps the client's codec.")
    compression_zstd_level = Setting(INT, 3, MEDIUM, valid=Between(-131072, 22), update_mode=CLUSTER_WIDE,
        doc="The zstd level for batches that the broker compresses itself.")
    config_providers = Setting(LIST, [], LOW, valid=Values(), update_mode=CLUSTER_WIDE,
        doc="The providers of variables in settings.")
    controlled_shutdown_enable = Setting(BOOLEAN, True, MEDIUM,
        doc="Whether a stopping node first transfers its partitions' leadership to other nodes.")
    controlled_shutdown_max_retries = Setting(INT, 3, MEDIUM, removed_in="4.0",
        doc="How often transferring leadership is tried before the node stops anyway, after 22 seconds at most.")
    controlled_shutdown_retry_backoff_ms = Setting(LONG, 5000, MEDIUM, removed_in="4.0",
        doc="The delay between two attempts to transfer leadership.")
    default_replication_factor = Setting(INT, 1, MEDIUM,
        doc="The replication factor of topics that are created without one.")
    delete_topic_enable = Setting(BOOLEAN, True, HIGH,
        doc="Whether DeleteTopics is allowed.")
    fetch_max_bytes = Setting(INT, 57671680, MEDIUM, valid=AtLeast(1024),
        doc="The maximum size of the records in a fetch response, whatever the client requests.")
    max_decompressed_message_bytes = Setting(INT, 2147483639, MEDIUM, valid=Between(1, 2147483639),
        update_mode=CLUSTER_WIDE,
        doc="The default of the topic setting max.decompressed.message.bytes.")
    max_incremental_fetch_session_cache_slots = Setting(INT, 1000, MEDIUM, valid=AtLeast(0),
        doc="The maximum number of incremental fetch sessions (KIP-227).")
    max_request_partition_size_limit = Setting(INT, 2000, MEDIUM, valid=AtLeast(1),
        doc="The maximum number of partitions in a DescribeTopicPartitions response.")
    message_max_bytes = Setting(INT, 1048588, HIGH, valid=AtLeast(0), update_mode=CLUSTER_WIDE,
        doc="The maximum size of a record batch, as sent and compressed, for topics without their own limit.")
    min_insync_replicas = Setting(INT, 1, HIGH, valid=AtLeast(1), update_mode=CLUSTER_WIDE,
        doc="The minimum number of in-sync replicas for a partition to accept writes with acks=all.")
    node_id = Setting(INT, -1, HIGH,
        doc="The newer name of broker.id; if both are set, they must be equal.")
    num_partitions = Setting(INT, 1, MEDIUM, valid=AtLeast(1),
        doc="The number of partitions of topics that are created without one.")
    process_roles = Setting(LIST, [], HIGH, valid=OneOf("broker", "controller"),
        doc="The roles of a KRaft node; Odradek is broker and controller in one, and refuses `controller` alone.")
    request_timeout_ms = Setting(INT, 30000, HIGH,
        doc="How long a request waits for the creation of topics that it needs; in Kafka, also how long nodes wait "
            "for each other.")
    reserved_broker_max_id = Setting(INT, 1000, MEDIUM, valid=AtLeast(0), removed_in="4.0",
        doc="The maximum id that may be configured for a node; generated ids start above it.")


class KRaftSettings(SettingValues):
    """As in the server.properties of KRaft nodes. Odradek has no KRaft quorum."""

    controller_listener_names = Setting(LIST, None, HIGH, valid=Values(may_be_empty=False),
        doc="The listeners of KRaft controllers; Odradek does not open them, since it has no KRaft quorum.")
