"""`/api/topics`: the topics of the cluster. `/api/partitions?name=TOPIC`: the partitions of one.

Sizes and offsets are those of the replicas that this broker has; those of other brokers are null.
"""

from __future__ import annotations

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.console.queries import BadQuery, Query
from odradek.broker.console.selection import ITEMS_PER_ROW, Row, Selection, listing, rows_of, select, shown
from odradek.broker.metadata.metadata_cache import NO_LEADER, PartitionState, TopicMetadata
from odradek.broker.metrics.sources import MetricSources
from odradek.broker.replica.partition.partition import Partition
from odradek.broker.replica.partition.remote_replica import NEVER_MS
from odradek.broker.settings import TOPIC
from odradek.protocol.topic_partition import TopicPartition


def topics(sources: MetricSources, query: Query) -> Steps[Row]:
    selection = yield from select(list(sources.metadata.topics.values()), lambda topic: topic.name, query)
    pace = Pace()
    rows: list[Row] = []
    for topic in selection.found:
        rows += [(yield from _topic(sources, topic, pace))]
    return listing(query, selection, rows)


def _topic(sources: MetricSources, topic: TopicMetadata, pace: Pace) -> Steps[Row]:
    size = records = led = 0
    for partition in sources.replica_manager.partitions.of_topic(topic.name):
        state = partition.log.state
        size += partition.log.segments.size_in_bytes
        records += state.log_end_offset - state.log_start_offset
        led += partition.is_leader
        if pace.step_ends():
            yield
    leaderless = under_replicated = 0
    for state_of in topic.partitions.values():
        leaderless += state_of.leader == NO_LEADER
        under_replicated += len(state_of.isr) < len(state_of.replicas) - len(state_of.adding)
        if pace.step_ends():
            yield
    stats = sources.replica_manager.topic_stats.by_topic.get(topic.name)
    if pace.step_ends(ITEMS_PER_ROW):
        yield
    return {
        "name": shown(topic.name),
        "id": str(topic.topic_id),
        "is_internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replication_factor": topic.replication_factor,
        "led_here": led,
        "leaderless": leaderless,
        "under_replicated": under_replicated,
        "size_bytes": size,
        "offsets_here": records,
        "bytes_in": 0 if stats is None else stats.bytes_in,
        "bytes_out": 0 if stats is None else stats.bytes_out,
        "settings": _own_settings(sources, topic.name),
    }


def _own_settings(sources: MetricSources, topic: str) -> Row:
    """The topic's own settings; the values of unknown names, which might be secrets, are null."""
    own = sources.metadata.topic_config(topic)
    return {shown(name): shown(text) if _is_shown(name) else None for name, text in own.items()}


def _is_shown(name: str) -> bool:
    return name in TOPIC and not TOPIC[name].is_sensitive


def partitions(sources: MetricSources, query: Query) -> Steps[Row]:
    """Raises BadQuery if there is no such topic."""
    topic = sources.metadata.topic(query.name)
    if topic is None:
        raise BadQuery("There is no topic of this name")
    states = list(topic.partitions.values())
    found = states[query.offset : query.offset + query.limit]
    selection = Selection(found, len(states), len(states))
    now_ms = sources.timer.clock.now_ms()
    rows = yield from rows_of(selection, lambda state: _partition(sources, topic.name, state, now_ms))
    return {"name": shown(topic.name), **listing(query, selection, rows)}


def _partition(sources: MetricSources, topic: str, state: PartitionState, now_ms: int) -> Row:
    hosted = sources.replica_manager.partitions.get(TopicPartition(topic, state.partition))
    log = None if hosted is None else hosted.log
    return {
        "partition": state.partition,
        "leader": None if state.leader == NO_LEADER else state.leader,
        "leader_epoch": state.leader_epoch,
        "replicas": list(state.replicas),
        "isr": list(state.isr),
        "role": None if hosted is None else "leader" if hosted.is_leader else "follower",
        "log_start_offset": None if log is None else log.state.log_start_offset,
        "high_watermark": None if log is None else log.state.high_watermark,
        "log_end_offset": None if log is None else log.state.log_end_offset,
        "size_bytes": None if log is None else log.segments.size_in_bytes,
        "segments": None if log is None else len(log.segments),
        "followers": [] if hosted is None else _followers(hosted, now_ms),
    }


def _followers(partition: Partition, now_ms: int) -> list[Row]:
    """Where the followers are that this leader serves; null before the first fetch of one."""
    return [
        {
            "broker_id": replica.broker_id,
            "log_end_offset": replica.log_end_offset if replica.log_end_offset >= 0 else None,
            "caught_up_ms_ago": max(now_ms - replica.last_caught_up_ms, 0)
            if replica.last_caught_up_ms > NEVER_MS
            else None,
        }
        for replica in list(partition.remote_replicas.values())
    ]
