"""A replica manager with real logs, timer and purgatories. The test advances time, threads and the event loop by
hand.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Coroutine, Generator, Hashable, Sequence
from pathlib import Path
from typing import Any

from odradek.broker.background.stepwise import finished
from odradek.broker.background.turns import Turns
from odradek.broker.handlers.current_leaders import CurrentLeaders
from odradek.broker.handlers.produce import ProduceHandler, RunningProduce
from odradek.broker.handlers.transaction_outcomes import Retries
from odradek.broker.metadata.metadata_cache import MetadataCache, PartitionState
from odradek.broker.replica.fetch.fetch_session import FetchResult, FetchTarget
from odradek.broker.replica.fetch.fetch_session_cache import FetchContext, FetchSessionCache
from odradek.broker.replica.fetch.log_reader import FetchParams
from odradek.broker.replica.fetch.running_fetch import FetchResponder, RunningFetch
from odradek.broker.replica.leader.appends import PartitionAppendResult
from odradek.broker.replica.leader.isr_proposals import SendAlterPartition
from odradek.broker.replica.leader.large_appends import LargeAppends
from odradek.broker.replica.log_dir_moves import UNLIMITED
from odradek.broker.replica.partition.partition import Partition
from odradek.broker.replica.partition.partition_offsets import offset_for_timestamp
from odradek.broker.replica.replica_manager import ClusterAccess, LiveSettings, ReplicaManager, ReplicaSettings
from odradek.broker.requests.endpoint import Endpoint
from odradek.broker.requests.request_context import ConnectionInfo, PendingResponse, RequestContext
from odradek.clients.network_errors import NodeUnreachable
from odradek.protocol.messages.fetch import FetchResponse
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.messages.replica_control import AlterPartitionRequest, AlterPartitionResponse
from odradek.protocol.records import Record, build_batch
from odradek.protocol.topic_partition import TopicPartition
from odradek.purgatory import CompletionQueue
from odradek.storage.directories.log_checkpoints import LogCheckpoints
from odradek.storage.directories.log_moves import LogMoves
from odradek.storage.directories.registry import LogRegistry
from odradek.storage.files import Buffer, OsFiles
from odradek.storage.log.log import Log
from odradek.storage.log.recovery import open_log
from odradek.storage.log_config import LogConfig
from odradek.storage.log_offsets import TimestampOffset
from odradek.timer import ManualClock, SystemTimer
from tests.table_settings import of_table

BROKER_EPOCH = 77
TOPIC_ID = uuid.UUID(int=1)
T0 = TopicPartition("t", 0)


def later(
    partition: Partition, leader: int, replicas: Sequence[int], isr: Sequence[int] = (), *, epochs: int = 1
) -> PartitionState:
    """Returns an assignment that follows the partition's current one, `epochs` leader epochs later."""
    return PartitionState(
        partition.topic_partition.partition,
        leader,
        partition.leader_epoch + epochs,
        tuple(replicas),
        tuple(isr),
        partition_epoch=partition.partition_epoch + 1,
    )


class ThreadCall:
    """The result of `run_in_thread`. When awaited, it yields itself to the driver of the coroutine."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.function = function
        self.arguments = arguments

    def __await__(self) -> Generator[ThreadCall, Any, Any]:
        return (yield self)


class ManualThreads:
    """Thread calls wait until `run` makes them, one after another."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Coroutine[Any, Any, Any], ThreadCall]] = []
        self.calls = 0
        self.turns = Turns()

    def run_in_thread(self, function: Callable[..., Any], /, *arguments: Any) -> ThreadCall:
        return ThreadCall(function, arguments)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        self._go_on(coroutine, lambda: coroutine.send(None))

    def _go_on(self, coroutine: Coroutine[Any, Any, Any], step: Callable[[], ThreadCall | None]) -> None:
        """Runs the coroutine to its next thread call; turns of the loop pass at once."""
        try:
            call = step()
            while call is None:
                call = coroutine.send(None)
            self.waiting.append((coroutine, call))
        except StopIteration:
            pass

    def run_one(self) -> None:
        coroutine, call = self.waiting.pop(0)
        self.calls += 1
        try:
            result = call.function(*call.arguments)
        except Exception as error:
            failure = error
            self._go_on(coroutine, lambda: coroutine.throw(failure))
        else:
            self._go_on(coroutine, lambda: coroutine.send(result))

    def run(self) -> None:
        while self.waiting:
            self.run_one()


class UnsyncedFiles(OsFiles):
    """A disk that does not sync directories and checkpoints: a thousand logs open in a second. Records are
    synced.
    """

    def replace_file(self, path: str, data: bytes, *, sync: bool = True) -> None:
        super().replace_file(path, data, sync=False)

    def sync_file(self, path: str) -> None:
        pass

    def sync_directory(self, path: str) -> None:
        pass


