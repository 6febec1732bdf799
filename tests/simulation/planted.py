"""Planted bugs: one switch each. They show that the simulation sees what it is there for: each breaks an invariant in
some seed, while the same seeds pass without it.

    python -m tests.simulation --brokers 3 --bug "acknowledge before the ISR has it" --seeds 1-100

runs seeds until one fails. A bug is planted by replacing functions of the broker, which a compiled module does not
allow: run them with ODRADEK_PURE=1.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from odradek.broker.cluster.changes import ClusterChanges, ControlRequest
from odradek.broker.controller import loading
from odradek.broker.controller.control_requests import ControlRequests
from odradek.broker.controller.fenced_store import FencedStore
from odradek.broker.coordinator import coordinators
from odradek.broker.coordinator.coordinators import Coordinators
from odradek.broker.coordinator.group.classic.group import ClassicGroup
from odradek.broker.coordinator.group.group import Committer
from odradek.broker.coordinator.group.offsets.offsets import GroupOffsets
from odradek.broker.coordinator.internal_topics import group_log_settings, transaction_log_settings
from odradek.broker.coordinator.runtime.led_partition import LedPartition
from odradek.broker.coordinator.runtime.loading import Loader
from odradek.broker.coordinator.transaction.transaction import Transaction
from odradek.broker.metadata.metadata_cache import GROUP_TOPIC
from odradek.broker.metadata_store import read_back
from odradek.broker.replica.fetch import fetch_session, log_reader
from odradek.broker.replica.fetch.fetch_session import FetchIsolation
from odradek.broker.replica.fetch.log_reader import LogReader
from odradek.broker.replica.follower.fetcher import Fetcher
from odradek.broker.replica.partition.isr import Isr
from odradek.broker.replica.partition.partition import Partition
from odradek.broker.replica.partition.remote_replica import RemoteReplica
from odradek.broker.replica.role_changes import Role, RoleChanges
from odradek.protocol.batch_header import BatchHeader
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.replica_control import (
    LeaderAndIsrRequest,
    StopReplicaRequest,
)
from odradek.storage.cleaner.cleaner import _Cleaner
from odradek.storage.directories.future_replica import LogMove
from odradek.storage.log.follow import LogFollower
from odradek.storage.log.log_state import LogState
from odradek.storage.log.producers import LogProducers
from odradek.storage.log.truncation import Truncate
from odradek.storage.producers import producer_state
from odradek.storage.producers.producer_state_entry import ProducerStateEntry
from odradek.storage.segment.segment import LogSegment
from tests.simulation.planted_in_access import ACCESS_BUGS
from tests.simulation.planted_in_consumer_groups import CONSUMER_GROUP_BUGS
from tests.simulation.planted_in_controllers import CONTROLLER_BUGS
from tests.simulation.planted_in_groups import GROUP_BUGS
from tests.simulation.planted_in_logins import LOGIN_BUGS
from tests.simulation.planted_in_logs import LOG_BUGS
from tests.simulation.planted_in_newer_transactions import NEWER_TRANSACTION_BUGS
from tests.simulation.planted_in_replicas import REPLICA_BUGS
from tests.simulation.planted_in_sessions import SESSION_BUGS, Replace
from tests.simulation.planted_in_transactions import TRANSACTION_BUGS


def _acknowledge_early(replace: Replace) -> None:
    replace(Partition, "_smallest_end_offset", lambda self, limit: limit)


def _truncate_to_high_watermark(replace: Replace) -> None:
    follow = Fetcher.follow

    def truncating(self: Fetcher, partition: Partition, source: Any) -> None:
        known = self.followed.get(partition.topic_partition)
        is_new = known is None or known.source != source
        follow(self, partition, source)
        if is_new and partition.log.state.log_end_offset > partition.log.state.high_watermark:
            self._truncate(self.followed[partition.topic_partition], Truncate(partition.log.state.high_watermark))

    replace(Fetcher, "follow", truncating)
    replace(LogReader, "_diverges", staticmethod(lambda partition, target, data: False))


def _never_truncate(replace: Replace) -> None:
    replace(LogReader, "_diverges", staticmethod(lambda partition, target, data: False))


def _fetch_before_flush(replace: Replace) -> None:
    replace(Partition, "needs_flush", property(lambda self: False))


def _shrink_unconfirmed(replace: Replace) -> None:
    def propose(self: Isr, proposal: Any) -> None:
        self.proposal = proposal
        self.maximal = proposal.isr

    replace(Isr, "propose", propose)


def _acknowledge_after_resignation(replace: Replace) -> None:
    reached = Partition.reached

    def acknowledge(self: Partition, required_offset: int) -> tuple[bool, ErrorCode]:
        return reached(self, required_offset) if self.is_leader else (True, ErrorCode.NONE)

    replace(Partition, "reached", acknowledge)


def _trust_restarted(replace: Replace) -> None:
    replace(loading, "_registered_since", lambda entry, state, context: ())


def _wait_for_committed_isr(replace: Replace) -> None:
    def propose(self: Isr, proposal: Any) -> None:
        self.proposal = proposal

    replace(Isr, "propose", propose)
    replace(Partition, "_may_join", lambda self, replica: False)


def _fetch_in_any_epoch(replace: Replace) -> None:
    """Neither the epoch of the leader is checked nor that of the follower's last record, which alone would do."""
    _never_truncate(replace)
    replace(Partition, "check_leader_epoch", lambda self, current_leader_epoch: None)


