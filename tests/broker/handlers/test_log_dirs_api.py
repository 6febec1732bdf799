"""AlterReplicaLogDirs and DescribeLogDirs over a socket: a replica moves while it is written and read."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.metadata.new_topic import NewTopic
from odradek.broker.server import Broker
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.configs import IncrementalAlterConfigsRequest
from odradek.protocol.messages.log_dirs import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from odradek.protocol.records import Record, build_batch, iter_batches
from odradek.protocol.topic_partition import TopicPartition
from odradek.testing import in_process_broker
from tests.broker.controller.harness import at_once
from tests.patience import until
from tests.wire import requests
from tests.wire.api import Api, api_of_a_broker

KEY = TopicPartition("t", 0)


@pytest.fixture
def dirs(tmp_path: Path) -> list[str]:
    return [str(tmp_path / name) for name in ("a", "b", "c")]


@pytest.fixture
async def api(dirs: list[str]) -> AsyncIterator[Api]:
    async with api_of_a_broker({"log.dirs": ",".join(dirs), "log.segment.bytes": 1_000_000}) as api:
        await api.broker.controller.topics.create([NewTopic("t")], timeout_ms=10_000)
        yield api


async def move(api: Api, path: str, partition: int = 0, topic: str = "t", version: int = 2) -> ErrorCode:
    asked = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=topic, partitions=[partition])
    directory = AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=path, topics=[asked])
    (result,) = (await api(AlterReplicaLogDirsRequest(dirs=[directory]), version)).results
    ((one,),) = [result.partitions]
    assert (result.topic_name, one.partition_index) == (topic, partition)
    return ErrorCode(one.error_code)


async def places(api: Api) -> dict[str, tuple[int, int, bool]]:
    """Returns (size, lag, whether it is a future replica) of the partition by directory."""
    response = await api(DescribeLogDirsRequest(topics=None), 2)
    return {
        result.log_dir: (one.partition_size, one.offset_lag, one.is_future_key)
        for result in response.results
        for topic in result.topics
        for one in topic.partitions
    }


async def produce(api: Api, number: int, index: int = 0, size: int = 4000) -> int:
    records = build_batch([Record(0, 1_700_000_000_000, b"%d" % number, b"x" * size)])
    response = await api(requests.produce("t", records, index), 8)
    answer = response.responses[0].partition_responses[0]
    assert answer.error_code == 0
    return int(answer.base_offset)


async def fetch(api: Api, offset: int) -> Any:
    request = requests.fetch((TopicPartition("t", 0), offset), min_bytes=0, session_epoch=-1, partition_bytes=1)
    answer = (await api(request, 11)).responses[0].partitions[0]
    assert answer.error_code == 0
    return [header.base_offset for _, header in iter_batches(bytes(answer.records or b""))]


async def ended(broker: Broker) -> None:
    """Waits until the ongoing move has ended."""
    (task,) = [task for task in asyncio.all_tasks() if task.get_name() == f"move {KEY}" and not task.done()]
    await task
    assert broker.log_manager.moves.get(KEY) is None


def folders(*directories: str) -> list[str]:
    """Returns their subdirectories."""
    return [path.name for directory in directories for path in Path(directory).iterdir() if path.is_dir()]


def other(api: Api, dirs: list[str]) -> str:
    here = api.broker.log_manager.directory_of(api.broker.log_manager.logs[KEY])
    return next(path for path in dirs if path != here)


async def throttle(api: Api, rate: str) -> None:
    """Slows moves down so that a test can observe one. Removing the setting lets it complete."""
    config = IncrementalAlterConfigsRequest.AlterableConfig(
        name="replica.alter.log.dirs.io.max.bytes.per.second", value=rate, config_operation=0
    )
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=4, resource_name=str(api.broker.broker_id), configs=[config]
    )
    (answer,) = (await api(IncrementalAlterConfigsRequest(resources=[resource]), 1)).responses
    assert answer.error_code == 0


async def test_a_replica_moves_while_it_is_produced_to_and_read(api: Api, dirs: list[str]) -> None:
    for number in range(200):
        await produce(api, number)
    target = other(api, dirs)
    assert await move(api, target) is ErrorCode.NONE
    number = 200
    while api.broker.log_manager.moves.get(KEY) is not None:
        assert await produce(api, number) == number
        assert await fetch(api, number // 2) == [number // 2]
        number += 1
    assert number > 200
    assert list(await places(api)) == [target]
    for offset in range(0, number, 7):
        assert await fetch(api, offset) == [offset]
    assert await produce(api, number) == number


async def test_a_future_replica_is_described_with_its_lag(api: Api, dirs: list[str]) -> None:
    for number in range(300):
        await produce(api, number)
    here, target = next(iter(await places(api))), other(api, dirs)
    await throttle(api, "1000")
    assert await move(api, target) is ErrorCode.NONE
    while (await places(api))[target][0] == 0:
        pass
    found = await places(api)
    size, lag, is_future = found[target]
    assert is_future
    assert 0 < lag < 300
    assert 0 < size < found[here][0]
    assert found[here][1:] == (0, False)


@pytest.mark.parametrize("version", range(3))
async def test_invalid_moves_return_the_reason(api: Api, dirs: list[str], version: int) -> None:
    for path in ("/nowhere", "", dirs[0] + "/", "a"):
        assert await move(api, path, version=version) is ErrorCode.LOG_DIR_NOT_FOUND
    for partition, topic in ((7, "t"), (-1, "t"), (0, "none")):
        assert await move(api, dirs[0], partition, topic, version) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await move(api, dirs[0], 0, "x" * 249, version) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert api.broker.log_manager.moves.under_way() == []


async def test_a_move_to_the_current_directory_changes_nothing(api: Api) -> None:
    here = next(iter(await places(api)))
    assert await move(api, here) is ErrorCode.NONE
    assert api.broker.log_manager.moves.under_way() == []


async def test_a_move_to_the_current_directory_cancels_the_ongoing_move(api: Api, dirs: list[str]) -> None:
    for number in range(300):
        await produce(api, number)
    await throttle(api, "1000")
    here, target = next(iter(await places(api))), other(api, dirs)
    await move(api, target)
    assert set(await places(api)) == {here, target}
    assert await move(api, here) is ErrorCode.NONE
    assert list(await places(api)) == [here]
    await produce(api, 300)


async def test_a_third_directory_replaces_the_target_of_a_move(api: Api, dirs: list[str]) -> None:
    for number in range(300):
        await produce(api, number)
    await throttle(api, "1000")
    here, target = next(iter(await places(api))), other(api, dirs)
    third = next(path for path in dirs if path not in (here, target))
    await move(api, target)
    await throttle(api, "100000000")
    assert await move(api, third) is ErrorCode.NONE
    while api.broker.log_manager.moves.get(KEY) is not None:
        await produce(api, 300)
    assert list(await places(api)) == [third]
    assert await fetch(api, 299) == [299]


async def test_a_new_partition_is_created_in_the_directory_requested_before(api: Api, dirs: list[str]) -> None:
    for number, path in enumerate(dirs):
        assert await move(api, path, 0, f"new-{number}") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    names = [NewTopic(f"new-{number}") for number in range(3)]
    await api.broker.controller.topics.create(names, timeout_ms=10_000)
    logs = api.broker.log_manager.logs
    found = [logs[TopicPartition(topic.name, 0)].folder.path.rpartition("/")[0] for topic in names]
    assert found == dirs


async def test_a_topic_deleted_during_a_move_leaves_no_directory(api: Api, dirs: list[str]) -> None:
    for number in range(300):
        await produce(api, number)
    await throttle(api, "1000")
    await move(api, other(api, dirs))
    assert await api.broker.controller.topics.delete(["t"], timeout_ms=10_000) == [None]
    left = folders(*dirs)
    assert left
    assert all(name.endswith("-delete") for name in left)
    await api.broker.controller.topics.create([NewTopic("t")], timeout_ms=10_000)
    assert await produce(api, 0) == 0


async def test_a_move_interrupted_by_a_stop_continues_after_the_start(dirs: list[str]) -> None:
    settings = {"log.dirs": ",".join(dirs)}
    async with api_of_a_broker(settings) as api:
        await api.broker.controller.topics.create([NewTopic("t")], timeout_ms=10_000)
        for number in range(300):
            await produce(api, number)
        await throttle(api, "1000")
        target = other(api, dirs)
        await move(api, target)
        assert api.broker.log_manager.moves.get(KEY) is not None
    (future,) = [name for name in folders(target) if name.endswith("-future")]
    assert future.startswith("t-0.")
    async with in_process_broker(settings) as broker:
        assert broker.log_manager.moves.get(KEY) is not None
        await broker.cluster.configs.alter_broker_config(broker.broker_id, at_once(lambda config: {}))
        await ended(broker)
        log = broker.log_manager.logs[KEY]
        assert (broker.log_manager.directory_of(log), log.state.log_end_offset) == (target, 300)
    assert not [name for name in folders(target) if name.endswith("-future")]


async def test_a_rate_of_zero_stops_moves_until_it_is_removed(api: Api, dirs: list[str]) -> None:
    for number in range(300):
        await produce(api, number)
    await throttle(api, "0")
    target = other(api, dirs)
    await move(api, target)
    under_way = api.broker.log_manager.moves.get(KEY)
    assert under_way is not None
    await until(lambda: under_way.size > 0)
    await asyncio.sleep(0.1)
    assert api.broker.log_manager.moves.get(KEY) is under_way
    await api.broker.cluster.configs.alter_broker_config(api.broker.broker_id, at_once(lambda config: {}))
    await ended(api.broker)
    assert api.broker.log_manager.directory_of(api.broker.log_manager.logs[KEY]) == target


@pytest.mark.parametrize(("threads", "moving"), [(1, 1), (2, 2), (None, 3)])
async def test_at_most_the_configured_number_of_replicas_moves_at_a_time(
    dirs: list[str], threads: int | None, moving: int
) -> None:
    settings: dict[str, object] = {"log.dirs": ",".join(dirs)}
    if threads is not None:
        settings["num.replica.alter.log.dirs.threads"] = threads
    async with api_of_a_broker(settings) as api:
        await api.broker.controller.topics.create([NewTopic("t", 4)], timeout_ms=10_000)
        await throttle(api, "1000")
        logs = api.broker.log_manager
        for partition in range(4):
            for number in range(12):
                await produce(api, number, partition, size=100_000)
            here = logs.directory_of(logs.logs[TopicPartition("t", partition)])
            assert await move(api, next(path for path in dirs if path != here), partition) is ErrorCode.NONE
        while sum(entry[0] > 0 for entry in await copies(api)) < moving:
            pass
        for _ in range(20):
            assert sum(entry[0] > 0 for entry in await copies(api)) == moving


async def copies(api: Api) -> list[tuple[int, int]]:
    """Returns (size, lag) of each future replica."""
    response = await api(DescribeLogDirsRequest(topics=None), 2)
    return [
        (one.partition_size, one.offset_lag)
        for result in response.results
        for topic in result.topics
        for one in topic.partitions
        if one.is_future_key
    ]
