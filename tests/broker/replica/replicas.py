"""Replicas of one partition, each with a real log on a disk in memory, a fetcher and the handlers of a leader. They
exchange encoded requests and responses. The test makes every step, so that a history is what the test says.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from odradek.broker.background.stepwise import finished
from odradek.broker.background.tasks import ThreadsAndTurns
from odradek.broker.handlers.current_leaders import CurrentLeaders
from odradek.broker.handlers.fetch import FetchHandler
from odradek.broker.handlers.list_offsets import ListOffsetsHandler
from odradek.broker.metadata.metadata_cache import MetadataCache, PartitionState
from odradek.broker.peers.inter_broker_protocol import INTER_BROKER_VERSIONS
from odradek.broker.replica.fetch.fetch_session_cache import FetchSessionCache
from odradek.broker.replica.follower.fetcher import Fetcher
from odradek.broker.replica.follower.fetcher_actions import (
    Action,
    Fetch,
    FlushLogs,
    ListOffsets,
    TruncateLogs,
    Wait,
)
from odradek.broker.replica.follower.fetcher_settings import FetcherSettings
from odradek.broker.replica.follower.fetcher_state import FetchFrom
from odradek.broker.replica.log_dir_moves import UNLIMITED
from odradek.broker.replica.partition.isr import IsrProposal
from odradek.broker.replica.partition.partition import Partition
from odradek.broker.replica.partition.replication import Replication
from odradek.broker.replica.replica_manager import ClusterAccess, LiveSettings, ReplicaManager, ReplicaSettings
from odradek.broker.requests.request_bound import RequestBound
from odradek.broker.requests.request_context import PendingResponse
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compiler import decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse
from odradek.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from odradek.protocol.records import iter_batches, read_records
from odradek.protocol.topic_partition import TopicPartition
from odradek.purgatory import CompletionQueue
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.files import Files
from odradek.storage.log.log import Log
from odradek.storage.log.truncation import Target
from odradek.storage.log_config import LogConfig
from odradek.timer import ManualClock, SystemTimer
from tests.broker.replica.harness import ManualThreads, UnsyncedFiles, context_of, unreachable
from tests.memory_files import ForgetfulFiles
from tests.storage.small_logs import all_bytes, batch, truncate_in
from tests.table_settings import of_table

KEY = TopicPartition("orders", 0)
TOPIC_ID = uuid.UUID(int=7)
CLUSTER_ID = "nlQg0zzARJuGzyqjahpCMg"
BROKERS = (1, 2, 3)
BACKOFF_MS = 1000
AT_ONCE = of_table(FetcherSettings, replica_fetch_wait_max_ms=0)
"""The leader answers at once, with or without records."""
FETCH_VERSION = INTER_BROKER_VERSIONS[ApiKey.FETCH]
LIST_OFFSETS_VERSION = INTER_BROKER_VERSIONS[ApiKey.LIST_OFFSETS]


class Replica:
    """One broker. `disk` is that of an earlier life of the broker; its logs are in `folder` instead, if that is given,
    which is faster for very many. `failed_partitions` are no longer followed; True: because their log failed.

    Set `is_down`, and requests to this broker have no response; set `tamper`, and it may change a Fetch response.
    """

    def __init__(
        self,
        broker_id: int,
        disk: ForgetfulFiles | None = None,
        clock: Any = None,
        folder: Path | None = None,
        background: ThreadsAndTurns | None = None,
        soon: Callable[[Callable[[], None]], object] | None = None,
        settings: FetcherSettings = AT_ONCE,
    ) -> None:
        self.broker_id = broker_id
        self.disk = disk or ForgetfulFiles()
        self.clock = clock or ManualClock(now_ms=1_000_000)
        self.settings = settings._replace(broker_id=broker_id)
        files: Files = self.disk if folder is None else UnsyncedFiles()
        root = "/data" if folder is None else str(folder)
        self.logs = LogManager([root], files, self.clock, random_source=random.Random(broker_id))
        self.logs.open()
        self.logs.claim(broker_id, CLUSTER_ID)
        self.logs.load()
        self.background: ThreadsAndTurns = background or ManualThreads()
        self.timer = SystemTimer(self.clock)
        self.manager = ReplicaManager(
            of_table(ReplicaSettings, broker_id=broker_id),
            log_manager=self.logs,
            clock=self.clock,
            timer=self.timer,
            completions=CompletionQueue(soon or (lambda drain: None)),
            background=self.background,
            cluster=ClusterAccess(
                is_known=lambda key: True,
                topic_name=lambda topic_id: None,
                is_alive=_is_alive,
                alter_partition=unreachable,
                broker_epoch=lambda: -1,
                replica_lost=lambda partition, replica: None,
            ),
            live=LiveSettings(lambda: True, lambda: UNLIMITED),
        )
        self._replication = Replication(broker_id, self.clock, 30_000, _is_alive, _propose)
        self.sessions = FetchSessionCache(100, self.clock, random.Random(broker_id))
        leaders = CurrentLeaders(self.manager.partitions, MetadataCache(CLUSTER_ID, broker_id))
        bound = RequestBound(lambda _: False, lambda: 0)
        self._fetch = FetchHandler(self.manager.fetches, self.sessions, leaders, bound, 57_671_680)
        self._list_offsets = ListOffsetsHandler(self.manager.partitions, self.clock, 1 << 20)
        self.leader: Replica | None = None
        self.fetcher: Fetcher | None = None
        self.actions: list[Action] = []
        self.failed_partitions: dict[TopicPartition, bool] = {}
        self.moved_partitions: list[TopicPartition] = []
        self.is_down = False
        self.tamper: Any = None

    # FollowerEvents

    def appended(self, partition: Partition) -> None:
        """See FollowerEvents: the test flushes."""

    def moved(self, partition: Partition) -> None:
        self.moved_partitions.append(partition.topic_partition)

    def failed(self, partition: Partition, *, by_storage: bool) -> None:
        self.failed_partitions[partition.topic_partition] = by_storage

    # Roles

    def partition(self, key: TopicPartition = KEY) -> Partition:
        partition = self.manager.partitions.get(key)
        if partition is None:
            log = self.logs.get_or_create(key, TOPIC_ID, LogConfig())
            partition = Partition(key, TOPIC_ID, log, self.manager.topic_stats.of(key.topic), self._replication)
            self.manager.partitions.put(partition)
        return partition

    def log(self, key: TopicPartition = KEY) -> Log:
        return self.partition(key).log

    def lead(self, epoch: int, key: TopicPartition = KEY, *, isr: tuple[int, ...] = ()) -> None:
        """Leads the partition with this ISR (itself alone if none) from this epoch on."""
        self.stop_following(key)
        self.partition(key).make_leader(
            PartitionState(key.partition, self.broker_id, epoch, BROKERS, isr or (self.broker_id,))
        )

    def follow(self, leader: Replica, epoch: int, *keys: TopicPartition) -> Fetcher:
        """Follows the leader in this epoch; nothing is fetched before `step`."""
        if self.leader is not leader:
            self.leader, self.fetcher = (
                leader,
                Fetcher(leader.broker_id, self.settings, self, self.manager.follower_quota),
            )
        assert self.fetcher is not None
        for key in keys or (KEY,):
            state = PartitionState(key.partition, leader.broker_id, epoch, BROKERS, (leader.broker_id,))
            partition = self.partition(key)
            partition.make_follower(state)
            self.fetcher.follow(partition, FetchFrom(leader.broker_id, epoch, TOPIC_ID))
        return self.fetcher

    def stop_following(self, key: TopicPartition = KEY) -> None:
        if self.fetcher is not None:
            self.fetcher.drop(key)

    def restarted(self, *, crashed: bool = False, source: random.Random | None = None) -> Replica:
        """Returns the broker's next life, after a clean stop or a crash that may lose what was not synced."""
        if not crashed:
            self.logs.shutdown()
            return Replica(self.broker_id, self.disk, self.clock)
        disk = self.disk.crash(source)
        return Replica(self.broker_id, disk, self.clock)

    def produce(self, *values: bytes, key: TopicPartition = KEY, **options: Any) -> None:
        """Appends a batch as the leader, for a producer with acks=1."""
        result = self.manager.appends.append_one(key, batch(*values, **options), 1, 9)
        assert result.error is ErrorCode.NONE, result

    def delete_records(self, offset: int) -> None:
        """Deletes the records before the offset, as the leader."""
        self.manager.deletions.delete(1000, {KEY: offset}, lambda results: None)

    # A follower's steps

    def step(self, *, response_is_lost: bool = False) -> Action:
        """Does the fetcher's next action, and returns it. The response to a fetch may be lost."""
        fetcher, leader = self.fetcher, self.leader
        assert fetcher is not None
        assert leader is not None
        action = fetcher.next_action(self.clock.now_ms())
        self.actions.append(action)
        now_ms = self.clock.now_ms()
        if isinstance(action, TruncateLogs):
            fetcher.truncated(action, self.truncate(action.targets), now_ms)
        elif isinstance(action, FlushLogs):
            for followed in action.followed:
                self.flush(followed.partition)
            fetcher.flushed(action, now_ms)
        elif isinstance(action, Fetch | ListOffsets) and leader.is_down:
            fetcher.failed("the leader is down", now_ms)
        elif isinstance(action, Fetch):
            response = leader.answer_fetch(action.request)
            if response_is_lost:
                fetcher.failed("the response is lost", now_ms)
            else:
                finished(fetcher.fetched(response, now_ms))
        elif isinstance(action, ListOffsets):
            fetcher.offsets_found(action, leader.answer_list_offsets(action.request), now_ms)
        return action

    def replicate(self) -> list[Action]:
        """Steps until two fetches in a row have changed nothing, or until the fetcher waits. Returns the actions."""
        begin, unchanged = len(self.actions), 0
        while unchanged < 2:
            before = self.offsets()
            action = self.step()
            if isinstance(action, Wait):
                break
            unchanged = unchanged + 1 if isinstance(action, Fetch) and self.offsets() == before else 0
            assert len(self.actions) - begin < 200, self.actions[-5:]
        return self.actions[begin:]

    def offsets(self) -> list[tuple[int, int, int]]:
        logs = self.logs.logs.values()
        return [(log.state.log_start_offset, log.state.high_watermark, log.state.log_end_offset) for log in logs]

    def truncate(self, targets: Mapping[TopicPartition, Target]) -> dict[TopicPartition, Any]:
        return truncate_in(self.logs, targets)

    @staticmethod
    def flush(partition: Partition) -> None:
        job = partition.log.begin_flush()
        if job is not None:
            job.run()
            partition.log.flusher.finish(job)

    # A leader's answers

    def answer_fetch(self, request: FetchRequest) -> FetchResponse:
        received = decode(FetchRequest, FETCH_VERSION, encode(request, FETCH_VERSION))
        response = self.handle_fetch(received)
        assert isinstance(response, FetchResponse)
        sent = decode(FetchResponse, FETCH_VERSION, encode(response, FETCH_VERSION))
        if self.tamper is not None:
            self.tamper(sent)
        return sent

    def handle_fetch(self, request: FetchRequest) -> FetchResponse | PendingResponse:
        return self._fetch.fetch(request, context_of(FETCH_VERSION))

    def answer_list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        received = decode(ListOffsetsRequest, LIST_OFFSETS_VERSION, encode(request, LIST_OFFSETS_VERSION))
        response = finished(self._list_offsets.list_offsets(received, context_of(LIST_OFFSETS_VERSION)))
        return decode(ListOffsetsResponse, LIST_OFFSETS_VERSION, encode(response, LIST_OFFSETS_VERSION))

    # What is in the log

    def values(self, key: TopicPartition = KEY) -> list[bytes]:
        """Returns the values of all records."""
        return [record.value or b"" for record in each_record_of(all_bytes(self.log(key)))]


def _is_alive(broker_id: int) -> bool:
    """No follower joins an ISR by itself: the test says who is in it."""
    return False


def _propose(proposal: IsrProposal) -> None:
    raise AssertionError(proposal)


def each_record_of(data: bytes) -> list[Any]:
    """Returns the records of all batches."""
    found: list[Any] = []
    for position, header in iter_batches(data):
        found += read_records(data, position, header)
    return found


def same(*replicas: Replica, key: TopicPartition = KEY) -> None:
    """Asserts that the logs have the same batches, in the same epochs."""
    first, *others = [replica.log(key) for replica in replicas]
    for other in others:
        assert all_bytes(other) == all_bytes(first)
        assert _epochs_with_records(other) == _epochs_with_records(first)


def _epochs_with_records(log: Log) -> list[tuple[int, int]]:
    return [entry for entry in log.leader_epochs.entries if entry[1] < log.state.log_end_offset]
