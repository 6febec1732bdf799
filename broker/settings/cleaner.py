"""Broker settings of compaction."""

from __future__ import annotations

from odradek.broker.settings.rules import AtLeast, Between
from odradek.broker.settings.setting import (
    BOOLEAN,
    CLUSTER_WIDE,
    DOUBLE,
    DOUBLE_MAX,
    INT,
    LONG,
    LONG_MAX,
    MEDIUM,
    Setting,
    SettingValues,
)


# fmt: off
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
