"""New topics and partitions on brokers with racks."""

from __future__ import annotations

import random
import uuid

import pytest

from odradek.broker.controller.topic_planner import Planner
from odradek.broker.metadata.metadata_cache import BrokerInfo, MetadataCache, PartitionState
from odradek.broker.metadata.new_topic import NewPartitions, NewTopic
from odradek.protocol.errors import ErrorCode, ProtocolError

RACKS = {1: "a", 2: "a", 3: "b", 4: "b"}


def cache_of(racks: dict[int, str | None]) -> MetadataCache:
    cache = MetadataCache("", -1)
    cache.put_brokers(BrokerInfo(broker, {}, rack) for broker, rack in racks.items())
    return cache


def planner_for(cache: MetadataCache) -> Planner:
    return Planner(
        cache,
        random.Random(1),
        default_partitions=lambda: 1,
        default_replication_factor=lambda: 1,
        validate_config=lambda _: None,
        deleting=(),
        damaged=(),
        is_being_reassigned=lambda _: False,
    )


def test_replicas_of_new_partitions_are_in_different_racks() -> None:
    cache = cache_of({**RACKS})
    planner = planner_for(cache)
    created = planner.topic(NewTopic("t", 8, 2)).replicas
    states = {number: PartitionState(number, 1, 0, replicas, replicas) for number, replicas in created.items()}
    cache.put_partitions("t", uuid.UUID(int=1), states)
    added = planner.partitions(NewPartitions("t", 16))
    assert list(added) == list(range(8, 16))
    for replicas in (*created.values(), *added.values()):
        assert {RACKS[broker] for broker in replicas} == {"a", "b"}


def test_replicas_are_not_assigned_while_only_some_brokers_have_a_rack() -> None:
    cache = cache_of({**RACKS, 4: None})
    cache.put_partitions("t", uuid.UUID(int=1), {0: PartitionState(0, 1, 0, (1,), (1,))})
    planner = planner_for(cache)
    for refused in (
        lambda: planner.topic(NewTopic("new", 1, 1)),
        lambda: planner.partitions(NewPartitions("t", 2)),
    ):
        with pytest.raises(ProtocolError) as caught:
            refused()
        assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert "[4]" in str(caught.value)
    assert planner.topic(NewTopic("new", assignments={0: [4]})).replicas == {0: (4,)}
    assert planner.partitions(NewPartitions("t", 2, [[4]])) == {1: (4,)}