class RealLogs:
    """The part of LogManager that the replica manager uses. Each partition's log has its own directory. `is_clean`: the
    logs were closed cleanly, or are new.
    """

    is_clean = True

    def __init__(self, root: Path, clock: ManualClock) -> None:
        self.files = UnsyncedFiles()
        self.directories = [str(root)]
        registry = LogRegistry(self.files, self.directories, clock, random.Random(0))
        self.moves = LogMoves(registry, LogCheckpoints(registry), lambda: 0)
        self._clock = clock
        self._logs = registry.logs

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self._logs.get(topic_partition)

    def get_or_create(self, topic_partition: TopicPartition, topic_id: uuid.UUID, config: LogConfig) -> Log:
        if topic_partition not in self._logs:
            directory = f"{self.directories[0]}/{topic_partition}"
            self._logs[topic_partition] = open_log(
                self.files, directory, topic_partition, config, self._clock, clean=self.is_clean
            )
        return self._logs[topic_partition]

    def delete(self, topic_partition: TopicPartition, *, sync: bool = True) -> list[str]:
        log = self._logs.pop(topic_partition, None)
        if log is None:
            return []
        log.segments.close_files()
        return [self.directory_of(log)]

    @staticmethod
    def directory_of(log: Log) -> str:
        return log.folder.path.rpartition("/")[0]

    def close(self) -> None:
        for log in self._logs.values():
            log.segments.close_files()


async def unreachable(_request: AlterPartitionRequest) -> AlterPartitionResponse:
    """A controller that no request reaches."""
    raise NodeUnreachable("no controller")


class ReplicaHarness:
    """The replica manager and its dependencies. `lost`: the partitions whose disk has failed here, and their leader
    epochs.
    """

    def __init__(self, root: Path) -> None:
        self.clock = ManualClock(now_ms=1_000)
        self.timer = SystemTimer(self.clock)
        self.soon: list[Callable[[], None]] = []
        self.completions = CompletionQueue(self.soon.append)
        self.threads = ManualThreads()
        self.logs = RealLogs(root, self.clock)
        self.known: set[TopicPartition] = set()
        self.names: dict[uuid.UUID, str] = {}
        self.dead: set[int] = set()
        self.sessions = FetchSessionCache(1000, self.clock, random.Random(1))
        self.controller: SendAlterPartition = unreachable
        self.lost: list[tuple[TopicPartition, int]] = []
        self.verifies_transactions = True
        self.manager = ReplicaManager(
            of_table(ReplicaSettings),
            log_manager=self.logs,  # type: ignore[arg-type]
            clock=self.clock,
            timer=self.timer,
            completions=self.completions,
            background=self.threads,
            cluster=ClusterAccess(
                is_known=self.known.__contains__,
                topic_name=self.names.get,
                is_alive=lambda broker_id: broker_id not in self.dead,
                alter_partition=lambda request: self.controller(request),
                broker_epoch=lambda: BROKER_EPOCH,
                replica_lost=lambda lost, _: self.lost.append((lost.topic_partition, lost.leader_epoch)),
            ),
            live=LiveSettings(lambda: self.verifies_transactions, lambda: UNLIMITED),
        )

    def look(self, key: TopicPartition, timestamp: int, **asker: Any) -> TimestampOffset:
        """Returns the result of ListOffsets."""
        asked = {"isolation_level": None, "current_leader_epoch": -1, "require_leader": True, **asker}
        return finished(offset_for_timestamp(self.manager.partitions.find(key), timestamp, **asked))

    def lead(
        self,
        key: TopicPartition = T0,
        *,
        replicas: Sequence[int] = (0,),
        isr: Sequence[int] | None = None,
        epoch: int = 0,
        topic_id: uuid.UUID = TOPIC_ID,
        **settings: Any,
    ) -> Partition:
        """Makes this broker, 0, the partition's leader. Settings are property names with underscores."""
        self.known.add(key)
        config = LogConfig({name.replace("_", "."): value for name, value in settings.items()})
        isr = replicas if isr is None else isr
        known = self.manager.partitions.get(key)
        partition_epoch = 0 if known is None else known.partition_epoch + 1
        state = PartitionState(key.partition, 0, epoch, tuple(replicas), tuple(isr), partition_epoch=partition_epoch)
        return self.manager.become_leader(key, topic_id, state, config)

    def turn(self) -> None:
        """Runs one turn of the event loop."""
        while self.soon:
            self.soon.pop(0)()
        self.check()

    def check(self) -> None:
        """Asserts the invariants of all that has a state."""
        manager = self.manager
        for partition in manager.partitions:
            partition.check()
        self.sessions.check()
        for purgatory in (manager.produce_purgatory, manager.fetch_purgatory, manager.delete_records_purgatory):
            purgatory.check()
        self.timer.check()

    def advance(self, ms: int) -> None:
        """Advances the clock and stops at each millisecond at which a timer is due."""
        self.clock.advance(ms)
        self.timer.advance_clock()
        self.turn()

    def batch(self, count: int = 1, size: int = 10, **options: Any) -> bytes:
        """Returns a client's batch of `count` records with values of `size` bytes."""
        now = self.clock.wall_ms()
        records = [Record(offset=n, timestamp=now, key=b"k", value=b"v" * size, headers=[]) for n in range(count)]
        return build_batch(records, **options)

    def batch_of_bytes(self, total: int) -> bytes:
        """Returns a batch of exactly `total` bytes."""
        size = total - len(self.batch(1, 0)) - 8
        while (length := len(self.batch(1, size))) != total:
            size += total - length
        return self.batch(1, size)

    def produce(self, records: bytes | None = None, key: TopicPartition = T0, **options: Any) -> Produced:
        """Requests one append, then runs a turn of the loop."""
        return self.produce_each({key: self.batch() if records is None else records}, **options)

    def produce_each(
        self, entries: dict[TopicPartition, bytes], *, acks: int = 1, timeout_ms: int = 30_000, client_id: str = ""
    ) -> Produced:
        """Requests appends as the Produce handler does, then runs a turn of the loop."""
        handler = produce_handler(self.manager, self.threads, self.manager.large_appends)
        request = ProduceRequest(acks=acks, timeout_ms=timeout_ms)
        produced = Produced(RunningProduce(handler, request, context_of(9, client_id), entries, {}))
        self.turn()
        return produced

    def fetch(
        self,
        *targets: FetchTarget,
        session: tuple[int, int] = (0, -1),
        forgotten: Sequence[Hashable] = (),
        version: int = 12,
        **parameters: Any,
    ) -> Fetched:
        """Fetches the targets as the Fetch handler does, then runs a turn of the loop."""
        params = FetchParams(version, **parameters)
        wanted = {target.key: target for target in targets}
        fetched = Fetched(self.sessions.context(*session, params, wanted, forgotten))
        fetched.begun(
            RunningFetch(self.manager.fetches, params, fetched.context, context_of(version), Counted(fetched)).begin()
        )
        self.turn()
        return fetched


