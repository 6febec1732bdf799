"""The invariants of replicas, coordinators and the whole cluster.

replicas      the replicas of a partition have the same batches in the same epochs up to the high watermark, and each
              batch can be decoded, also by consumers
sound         a replica is online while another log directory than its own has failed
states        no object of a broker breaks an invariant that it states (its method `check`), at any time
in sync       a replica that joins the in-sync replicas has everything below its leader's high watermark
coordinators  a coordinator of transactions serves only when all that it has loaded is committed
convergence   all brokers agree in the end, among them and with the metadata store; every partition has a leader,
              and all its replicas are in sync
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.final_state import FinalState, ReplicaLog
from tests.simulation.history import Broken, History, JoinedBehind, ServedEarly
from tests.simulation.log_history import OfflineThoughSound, Undecodable
from tests.simulation.violation import Violation


def replicas_agree(history: History, final: FinalState) -> Iterator[Violation]:
    """replicas"""
    by_partition: dict[TopicPartition, list[ReplicaLog]] = defaultdict(list)
    for replica in final.replicas:
        by_partition[replica.partition].append(replica)
    for partition, replicas in by_partition.items():
        first, *others = sorted(replicas, key=lambda replica: (-replica.high_watermark, replica.broker_id))
        for other in others if not first.is_compacted else ():
            yield from _differences(partition, first, other)
    for undecodable in history.of(Undecodable):
        yield Violation("replicas", f"{undecodable.process} {undecodable.describe()}", (undecodable,))
    for replica in final.replicas:
        if replica.damage:
            text = f"the log of {replica.partition} on broker {replica.broker_id} cannot be read: {replica.damage}"
            yield Violation("replicas", text)
        for before, after in pairwise(replica.batches):
            if after.base_offset <= before.last_offset or after.epoch < before.epoch:
                text = f"the log of {replica.partition} on broker {replica.broker_id} is out of order at "
                yield Violation("replicas", f"{text}{after.base_offset}")


def _differences(partition: TopicPartition, one: ReplicaLog, other: ReplicaLog) -> Iterator[Violation]:
    end = min(one.high_watermark, other.high_watermark)
    start = max(one.log_start_offset, other.log_start_offset)
    mine = {batch.base_offset: batch for batch in one.batches if start <= batch.base_offset < end}
    theirs = {batch.base_offset: batch for batch in other.batches if start <= batch.base_offset < end}
    brokers = f"brokers {one.broker_id} and {other.broker_id}"
    for offset in sorted(mine.keys() | theirs.keys()):
        ours, its = mine.get(offset), theirs.get(offset)
        if ours == its:
            continue
        if ours is None or its is None:
            what = f"a batch that only broker {(one if its is None else other).broker_id} has"
        elif ours.epoch != its.epoch:
            what = f"epochs {ours.epoch} and {its.epoch}"
        else:
            what = "different contents"
        yield Violation("replicas", f"{brokers} differ in {partition} at {offset} below the watermark {end}: {what}")
        return


def states_keep_their_invariants(history: History, final: FinalState) -> Iterator[Violation]:
    """states"""
    for broken in history.of(Broken):
        yield Violation("states", f"{broken.process} {broken.describe()}", (broken,))


def replicas_of_sound_directories_go_on(history: History, final: FinalState) -> Iterator[Violation]:
    """sound"""
    for offline in history.of(OfflineThoughSound):
        yield Violation("sound", f"{offline.process} {offline.describe()}", (offline,))


def who_joins_has_everything(history: History, final: FinalState) -> Iterator[Violation]:
    """in sync"""
    for joined in history.of(JoinedBehind):
        yield Violation("in sync", joined.describe(), (joined,))


def coordinators_know_what_is_committed(history: History, final: FinalState) -> Iterator[Violation]:
    """coordinators"""
    for early in history.of(ServedEarly):
        yield Violation("coordinators", f"{early.process} {early.describe()}", (early,))


def the_cluster_converges(history: History, final: FinalState) -> Iterator[Violation]:
    """convergence"""
    if not final.views:
        return
    first, *others = final.views
    for other in others:
        brokers = f"brokers {first.broker_id} and {other.broker_id}"
        if other.controller_id != first.controller_id:
            yield Violation("convergence", f"{brokers} name {first.controller_id} and {other.controller_id} controller")
        if sorted(other.live_brokers) != sorted(first.live_brokers):
            yield Violation("convergence", f"{brokers} know the brokers {first.live_brokers} and {other.live_brokers}")
        for partition in sorted(first.partitions.keys() | other.partitions.keys()):
            mine, its = first.partitions.get(partition), other.partitions.get(partition)
            if mine != its:
                yield Violation("convergence", f"{brokers} differ about {partition}: {mine} and {its}")
                break
    running = {view.broker_id: view for view in final.views}
    for partition, state in first.partitions.items():
        stored = final.stored.get(partition)
        if stored is not None and stored != (state.leader_id, state.leader_epoch, state.in_sync):
            yield Violation("convergence", f"the store has {stored} of {partition}, the brokers have {state}")
        leader = running.get(state.leader_id)
        if leader is None or leader.led.get(partition) != state.leader_epoch:
            yield Violation("convergence", f"{partition} has no leader in the end: {state}")
        elif set(state.in_sync) != set(state.replicas):
            yield Violation("convergence", f"not all replicas of {partition} are in sync in the end: {state}")
