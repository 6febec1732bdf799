"""A broker's periodic work. These tests call it instead of waiting for it."""

import os
from collections.abc import Mapping
from pathlib import Path

import structlog.testing

from odradek.broker.metadata.new_topic import NewTopic
from odradek.broker.server import Broker
from odradek.protocol.records import Record, build_batch
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoint import HIGH_WATERMARK, RECOVERY_POINT, read_offsets
from odradek.testing import in_process_broker

T0 = TopicPartition("t", 0)
NOTHING: Mapping[str, str] = {}


async def fill(broker: Broker, batches: int, config: Mapping[str, str] = NOTHING, timestamp: int = -1) -> None:
    await broker.controller.topics.create([NewTopic("t", 1, 1, configs=config)], timeout_ms=10_000)
    for number in range(batches):
        batch = build_batch([Record(value=b"x" * 900, timestamp=timestamp, key=b"%d" % number)])
        broker.replica_manager.appends.append_one(T0, batch, 1, 9)
    broker.completions.drain()


async def test_checkpoints_hold_the_offsets_of_the_logs(tmp_path: Path) -> None:
    async with in_process_broker(data_dir=tmp_path) as broker:
        await fill(broker, 5)
        work = broker.periodic_work
        await work.write_checkpoint(HIGH_WATERMARK)
        await work.write_checkpoint(RECOVERY_POINT)
        assert read_offsets(broker.files, str(tmp_path / HIGH_WATERMARK)) == {T0: 5}
        assert read_offsets(broker.files, str(tmp_path / RECOVERY_POINT)) == {T0: 0}


async def test_an_unwritable_checkpoint_is_logged_and_retried(tmp_path: Path) -> None:
    async with in_process_broker(data_dir=tmp_path) as broker:
        await fill(broker, 1)
        work = broker.periodic_work
        in_the_way = tmp_path / HIGH_WATERMARK
        in_the_way.unlink(missing_ok=True)
        in_the_way.mkdir()
        with structlog.testing.capture_logs() as logs:
            await work.write_checkpoint(HIGH_WATERMARK)
        assert [entry["checkpoint"] for entry in logs] == [HIGH_WATERMARK]
        in_the_way.rmdir()
        await work.write_checkpoint(HIGH_WATERMARK)
        assert read_offsets(broker.files, str(in_the_way)) == {T0: 1}


async def test_rolled_segments_are_flushed(tmp_path: Path) -> None:
    async with in_process_broker(data_dir=tmp_path) as broker:
        await fill(broker, 10, {"segment.bytes": "2000"})
        log = broker.replica_manager.partitions.find(T0).log
        assert log.state.recovery_point == 0
        await broker.periodic_work.keep_house()
        assert log.state.recovery_point == log.segments.active.base_offset > 0


async def test_old_segments_are_deleted_and_their_files_removed_after_a_delay(tmp_path: Path) -> None:
    async with in_process_broker(data_dir=tmp_path) as broker:
        day_ms = 86_400_000
        old = broker.clock.wall_ms() - 10 * day_ms
        config = {"segment.bytes": "2000", "retention.ms": str(day_ms), "file.delete.delay.ms": "0"}
        await fill(broker, 10, config, old)
        work = broker.periodic_work
        await work.apply_retention()
        log = broker.replica_manager.partitions.find(T0).log
        assert log.state.log_start_offset == 10
        await work.keep_house()
        assert [name for name in os.listdir(tmp_path / "t-0") if name.endswith(".deleted")] == []


async def test_the_directories_of_deleted_topics_are_removed_after_a_delay(tmp_path: Path) -> None:
    async with in_process_broker(data_dir=tmp_path) as broker:
        await fill(broker, 1, {"file.delete.delay.ms": "0"})
        await broker.controller.topics.delete(["t"], timeout_ms=10_000)
        assert [name for name in os.listdir(tmp_path) if name.endswith("-delete")] != []
        await broker.periodic_work.keep_house()
        assert [name for name in os.listdir(tmp_path) if name.startswith("t-0")] == []