def produce_handler(manager: ReplicaManager, threads: Any, large_appends: LargeAppends) -> ProduceHandler:
    """Returns a handler of a broker that knows no topics: a test gives it the batches."""
    metadata = MetadataCache("cluster", manager.settings.broker_id)
    leaders = CurrentLeaders(manager.partitions, metadata)
    retries = Retries(ManualClock(), lambda delay_ms, call: call(), 20, 100)
    return ProduceHandler(
        manager.appends, large_appends, manager.verification, metadata, leaders, threads.spawn, retries, {}
    )


def context_of(version: int, client_id: str = "") -> RequestContext:
    endpoint = Endpoint("REPLICATION", "PLAINTEXT", "", 0, None, 0)
    return RequestContext(ConnectionInfo(endpoint), 0, version, 0, client_id, 0)


class Asked:
    """A request, answered or waiting."""

    def __init__(self) -> None:
        self.pending: PendingResponse | None = None
        """If it did not complete at once."""
        self.answers = 0
        self._response: Any = None

    def begun(self, outcome: Any) -> None:
        if isinstance(outcome, PendingResponse):
            self.pending = outcome
        else:
            self._response = outcome

    @property
    def is_answered(self) -> bool:
        return self.answers > 0

    @property
    def _answer(self) -> Any:
        assert self.answers == 1
        return self._response if self.pending is None else self.pending.result()

    def abandon(self) -> None:
        """The client disconnects."""
        assert self.pending is not None
        self.pending.abandon()


class Produced(Asked):
    """A produce request."""

    def __init__(self, running: RunningProduce) -> None:
        super().__init__()
        self._running = running
        self.begun(running.begin())
        if self.pending is None:
            self.answers += 1
        else:
            self.pending.when_settled(self._answered)

    def _answered(self) -> None:
        self.answers += 1

    @property
    def results(self) -> dict[TopicPartition, PartitionAppendResult]:
        assert self.answers == 1
        return self._running.results

    @property
    def result(self) -> PartitionAppendResult:
        (result,) = self.results.values()
        return result


class Fetched(Asked):
    """A fetch request."""

    def __init__(self, context: FetchContext) -> None:
        super().__init__()
        self.context = context

    def respond(self, results: list[FetchResult]) -> FetchResponse:
        self.answers += 1
        return self.context.answer(results)

    @property
    def response(self) -> FetchResponse:
        response: FetchResponse = self._answer
        return response

    @property
    def partitions(self) -> dict[TopicPartition, FetchResponse.PartitionData]:
        """The returned partitions in the response's order."""
        return {
            TopicPartition(topic.topic, data.partition_index): data
            for topic in self.response.responses
            for data in topic.partitions
        }

    @property
    def data(self) -> FetchResponse.PartitionData:
        (data,) = self.partitions.values()
        return data

    @property
    def records(self) -> bytes:
        """The records of the only partition."""
        return records_of(self.data)

    @property
    def session(self) -> tuple[int, int]:
        """The session id and the epoch of the first incremental fetch."""
        return self.response.session_id, 1


class Counted(FetchResponder):
    """Counts the responses to one fetch."""

    def __init__(self, fetched: Fetched) -> None:
        self._fetched = fetched

    def respond(self, fetch: FetchContext, results: list[FetchResult], context: RequestContext) -> FetchResponse:
        return self._fetched.respond(results)


def records_of(data: FetchResponse.PartitionData) -> bytes:
    """Returns a partition's records, which are not a file slice here."""
    assert isinstance(data.records, Buffer)
    return bytes(data.records)
