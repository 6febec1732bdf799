"""OffsetCommit of version 0, whose offsets are stored with the metadata; see offsets/zookeeper.py.

This coroutine is not compiled, for the reason given in transaction_outcomes.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.coordinator.group.offsets.zookeeper import ZooKeeperOffsets
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.offsets import OffsetCommitResponse

if TYPE_CHECKING:
    from odradek.broker.handlers.offset_commit_response_builder import OffsetCommitResponseBuilder


async def commit_to_zookeeper(
    store: ZooKeeperOffsets, group_id: str, builder: OffsetCommitResponseBuilder
) -> OffsetCommitResponse:
    """Commits one offset after the other; each partition has a result of its own."""
    for topic in builder.topics:
        commits = builder.commits.get(topic.name, {})
        for answer in topic.partitions:
            if answer.error_code == ErrorCode.NONE:
                committed = commits[answer.partition_index]
                try:
                    await store.commit(group_id, topic.name, answer.partition_index, committed.offset)
                except ProtocolError as error:
                    answer.error_code = error.code
    return OffsetCommitResponse(topics=builder.topics)
