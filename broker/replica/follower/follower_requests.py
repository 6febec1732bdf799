"""The requests that a follower sends to a leader: Fetch in a session, and ListOffsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.broker.replica.follower.fetcher_settings import FetcherSettings, FetchLimits
from odradek.broker.replica.follower.fetcher_state import Followed, Position
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.list_offsets import ListOffsetsRequest
from odradek.protocol.topic_partition import TopicPartition


def fetch_request(
    settings: FetcherSettings,
    limits: FetchLimits,
    session_id: int,
    epoch: int,
    named: Mapping[TopicPartition, Position],
    forgotten: Iterable[TopicPartition],
) -> FetchRequest:
    """The next Fetch of a session: names partitions whose position has changed, and those that are fetched no more."""
    return FetchRequest(
        replica_id=settings.broker_id,
        max_wait_ms=limits.max_wait_ms,
        min_bytes=settings.replica_fetch_min_bytes,
        max_bytes=limits.max_bytes,
        session_id=session_id,
        session_epoch=epoch,
        topics=_named_topics(named, settings.replica_fetch_max_bytes),
        forgotten_topics_data=_forgotten_topics(forgotten),
    )


def _named_topics(named: Mapping[TopicPartition, Position], max_bytes: int) -> list[FetchRequest.FetchTopic]:
    """Adjacent partitions of one topic share its entry: their order matters (fetch_session_client.py)."""
    topics: list[FetchRequest.FetchTopic] = []
    name: str | None = None
    for key, position in named.items():
        if key.topic != name:
            name = key.topic
            topics.append(FetchRequest.FetchTopic(topic=name))
        topics[-1].partitions.append(
            FetchRequest.FetchPartition(
                partition=key.partition,
                current_leader_epoch=position.leader_epoch,
                fetch_offset=position.fetch_offset,
                last_fetched_epoch=position.last_fetched_epoch,
                log_start_offset=position.log_start_offset,
                partition_max_bytes=max_bytes,
            )
        )
    return topics


def _forgotten_topics(forgotten: Iterable[TopicPartition]) -> list[FetchRequest.ForgottenTopic]:
    topics: dict[str, list[int]] = {}
    for topic, partition in forgotten:
        topics.setdefault(topic, []).append(partition)
    return [FetchRequest.ForgottenTopic(topic=name, partitions=partitions) for name, partitions in topics.items()]


def list_offsets_request(
    broker_id: int, requested: Mapping[TopicPartition, Followed], timestamp: int
) -> ListOffsetsRequest:
    """Asks for the leader's offsets: EARLIEST or LATEST."""
    topics: dict[str, list[ListOffsetsRequest.ListOffsetsPartition]] = {}
    for key, followed in requested.items():
        topics.setdefault(key.topic, []).append(
            ListOffsetsRequest.ListOffsetsPartition(
                partition_index=key.partition,
                current_leader_epoch=followed.source.leader_epoch,
                timestamp=timestamp,
            )
        )
    return ListOffsetsRequest(
        replica_id=broker_id,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()
        ],
    )
