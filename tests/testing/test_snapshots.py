"""Snapshots of brokers: forks have what the broker had, and nothing that forks or the broker do changes a snapshot."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from aiokafka.structs import TopicPartition

from odradek.broker.metadata.new_topic import NewTopic
from odradek.broker.start_error import StartError
from odradek.clients.admin.client import AdminClient
from odradek.protocol import topic_partition
from odradek.protocol.wire_codes import ConfigOperation, ConfigResourceType
from odradek.storage.files import OsFiles
from odradek.testing import (
    BrokerThread,
    InProcessBroker,
    Record,
    Security,
    Snapshot,
    SnapshotError,
    allow,
    in_process_broker,
)
from odradek.testing.process_directories import LOCK
from odradek.testing.snapshots import taking
from odradek.testing.snapshots.manifest import NAME, listed, parse_manifest
from tests.patience import PATIENCE_S, until
from tests.wire.records import produce, values

SMALL_SEGMENTS: dict[str, Any] = {"log_segment_bytes": 20_000, "log_segment_delete_delay_ms": 0}
FEW: dict[str, Any] = {"offsets_topic_num_partitions": 2, "transaction_state_log_num_partitions": 2}
KIB = bytes(1024)


def content(snapshot: Snapshot) -> dict[str, tuple[bytes, int]]:
    """All bytes and times of a snapshot."""
    return {
        str(path.relative_to(snapshot.path)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in snapshot.path.rglob("*")
        if path.is_file()
    }


@asynccontextmanager
async def administered(broker: InProcessBroker) -> AsyncIterator[AdminClient]:
    async with AdminClient(broker.bootstrap) as admin:
        yield admin


async def consumed(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[bytes | None]:
    """All values of partition 0."""
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation)
    await consumer.start()
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        end = (await consumer.end_offsets([partition]))[partition]
        found: list[bytes | None] = []
        while await consumer.position(partition) < end:
            batch = await consumer.getmany(timeout_ms=1000)
            found += [record.value for records in batch.values() for record in records]
        return found
    finally:
        await consumer.stop()


async def committed(bootstrap: str, group: str, topic: str) -> int | None:
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    await consumer.start()
    try:
        offset: int | None = await consumer.committed(TopicPartition(topic, 0))
        return offset
    finally:
        await consumer.stop()


async def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 0)])
        await consumer.commit({TopicPartition(topic, 0): offset})
    finally:
        await consumer.stop()


async def test_a_fork_has_records_groups_offsets_transactions_and_settings() -> None:
    async with in_process_broker(**FEW) as broker, administered(broker) as admin:
        await broker.seed({"orders": [b"a", (b"key", None), Record(b"b", headers=[("h", b"1")], timestamp_ms=77)]})
        await commit(broker.bootstrap, "readers", "orders", 2)
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="tx")
        await producer.start()
        async with producer.transaction():
            await producer.send_and_wait("paid", b"committed")
        await producer.begin_transaction()
        await producer.send_and_wait("paid", b"still open")
        await admin.alter_configs(
            ConfigResourceType.TOPIC, "orders", [("retention.ms", ConfigOperation.SET, "123456789")]
        )
        await admin.alter_configs(ConfigResourceType.BROKER, "", [("log.retention.ms", ConfigOperation.SET, "7654321")])

        with await broker.snapshot() as snapshot:
            await producer.abort_transaction()
            await producer.stop()
            await broker.seed({"orders": [b"late"]})
            await commit(broker.bootstrap, "readers", "orders", 4)
            await admin.delete_topic("orders")
            async with in_process_broker(snapshot=snapshot, **FEW) as fork, administered(fork) as fork_admin:
                assert await consumed(fork.bootstrap, "orders") == [b"a", None, b"b"]
                assert await committed(fork.bootstrap, "readers", "orders") == 2
                assert await consumed(fork.bootstrap, "paid", "read_uncommitted") == [b"committed", b"still open"]
                log = fork.log_manager.logs[topic_partition.TopicPartition("paid", 0)]
                assert log.last_stable_offset == 2, "the transaction is open: the second record comes after a marker"
                configs = await fork_admin.describe_configs(ConfigResourceType.TOPIC, "orders")
                assert {each.name: each.value for each in configs}["retention.ms"] == "123456789"
                assert fork.config.log_retention_ms == 7654321
                assert fork.metadata.cluster_id == broker.metadata.cluster_id

                again = aiokafka.AIOKafkaProducer(bootstrap_servers=fork.bootstrap, transactional_id="tx")
                await again.start()  # fences the producer of the open transaction, and aborts it
                async with again.transaction():
                    await again.send_and_wait("paid", b"in the fork")
                await again.stop()
                assert await consumed(fork.bootstrap, "paid") == [b"committed", b"in the fork"]


async def test_nothing_that_forks_or_the_broker_do_changes_a_snapshot() -> None:
    topics = {"compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}, "deleted": {}, "cut": {}}
    options: dict[str, Any] = {**SMALL_SEGMENTS, "log_cleaner_backoff_ms": 10}
    async with in_process_broker(**options) as broker, administered(broker) as admin:
        for name, configs in topics.items():
            await admin.create_topic(NewTopic(name, 1, configs=configs))
            await fill(broker, name)
        compacted = topic_partition.TopicPartition("compacted", 0)
        await until(lambda: broker.log_manager.logs[compacted].segments[0].size < 10_000)
        await fill(broker, "compacted")
        with await broker.snapshot() as snapshot:
            before = content(snapshot)
            async with in_process_broker(snapshot=snapshot, **options) as fork:
                for one in (broker, fork):
                    await change_everything(one)
            assert content(snapshot) == before
            await broker.reset()
            await broker.seed({"deleted": [b"new"]})
            assert content(snapshot) == before
            async with in_process_broker(snapshot=snapshot, **options) as fork:
                await fork.reset()
                await fork.seed({name: [(b"key", KIB)] for name in topics})
                assert len(await consumed(fork.bootstrap, "deleted")) == 51
            assert content(snapshot) == before


async def fill(broker: InProcessBroker, topic: str) -> None:
    """Appends some segments, a batch at a time."""
    for start in range(0, 50, 10):
        await broker.seed({topic: [(b"key-%d" % (number % 3), KIB) for number in range(start, start + 10)]})


async def change_everything(broker: InProcessBroker) -> None:
    """Appends, compacts, deletes records and a topic, rebuilds indexes, and truncates."""
    compacted = topic_partition.TopicPartition("compacted", 0)
    async with administered(broker) as admin:
        state = broker.log_manager.logs[compacted].state
        end = state.log_end_offset
        await fill(broker, "compacted")
        await until(lambda: (state.cleaned_offset or 0) >= end)
        cut = broker.log_manager.logs[topic_partition.TopicPartition("cut", 0)]
        for segment in cut.segments:
            segment.rebuild_indexes()
            segment.truncate_to(segment.base_offset + 3, 0)
        assert cut.apply_retention(broker.clock.wall_ms() + 10**12) > 0
        await admin.delete_topic("deleted")
        await until(lambda: topic_partition.TopicPartition("deleted", 0) not in broker.log_manager.logs)
        removal = broker.log_manager.take_removals(everything=True)
        assert removal is not None
        removal.run()
        assert not [name for name in broker.files.list_directory(broker.config.log_dirs[0]) if "deleted-" in name]


async def test_snapshots_under_load_have_what_was_acknowledged_before_and_no_gaps() -> None:
    async with in_process_broker(**SMALL_SEGMENTS) as broker:
        acknowledged = 0
        is_over = False

        async def write() -> None:
            nonlocal acknowledged
            async with aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap, acks="all") as producer:
                while not is_over:
                    await asyncio.gather(
                        *[await producer.send("orders", b"%d" % (acknowledged + more)) for more in range(50)]
                    )
                    acknowledged += 50

        async def administer() -> None:
            number = 0
            async with administered(broker) as admin:
                while not is_over:
                    number += 1
                    await admin.create_topic(NewTopic(f"topic-{number}", 2))
                    await admin.delete_topic(f"topic-{number - 1}") if number > 1 else None

        load = [asyncio.create_task(write()), asyncio.create_task(administer())]
        try:
            await until(lambda: acknowledged > 500)
            for _ in range(3):
                before = acknowledged
                with await broker.snapshot() as snapshot:
                    async with in_process_broker(snapshot=snapshot) as fork:
                        found = await consumed(fork.bootstrap, "orders")
                        assert found == [b"%d" % number for number in range(len(found))]
                        assert len(found) >= before
                        assert await produce(fork.bootstrap, "orders", b"next") == 0
        finally:
            is_over = True
            await asyncio.gather(*load)


def inodes(directory: Path) -> set[int]:
    return {path.stat().st_ino for path in directory.rglob("*")}


def room_of(directory: Path, shared: set[int]) -> int:
    """How many bytes of the disk its files take that are not shared."""
    found = [path.stat() for path in directory.rglob("*") if path.is_file()]
    return sum(stat.st_blocks * 512 for stat in found if stat.st_ino not in shared)


async def test_forks_take_no_room_for_what_they_do_not_change(tmp_path: Path) -> None:
    async with in_process_broker() as broker:
        await broker.seed({f"orders-{number}": [KIB * 100] * 30 for number in range(3)})
        snapshot = await broker.snapshot(tmp_path / "kept")
        assert snapshot.size > 9_000_000
    shared = inodes(snapshot.path)
    for number in range(5):
        fork_dir = tmp_path / f"fork-{number}"
        async with in_process_broker(snapshot=snapshot, data_dir=fork_dir) as fork:
            assert await produce(fork.bootstrap, "orders-1", b"mine") == 0
            assert room_of(fork_dir, shared) < 200_000


def test_a_snapshot_is_kept_and_opened_in_another_process(tmp_path: Path) -> None:
    with BrokerThread() as broker:
        broker.seed({"orders": [b"kept"]})
        with broker.snapshot() as temporary:
            kept = temporary.save(tmp_path / "saved")
        assert not temporary.path.exists()
    assert kept.path == tmp_path / "saved"
    program = """
