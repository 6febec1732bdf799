"""A driver that needs no lake and prints, as one line of JSON, what it and the executors see.

    python -m tests.pipeline.cluster.lakeless_job see MASTER LAKE BOOTSTRAP TOPIC BUCKET STORE-OPTIONS-AS-JSON
    python -m tests.pipeline.cluster.lakeless_job work MASTER TASKS SECONDS

`work` runs TASKS tasks of SECONDS each, and prints the number, the attempt and the executor of each.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import obstore
from obstore.store import S3Store
from pyspark import TaskContext
from pyspark.sql import SparkSession

from odradek.pipeline.settings import Settings
from odradek.pipeline.spark.session import open_session
from tests.pipeline.cluster.namespaced_cluster import ROOT, SESSION_OPTIONS

Seen = dict[str, Any]
EXECUTORS = 2


def on_each_executor(session: SparkSession, look: Callable[[int], Seen]) -> list[Seen]:
    """The results of tasks that run at the same time, one on each executor, which has one core."""

    def task(numbers: Iterable[int]) -> Iterable[Seen]:
        time.sleep(1)
        yield from map(look, numbers)

    return session.sparkContext.parallelize(range(EXECUTORS), EXECUTORS).mapPartitions(task).collect()


def own_address(other: str) -> str:
    """The address by which this machine reaches another."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((other, 9))
        return str(probe.getsockname()[0])


def is_written(path: Path) -> bool:
    try:
        path.write_text("written by an executor")
    except OSError:
        return False
    return True


def host_of(session: SparkSession) -> str:
    """The host of the cluster's master."""
    return urlsplit(str(session.sparkContext.master)).hostname or ""


def see(session: SparkSession, lake: str, bootstrap: str, topic: str, bucket: str, options: str) -> Seen:
    config = json.loads(options)
    master = host_of(session)

    def look(number: int) -> Seen:
        obstore.put(S3Store(bucket, config=config), f"executor-{number}", f"by {number}".encode(), mode="create")
        return {
            "address": own_address(master),
            "lake": sorted(os.listdir(lake)),
            "wrote": {
                place: is_written(Path(place, f"executor-{number}"))
                for place in (lake, "/tmp", "/dev/shm", str(ROOT), os.path.expanduser("~"))
            },
        }

    Path(lake, "driver").write_text("written by the driver")
    executors = on_each_executor(session, look)
    rows = (
        session.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("CAST(value AS STRING) AS value")
        .collect()
    )
    return {
        "driver": own_address(master),
        "executors": executors,
        "values": sorted(row["value"] for row in rows),
        "lake": sorted(os.listdir(lake)),
    }


def work(session: SparkSession, tasks: str, seconds: str) -> list[Seen]:
    pause_s = float(seconds)
    master = host_of(session)

    def task(numbers: Iterable[int]) -> Iterable[Seen]:
        time.sleep(pause_s)
        context = TaskContext.get()
        assert context is not None
        for number in numbers:
            yield {"number": number, "attempt": context.attemptNumber(), "address": own_address(master)}

    return session.sparkContext.parallelize(range(int(tasks)), int(tasks)).mapPartitions(task).collect()


def main() -> None:
    what, master, *arguments = sys.argv[1:]
    session = open_session(Settings(name="lakeless", master=master), SESSION_OPTIONS)
    try:
        jobs: dict[str, Callable[..., Any]] = {"see": see, "work": work}
        print(json.dumps(jobs[what](session, *arguments)), flush=True)
    finally:
        session.stop()


if __name__ == "__main__":
    main()
