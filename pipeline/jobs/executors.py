"""Checks that every executor of a cluster shares the driver's lake: each writes a file and reads the driver's file."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odradek.pipeline.state.location import Location

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

TASKS_PER_CORE = 3
"""Enough for each executor to get a task."""
LINGERS_S = 0.3
"""How long a task keeps its core, so that no executor takes the tasks of others."""
REPORT_SCHEMA = "executor STRING, name STRING, problem STRING"


@dataclass(frozen=True, slots=True)
class Executors:
    """The number of executors that ran a task, and the problems by HOST."""

    met: int
    problems: dict[str, str]


def shared_by_executors(spark: SparkSession, place: Location) -> Executors:
    """Checks the executors of a session. Removes all files that it wrote. Raises Spark's errors."""
    mine = f"doctor-{uuid.uuid4().hex}"
    names = [mine]
    place.replace(mine, b"driver")
    try:
        tasks = spark.sparkContext.defaultParallelism * TASKS_PER_CORE
        reports = spark.range(tasks).repartition(tasks).mapInArrow(_reporter(place, mine), REPORT_SCHEMA).collect()
        names += [report["name"] for report in reports]
        problems = {}
        for report in reports:
            host = report["executor"].split(" ")[0]
            if report["problem"]:
                problems[host] = report["problem"]
            elif place.read(report["name"]) != report["executor"].encode():
                problems[host] = f"wrote {place / report['name']}, but the driver does not see it"
        return Executors(len({report["executor"] for report in reports}), problems)
    finally:
        place.remove(*names)


def _reporter(place: Location, mine: str) -> Callable[[Iterable[pa.RecordBatch]], Any]:
    def report(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for _ in batches:
            pass
        time.sleep(LINGERS_S)
        executor, name = f"{socket.gethostname()} {os.getppid()}", f"doctor-{uuid.uuid4().hex}"
        problem = ""
        try:
            if place.read(mine) != b"driver":
                problem = f"does not see {place / mine}, which the driver wrote"
            else:
                place.replace(name, executor.encode())
        except Exception as error:  # Each store has its own errors; the driver reports them.
            problem = f"{error}".strip().splitlines()[0]
        yield pa.RecordBatch.from_pydict({"executor": [executor], "name": [name], "problem": [problem]})

    return report