import sys
from odradek.testing import BrokerThread, Snapshot
from kafka import KafkaConsumer, TopicPartition
with BrokerThread(snapshot=Snapshot.load(sys.argv[1])) as broker:
    consumer = KafkaConsumer("orders", bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    print(next(consumer).value)
    consumer.close()
"""
    arguments = [sys.executable, "-c", program, str(tmp_path / "saved")]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.stdout == "b'kept'\n", done.stderr


async def test_a_copy_of_a_snapshot_with_other_times_is_as_good(tmp_path: Path) -> None:
    async with in_process_broker() as broker:
        await broker.seed({"orders": [b"kept", KIB * 200]})
        snapshot = await broker.snapshot(tmp_path / "kept")
    for path in snapshot.path.rglob("*"):
        os.utime(path, (1, 1))
    async with in_process_broker(snapshot=str(snapshot.path)) as fork:
        assert len(await consumed(fork.bootstrap, "orders")) == 2


def files_of(snapshot: Snapshot) -> Iterator[Path]:
    yield from (path for path in snapshot.path.rglob("*") if path.is_file() and path.name not in (LOCK, NAME))


async def test_every_changed_or_missing_file_is_one_clear_error(tmp_path: Path) -> None:
    async with in_process_broker() as broker:
        await broker.seed({"orders": [KIB * 200]})
        snapshot = await broker.snapshot(tmp_path / "kept")
    for path in files_of(snapshot):
        data, stat = path.read_bytes(), path.stat()
        changes = [data + b"x", *([bytes([data[0] ^ 1]) + data[1:], data[:-1]] if data else [])]
        for changed in changes:
            path.write_bytes(changed)
            for tried in (snapshot, snapshot.path):
                with pytest.raises(SnapshotError, match=rf"{path.name}.* was changed.*take a new snapshot"):
                    async with in_process_broker(snapshot=tried):
                        pass
        path.unlink()
        for tried in (snapshot, snapshot.path):
            with pytest.raises(SnapshotError, match=rf"{path.name}.* is gone"):
                async with in_process_broker(snapshot=tried):
                    pass
        path.write_bytes(data)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    async with in_process_broker(snapshot=snapshot.path) as fork:
        assert len(await consumed(fork.bootstrap, "orders")) == 1


async def test_a_damaged_or_foreign_list_of_files_is_one_clear_error(tmp_path: Path) -> None:
    async with in_process_broker() as broker:
        snapshot = await broker.snapshot(tmp_path / "kept")
    manifest = snapshot.path / NAME
    written = manifest.read_bytes()
    lines = written.splitlines(keepends=True)
    for damaged in (b"".join(lines[:-1]), written.replace(b"meta.properties", b"meta.propertiez"), written[:-9]):
        manifest.write_bytes(damaged)
        with pytest.raises(SnapshotError, match="was changed or cut off"):
            Snapshot.load(snapshot.path)
    for foreign in (b"", b"a foreign file\n", bytes(100)):
        manifest.write_bytes(foreign)
        with pytest.raises(SnapshotError, match="is not the list of a snapshot's files"):
            Snapshot.load(snapshot.path)
    manifest.unlink()
    with pytest.raises(SnapshotError, match="is not a complete snapshot"):
        Snapshot.load(snapshot.path)
    with pytest.raises(SnapshotError, match="is not a complete snapshot"):
        Snapshot.load(tmp_path / "nowhere")


@pytest.mark.parametrize("path", ["../outside", "orders-0/../../outside", "/outside", ""])
async def test_a_snapshot_writes_nothing_outside_of_its_brokers_directory(tmp_path: Path, path: str) -> None:
    async with in_process_broker() as broker:
        snapshot = await broker.snapshot(tmp_path / "kept")
    manifest = parse_manifest((snapshot.path / NAME).read_bytes(), "")
    (tmp_path / "kept" / "outside").write_bytes(b"content")
    file = listed(OsFiles(), str(tmp_path), "kept/outside")._replace(path=path)
    (snapshot.path / NAME).write_bytes(manifest._replace(files=[*manifest.files, file]).encoded())
    with pytest.raises(SnapshotError, match="is not the path of a file in a snapshot"):
        Snapshot.load(snapshot.path)


async def test_a_snapshot_of_another_version_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with in_process_broker() as broker:
        with monkeypatch.context() as patch:
            patch.setattr("odradek.testing.snapshots.manifest.VERSION", 2)
            snapshot = await broker.snapshot(tmp_path / "kept")
    with pytest.raises(SnapshotError, match="has version 2, but this Odradek reads version 1: take a new snapshot"):
        Snapshot.load(snapshot.path)


async def test_a_snapshot_needs_a_running_broker_and_a_directory_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    async with in_process_broker() as broker:
        with pytest.raises(SnapshotError, match="is not empty"):
            await broker.snapshot(tmp_path)
        snapshot = await broker.snapshot()
        with pytest.raises(SnapshotError, match="is not empty"):
            snapshot.save(tmp_path)
        with pytest.raises(SnapshotError, match="cannot be kept in"):
            await broker.snapshot(tmp_path / "mine" / "inside")
    with pytest.raises(SnapshotError, match="the broker is not running"):
        await broker.snapshot()
    assert os.listdir(tmp_path) == ["mine"]
    snapshot.remove()
    with pytest.raises(SnapshotError, match="is gone"):
        async with in_process_broker(snapshot=snapshot):
            pass


async def test_a_broker_starts_from_a_snapshot_in_an_empty_directory_only(tmp_path: Path) -> None:
    async with in_process_broker(data_dir=tmp_path / "data") as broker:
        await broker.seed({"orders": [b"mine"]})
        snapshot = await broker.snapshot()
    with pytest.raises(StartError, match=r"data has data: a broker starts from a snapshot in an empty directory"):
        async with in_process_broker(snapshot=snapshot, data_dir=tmp_path / "data"):
            pass
    async with in_process_broker(data_dir=tmp_path / "data") as broker:
        assert await values(broker.bootstrap, "orders") == [b"mine"]


async def test_a_snapshot_goes_with_its_object() -> None:
    async with in_process_broker() as broker:
        snapshot = await broker.snapshot()
        path = snapshot.path
        assert path.is_dir()
        del snapshot
        assert not path.exists()


async def test_a_failed_snapshot_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with in_process_broker() as broker:
        await broker.seed({"orders": [b"value"]})
        with monkeypatch.context() as patch:
            patch.setattr(
                "odradek.testing.snapshots.taking.FrozenLog.steps",
                lambda *_: (_ for _ in ()).throw(OSError("full")),
            )
            with pytest.raises(SnapshotError, match="cannot be written: full"):
                await broker.snapshot(tmp_path / "kept")
        assert not (tmp_path / "kept").exists()
        assert await values(broker.bootstrap, "orders") == [b"value"]


async def test_a_broker_that_is_stopped_meanwhile_gives_no_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with in_process_broker() as broker:
        await broker.seed({"orders": [KIB * 200]})
        made = taking.frozen_logs

        def instant(broker: InProcessBroker) -> Any:
            found = made(broker)
            stopping.append(asyncio.create_task(broker.stop()))
            return found

        stopping: list[asyncio.Task[None]] = []
        monkeypatch.setattr(taking, "frozen_logs", instant)
        write = taking._write_logs

        async def later(*arguments: Any) -> None:
            await asyncio.wait(stopping)
            await write(*arguments)

        monkeypatch.setattr(taking, "_write_logs", later)
        with pytest.raises(SnapshotError, match="was stopped while the snapshot was taken"):
            await broker.snapshot(tmp_path / "kept")
        assert not os.listdir(tmp_path)


async def test_snapshots_and_resets_at_once_are_one_after_the_other() -> None:
    async with in_process_broker() as broker:
        await broker.seed({"orders": [KIB * 200]})
        before, _, after = await asyncio.gather(broker.snapshot(), broker.reset(), broker.snapshot())
        for snapshot, topics in ((before, 1), (after, 0)):
            async with in_process_broker(snapshot=snapshot) as fork:
                assert fork.metadata.topic_count == topics


async def test_files_that_know_no_links_have_copies(tmp_path: Path) -> None:
    async with in_process_broker(files=OsFiles(), **SMALL_SEGMENTS) as broker:
        await fill(broker, "orders")
        snapshot = await broker.snapshot()
        before = content(snapshot)
        async with in_process_broker(snapshot=snapshot, files=OsFiles(), data_dir=tmp_path) as fork:
            await fill(fork, "orders")
            await fill(broker, "orders")
            assert len(await consumed(fork.bootstrap, "orders")) == 100
        assert content(snapshot) == before
        assert not inodes(tmp_path) & inodes(snapshot.path)


async def test_a_broker_that_loses_segments_all_the_time_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with in_process_broker() as broker:
        await broker.seed({"orders": [b"value"]})
        log = broker.log_manager.logs[topic_partition.TopicPartition("orders", 0)]

        def instant(broker: InProcessBroker, made: Any) -> Any:
            found = made(broker)
            log.state.relocated()
            return found

        made = taking.frozen_logs
        monkeypatch.setattr(taking, "frozen_logs", lambda broker: instant(broker, made))
        with pytest.raises(SnapshotError, match="orders-0 lost segments during each of 5 attempts"):
            await broker.snapshot(tmp_path / "kept")
        assert not (tmp_path / "kept").exists()


async def test_the_data_of_several_directories_is_in_one(tmp_path: Path) -> None:
    two = f"{tmp_path}/one,{tmp_path}/two"
    async with in_process_broker({"log.dirs": two}) as broker:
        await broker.seed({f"topic-{number}": [b"%d" % number] for number in range(4)})
        snapshot = await broker.snapshot()
    for log_dirs in ({}, {"log.dirs": f"{tmp_path}/three,{tmp_path}/four"}):
        async with in_process_broker(log_dirs, snapshot=snapshot) as fork:
            assert [await values(fork.bootstrap, f"topic-{number}") for number in range(4)] == [
                [b"%d" % number] for number in range(4)
            ]


async def test_a_fork_has_the_brokers_id_unless_it_is_given_one() -> None:
    async with in_process_broker({"broker.id": 7}) as broker:
        snapshot = await broker.snapshot()
    async with in_process_broker(snapshot=snapshot) as fork:
        assert fork.broker_id == 7
    with pytest.raises(StartError, match="belongs to broker 7"):
        async with in_process_broker({"broker.id": 8}, snapshot=snapshot):
            pass


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
async def test_a_fork_has_users_and_acls_and_logs_in_with_its_own_passwords(
    monkeypatch: pytest.MonkeyPatch, mechanism: str
) -> None:
    def security(password: str) -> Security:
        return Security(
            "SASL_PLAINTEXT", mechanism, {"alice": password}, acls=[allow("alice", "WRITE", "READ", topic="orders")]
        )

    async with in_process_broker(security=security("before")) as broker:
        await broker.seed({"orders": [b"value"]})
        snapshot = await broker.snapshot()
    monkeypatch.setattr("odradek.testing.security._password_of_brokers", lambda: "that of another process")
    async with in_process_broker(snapshot=snapshot, security=security("after")) as fork:
        async with aiokafka.AIOKafkaProducer(**fork.client_settings("aiokafka")) as producer:
            assert (await producer.send_and_wait("orders", b"value")).offset == 1
        await fork.reset()
        async with aiokafka.AIOKafkaProducer(**fork.client_settings("aiokafka")) as producer:
            assert (await producer.send_and_wait("orders", b"value")).offset == 1


async def test_the_list_of_files_names_all_of_them() -> None:
    async with in_process_broker() as broker:
        await broker.seed({"orders": [b"value"]})
        snapshot = await broker.snapshot()
        manifest = parse_manifest((snapshot.path / NAME).read_bytes(), "")
        assert {file.path for file in manifest.files} == {
            str(path.relative_to(snapshot.path / "data")) for path in files_of(snapshot)
        }
