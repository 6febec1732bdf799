"""`/api/groups`: the groups that this broker coordinates. `/api/members` and `/api/offsets`: one of them.

The lag of a partition is its high watermark less the committed offset, as in Kafka's tools. It is null if another
broker leads the partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from uuid import UUID

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.console.queries import BadQuery, Query
from odradek.broker.console.selection import ITEMS_PER_ROW, Row, Selection, listing, rows_of, select, shown
from odradek.broker.coordinator.group.classic.group import CLASSIC
from odradek.broker.coordinator.group.consumer.group import CONSUMER, ConsumerGroup
from odradek.broker.coordinator.group.consumer.member import ConsumerMember
from odradek.broker.coordinator.group.group import Group, GroupMember
from odradek.broker.coordinator.group.shard import GroupShard
from odradek.broker.metrics.sources import MetricSources
from odradek.protocol.topic_partition import TopicPartition

MOST_OFFSETS_OF_ROW = 10_000
"""The lag in a row of the list covers that many partitions of the group, and says how many it leaves out."""
MOST_PARTITIONS = 10
"""How many partitions of a member are named."""
Found = tuple[GroupShard, Group]


def groups(sources: MetricSources, query: Query) -> Steps[Row]:
    selection = yield from select(_all(sources), lambda found: found[1].group_id, query)
    pace = Pace()
    rows = []
    for shard, group in selection.found:
        rows.append((yield from _group(sources, shard, group, pace)))
    return listing(query, selection, rows)


def _all(sources: MetricSources) -> Iterator[Found]:
    for shard in sources.group_coordinator.shards():
        for group in list(shard.groups.values()):
            yield shard, group


def find_group(sources: MetricSources, name: str) -> Found | None:
    """Returns a group of this broker, with its shard, or None."""
    for shard in sources.group_coordinator.shards():
        group = shard.groups.get(name)
        if group is not None:
            return shard, group
    return None


def group_of_name(sources: MetricSources, name: str) -> Found:
    """Returns a group of this broker, with its shard. Raises BadQuery if there is none."""
    found = find_group(sources, name)
    if found is None:
        raise BadQuery("This broker coordinates no group of this name")
    return found


def _group(sources: MetricSources, shard: GroupShard, group: Group, pace: Pace) -> Steps[Row]:
    lag = offsets = unknown = 0
    for key, committed in committed_offsets(shard, group.group_id):
        offsets += 1
        if offsets > MOST_OFFSETS_OF_ROW:
            continue
        behind = lag_of(sources, key, committed)
        if behind is None:
            unknown += 1
        else:
            lag += behind
        if pace.step_ends():
            yield
    if pace.step_ends(ITEMS_PER_ROW):
        yield
    return {
        "name": shown(group.group_id),
        "type": group.group_type,
        "state": group.state_name,
        "protocol_type": shown(group.protocol_type or ""),
        "protocol": shown(group.protocol_name or ""),
        "generation": group.generation_id,
        "target_generation": group.target_epoch if isinstance(group, ConsumerGroup) else None,
        "members": group.size,
        "committed_partitions": offsets,
        "lag": lag,
        "lag_unknown_partitions": unknown + max(offsets - MOST_OFFSETS_OF_ROW, 0),
        "state_since_ms": group.current_state_timestamp_ms,
    }


def committed_offsets(shard: GroupShard, group_id: str) -> Iterator[tuple[TopicPartition, int]]:
    """Yields the group's offsets in effect, from copies: the group may commit meanwhile."""
    for topic, partitions in list(shard.offsets.committed(group_id).items()):
        for partition, committed in list(partitions.items()):
            yield TopicPartition(topic, partition), committed.offset


def lag_of(sources: MetricSources, key: TopicPartition, committed: int) -> int | None:
    partition = sources.replica_manager.partitions.get(key)
    if partition is None or not partition.is_leader:
        return None
    return max(partition.log.state.high_watermark - committed, 0)


def members(sources: MetricSources, query: Query) -> Steps[Row]:
    """Raises BadQuery if there is no such group."""
    _, group = group_of_name(sources, query.name)
    all_of_them = list(group.members)
    found = all_of_them[query.offset : query.offset + query.limit]
    selection = Selection(found, len(all_of_them), len(all_of_them))
    now_ms = sources.timer.clock.now_ms()
    rows = yield from rows_of(
        selection, lambda member: {**_member(group, member, now_ms), **_progress(sources, member)}
    )
    return {"name": shown(group.group_id), **listing(query, selection, rows)}


def _member(group: Group, member: GroupMember, now_ms: int) -> Row:
    session = group.session_of(member.member_id)
    heartbeat = None if session is None else session.heartbeat
    return {
        "member_id": shown(member.member_id),
        "instance_id": None if member.group_instance_id is None else shown(member.group_instance_id),
        "client_id": shown(member.client_id),
        "client_host": shown(member.client_host),
        "is_leader": group.is_leader(member.member_id),
        "waits_for": member.waits_for,
        "session_timeout_ms": None if session is None else session.timeout_ms,
        "session_left_ms": None if heartbeat is None else heartbeat.deadline_ms - now_ms,
    }


def _progress(sources: MetricSources, member: GroupMember) -> Row:
    """What only members of consumer groups have."""
    if not isinstance(member, ConsumerMember):
        return dict.fromkeys(("speaks", "epoch", "state", "partitions", "partitions_left_off"))
    count = sum(map(len, member.assigned.values()))
    keys = ((topic_id, number) for topic_id, numbers in member.assigned.items() for number in numbers)
    return {
        "speaks": CONSUMER if member.classic is None else CLASSIC,
        "epoch": member.epoch,
        "state": member.state.name,
        "partitions": [name_of(sources, *key) for key in islice(keys, MOST_PARTITIONS)],
        "partitions_left_off": max(count - MOST_PARTITIONS, 0),
    }


def name_of(sources: MetricSources, topic_id: UUID, partition: int) -> str:
    """Returns the partition as text; the id stands for a topic that is gone."""
    return shown(f"{sources.metadata.topic_name(topic_id) or topic_id}-{partition}")


def offsets(sources: MetricSources, query: Query) -> Steps[Row]:
    """Raises BadQuery if there is no such group."""
    shard, group = group_of_name(sources, query.name)
    everything = committed_offsets(shard, group.group_id)
    selection = yield from select(everything, lambda row: f"{row[0].topic}-{row[0].partition:010}", query)
    rows = yield from rows_of(selection, lambda row: _offset(sources, *row))
    return {"name": shown(group.group_id), **listing(query, selection, rows)}


def _offset(sources: MetricSources, key: TopicPartition, committed: int) -> Row:
    lag = lag_of(sources, key, committed)
    return {
        "topic": shown(key.topic),
        "partition": key.partition,
        "committed": committed,
        "lag": lag,
    }
