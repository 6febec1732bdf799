"""What starting and stopping a broker takes, counted: threads, syncs, files, turns of the event loop. Nobody who makes
it slower needs a quiet machine to notice.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.metadata_store.journal import JOURNAL_NAME
from odradek.broker.settings import config
from odradek.storage.linked_files import LinkingFiles
from odradek.testing import BrokerThread, in_process_broker, in_process_cluster

TURNS = 24
REPLACED_FILES = 3
"""metadata.journal, meta.properties, recovery-point-offset-checkpoint."""


@contextmanager
def calls(owner: Any, name: str) -> Iterator[list[Any]]:
    """The first argument of each call of a function, or None."""
    seen: list[Any] = []
    original = getattr(owner, name)

    def counted(*arguments: Any, **named: Any) -> Any:
        seen.append(arguments[0] if arguments else None)
        return original(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, counted)
        yield seen


class CountingLoop(asyncio.SelectorEventLoop):
    turns = 0

    def _run_once(self) -> None:
        self.turns += 1
        super()._run_once()  # type: ignore[misc]


async def one_broker() -> None:
    async with in_process_broker():
        pass


async def one_cluster() -> None:
    async with in_process_cluster():
        pass


@pytest.fixture(autouse=True)
def _warm() -> None:
    """What is made once in a process is there already."""
    asyncio.run(one_broker())


def test_a_broker_starts_no_thread() -> None:
    with calls(threading.Thread, "start") as started:
        asyncio.run(one_broker())
    assert started == []


def test_a_cluster_starts_no_thread() -> None:
    with calls(threading.Thread, "start") as started:
        asyncio.run(one_cluster())
    assert started == []


def test_a_broker_in_a_thread_starts_that_thread_alone() -> None:
    with calls(threading.Thread, "start") as started, BrokerThread():
        pass
    assert [thread.name for thread in started] == ["odradek-broker"]


def test_nothing_is_synced_in_a_temporary_directory() -> None:
    with calls(os, "fsync") as synced:
        asyncio.run(one_broker())
        asyncio.run(one_cluster())
    assert synced == []


def test_a_broker_writes_few_files_as_a_whole() -> None:
    with calls(os, "replace") as replaced:
        asyncio.run(one_broker())
    assert len(replaced) == REPLACED_FILES


def test_the_bundled_settings_are_read_once() -> None:
    with calls(config, "read_properties_file") as read:
        asyncio.run(one_broker())
    assert read == []


def test_a_start_takes_few_turns_of_the_event_loop() -> None:
    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        runner.run(asyncio.sleep(0))
        loop = runner.get_loop()
        assert isinstance(loop, CountingLoop)
        before = loop.turns
        runner.run(one_broker())
        assert 0 < loop.turns - before <= TURNS


# --- a disk that keeps the data -------------------------------------------------------------------------------------


async def test_the_metadata_of_a_broker_that_keeps_its_data_are_synced_in_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk may take its time, and the other brokers of the loop go on."""
    synced_in: dict[str, set[threading.Thread]] = {}
    sync = os.fsync

    def noted(descriptor: int) -> None:
        name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
        synced_in.setdefault(name, set()).add(threading.current_thread())
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    async with in_process_broker(data_dir=tmp_path / "data"):
        pass
    assert synced_in[JOURNAL_NAME]
    assert threading.current_thread() not in synced_in[JOURNAL_NAME]
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert ".kafka_cleanshutdown.tmp" in synced_in


def test_only_files_that_are_never_synced_wait_for_no_disk() -> None:
    assert LinkingFiles().waits_for_disk
    assert not LinkingFiles(is_temporary=True).waits_for_disk


async def test_a_slow_disk_of_a_test_holds_a_thread_and_not_the_event_loop() -> None:
    async with in_process_broker() as broker:

        def waits() -> bool:
            return broker.files.waits_for_disk

        assert not waits()
        fault = broker.faults.add(disk="slow sync", path=JOURNAL_NAME, hold=True)
        assert waits()
        creation = asyncio.ensure_future(broker.seed({"orders": [b"value"]}))
        await broker.wait_for_hits(fault)
        assert not creation.done()
        fault.release()
        await creation
        broker.faults.clear()
        assert not waits()


async def test_many_changes_leave_the_event_loop_to_others() -> None:
    """Although none of them waits for the disk."""
    async with in_process_broker() as broker:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.ensure_future(count())
        for number in range(2000):
            await broker.metadata_store.create(f"/a{number}")
        counting.cancel()
        assert turns > 2000 // 300
