"""Broker settings that can be set only while the broker runs, for one broker or for all.

They are not in server.properties, and DescribeConfigs shows them only where they are set, as read-only and without a
text, as Kafka does. `kafka-reassign-partitions --throttle` sets them, and `--verify` removes them.

Source: Kafka's `DynamicConfig.Broker`.
"""

from __future__ import annotations

from odradek.broker.settings.rules import AtLeast
from odradek.broker.settings.setting import CLUSTER_WIDE, LONG, LONG_MAX, MEDIUM, Setting, SettingValues


# fmt: off
class DynamicOnlySettings(SettingValues):
    follower_replication_throttled_rate = Setting(LONG, LONG_MAX, MEDIUM, valid=AtLeast(0), update_mode=CLUSTER_WIDE,
        doc="The bytes per second that this broker's throttled followers together receive while they are not in sync.")
    leader_replication_throttled_rate = Setting(LONG, LONG_MAX, MEDIUM, valid=AtLeast(0), update_mode=CLUSTER_WIDE,
        doc="The bytes per second that this broker's throttled leaders together send to followers that are not in "
            "sync.")
    replica_alter_log_dirs_io_max_bytes_per_second = Setting(LONG, LONG_MAX, MEDIUM, valid=AtLeast(0),
        update_mode=CLUSTER_WIDE,
        doc="The bytes per second that moves between the log directories of this broker copy together.")