def _late_roles(replace: Replace) -> None:
    replace(ClusterChanges, "_refusal", lambda self, request: ErrorCode.NONE)
    _take_any_role(replace)


def _roles_out_of_order(replace: Replace) -> None:
    _repeat_roles(replace)
    _take_any_role(replace)


def _take_any_role(replace: Replace) -> None:
    replace(Partition, "is_outdated", lambda self, state: False)
    refusal = RoleChanges._refusal

    def accept(self: RoleChanges, role: Role) -> ErrorCode:
        code = refusal(self, role)
        return ErrorCode.NONE if code is ErrorCode.STALE_CONTROLLER_EPOCH else code

    replace(RoleChanges, "_refusal", accept)


def _unfenced_store(replace: Replace) -> None:
    pipeline = read_back.pipeline_or_read_back

    async def unfenced(self: FencedStore, groups: Any) -> Any:
        return await pipeline(self._store, [list(group) for group in groups]) if groups else []

    replace(FencedStore, "pipeline", unfenced)


def _own_change_is_anothers(replace: Replace) -> None:
    async def believe(store: Any, operations: Any, conflict: Any) -> Any:
        return conflict

    replace(read_back, "_read_back", believe)


def _append_duplicates(replace: Replace) -> None:
    replace(ProducerStateEntry, "find_duplicate", lambda self, header: None)
    replace(producer_state, "_check_sequence", lambda header, entry: None)


def _keep_producers(replace: Replace) -> None:
    replace(LogProducers, "go_back_to", lambda self, earlier, log_start_offset: None)


def _follow_without_producers(replace: Replace) -> None:
    def without_producers(self: LogFollower, header: BatchHeader, marker: Any) -> None:
        if header.partition_leader_epoch != self._leader_epochs.latest_epoch:
            self._leader_epochs.assign(header.partition_leader_epoch, header.base_offset)

    replace(LogFollower, "_apply", without_producers)


def _do_not_list_aborted(replace: Replace) -> None:
    replace(log_reader, "_aborted", lambda log, fetched: [])


def _commit_at_once(replace: Replace) -> None:
    def commit(
        self: GroupOffsets, group_id: str, producer_id: int, producer_epoch: int, commits: Any, done: Any
    ) -> Any:
        return self.commit(group_id, commits, done)

    replace(GroupOffsets, "commit_in_transaction", commit)


def _begin_without_log(replace: Replace) -> None:
    add = Loader.add

    def begin(self: Loader, led: LedPartition, current_log: Any) -> None:
        if led.topic_partition.topic == GROUP_TOPIC:
            self._on_loaded(led)
        else:
            add(self, led, current_log)

    replace(Loader, "add", begin)


def _store_offsets_alone(replace: Replace) -> None:
    settings = group_log_settings
    replace(coordinators, "group_log_settings", lambda config: settings(config)._replace(required_acks=1))


def _read_uncommitted(replace: Replace) -> None:
    bound = fetch_session.upper_bound

    def upper_bound(log: Any, isolation: FetchIsolation) -> Any:
        is_committed = isolation is FetchIsolation.COMMITTED
        return bound(log, FetchIsolation.HIGH_WATERMARK if is_committed else isolation)

    replace(log_reader, "upper_bound", upper_bound)
    replace(fetch_session, "upper_bound", upper_bound)


def _repeat_roles(replace: Replace) -> None:
    """Not after a StopReplica: it would bring back what was deleted, also in Kafka."""
    handle = ClusterChanges.send
    before: dict[ClusterChanges, LeaderAndIsrRequest] = {}

    async def twice(self: ClusterChanges, request: ControlRequest) -> Any:
        if isinstance(request, StopReplicaRequest):
            before.pop(self, None)
        response = await handle(self, request)
        if not isinstance(request, LeaderAndIsrRequest):
            return response
        earlier = before.get(self)
        if earlier is not None and earlier.controller_epoch == request.controller_epoch:
            await handle(self, earlier)
        before[self] = request
        return response

    replace(ClusterChanges, "send", twice)


def _roles_before_metadata(replace: Replace) -> None:
    replace(ControlRequests, "_in_order", lambda self, leads, metadata, stops: [leads, metadata, stops])


def _unknown_is_deleted(replace: Replace) -> None:
    _roles_before_metadata(replace)
    replace(Coordinators, "_leader_of", lambda self, key: self._metadata.leader_of(key))


def _keep_high_watermark(replace: Replace) -> None:
    withdraw = LogState._withdraw_from

    def withdraw_others(self: LogState, offset: int) -> None:
        high_watermark = self.high_watermark
        withdraw(self, offset)
        self.high_watermark = high_watermark

    replace(LogState, "_withdraw_from", withdraw_others)


