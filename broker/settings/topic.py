"""Topic settings, which logs read through `storage.log_config`. Their synonyms are the broker settings that supply the
defaults.
"""

from __future__ import annotations

from odradek.broker.settings.log import FLUSH, JITTER, RETENTION, ROLL
from odradek.broker.settings.rules import AtLeast, Between, OneOf, ThrottledReplicas, UnlessMinusOne
from odradek.broker.settings.setting import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    MEDIUM,
    STRING,
    Setting,
    SettingValues,
    Synonym,
)


# fmt: off
class TopicSettings(SettingValues):
    cleanup_policy = Setting(LIST, ["delete"], MEDIUM, valid=OneOf("compact", "delete"),
        synonyms=(Synonym("log.cleanup.policy"),),
        doc="How old records are removed: `delete` drops segments by age and size, `compact` keeps the newest record "
            "of each key; both may be set.")
    compression_gzip_level = Setting(INT, -1, MEDIUM, valid=UnlessMinusOne(Between(1, 9)),
        synonyms=(Synonym("compression.gzip.level"),),
        doc="The gzip level for batches that the broker compresses itself; -1 is zlib's default.")
    compression_lz4_level = Setting(INT, 9, MEDIUM, valid=Between(1, 17), synonyms=(Synonym("compression.lz4.level"),),
        doc="The lz4 level for batches that the broker compresses itself.")
    compression_type = Setting(STRING, "producer", MEDIUM,
        valid=OneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        synonyms=(Synonym("compression.type"),),
        doc="The codec in which batches are stored; `producer` keeps the client's codec.")
    compression_zstd_level = Setting(INT, 3, MEDIUM, valid=Between(-131072, 22),
        synonyms=(Synonym("compression.zstd.level"),),
        doc="The zstd level for batches that the broker compresses itself.")
    delete_retention_ms = Setting(LONG, 86400000, MEDIUM, valid=AtLeast(0),
        synonyms=(Synonym("log.cleaner.delete.retention.ms"),),
        doc="How long tombstones and transaction markers are kept after the compaction that could have removed them.")
    file_delete_delay_ms = Setting(LONG, 60000, MEDIUM, valid=AtLeast(0),
        synonyms=(Synonym("log.segment.delete.delay.ms"),),
        doc="How long the files of a deleted segment stay on disk under their `.deleted` names.")
    flush_messages = Setting(LONG, LONG_MAX, MEDIUM, valid=AtLeast(1),
        synonyms=(Synonym("log.flush.interval.messages"),),
        doc="The number of records appended since the last fsync that triggers the next one; 1 flushes every append.")
    flush_ms = Setting(LONG, LONG_MAX, MEDIUM, valid=AtLeast(0), synonyms=FLUSH,
        doc="The maximum time that appended records wait for an fsync.")
    index_interval_bytes = Setting(INT, 4096, MEDIUM, valid=AtLeast(0), synonyms=(Synonym("log.index.interval.bytes"),),
        doc="The number of bytes appended to a segment between two entries of its offset index.")
    follower_replication_throttled_replicas = Setting(LIST, [], MEDIUM, valid=ThrottledReplicas(),
        doc="The replicas that are throttled as followers, by follower.replication.throttled.rate of their brokers: "
            "partition:broker pairs, or `*`.")
    leader_replication_throttled_replicas = Setting(LIST, [], MEDIUM, valid=ThrottledReplicas(),
        doc="The replicas that are throttled as leaders, by leader.replication.throttled.rate of their brokers: "
            "partition:broker pairs, or `*`.")
    max_compaction_lag_ms = Setting(LONG, LONG_MAX, MEDIUM, valid=AtLeast(1),
        synonyms=(Synonym("log.cleaner.max.compaction.lag.ms"),),
        doc="The maximum time that a record may remain uncompacted; segments of compacted topics also roll after this "
            "time.")
    max_decompressed_message_bytes = Setting(INT, 2147483639, MEDIUM, valid=Between(1, 2147483639),
        synonyms=(Synonym("max.decompressed.message.bytes"),),
        doc="The maximum size of a record of a compressed batch, when it is decompressed.")
    max_message_bytes = Setting(INT, 1048588, MEDIUM, valid=AtLeast(0), synonyms=(Synonym("message.max.bytes"),),
        doc="The maximum size of a record batch, as sent and compressed, that the topic accepts.")
    message_timestamp_after_max_ms = Setting(LONG, 3600000, MEDIUM, valid=AtLeast(0),
        synonyms=(Synonym("log.message.timestamp.after.max.ms"),),
        doc="The maximum time that a record's CreateTime may be ahead of the broker's clock.")
    message_timestamp_before_max_ms = Setting(LONG, LONG_MAX, MEDIUM, valid=AtLeast(0),
        synonyms=(Synonym("log.message.timestamp.before.max.ms"),),
        doc="The maximum time that a record's CreateTime may be behind the broker's clock.")
    message_timestamp_difference_max_ms = Setting(LONG, LONG_MAX, MEDIUM, valid=AtLeast(0), removed_in="4.0",
        synonyms=(Synonym("log.message.timestamp.difference.max.ms"),),
        doc="The older, symmetric bound, which applies to each direction whose newer setting has its default value.")
    message_timestamp_type = Setting(STRING, "CreateTime", MEDIUM, valid=OneOf("CreateTime", "LogAppendTime"),
        synonyms=(Synonym("log.message.timestamp.type"),),
        doc="Whether records keep the producer's timestamp (CreateTime) or get the broker's (LogAppendTime).")
    min_cleanable_dirty_ratio = Setting(DOUBLE, 0.5, MEDIUM, valid=Between(0, 1),
        synonyms=(Synonym("log.cleaner.min.cleanable.ratio"),),
        doc="The minimum dirty share of a compacted log at which the cleaner compacts it.")
    min_compaction_lag_ms = Setting(LONG, 0, MEDIUM, valid=AtLeast(0),
        synonyms=(Synonym("log.cleaner.min.compaction.lag.ms"),),
        doc="The minimum time that a record remains uncompacted.")
    min_insync_replicas = Setting(INT, 1, MEDIUM, valid=AtLeast(1), synonyms=(Synonym("min.insync.replicas"),),
        doc="The minimum number of in-sync replicas for a partition to accept writes with acks=all.")
    preallocate = Setting(BOOLEAN, False, MEDIUM, synonyms=(Synonym("log.preallocate"),),
        doc="Whether a new segment file is allocated at its full size.")
    retention_bytes = Setting(LONG, -1, MEDIUM, synonyms=(Synonym("log.retention.bytes"),),
        doc="The size of a partition above which the oldest segments are deleted; -1 means no limit.")
    retention_ms = Setting(LONG, 604800000, MEDIUM, valid=AtLeast(-1), synonyms=RETENTION,
        doc="The age of a segment's newest record above which the segment is deleted; -1 means no limit.")
    segment_bytes = Setting(INT, 1073741824, MEDIUM, valid=AtLeast(14), synonyms=(Synonym("log.segment.bytes"),),
        doc="The size at which a segment rolls.")
    segment_index_bytes = Setting(INT, 10485760, MEDIUM, valid=AtLeast(4),
        synonyms=(Synonym("log.index.size.max.bytes"),),
        doc="The maximum size of an index file; a full index also rolls the segment.")
    segment_jitter_ms = Setting(LONG, 0, MEDIUM, valid=AtLeast(0), synonyms=JITTER,
        doc="The maximum random time subtracted from segment.ms, so that partitions do not all roll at once.")
    segment_ms = Setting(LONG, 604800000, MEDIUM, valid=AtLeast(1), synonyms=ROLL,
        doc="The age at which a segment rolls even if it is not full, based on the timestamps of its records.")
    unclean_leader_election_enable = Setting(BOOLEAN, False, MEDIUM,
        synonyms=(Synonym("unclean.leader.election.enable"),),
        doc="Whether an out-of-sync replica may become leader as a last resort, at the risk of losing records.")
