"""Keys and values of `__consumer_offsets` for classic groups, after an int16 version, which gives a key's type."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import ALWAYS, Message, array, bytes_, int32, int64, message, only, since, string, uuid


@message(kind="data", versions=(0, 1), lower_camel=True)
class OffsetCommitKey(Message):
    """A partition of a topic in a group (versions 0 and 1)."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


@message(kind="data", versions=(0, 4), flexible=4, lower_camel=True)
class OffsetCommitValue(Message):
    """A committed offset with its metadata text; times in ms since 1970."""

    offset: int = int64()
    leader_epoch: int = int32(default=-1, versions=since(3))
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64(default=-1, versions=only(1))
    topic_id: UUID = uuid(versions=since(4), tag=0)  # KIP-848


@message(kind="data", versions=(2, 2), lower_camel=True)
class GroupMetadataKey(Message):
    """A group (version 2)."""

    group: str = string()


@message(kind="data", versions=(0, 4), flexible=4, lower_camel=True)
class GroupMetadataValue(Message):
    """A classic group: protocol, generation, leader and members."""

    class MemberMetadata(Message):
        member_id: str = string()
        group_instance_id: str | None = string(default=None, versions=since(3), nullable=since(3))
        client_id: str = string()
        client_host: str = string()
        rebalance_timeout: int = int32(default=-1, versions=since(1))
        session_timeout: int = int32()
        subscription: bytes = bytes_()
        assignment: bytes = bytes_()

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable=ALWAYS)
    leader: str | None = string(nullable=ALWAYS)
    current_state_timestamp: int = int64(default=-1, versions=since(2))
    members: list[MemberMetadata] = array()
