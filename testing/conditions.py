"""The states of a cluster that tests wait for. Each function returns what is missing, nothing if the state is there."""

from __future__ import annotations

from odradek.broker.metadata_store import znodes
from odradek.testing.cluster_view import ClusterView
from odradek.testing.in_sync import why_another_isr


def why_no_leader(cluster: ClusterView, topic: str, partition: int, leader: int | None = None) -> str:
    """See Cluster.wait_for_leader."""
    state = cluster.partition(topic, partition)
    if state is None:
        return f"there is no partition {topic}-{partition}"
    if state.leader not in cluster.members:
        return f"{topic}-{partition} has no leader"
    if leader is not None and state.leader != leader:
        return f"the leader of {topic}-{partition} is {state.leader}"
    if cluster.led(topic, state) is None:
        return f"broker {state.leader}, the leader of {topic}-{partition}, does not lead it"
    for broker_id in cluster.in_touch():
        known = cluster.brokers[broker_id].metadata.partition(topic, partition)
        if known is None or known.leader_epoch != state.leader_epoch:
            return f"broker {broker_id} does not know the leader of {topic}-{partition} yet"
    return ""


def why_not_in_sync(cluster: ClusterView, topic: str, partition: int, isr: set[int]) -> str:
    """See Cluster.wait_for_isr."""
    state = cluster.partition(topic, partition)
    if state is None:
        return f"the ISR of {topic}-{partition} is []"
    if set(state.isr) != isr:
        return f"the ISR of {topic}-{partition} is {sorted(state.isr)}: {why_another_isr(cluster, topic, state, isr)}"
    led = cluster.led(topic, state)
    if led is None:
        return f"broker {state.leader} does not lead {topic}-{partition}"
    if led.isr.proposal is not None or set(led.isr.committed) != isr:
        return f"the leader of {topic}-{partition} has another ISR: {sorted(led.isr.committed)}"
    for broker_id in cluster.in_touch():
        known = cluster.brokers[broker_id].metadata.partition(topic, partition)
        if known is None or set(known.isr) != isr:
            return f"broker {broker_id} does not know the ISR of {topic}-{partition} yet"
    return ""


def why_not_stable(cluster: ClusterView) -> str:
    """See Cluster.wait_until_stable."""
    controller = cluster.controller
    if controller is None:
        return "there is no controller"
    running = cluster.running
    for broker_id in running:
        metadata = cluster.brokers[broker_id].metadata
        if metadata.controller_id != controller:
            return f"broker {broker_id} takes {metadata.controller_id} for the controller"
        if sorted(metadata.brokers) != running:
            return f"broker {broker_id} knows brokers {sorted(metadata.brokers)}"
        if not metadata.is_complete:
            return f"broker {broker_id} has no metadata"
    names = cluster.brokers[controller].metadata.topic_names()
    for broker_id in running:
        if cluster.brokers[broker_id].metadata.topic_names() != names:
            return f"broker {broker_id} knows other topics than the controller"
    return next(filter(None, (_why_not_stable(cluster, name) for name in names)), "")


def _why_not_stable(cluster: ClusterView, name: str) -> str:
    running = cluster.running
    first, *others = (cluster.brokers[broker_id].metadata.topic(name) for broker_id in running)
    if first is None or cluster.is_reassigned(name):
        return f"{name} is being deleted or reassigned"
    for state in first.partitions.values():
        what = f"{name}-{state.partition}"
        expected = [replica for replica in state.replicas if replica in running]
        if expected and sorted(state.isr) != sorted(expected):
            why = why_another_isr(cluster, name, state, set(expected))
            return f"the ISR of {what} is {sorted(state.isr)}: {why}"
        led = cluster.led(name, state)
        is_settled = led is not None and led.isr.proposal is None and led.partition_epoch == state.partition_epoch
        if expected and not is_settled:
            return f"broker {state.leader} does not lead {what} as the others know it"
    return "" if all(other == first for other in others) else f"brokers know different states of {name}"


def why_not_at_rest(cluster: ClusterView) -> str:
    """See Cluster.snapshot."""
    if reason := why_not_stable(cluster):
        return reason
    if cluster.store.children(znodes.DELETE_TOPICS):
        return "topics are being deleted"
    if not cluster.store.is_idle:
        return "the metadata store is changing"
    for broker in cluster.brokers.values():
        for key in broker.log_manager.logs:
            if reason := _why_not_caught_up(cluster, *key):
                return reason
    return ""


def _why_not_caught_up(cluster: ClusterView, topic: str, partition: int) -> str:
    state = cluster.partition(topic, partition)
    led = None if state is None else cluster.led(topic, state)
    if state is None or led is None:
        return f"{topic}-{partition} is being deleted"
    end = led.log.state.log_end_offset
    if led.log.state.high_watermark != end:
        return f"the high watermark of {topic}-{partition} is {led.log.state.high_watermark}, and its log ends at {end}"
    for broker_id in state.replicas:
        replica = cluster.replica(broker_id, topic, partition)
        found = None if replica is None else replica.log.state.log_end_offset
        if found != end:
            return (
                f"the replica of {topic}-{partition} on broker {broker_id} ends at {found}, that of its leader at {end}"
            )
    return ""
