"""Does what one fetcher decides: sends its requests, runs its truncations and flushes, waits.

It does one thing after the other. A truncation runs as a task of its own that is always finished, even if the loop is
stopped meanwhile: a log must not change its role in the middle of one (`truncation_of`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from odradek.broker.background.stepwise import in_steps
from odradek.broker.background.tasks import Threads
from odradek.broker.replica.follower.fetcher import Fetcher
from odradek.broker.replica.follower.fetcher_actions import Fetch, FlushLogs, ListOffsets, TruncateLogs, Wait
from odradek.clients.network_errors import NetworkError
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.log.truncation import Target
from odradek.timer import Clock

if TYPE_CHECKING:
    from odradek.broker.replica.partition.partition import Partition

log = structlog.get_logger("broker.replica.fetcher")

TruncationResults = Mapping[TopicPartition, ProtocolError | None]
TruncationSteps = Callable[
    [Mapping[TopicPartition, Target]],
    Generator[Callable[[], None] | None, None, dict[TopicPartition, ProtocolError | None]],
]
"""`LogManager.truncation_steps`: yields jobs for a thread, or None where other tasks may run."""


class Leader(Protocol):
    """The connection to a leader, with the versions of our inter-broker protocol: a `Peer`."""

    async def send(self, request: Message, *, timeout_ms: int | None = None) -> Any:
        """Raises NetworkError."""
        ...


class FetcherLoop:
    """`until_flushed` is FlushScheduler's; `on_idle` is called when the loop ends because it has had no partitions for
    a while.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        leader: Leader,
        name: str,
        *,
        truncation_steps: TruncationSteps,
        until_flushed: Callable[[Partition], asyncio.Future[None] | None],
        clock: Clock,
        background: Threads,
        timeout_ms: int,
        idle_ms: int,
        on_idle: Callable[[FetcherLoop], object],
    ) -> None:
        self.fetcher = fetcher
        self._leader = leader
        self._truncation_steps = truncation_steps
        self._until_flushed = until_flushed
        self._clock = clock
        self._background = background
        self._timeout_ms = timeout_ms
        self._idle_ms = idle_ms
        self._on_idle = on_idle
        self._news = asyncio.Event()
        self._truncating: dict[TopicPartition, Target] = {}
        self._truncation: asyncio.Task[TruncationResults] | None = None
        self._task: asyncio.Task[None] = background.spawn(self._run(), f"{name} from broker {fetcher.leader_id}")

    def wake(self) -> None:
        """Partitions were added: a loop that waits goes on."""
        self._news.set()

    def truncation_of(self, keys: Iterable[TopicPartition]) -> asyncio.Task[TruncationResults] | None:
        """Returns the truncation under way, if it is of one of these partitions."""
        return self._truncation if any(key in self._truncating for key in keys) else None

    async def stop(self) -> None:
        """Ends the loop, but not before a truncation under way has ended."""
        self._task.cancel()
        await asyncio.wait([self._task])
        if self._truncation is not None:
            await asyncio.wait([self._truncation])

    async def _run(self) -> None:
        while True:
            self._news.clear()
            try:
                if not await self._act():
                    return
            except NetworkError as error:
                self.fetcher.failed(str(error), self._clock.now_ms())
            except Exception:
                log.exception("fetch failed", leader_id=self.fetcher.leader_id)
                self.fetcher.failed("an unexpected error", self._clock.now_ms())

    async def _act(self) -> bool:
        """Does the next action. Returns False if the loop ends."""
        fetcher, clock = self.fetcher, self._clock
        match fetcher.next_action(clock.now_ms()):
            case Fetch(request):
                response = await self._leader.send(request, timeout_ms=self._timeout_ms)
                await in_steps(fetcher.fetched(response, clock.now_ms()))
            case ListOffsets(request) as lookup:
                response = await self._leader.send(request, timeout_ms=self._timeout_ms)
                fetcher.offsets_found(lookup, response, clock.now_ms())
            case TruncateLogs(targets) as truncation:
                results = await self._truncate(targets)
                fetcher.truncated(truncation, results, clock.now_ms())
            case FlushLogs() as flush:
                ends = [self._until_flushed(each.partition) for each in flush.followed]
                if under_way := [end for end in ends if end is not None]:
                    await asyncio.wait(under_way)
                fetcher.flushed(flush, clock.now_ms())
            case Wait(until_ms):
                return await self._wait(until_ms)
        return True

    async def _wait(self, until_ms: int | None) -> bool:
        delay_ms = self._idle_ms if until_ms is None else until_ms - self._clock.now_ms()
        try:
            async with asyncio.timeout(delay_ms / 1000):
                await self._news.wait()
        except TimeoutError:
            if self.fetcher.is_idle:
                self._on_idle(self)
                return False
        return True

    async def _truncate(self, targets: dict[TopicPartition, Target]) -> TruncationResults:
        self._truncating = targets
        self._truncation = self._background.spawn(self._run_truncation(targets), "truncate logs")
        try:
            return await asyncio.shield(self._truncation)
        except Exception:  # logged by the background
            return dict.fromkeys(targets, ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR))

    async def _run_truncation(self, targets: Mapping[TopicPartition, Target]) -> TruncationResults:
        steps = self._truncation_steps(targets)
        try:
            while True:
                try:
                    job = next(steps)
                except StopIteration as end:
                    results: TruncationResults = end.value
                    return results
                if job is None:
                    await asyncio.sleep(0)
                else:
                    await self._background.run_in_thread(job)
        finally:
            steps.close()
            self._truncating, self._truncation = {}, None