def _join_behind(replace: Replace) -> None:
    def expand(self: Partition, replica: RemoteReplica) -> None:
        if self.isr.proposal is None and replica.log_end_offset >= self.log.state.high_watermark - 20:
            self._propose((*self.isr.committed, replica.broker_id))

    replace(Partition, "_maybe_expand_isr", expand)


def _keep_epoch(replace: Replace) -> None:
    prepare = Transaction.prepare_epoch

    def keep(self: Transaction, epoch: int, last_epoch: int, *times: int) -> Any:
        return prepare(self, max(epoch - 1, 0), last_epoch, *times)

    replace(Transaction, "prepare_epoch", keep)


def _accept_any_generation(replace: Replace) -> None:
    accept = ClassicGroup.accept_commit

    def accept_any(self: ClassicGroup, who: Committer, **options: bool) -> None:
        generation_id = who.generation_id if who.generation_id < 0 else self.generation_id
        accept(self, who._replace(generation_id=generation_id), **options)

    replace(ClassicGroup, "accept_commit", accept_any)


def _answer_uncommitted(replace: Replace) -> None:
    settings = transaction_log_settings
    replace(coordinators, "transaction_log_settings", lambda config: settings(config)._replace(loads_replicated=False))


def _compact_too_much(replace: Replace) -> None:
    put_keys = _Cleaner._put_keys

    def put_later(self: _Cleaner, data: bytes, position: int, header: BatchHeader) -> None:
        put_keys(self, data, position, header)
        self._latest.update({key: offset + 1 for key, offset in self._latest.items() if offset >= header.base_offset})

    replace(_Cleaner, "_put_keys", put_later)


def _move_without_the_end(replace: Replace) -> None:
    def copy_indexes(self: LogMove, segment: LogSegment) -> None:
        segment.write_indexes()
        self._copy_indexes(segment)

    replace(LogMove, "_copy_now", copy_indexes)


BUGS: Mapping[str, Callable[[Replace], None]] = {
    "acknowledge before the ISR has it": _acknowledge_early,
    "truncate to the high watermark instead of by epoch": _truncate_to_high_watermark,
    "never find that logs diverge": _never_truncate,
    "a follower acknowledges before its flush": _fetch_before_flush,
    "wait for the committed instead of the maximal ISR": _wait_for_committed_isr,
    "no epoch check in Fetch": _fetch_in_any_epoch,
    "no epoch check in LeaderAndIsr": _late_roles,
    "no epoch check in the store": _unfenced_store,
    "one's own change is taken for another's": _own_change_is_anothers,
    "a smaller ISR counts before the controller has it": _shrink_unconfirmed,
    "acknowledge after the leadership is lost": _acknowledge_after_resignation,
    "a restarted broker is trusted in the same epoch": _trust_restarted,
    "append duplicates": _append_duplicates,
    "a follower does not note producers": _follow_without_producers,
    "aborted transactions are not listed": _do_not_list_aborted,
    "offsets count before their transaction has committed": _commit_at_once,
    "a coordinator begins without the offsets in its log": _begin_without_log,
    "offsets are stored by the leader alone": _store_offsets_alone,
    "producer state is not truncated": _keep_producers,
    "read_committed reads to the high watermark": _read_uncommitted,
    "a follower's high watermark is not truncated": _keep_high_watermark,
    "an unknown partition is treated as deleted": _unknown_is_deleted,
    "LeaderAndIsr is applied out of order": _roles_out_of_order,
    "a follower joins the ISR while it is behind": _join_behind,
    "InitProducerId does not raise the epoch": _keep_epoch,
    "commits of an old generation are accepted": _accept_any_generation,
    "a coordinator answers from uncommitted records": _answer_uncommitted,
    "compaction removes the last record of a key": _compact_too_much,
    "a replica moves without the end of its log": _move_without_the_end,
    **CONTROLLER_BUGS,
    **REPLICA_BUGS,
    **SESSION_BUGS,
    **LOGIN_BUGS,
    **ACCESS_BUGS,
    **TRANSACTION_BUGS,
    **NEWER_TRANSACTION_BUGS,
    **GROUP_BUGS,
    **CONSUMER_GROUP_BUGS,
    **LOG_BUGS,
}
"""How to plant each bug."""

HARDSHIPS: Mapping[str, Callable[[Replace], None]] = {
    "a broker leads before it knows all partitions": _roles_before_metadata,
    "LeaderAndIsr arrives again, late": _repeat_roles,
}
"""What a broker must bear, and the simulated controller does not do by itself. A bug that shows only then includes it.
"""


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """Plants a bug or a hardship, and takes it out again."""
    if not str(read_back.__file__).endswith(".py"):
        raise RuntimeError("functions of compiled modules cannot be replaced: set ODRADEK_PURE=1")
    before: list[tuple[Any, str, Any]] = []

    def replace(owner: Any, attribute: str, replacement: Any) -> None:
        before.append((owner, attribute, owner.__dict__[attribute]))
        setattr(owner, attribute, replacement)

    try:
        {**BUGS, **HARDSHIPS}[name](replace)
        yield
    finally:
        for owner, attribute, original in reversed(before):
            setattr(owner, attribute, original)
