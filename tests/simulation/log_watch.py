"""Looks into the logs of one broker's process at the moments when they are opened, truncated and cleaned, and at each
step of retention.

It wraps methods of the broker's own objects: they do what they do, then it reads what the disk and the objects have,
and notes in the history what is wrong. It changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from odradek.broker.server import Broker
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.cleaner.job import CleanedGroup
from odradek.storage.cleaner.manager import Clean
from odradek.storage.directories.bulk_truncation import BulkSteps, Results
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.log.log import Log
from odradek.storage.log.truncation import Target
from tests.simulation.cleaning import Cleaning
from tests.simulation.derived_state import derived_wrongly
from tests.simulation.history import History
from tests.simulation.log_history import Miscleaned, Underived
from tests.simulation.retention_watch import watch_retention


class LogWatch:
    """Create it before the broker starts."""

    def __init__(self, history: History, process: str, broker: Broker) -> None:
        self._history = history
        self._process = process
        self._stable: dict[TopicPartition, int] = {}
        """The last stable offset when a cleaning of a log began."""
        self._watch_managers(broker)

    def _watch_managers(self, broker: Any) -> None:
        new_log_manager, start_log_cleaner = broker.new_log_manager, broker._start_log_cleaner

        def watched_log_manager() -> LogManager:
            manager: LogManager = new_log_manager()
            self._watch_log_manager(manager)
            return manager

        def watched_log_cleaner() -> None:
            start_log_cleaner()
            watch_retention(self._history, self._process, broker.replica_manager)
            if broker.log_cleaner is not None:
                self._watch_cleaner(broker.log_cleaner.manager)

        broker.new_log_manager = watched_log_manager
        broker._start_log_cleaner = watched_log_cleaner

    def _watch_log_manager(self, manager: Any) -> None:
        load_steps, truncation_steps = manager.load_steps, manager.truncation_steps

        def loading(*arguments: Any) -> Iterator[None]:
            yield from load_steps(*arguments)
            for log in manager.logs.values():
                self._judge(log, "a start")

        def truncating(targets: Mapping[TopicPartition, Target]) -> BulkSteps:
            results: Results = yield from truncation_steps(targets)
            for partition, error in results.items():
                log = manager.logs.get(partition)
                if error is None and log is not None:
                    self._judge(log, "a truncation")
            return results

        manager.load_steps, manager.truncation_steps = loading, truncating

    def _judge(self, log: Log, when: str) -> None:
        if log.folder.failure is not None or log.state.truncating_to is not None:
            return
        for reason in derived_wrongly(log):
            self._history.note(
                Underived(process=self._process, partition=log.topic_partition, when=when, reason=reason)
            )

    def _watch_cleaner(self, manager: Any) -> None:
        begin, swap = manager.begin, manager.swap

        def beginning(*arguments: Any) -> Clean | None:
            clean: Clean | None = begin(*arguments)
            if clean is not None:
                self._stable[clean.log.topic_partition] = clean.log.last_stable_offset
            return clean

        def swapping(clean: Clean, group: CleanedGroup) -> list[str]:
            log = clean.log
            cleaning = Cleaning(log, self._stable[log.topic_partition], log.clock.wall_ms())
            replaced: list[str] = swap(clean, group)
            for reason in cleaning.judge(log):
                self._history.note(
                    Miscleaned(process=self._process, partition=log.topic_partition, when="a cleaning", reason=reason)
                )
            self._judge(log, "a cleaning")
            return replaced

        manager.begin, manager.swap = beginning, swapping
