"""The cluster keeps what tests/pipeline/cluster/namespaced_cluster.py promises: drivers that need no lake."""

from __future__ import annotations

import json
import os
import sys
import uuid
from pathlib import Path
from typing import Any

import obstore
import pytest
from kafka import KafkaProducer
from obstore.store import S3Store

from odradek.testing import BrokerThread
from tests.patience import until
from tests.pipeline.cluster.namespaced_cluster import ROOT, NamespacedCluster
from tests.pipeline.cluster.nodes import kill
from tests.pipeline.cluster.object_store import ObjectStore

pytestmark = pytest.mark.timeout(900)

JOB = [sys.executable, "-m", "tests.pipeline.cluster.lakeless_job"]
VALUES = [f"value-{number:03d}" for number in range(100)]


@pytest.fixture(scope="module")
def bucket(cluster_store: ObjectStore) -> ObjectStore:
    return cluster_store.with_new_bucket()


@pytest.fixture(scope="module")
def seen(cluster: NamespacedCluster, cluster_broker: BrokerThread, bucket: ObjectStore) -> dict[str, Any]:
    """What the driver `see` of lakeless_job prints."""
    topic = f"values-{uuid.uuid4().hex[:8]}"
    with KafkaProducer(bootstrap_servers=cluster_broker.bootstrap) as producer:
        for value in VALUES:
            producer.send(topic, value.encode())
    arguments: list[str | Path] = [cluster.url, cluster.lake, cluster_broker.bootstrap, topic, bucket.bucket]
    printed: dict[str, Any] = json.loads(
        cluster.run_driver([*JOB, "see", *arguments, json.dumps(bucket.options)]).splitlines()[-1]
    )
    return printed


def test_the_driver_has_two_executors_on_two_machines(cluster: NamespacedCluster, seen: dict[str, Any]) -> None:
    assert sorted(one["address"] for one in seen["executors"]) == sorted(one.address for one in cluster.workers)
    assert seen["driver"] == cluster.driver.address
    assert len({seen["driver"], cluster.address, *(one["address"] for one in seen["executors"])}) == 4


def test_executors_read_a_topic_through_the_connector(seen: dict[str, Any]) -> None:
    assert seen["values"] == VALUES


def test_executors_write_to_the_object_store(seen: dict[str, Any], bucket: ObjectStore) -> None:
    store = S3Store(bucket.bucket, config=bucket.config())
    assert [obstore.get(store, f"executor-{number}").bytes() for number in range(2)] == [b"by 0", b"by 1"]


def test_machines_do_not_see_each_others_lakes(cluster: NamespacedCluster, seen: dict[str, Any]) -> None:
    assert [one["lake"] for one in seen["executors"]] == [[], []]
    assert seen["lake"] == ["driver"] == os.listdir(cluster.lake)
    written = [os.listdir(worker.sees(cluster.lake)) for worker in cluster.workers]
    assert sorted(written) == [["executor-0"], ["executor-1"]]


def test_executors_cannot_write_to_shared_directories(cluster: NamespacedCluster, seen: dict[str, Any]) -> None:
    own = {str(cluster.lake), "/tmp", "/dev/shm"}
    for number, one in enumerate(seen["executors"]):
        assert {place for place, is_written in one["wrote"].items() if is_written} == own
        assert not any(Path(place, f"executor-{number}").exists() for place in one["wrote"])
    assert str(ROOT) in one["wrote"]


async def test_a_job_survives_kill_9_of_an_executor_and_of_a_python_worker(
    cluster: NamespacedCluster, tmp_path: Path
) -> None:
    log = tmp_path / "driver.log"
    driver = cluster.start_driver([*JOB, "work", cluster.url, "12", "0.5"], log)
    first, second = cluster.workers
    try:
        await until(lambda: (first.python_workers() and second.python_workers()) or driver.poll() is not None)
        [executor], [python_worker] = first.executors(), second.python_workers()
        kill(executor)
        kill(python_worker)
        out, _ = driver.communicate(timeout=300)
    finally:
        cluster.stop_driver(driver)
    assert driver.returncode == 0, log.read_text()[-3000:]
    results = json.loads(out.splitlines()[-1])
    assert [one["number"] for one in results] == list(range(12))
    retried = [one for one in results if one["attempt"] > 0]
    assert len(retried) == 2, "something was not running where it was killed"


def test_a_mount_over_the_lake_affects_one_worker_only(cluster: NamespacedCluster) -> None:
    first, second = cluster.workers
    before = os.listdir(first.sees(cluster.lake))
    first.mount(cluster.lake, options="size=4k,ro")
    try:
        with pytest.raises(RuntimeError, match="Read-only file system"):
            first.run(["touch", cluster.lake / "new"])
        second.run(["touch", cluster.lake / "new"])
    finally:
        first.unmount(cluster.lake)
    assert os.listdir(first.sees(cluster.lake)) == before
