"""A topic's settings, as its logs and their replication use them.

`TOPIC_SETTINGS` lists all settings that they read: Kafka's topic property name, the attribute, the type of its value,
Kafka's default (4.4, LogConfig). Bounds are not checked here: the settings table that parses user input checks them.
"""

from collections.abc import Mapping
from typing import NamedTuple

from odradek.protocol.batch_header import TimestampType

LONG_MAX = 2**63 - 1
HOUR_MS = 60 * 60 * 1000

TIMESTAMP_TYPES = {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}

Value = int | float | bool | str | list[str] | None


class TopicSetting(NamedTuple):
    name: str
    attribute: str
    kind: type
    default: Value


TOPIC_SETTINGS = (
    TopicSetting("segment.bytes", "segment_bytes", int, 1073741824),
    TopicSetting("segment.ms", "segment_ms", int, 604800000),
    TopicSetting("segment.jitter.ms", "segment_jitter_ms", int, 0),
    TopicSetting("segment.index.bytes", "segment_index_bytes", int, 10485760),
    TopicSetting("index.interval.bytes", "index_interval_bytes", int, 4096),
    TopicSetting("flush.messages", "flush_messages", int, LONG_MAX),
    TopicSetting("flush.ms", "flush_ms", int, LONG_MAX),
    TopicSetting("retention.bytes", "retention_bytes", int, -1),
    TopicSetting("retention.ms", "retention_ms", int, 604800000),
    TopicSetting("max.message.bytes", "max_message_bytes", int, 1048588),
    TopicSetting("max.decompressed.message.bytes", "max_decompressed_message_bytes", int, 2147483639),
    TopicSetting("file.delete.delay.ms", "file_delete_delay_ms", int, 60000),
    TopicSetting("delete.retention.ms", "delete_retention_ms", int, 86400000),
    TopicSetting("min.compaction.lag.ms", "min_compaction_lag_ms", int, 0),
    TopicSetting("max.compaction.lag.ms", "max_compaction_lag_ms", int, LONG_MAX),
    TopicSetting("min.cleanable.dirty.ratio", "min_cleanable_dirty_ratio", float, 0.5),
    TopicSetting("cleanup.policy", "cleanup_policy", list, ["delete"]),
    TopicSetting("compression.type", "compression_type", str, "producer"),
    TopicSetting("compression.gzip.level", "compression_gzip_level", int, -1),
    TopicSetting("compression.lz4.level", "compression_lz4_level", int, 9),
    TopicSetting("compression.zstd.level", "compression_zstd_level", int, 3),
    TopicSetting("message.timestamp.type", "message_timestamp_type", str, "CreateTime"),
    TopicSetting("message.timestamp.difference.max.ms", "message_timestamp_difference_max_ms", int, LONG_MAX),
    TopicSetting("message.timestamp.before.max.ms", "message_timestamp_before_max_ms", int, LONG_MAX),
    TopicSetting("message.timestamp.after.max.ms", "message_timestamp_after_max_ms", int, HOUR_MS),
    TopicSetting("min.insync.replicas", "min_insync_replicas", int, 1),
    TopicSetting("unclean.leader.election.enable", "unclean_leader_election_enable", bool, False),
    TopicSetting("preallocate", "preallocate", bool, False),
    TopicSetting("leader.replication.throttled.replicas", "leader_replication_throttled_replicas", list, []),
    TopicSetting("follower.replication.throttled.replicas", "follower_replication_throttled_replicas", list, []),
)


class LogConfig:
    """Typed settings of one topic. Attributes are the names of TOPIC_SETTINGS with underscores; times in ms, sizes in
    bytes.
    """

    __slots__ = (
        "compact",
        "compression_level",
        "delete",
        "timestamp_type",
        *(setting.attribute for setting in TOPIC_SETTINGS),
    )

    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    flush_messages: int
    flush_ms: int
    retention_bytes: int
    retention_ms: int
    max_message_bytes: int
    max_decompressed_message_bytes: int
    file_delete_delay_ms: int
    delete_retention_ms: int
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    min_cleanable_dirty_ratio: float
    cleanup_policy: list[str]
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    message_timestamp_type: str
    message_timestamp_difference_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_after_max_ms: int
    min_insync_replicas: int
    unclean_leader_election_enable: bool
    preallocate: bool
    leader_replication_throttled_replicas: list[str]
    follower_replication_throttled_replicas: list[str]
    compact: bool
    delete: bool
    timestamp_type: TimestampType
    compression_level: int | None

    def __init__(self, properties: Mapping[str, Value] | None = None) -> None:
        """Takes Kafka's topic property names; values may be typed or text. Names that a log does not use are ignored.

        Raises ValueError if a value does not have its setting's type.
        """
        given = properties or {}
        for setting in TOPIC_SETTINGS:
            value = given.get(setting.name, setting.default)
            setattr(self, setting.attribute, _typed(setting, value))
        self.compact = "compact" in self.cleanup_policy
        self.delete = "delete" in self.cleanup_policy
        if self.message_timestamp_type not in TIMESTAMP_TYPES:
            raise ValueError(
                f"message.timestamp.type must be CreateTime or LogAppendTime, not {self.message_timestamp_type!r}"
            )
        self.timestamp_type = TIMESTAMP_TYPES[self.message_timestamp_type]
        self.compression_level = self._compression_level()
        # the older setting, if it has a value, bounds both directions if the newer two have their defaults (KIP-937),
        # of which one is another one since Kafka 4
        if self.message_timestamp_difference_max_ms < LONG_MAX:
            if self.message_timestamp_before_max_ms == LONG_MAX:
                self.message_timestamp_before_max_ms = self.message_timestamp_difference_max_ms
            if self.message_timestamp_after_max_ms in (HOUR_MS, LONG_MAX):
                self.message_timestamp_after_max_ms = self.message_timestamp_difference_max_ms

    def _compression_level(self) -> int | None:
        levels = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return levels.get(self.compression_type)

    @property
    def max_segment_ms(self) -> int:
        """The age at which a segment rolls; in a compacted topic also a limit on waiting for the cleaner."""
        return min(self.max_compaction_lag_ms, self.segment_ms) if self.compact else self.segment_ms


def _typed(setting: TopicSetting, value: Value) -> Value:
    if isinstance(value, str):
        return _parsed(setting, value.strip())
    if setting.kind is list and isinstance(value, (list, tuple)):
        return [str(part) for part in value]
    if setting.kind is float and isinstance(value, (int, float)):
        return float(value)
    if not isinstance(value, setting.kind) or (setting.kind is int and isinstance(value, bool)):
        raise ValueError(f"{setting.name} cannot be {value!r}")
    return value


def _parsed(setting: TopicSetting, text: str) -> Value:
    if setting.kind is str:
        return text
    if setting.kind is list:
        return [part.strip() for part in text.split(",") if part.strip()]
    if setting.kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{setting.name} is true or false, not {text!r}")
        return text.lower() == "true"
    try:
        return setting.kind(text)  # type: ignore[no-any-return]
    except ValueError:
        raise ValueError(f"{setting.name} is a number, not {text!r}") from None
