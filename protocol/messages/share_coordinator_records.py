"""Keys and values of `__share_group_state` (KIP-932), after an int16 version, which gives a key's type."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import Message, array, int8, int16, int32, int64, message, string, uuid


@message(kind="data", versions=(0, 0))
class ShareSnapshotKey(Message):
    """A share partition whose whole state follows (version 0)."""

    group_id: str = string()
    topic_id: UUID = uuid()
    partition: int = int32()


@message(kind="data", versions=(0, 0), flexible=0)
class ShareSnapshotValue(Message):
    """The whole state of a share partition: start offset and delivered records; times in ms since 1970."""

    class StateBatch(Message):
        first_offset: int = int64()
        last_offset: int = int64()
        delivery_state: int = int8()
        delivery_count: int = int16()

    snapshot_epoch: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=-1, tag=0)
    create_timestamp: int = int64()
    write_timestamp: int = int64()
    state_batches: list[StateBatch] = array()


@message(kind="data", versions=(1, 1))
class ShareUpdateKey(Message):
    """A share partition whose state has changed since its snapshot (version 1)."""

    group_id: str = string()
    topic_id: UUID = uuid()
    partition: int = int32()


@message(kind="data", versions=(0, 0), flexible=0)
class ShareUpdateValue(Message):
    """What has changed in the state of a share partition."""

    class StateBatch(Message):
        first_offset: int = int64()
        last_offset: int = int64()
        delivery_state: int = int8()
        delivery_count: int = int16()

    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=-1, tag=0)
    state_batches: list[StateBatch] = array()
