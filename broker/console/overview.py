"""`/api/overview`: the broker, its cluster, and the roles of its partitions."""

from __future__ import annotations

import odradek
from odradek.broker.background.stepwise import Steps
from odradek.broker.console.queries import Query
from odradek.broker.console.selection import Row, shown
from odradek.broker.metadata.metadata_cache import BrokerInfo
from odradek.broker.metrics.sources import MetricSources

MOST_BROKERS = 100
PARTITIONS_PER_STEP = 2000


def overview(sources: MetricSources, _query: Query) -> Steps[Row]:
    metadata = sources.metadata
    partitions = yield from _partitions(sources)
    brokers = sorted(metadata.brokers.values(), key=lambda broker: broker.broker_id)
    timer = sources.timer
    return {
        "broker_id": metadata.broker_id,
        "version": odradek.__version__,
        "cluster_id": metadata.cluster_id,
        "controller_id": metadata.controller_id,
        "now_ms": timer.clock.now_ms(),
        "time_ms": timer.clock.wall_ms(),
        "brokers": [_broker(broker, metadata.controller_id) for broker in brokers[:MOST_BROKERS]],
        "brokers_left_off": max(len(brokers) - MOST_BROKERS, 0),
        "topics": metadata.topic_count,
        "partitions": partitions,
        "groups": sum(len(shard.groups) for shard in sources.group_coordinator.shards()),
        "transactional_ids": sum(len(shard.transactions) for shard in sources.transaction_coordinator.shards()),
        "connections": len(sources.socket_server.connections),
        "timers": timer.size,
        "bytes_in": sources.socket_server.counters.bytes_in,
        "bytes_out": sources.socket_server.counters.bytes_out,
    }


def _partitions(sources: MetricSources) -> Steps[Row]:
    """What this broker has of partitions, and how their in-sync replicas are. Every poll of every page asks for it."""
    manager = sources.replica_manager
    partitions = list(manager.partitions)
    led = under_replicated = under_min_isr = in_sync = replicas = 0
    for start in range(0, len(partitions), PARTITIONS_PER_STEP):
        for partition in partitions[start : start + PARTITIONS_PER_STEP]:
            if partition.is_leader:
                led += 1
                in_sync_here, replicas_here = len(partition.isr.committed), len(partition.replicas)
                in_sync += in_sync_here
                replicas += replicas_here
                if in_sync_here < replicas_here:
                    under_replicated += partition.is_under_replicated
                    under_min_isr += partition.is_under_min_isr
        yield
    return {
        "here": len(partitions),
        "led": led,
        "followed": len(partitions) - led,
        "offline": len(manager.partitions.offline),
        "replicas_of_led": replicas,
        "in_sync_of_led": in_sync,
        "under_replicated": under_replicated,
        "under_min_isr": under_min_isr,
        "isr_shrinks": manager.isr_stats.shrinks,
        "isr_expands": manager.isr_stats.expands,
    }


def _broker(broker: BrokerInfo, controller_id: int) -> Row:
    return {
        "id": broker.broker_id,
        "rack": None if broker.rack is None else shown(broker.rack),
        "is_controller": broker.broker_id == controller_id,
        "addresses": [f"{each.listener}://{each.host}:{each.port}" for each in broker.endpoints.values()],
    }
