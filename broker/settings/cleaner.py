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
            doc="How long the cleaner rests when there is nothing to compact."),
    Setting("log.cleaner.dedupe.buffer.size", LONG, 134217728, MEDIUM, takes_effect=True,
            update_mode=CLUSTER_WIDE,
            doc="Memory for the key tables of all cleaner threads together."),
    Setting("log.cleaner.delete.retention.ms", LONG, 86400000, MEDIUM, valid=AtLeast(0), takes_effect=True,
            update_mode=CLUSTER_WIDE,
            doc="The default of topics for delete.retention.ms."),
    Setting("log.cleaner.enable", BOOLEAN, True, MEDIUM, takes_effect=True,
            doc="Whether compaction runs at all."),
    Setting("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, MEDIUM, takes_effect=True,
            update_mode=CLUSTER_WIDE,
            doc="How full a cleaner's key table may get."),
    Setting("log.cleaner.io.buffer.size", INT, 524288, MEDIUM, valid=AtLeast(0), takes_effect=True,
            update_mode=CLUSTER_WIDE,
            doc="Memory for the read and write buffers of all cleaner threads together."),
    Setting("log.cleaner.io.max.bytes.per.second", DOUBLE, DOUBLE_MAX, MEDIUM, takes_effect=True,
            update_mode=CLUSTER_WIDE,
            doc="Bytes per second that the cleaner may read and write."),
    Setting("log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX, MEDIUM, valid=AtLeast(1), takes_effect=True,
            update_mode=CLUSTER_WIDE,
            doc="The default of topics for max.compaction.lag.ms."),
    Setting("log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, MEDIUM, valid=Between(0, 1), takes_effect=True,
            update_mode=CLUSTER_WIDE,
            doc="The default of topics for min.cleanable.dirty.ratio."),
    Setting("log.cleaner.min.compaction.lag.ms", LONG, 0, MEDIUM, valid=AtLeast(0), takes_effect=True,
            update_mode=CLUSTER_WIDE,
            doc="The default of topics for min.compaction.lag.ms."),
    Setting("log.cleaner.threads", INT, 1, MEDIUM, valid=AtLeast(0), takes_effect=True,
            update_mode=CLUSTER_WIDE,
            doc="Threads that compact logs."),
)
# fmt: on
