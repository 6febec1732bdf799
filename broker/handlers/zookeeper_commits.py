"""OffsetCommit of version 0, whose offsets are stored with the metadata; see offsets/zookeeper.py.

This coroutine is not compiled, for the reason given in transaction_outcomes.py.
"""

from __future__ import annotations

from typing import Any

from odradek.broker.coordinator.group.offsets.offsets import Commits
from odradek.broker.coordinator.group.offsets.zookeeper import ZooKeeperOffsets
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.offsets import OffsetCommitResponse


async def commit_to_zookeeper(
    store: ZooKeeperOffsets, group_id: str, topics: list[Any], committed: Commits
) -> OffsetCommitResponse:
    """Commits one offset after the other; each partition has a result of its own."""
    for topic in topics:
        commits = committed.get(topic.name, {})
        for answer in topic.partitions:
            if answer.error_code == ErrorCode.NONE:
                index = answer.partition_index
                try:
                    await store.commit(group_id, topic.name, index, commits[index].offset)
                except ProtocolError as error:
                    answer.error_code = error.code
    return OffsetCommitResponse(topics=topics)
