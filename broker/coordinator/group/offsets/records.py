"""A committed offset and its record in `__consumer_offsets`.

Keys are written in version 1. Values are written

    in version 4, as Kafka 4.4 does, with the id of the topic;
    in version 3, as Kafka 3.9 does, if the commit has no topic id;
    in version 1 if the commit specifies its own retention time: only version 1 stores the expiry time (and it stores
    neither leader epoch nor topic id).

Key versions 0 and 1 and value versions 0-4 are decoded.

Source: Kafka's OffsetAndMetadata, GroupMetadataManager (offsetCommitKey, offsetCommitValue, readOffsetMessageValue).
"""

from __future__ import annotations

import struct
from uuid import UUID

from odradek.broker.coordinator.group.group import NO_TIMESTAMP
from odradek.broker.coordinator.runtime.record import (
    CoordinatorRecord,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from odradek.protocol.messages.group_records import OffsetCommitKey, OffsetCommitValue

OFFSET_COMMITS = (0, 1)
"""The key versions of offset commits."""
KEY_VERSION = 1
VALUE_VERSION = 4
VALUE_VERSION_WITHOUT_ID = 3
VALUE_VERSION_WITH_EXPIRY = 1
NO_LEADER_EPOCH = -1
NOT_APPENDED = -1
NO_TOPIC_ID = UUID(int=0)

_PARTITION = struct.Struct(">i").pack
_VALUE_BEFORE_TEXT = struct.Struct(">hqih").pack
_TIME = struct.Struct(">q").pack
MAX_SHORT_TEXT = 126
"""The maximum length of a compact string whose length takes one byte."""
_VALUE_BEFORE_SHORT_TEXT = struct.Struct(">hqiB").pack
_VALUE_WITHOUT_TEXT = struct.Struct(">hqiBq").pack
_ID_FIELD = struct.Struct(">BBB16s").pack
"""One tagged field: its number 0, its size 16, the topic id."""
_NO_ID_FIELD = b""


class CommittedOffset:
    """A group's committed offset for one partition. The attributes have the names of OffsetCommitValue's fields.

    Times are ms since 1970. `expire_timestamp` is -1 unless an old client requested its own retention time.
    `log_offset` is the commit's offset in the log (of its batch, or of its own record). Of two commits the one with the
    higher log offset wins, regardless of the order in which they take effect. `topic_id` is that of the topic at the
    commit; NO_TOPIC_ID if it is unknown.
    """

    __slots__ = ("commit_timestamp", "expire_timestamp", "leader_epoch", "log_offset", "metadata", "offset", "topic_id")

    def __init__(
        self,
        offset: int,
        leader_epoch: int,
        metadata: str,
        commit_timestamp: int,
        expire_timestamp: int = NO_TIMESTAMP,
        log_offset: int = NOT_APPENDED,
        topic_id: UUID = NO_TOPIC_ID,
    ) -> None:
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.commit_timestamp = commit_timestamp
        self.expire_timestamp = expire_timestamp
        self.log_offset = log_offset
        self.topic_id = topic_id

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CommittedOffset):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __repr__(self) -> str:
        return f"CommittedOffset({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"


def key_prefix(group_id: str, topic: str) -> bytes:
    """Returns the key of a topic's partitions without its last four bytes, which are the partition number."""
    return encode_key(OffsetCommitKey(group=group_id, topic=topic), KEY_VERSION)[:-4]


def offset_key(prefix: bytes, partition: int) -> bytes:
    return b"".join((prefix, _PARTITION(partition)))


def offset_records(prefix: bytes, commits: dict[int, CommittedOffset]) -> list[CoordinatorRecord]:
    """Returns the records of a topic's commits. `prefix`: see `key_prefix`. Raises as `offset_value` does."""
    records = []
    topic_id, id_field = NO_TOPIC_ID, _NO_ID_FIELD
    for partition, committed in commits.items():
        if committed.topic_id is not topic_id:  # once for each topic
            topic_id = committed.topic_id
            id_field = _id_field(topic_id)
        fields = offset_key(prefix, partition), _value(committed, id_field)
        records.append(tuple.__new__(CoordinatorRecord, fields))  # its own constructor is a Python function
    return records


def offset_value(committed: CommittedOffset) -> bytes:
    """Returns the record's value. Raises UnwritableMessage if a value does not fit into its field."""
    return _value(committed, _id_field(committed.topic_id))


def _id_field(topic_id: UUID) -> bytes:
    """Returns what follows the time in a value of version 4. Empty if the topic id is unknown: version 3 has none."""
    number = topic_id.int
    return _ID_FIELD(1, 0, 16, number.to_bytes(16)) if number else _NO_ID_FIELD


def _value(committed: CommittedOffset, id_field: bytes) -> bytes:
    text = committed.metadata
    if committed.expire_timestamp != NO_TIMESTAMP:
        version = VALUE_VERSION_WITH_EXPIRY
    else:
        version = VALUE_VERSION if id_field else VALUE_VERSION_WITHOUT_ID
        if text.isascii() and len(text) <= MAX_SHORT_TEXT:  # the common case
            size, epoch, time_ms = len(text), committed.leader_epoch, committed.commit_timestamp
            try:
                if not id_field:
                    before = _VALUE_BEFORE_TEXT(version, committed.offset, epoch, size)
                    return b"".join((before, text.encode(), _TIME(time_ms)))
                if not size:  # what nearly all clients send
                    # Not `+`: mypyc's addition of two bytes leaves one of them in memory.
                    return b"".join((_VALUE_WITHOUT_TEXT(version, committed.offset, epoch, 1, time_ms), id_field))
                before = _VALUE_BEFORE_SHORT_TEXT(version, committed.offset, epoch, size + 1)
                return b"".join((before, text.encode(), _TIME(time_ms), id_field))
            except struct.error:
                pass  # the general writer raises an error that names the field
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=text,
        commit_timestamp=committed.commit_timestamp,
        expire_timestamp=committed.expire_timestamp,
        topic_id=committed.topic_id,
    )
    return encode_value(value, version)


def offset_tombstone(prefix: bytes, partition: int) -> CoordinatorRecord:
    """Returns the record that deletes the group's offset of the partition."""
    return CoordinatorRecord(offset_key(prefix, partition), None)


def read_offset_key(record: CoordinatorRecord) -> OffsetCommitKey:
    """Decodes the key of an offset commit. Raises MalformedMessage."""
    return decode_key(OffsetCommitKey, record.key)


def read_offset(value: bytes, log_offset: int) -> CommittedOffset:
    """Decodes the value of an offset commit. Raises MalformedMessage."""
    read = decode_value(OffsetCommitValue, value)[1]
    return CommittedOffset(
        read.offset,
        read.leader_epoch,
        read.metadata,
        read.commit_timestamp,
        read.expire_timestamp,
        log_offset,
        read.topic_id,
    )
