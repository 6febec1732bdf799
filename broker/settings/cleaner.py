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
)

# fmt: off
CLEANER_SETTINGS = (
    Setting("log.cleaner.backoff.ms", LONG, 15000, MEDIUM, valid=AtLeast(0), takes_effect=True,
            update_mode=CLUSTER_WIDE,
            doc="How long the cleaner sleeps if there is nothing to compact."),
    Setting("log.cleaner.dedupe.buffer.size", LONG, 134217728, MEDIUM, takes_effect=True,
            update_mode=CLUSTER_WIDE,
            doc="The memory for the key tables of all cleaner threads together, in bytes."),
    Setting("log.cleaner.delete.retention.ms", LONG, 86400000, MEDIUM, valid=AtLeast(0), takes_effect=True,
            update_mode=CLUSTER_WIDE,
            doc="The default of the topic setting delete.retention.ms."),
    Setting("log.cleaner.enable", BOOLEAN, True, MEDIUM, takes_effect=True,
            doc="Whether logs are compacted."),
    Setting("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, MEDIUM, takes_effect=True,
            update_mode=CLUSTER_WIDE,
            doc="The maximum load of a cleaner's key table."),
    Setting("log.cleaner.io.buffer.size", INT, 524288, MEDIUM, valid=AtLeast(0), takes_effect=True,
            update_mode=CLUSTER_WIDE,
            doc="The memory for the read and write buffers of all cleaner threads together, in bytes."),
    Setting("log.cleaner.io.max.bytes.per.second", DOUBLE, DOUBLE_MAX, MEDIUM, takes_effect=True,
            update_mode=CLUSTER_WIDE,
            doc="The maximum number of bytes per second that the cleaner reads and writes."),
    Setting("log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX, MEDIUM, valid=AtLeast(1), takes_effect=True,
            update_mode=CLUSTER_WIDE,
            doc="The default of the topic setting max.compaction.lag.ms."),
    Setting("log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, MEDIUM, valid=Between(0, 1), takes_effect=True,
            update_mode=CLUSTER_WIDE,
            doc="The default of the topic setting min.cleanable.dirty.ratio."),
    Setting("log.cleaner.min.compaction.lag.ms", LONG, 0, MEDIUM, valid=AtLeast(0), takes_effect=True,
            update_mode=CLUSTER_WIDE,
            doc="The default of the topic setting min.compaction.lag.ms."),
    Setting("log.cleaner.threads", INT, 1, MEDIUM, valid=AtLeast(0), takes_effect=True,
            update_mode=CLUSTER_WIDE,
            doc="The number of threads that compact logs."),
)
# fmt: on
