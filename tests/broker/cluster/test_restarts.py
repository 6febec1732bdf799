"""A broker of a cluster comes back: without its disk, with the disk of another cluster, after topics were deleted."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import AsyncIterator

import pytest

from odradek.broker.start_error import StartError
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.topics import DeleteTopicsRequest
from odradek.testing import BrokerStatus, Cluster, in_process_cluster
from tests.patience import PATIENCE_S, until
from tests.wire.records import connect, produce, values

BACK = 2


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Three brokers and a topic "t" with one partition, which BACK leads, and which has one record."""
    async with in_process_cluster() as cluster:
        await create(cluster, "t")
        assert await produce(cluster.bootstrap_of(BACK), "t", b"old") is ErrorCode.NONE
        yield cluster


async def create(cluster: Cluster, topic: str) -> None:
    await cluster.create_topic(topic, assignments={0: [BACK, 1, 3]})


async def delete(cluster: Cluster, topic: str) -> None:
    assert cluster.controller is not None
    async with await connect(cluster.bootstrap_of(cluster.controller)) as client:
        response = await client.send(DeleteTopicsRequest(topic_names=[topic], timeout_ms=PATIENCE_S * 1000), version=3)
    assert response.responses[0].error_code == ErrorCode.NONE


def folders(cluster: Cluster, topic: str) -> list[str]:
    """The folders of a topic that BACK has under their own names."""
    return sorted(path.name for path in cluster.data_dir(BACK).glob(f"{topic}-*") if path.name.count(".") == 0)


@pytest.mark.parametrize("was_killed", [True, False])
async def test_a_broker_with_an_empty_disk_copies_everything_again(cluster: Cluster, was_killed: bool) -> None:
    if was_killed:
        cluster.kill(BACK)
    else:
        await cluster.stop(BACK)
    other = await cluster.wait_for_leader("t", 0)
    assert await produce(cluster.bootstrap_of(other), "t", b"new") is ErrorCode.NONE
    shutil.rmtree(cluster.data_dir(BACK))
    await cluster.start(BACK)
    await cluster.wait_for_isr("t", 0, {1, 2, 3})
    for broker_id in {1, 3}:
        cluster.kill(broker_id)
    await cluster.wait_until(lambda: cluster.leader("t", 0) == BACK and cluster.isr("t", 0) == {BACK})

    async def all_are_read() -> bool:
        return await values(cluster.bootstrap_of(BACK), "t") == [b"old", b"new"]

    await until(all_are_read)


async def test_a_broker_with_the_disk_of_another_cluster_does_not_start(cluster: Cluster) -> None:
    await cluster.stop(BACK)
    identity = cluster.data_dir(BACK) / "meta.properties"
    text = identity.read_text()
    identity.write_text(text.replace("cluster.id=", "cluster.id=not-"))
    with pytest.raises(StartError, match="has cluster id not-"):
        await cluster.start(BACK)
    assert cluster.status(BACK) is BrokerStatus.STOPPED
    await until(lambda: sorted(cluster.brokers[1].metadata.brokers) == [1, 3])
    assert folders(cluster, "t") == ["t-0"]
    identity.write_text(text)
    await cluster.start(BACK)
    await cluster.wait_for_isr("t", 0, {1, 2, 3})


async def test_a_topic_that_was_deleted_meanwhile_leaves_no_log_under_its_name(cluster: Cluster) -> None:
    cluster.kill(BACK)
    await cluster.wait_for_leader("t", 0)
    await delete(cluster, "t")
    await cluster.start(BACK)
    await cluster.wait_until_stable()
    await until(lambda: folders(cluster, "t") == [])
    assert cluster.replica(BACK, "t", 0) is None
    assert "t" not in cluster.brokers[BACK].metadata.topic_names()


async def test_a_deleted_topic_is_created_anew_only_after_a_lost_broker_has_removed_its_log(cluster: Cluster) -> None:
    """As in Kafka: so the old records of the lost broker cannot come back."""
    cluster.kill(BACK)
    await cluster.wait_for_leader("t", 0)
    await delete(cluster, "t")
    await until(lambda: cluster.brokers[1].metadata.topic_names() == [])
    with pytest.raises(ProtocolError, match="still being deleted") as refused:
        await create(cluster, "t")
    assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    await cluster.start(BACK)

    async def is_created() -> bool:
        with contextlib.suppress(ProtocolError):
            await create(cluster, "t")
        return cluster.leader("t", 0) is not None

    await until(is_created)
    await cluster.wait_for_isr("t", 0, {1, 2, 3})
    assert await produce(cluster.bootstrap_of(await cluster.wait_for_leader("t", 0)), "t", b"new") is ErrorCode.NONE
    log = (cluster.data_dir(BACK) / "t-0" / f"{0:020d}.log").read_bytes()
    assert b"new" in log
    assert b"old" not in log
