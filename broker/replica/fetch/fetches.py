"""Fetch requests: read, and respond now or when enough data has arrived.

A fetch is answered at once if the request does not wait (max_wait_ms, min_bytes), if there is enough data, or if a
partition has an error or a diverging epoch. Otherwise the fetch is parked: under its partitions, or, for an incremental
fetch, under its session, which tracks the partitions that may have changed (fetch_session.py). A read that misses the
page cache is first done in a thread, so that one consumer that lags far behind does not block the others. Very many
targets, as a follower may have, are read in steps.

Source: Kafka's ReplicaManager.fetchMessages.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from odradek.broker.replica.fetch.cold_reads import read_from_disk, read_in_turns
from odradek.broker.replica.fetch.fetch_context import FetchContext
from odradek.broker.replica.fetch.fetch_params import FetchParams
from odradek.broker.replica.fetch.fetch_session import FetchResult, FetchTarget
from odradek.broker.replica.fetch.log_reader import FetchRead, LogReader
from odradek.broker.replica.partition.hosted_partitions import HostedPartitions
from odradek.broker.replica.partition.wakeups import Wakeups
from odradek.purgatory import DelayedFetch, FetchExpirations

if TYPE_CHECKING:
    from odradek.broker.background.tasks import ThreadsAndTurns

TARGETS_AT_ONCE = 1000
"""More are read in steps."""

OnFetched = Callable[[list[FetchResult]], object]


class ParkedFetch(DelayedFetch[FetchTarget]):
    """A fetch that waits for min_bytes. A session's fetch checks the targets that are pending at the time."""

    def __init__(self, fetches: Fetches, params: FetchParams, context: FetchContext, on_fetched: OnFetched) -> None:
        super().__init__(
            params.max_wait_ms,
            params.min_bytes,
            () if context.session is not None else tuple(context.wanted.values()),
            partial(fetches.reader.progress, params),
            partial(fetches.complete, params, context, on_fetched),
            fetches.expirations,
            params.is_from_follower,
        )
        self._session = context.session

    def try_complete(self) -> bool:
        if self._session is not None:
            self.targets = tuple(self._session.pending)
        return super().try_complete()

    def on_complete(self) -> None:
        if self._session is not None:
            self._session.parked -= 1
        super().on_complete()

    def abandon(self) -> bool:
        if not super().abandon():
            return False
        if self._session is not None:
            self._session.parked -= 1
        return True


class LateFetch:
    """A fetch that waits for the disk, or is read in steps."""

    __slots__ = ("is_abandoned",)

    def __init__(self) -> None:
        self.is_abandoned = False

    def abandon(self) -> None:
        """Discards the result: the client is gone."""
        self.is_abandoned = True


class Fetches:
    def __init__(
        self,
        partitions: HostedPartitions,
        topic_name: Callable[[UUID], str | None],
        wakeups: Wakeups,
        background: ThreadsAndTurns,
    ) -> None:
        self.reader = LogReader(partitions.find, topic_name, wakeups.watermark_moved)
        self.expirations = FetchExpirations()
        self.cold_reads = 0
        self._wakeups = wakeups
        self._background = background

    def fetch(
        self, params: FetchParams, context: FetchContext, on_fetched: OnFetched
    ) -> list[FetchResult] | ParkedFetch | LateFetch:
        """Returns the results if they are available now, otherwise the waiting operation, which calls `on_fetched` once
        (possibly before this method returns).
        """
        targets = context.targets()
        if len(targets) > TARGETS_AT_ONCE:
            late = LateFetch()
            self._read_in_steps(params, context, on_fetched, late, may_wait=True)
            return late
        read = self.reader.read(params, targets)
        if read.cold:
            late = LateFetch()
            self._warm_up(params, context, on_fetched, late, True, read)
            return late
        if self._is_answer(params, context, read):
            return _counted(read.results)
        return self._park(params, context, on_fetched)

    def complete(self, params: FetchParams, context: FetchContext, on_fetched: OnFetched) -> None:
        """Completes a parked fetch: reads what is available and responds."""
        targets = context.targets()
        if len(targets) > TARGETS_AT_ONCE:
            self._read_in_steps(params, context, on_fetched, LateFetch(), again=True)
        else:
            read = self.reader.read(params, targets, again=True)
            self._was_read(params, context, on_fetched, LateFetch(), False, read)

    @staticmethod
    def _is_answer(params: FetchParams, context: FetchContext, read: FetchRead) -> bool:
        return params.max_wait_ms <= 0 or read.size >= params.min_bytes or read.answer_now or not context.wanted

    def _park(self, params: FetchParams, context: FetchContext, on_fetched: OnFetched) -> ParkedFetch:
        operation = ParkedFetch(self, params, context, on_fetched)
        keys: tuple[Hashable, ...]
        session = context.session
        if session is None:
            keys = tuple([target.topic_partition for target in context.wanted.values()])
        else:
            keys = (session,)
            session.parked += 1
            session.settle()
        self._wakeups.fetch.try_complete_else_watch(operation, keys)
        return operation

    def _read_in_steps(
        self,
        params: FetchParams,
        context: FetchContext,
        on_fetched: OnFetched,
        late: LateFetch,
        *,
        may_wait: bool = False,
        again: bool = False,
        may_block: bool = False,
    ) -> None:
        steps = self.reader.read_in_steps(params, context.targets(), again, may_block)
        then = partial(self._was_read, params, context, on_fetched, late, may_wait)
        self._background.spawn(read_in_turns(steps, self._background.turns, then), "long fetch")

    def _was_read(
        self,
        params: FetchParams,
        context: FetchContext,
        on_fetched: OnFetched,
        late: LateFetch,
        may_wait: bool,
        read: FetchRead,
    ) -> None:
        if late.is_abandoned:
            return
        if read.cold:
            self._warm_up(params, context, on_fetched, late, may_wait, read)
        elif may_wait and not self._is_answer(params, context, read):
            self._park(params, context, on_fetched)
        else:
            on_fetched(_counted(read.results))

    def _warm_up(
        self,
        params: FetchParams,
        context: FetchContext,
        on_fetched: OnFetched,
        late: LateFetch,
        may_wait: bool,
        read: FetchRead,
    ) -> None:
        self.cold_reads += 1
        then = partial(self._read_again, params, context, on_fetched, late, may_wait)
        self._background.spawn(read_from_disk(read.cold, self._background, then), "cold read")

    def _read_again(
        self, params: FetchParams, context: FetchContext, on_fetched: OnFetched, late: LateFetch, may_wait: bool
    ) -> None:
        if late.is_abandoned:
            return
        targets = context.targets()
        if len(targets) > TARGETS_AT_ONCE:
            self._read_in_steps(params, context, on_fetched, late, may_wait=may_wait, again=True, may_block=True)
        else:
            read = self.reader.read(params, targets, again=True, may_block=True)
            self._was_read(params, context, on_fetched, late, may_wait, read)


def _counted(results: list[FetchResult]) -> list[FetchResult]:
    for target, data in results:
        if data.records and target.hosted is not None:
            target.hosted.stats.bytes_out += len(data.records)
    return results
