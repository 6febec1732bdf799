"""Disks on which every sync is slow: waiting for one does not block other clients, and there is no unnecessary wait.
Syncs are counted by the thread that waits for them.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from random import Random

import pytest

from odradek.broker.metadata.new_topic import NewTopic
from odradek.broker.server import Broker
from odradek.protocol.topic_partition import TopicPartition
from odradek.testing import in_process_broker
from tests.memory_files import ForgetfulFiles
from tests.storage.small_logs import idempotent

SETTINGS: Mapping[str, object] = {"log.cleaner.enable": "false"}
PARTITIONS = 50


class CountingFiles(ForgetfulFiles):
    """Records the syncs of files and directories by what waits for them: the loop, or a thread. `cut_at` is how many
    syncs succeed before the power cut; `after` is the disk at that time.
    """

    def __init__(self, room: int | None = None) -> None:
        super().__init__(room)
        self.on_the_loop: list[str] = []
        self.in_threads: list[str] = []
        self.cut_at = -1
        self.after: ForgetfulFiles | None = None

    def note(self, path: str) -> None:
        if threading.current_thread() is threading.main_thread():
            self.on_the_loop.append(path)
        else:
            self.in_threads.append(path)
        if self.cut_at == len(self.on_the_loop) + len(self.in_threads):
            self.after = self.crash(Random(self.cut_at))

    def count_sync(self, path: str) -> None:
        super().count_sync(path)
        self.note(path)

    def sync_directory(self, path: str) -> None:
        super().sync_directory(path)
        self.note(path)

    def forget_counts(self) -> None:
        self.on_the_loop.clear()
        self.in_threads.clear()


def a_broker(files: ForgetfulFiles, data: str = "/data", **settings: object) -> AbstractAsyncContextManager[Broker]:
    return in_process_broker({**SETTINGS, "log.dirs": data, **settings}, files=files)


async def create(broker: Broker, *topics: NewTopic) -> None:
    results = await broker.controller.topics.create(topics, timeout_ms=60_000)
    assert not [result for result in results if isinstance(result, Exception)]


def of_topic(paths: list[str], topic: str) -> list[str]:
    return [path for path in paths if f"/{topic}-" in path]


async def test_creating_topics_syncs_each_directory_once_and_nothing_on_the_loop() -> None:
    files = CountingFiles()
    async with a_broker(files, "/a,/b") as broker:
        await create(broker, NewTopic("warm", 1, 1))
        files.forget_counts()
        await create(broker, NewTopic("orders", PARTITIONS, 1), NewTopic("events", PARTITIONS, 1))
        assert files.on_the_loop == []
        counts = Counter(files.in_threads)
        assert (counts["/a"], counts["/b"]) == (1, 1)
        assert len(of_topic(files.in_threads, "orders")) == 3 * PARTITIONS, "two files and the folder of each"
        assert sum(counts.values()) == 2 * 3 * PARTITIONS + 2 + 1, "and the journal"


async def test_deleting_topics_syncs_nothing_on_the_loop() -> None:
    files = CountingFiles()
    async with a_broker(files) as broker:
        await create(broker, NewTopic("orders", PARTITIONS, 1))
        files.forget_counts()
        assert await broker.controller.topics.delete(["orders"], timeout_ms=60_000) == [None]
        assert files.on_the_loop == []
        assert Counter(files.in_threads)["/data"] == 1


async def test_recreating_a_topic_with_old_checkpoints_syncs_nothing_on_the_loop() -> None:
    files = CountingFiles()
    async with a_broker(files) as broker:
        await create(broker, NewTopic("orders", 4, 1))
        broker.log_manager.checkpoints.write_all()
        assert broker.log_manager.directories["/data"].names(TopicPartition("orders", 0))
        await broker.controller.topics.delete(["orders"], timeout_ms=60_000)
        files.forget_counts()
        await create(broker, NewTopic("orders", 4, 1))
        assert files.on_the_loop == []


@pytest.mark.parametrize("cut_at", range(1, 16))
async def test_a_power_cut_during_a_topic_creation_leaves_a_usable_topic_or_none(cut_at: int) -> None:
    files = CountingFiles()
    async with a_broker(files) as broker:
        files.forget_counts()
        files.cut_at = cut_at
        await create(broker, NewTopic("orders", 4, 1))
        is_answered = files.after is None
        after = files.crash() if files.after is None else files.after
    async with a_broker(after) as broker:
        topic = broker.metadata.topic("orders")
        assert topic is not None or not is_answered
        if topic is None:
            await create(broker, NewTopic("orders", 4, 1))
            topic = broker.metadata.topic("orders")
            assert topic is not None
        for number in range(4):
            partition = broker.replica_manager.partitions.find(TopicPartition("orders", number))
            assert partition.is_leader
            assert partition.log.folder.topic_id == topic.topic_id
            assert partition.log.leader_epochs.latest_epoch == partition.leader_epoch


async def killed(partitions: int, batches: int = 3) -> CountingFiles:
    """The disk of a broker that was killed with `batches` batches in all partitions: all it wrote, synced or not."""
    files = ForgetfulFiles()
    async with a_broker(files) as broker:
        await create(broker, NewTopic("orders", partitions, 1))
        return killed_after_appends(broker, files, partitions, range(batches))


def killed_after_appends(
    broker: Broker, files: ForgetfulFiles, partitions: int, sequences: Iterable[int]
) -> CountingFiles:
    for number in range(partitions):
        log = broker.replica_manager.partitions.find(TopicPartition("orders", number)).log
        for sequence in sequences:
            log.append_as_leader(idempotent(sequence), 0)
    files.make_durable()
    after = CountingFiles()
    after.names = after.durable_names = files.crash().names
    return after


@pytest.mark.parametrize("batches", [0, 3])
async def test_a_start_after_a_kill_syncs_nothing_for_undamaged_partitions(batches: int) -> None:
    files = await killed(PARTITIONS, batches)
    async with a_broker(files) as broker:
        assert broker.replica_manager.partitions.find(TopicPartition("orders", 4)).log.state.log_end_offset == batches
        assert of_topic(files.on_the_loop + files.in_threads, "orders") == []
        assert files.on_the_loop == []


async def test_a_start_after_a_clean_stop_syncs_nothing_for_partitions() -> None:
    files = CountingFiles()
    async with a_broker(files) as broker:
        await create(broker, NewTopic("orders", PARTITIONS, 1))
    files.forget_counts()
    async with a_broker(files) as broker:
        assert of_topic(files.on_the_loop + files.in_threads, "orders") == []
        log = broker.replica_manager.partitions.find(TopicPartition("orders", 0)).log
        assert log.leader_epochs.entries == [(0, 0)]


async def test_a_start_after_a_second_kill_syncs_nothing_either() -> None:
    files = await killed(PARTITIONS)
    async with a_broker(files) as broker:
        files = killed_after_appends(broker, files, PARTITIONS, range(3, 6))
    async with a_broker(files) as broker:
        assert broker.replica_manager.partitions.find(TopicPartition("orders", 4)).log.state.log_end_offset == 6
        assert of_topic(files.on_the_loop + files.in_threads, "orders") == []


async def test_directories_changed_by_recovery_are_synced_in_threads_before_serving() -> None:
    files = await killed(PARTITIONS)
    for number in (3, 7):
        files.open(f"/data/orders-{number}/00000000000000000009.log.cleaned", create=True)
    async with a_broker(files):
        assert sorted(of_topic(files.in_threads, "orders")) == ["/data/orders-3", "/data/orders-7"]
        assert files.on_the_loop == []
