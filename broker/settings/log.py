"""Broker settings of logs: their directories, the defaults of topic settings, and compaction."""

from __future__ import annotations

from odradek.broker.settings.rules import AtLeast, Between, OneOf, Values
from odradek.broker.settings.setting import (
    BOOLEAN,
    CLUSTER_WIDE,
    DOUBLE,
    DOUBLE_MAX,
    HIGH,
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

FLUSH = (Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms"))
RETENTION = (
    Synonym("log.retention.ms"),
    Synonym("log.retention.minutes", 60000),
    Synonym("log.retention.hours", 3600000),
)
ROLL = (Synonym("log.roll.ms"), Synonym("log.roll.hours", 3600000))
JITTER = (Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", 3600000))


# fmt: off
class LogSettings(SettingValues):
    log_cleanup_policy = Setting(LIST, ["delete"], MEDIUM, valid=OneOf("compact", "delete"), update_mode=CLUSTER_WIDE,
        doc="The default of the topic setting cleanup.policy.")
    log_dir = Setting(LIST, ["/tmp/kafka-logs"], HIGH,  # nosec B108 # the default of Kafka
        valid=Values(may_be_empty=False),
        doc="The directories for logs, used if log.dirs is not set.")
    log_dirs_listed = Setting(LIST, None, HIGH, name="log.dirs", valid=Values(may_be_empty=False),
        doc="The directories for logs, separated by commas; the metadata is stored in the first one.")
    log_flush_interval_messages = Setting(LONG, LONG_MAX, HIGH, valid=AtLeast(1), update_mode=CLUSTER_WIDE,
        doc="The default of the topic setting flush.messages.")
    log_flush_interval_ms = Setting(LONG, None, HIGH, update_mode=CLUSTER_WIDE, synonyms=FLUSH,
        doc="The default of the topic setting flush.ms; if not set, log.flush.scheduler.interval.ms applies.")
    log_flush_offset_checkpoint_interval_ms = Setting(INT, 60000, HIGH, valid=AtLeast(0),
        doc="How often recovery points are checkpointed.")
    log_flush_scheduler_interval_ms = Setting(LONG, LONG_MAX, HIGH,
        doc="The default of the topic setting flush.ms if log.flush.interval.ms is not set.")
    log_flush_start_offset_checkpoint_interval_ms = Setting(INT, 60000, HIGH, valid=AtLeast(0),
        doc="How often log start offsets are checkpointed.")
    log_index_interval_bytes = Setting(INT, 4096, MEDIUM, valid=AtLeast(0), update_mode=CLUSTER_WIDE,
        doc="The default of the topic setting index.interval.bytes.")
    log_index_size_max_bytes = Setting(INT, 10485760, MEDIUM, valid=AtLeast(4), update_mode=CLUSTER_WIDE,
        doc="The default of the topic setting segment.index.bytes.")
    log_message_timestamp_after_max_ms = Setting(LONG, 3600000, MEDIUM, valid=AtLeast(0), update_mode=CLUSTER_WIDE,
        doc="The default of the topic setting message.timestamp.after.max.ms.")
    log_message_timestamp_before_max_ms = Setting(LONG, LONG_MAX, MEDIUM, valid=AtLeast(0), update_mode=CLUSTER_WIDE,
        doc="The default of the topic setting message.timestamp.before.max.ms.")
    log_message_timestamp_difference_max_ms = Setting(LONG, LONG_MAX, MEDIUM, valid=AtLeast(0),
        update_mode=CLUSTER_WIDE, removed_in="4.0",
        doc="The default of the topic setting message.timestamp.difference.max.ms.")
    log_message_timestamp_type = Setting(STRING, "CreateTime", MEDIUM, valid=OneOf("CreateTime", "LogAppendTime"),
        update_mode=CLUSTER_WIDE,
        doc="The default of the topic setting message.timestamp.type.")
    log_preallocate = Setting(BOOLEAN, False, MEDIUM, update_mode=CLUSTER_WIDE,
        doc="The default of the topic setting preallocate.")
    log_retention_bytes = Setting(LONG, -1, HIGH, update_mode=CLUSTER_WIDE,
        doc="The default of the topic setting retention.bytes.")
    log_retention_check_interval_ms = Setting(LONG, 300000, MEDIUM, valid=AtLeast(1),
        doc="How often logs are checked for segments to delete.")
    log_retention_hours = Setting(INT, 168, HIGH, synonyms=RETENTION,
        doc="The default of the topic setting retention.ms, in hours; the settings in minutes and milliseconds take "
            "precedence.")
    log_retention_minutes = Setting(INT, None, HIGH, synonyms=RETENTION,
        doc="The default of the topic setting retention.ms, in minutes; the setting in milliseconds takes precedence.")
    log_retention_ms = Setting(LONG, None, HIGH, update_mode=CLUSTER_WIDE, synonyms=RETENTION,
        doc="The default of the topic setting retention.ms; -1 means no limit.")
    log_roll_hours = Setting(INT, 168, HIGH, valid=AtLeast(1), synonyms=ROLL,
        doc="The default of the topic setting segment.ms, in hours; the setting in milliseconds takes precedence.")
    log_roll_jitter_hours = Setting(INT, 0, HIGH, valid=AtLeast(0), synonyms=JITTER,
        doc="The default of the topic setting segment.jitter.ms, in hours; the setting in milliseconds takes "
            "precedence.")
    log_roll_jitter_ms = Setting(LONG, None, HIGH, update_mode=CLUSTER_WIDE, synonyms=JITTER,
        doc="The default of the topic setting segment.jitter.ms.")
    log_roll_ms = Setting(LONG, None, HIGH, update_mode=CLUSTER_WIDE, synonyms=ROLL,
        doc="The default of the topic setting segment.ms.")
    log_segment_bytes = Setting(INT, 1073741824, HIGH, valid=AtLeast(14), update_mode=CLUSTER_WIDE,
        doc="The default of the topic setting segment.bytes.")
    log_segment_delete_delay_ms = Setting(LONG, 60000, HIGH, valid=AtLeast(0), update_mode=CLUSTER_WIDE,
        doc="The default of the topic setting file.delete.delay.ms.")


class CleanerSettings(SettingValues):
    log_cleaner_backoff_ms = Setting(LONG, 15000, MEDIUM, valid=AtLeast(0), update_mode=CLUSTER_WIDE,
        doc="How long the cleaner sleeps if there is nothing to compact.")
    log_cleaner_dedupe_buffer_size = Setting(LONG, 134217728, MEDIUM, update_mode=CLUSTER_WIDE,
        doc="The memory for the key tables of all cleaner threads together, in bytes.")
    log_cleaner_delete_retention_ms = Setting(LONG, 86400000, MEDIUM, valid=AtLeast(0), update_mode=CLUSTER_WIDE,
        doc="The default of the topic setting delete.retention.ms.")
    log_cleaner_enable = Setting(BOOLEAN, True, MEDIUM,
        doc="Whether logs are compacted.")
    log_cleaner_io_buffer_load_factor = Setting(DOUBLE, 0.9, MEDIUM, update_mode=CLUSTER_WIDE,
        doc="The maximum load of a cleaner's key table.")
    log_cleaner_io_buffer_size = Setting(INT, 524288, MEDIUM, valid=AtLeast(0), update_mode=CLUSTER_WIDE,
        doc="The memory for the read and write buffers of all cleaner threads together, in bytes.")
    log_cleaner_io_max_bytes_per_second = Setting(DOUBLE, DOUBLE_MAX, MEDIUM, update_mode=CLUSTER_WIDE,
        doc="The maximum number of bytes per second that the cleaner reads and writes.")
    log_cleaner_max_compaction_lag_ms = Setting(LONG, LONG_MAX, MEDIUM, valid=AtLeast(1), update_mode=CLUSTER_WIDE,
        doc="The default of the topic setting max.compaction.lag.ms.")
    log_cleaner_min_cleanable_ratio = Setting(DOUBLE, 0.5, MEDIUM, valid=Between(0, 1), update_mode=CLUSTER_WIDE,
        doc="The default of the topic setting min.cleanable.dirty.ratio.")
    log_cleaner_min_compaction_lag_ms = Setting(LONG, 0, MEDIUM, valid=AtLeast(0), update_mode=CLUSTER_WIDE,
        doc="The default of the topic setting min.compaction.lag.ms.")
    log_cleaner_threads = Setting(INT, 1, MEDIUM, valid=AtLeast(0), update_mode=CLUSTER_WIDE,
        doc="The number of threads that compact logs.")
