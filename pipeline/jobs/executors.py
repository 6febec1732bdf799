"""Whether every executor of a cluster shares the lake with the driver: each writes a file and reads the driver's."""

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
"""So many that each executor gets one."""
LINGERS_S = 0.3
"""How long a task keeps its core, so that none takes the tasks of others."""
TOLD = "executor STRING, name STRING, problem STRING"


@dataclass(frozen=True, slots=True)
class Executors:
    """The executors that were met, and what is wrong with some of them, by HOST."""

    met: int
    problems: dict[str, str]


def shared_by_executors(spark: SparkSession, place: Location) -> Executors:
    """Asks the executors of a session. Leaves nothing behind. Raises what Spark raises."""
    mine = f"doctor-{uuid.uuid4().hex}"
    names = [mine]
    place.replace(mine, b"driver")
    try:
        tasks = spark.sparkContext.defaultParallelism * TASKS_PER_CORE
        told = spark.range(tasks).repartition(tasks).mapInArrow(_asked(place, mine), TOLD).collect()
        names += [one["name"] for one in told]
        problems = {}
        for one in told:
            host = one["executor"].split(" ")[0]
            if one["problem"]:
                problems[host] = one["problem"]
            elif place.read(one["name"]) != one["executor"].encode():
                problems[host] = f"has written {place / one['name']}, and the driver does not see it"
        return Executors(len({one["executor"] for one in told}), problems)
    finally:
        place.remove(*names)


def _asked(place: Location, mine: str) -> Callable[[Iterable[pa.RecordBatch]], Any]:
    def ask(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for _ in batches:
            pass
        time.sleep(LINGERS_S)
        executor, name = f"{socket.gethostname()} {os.getppid()}", f"doctor-{uuid.uuid4().hex}"
        problem = ""
        try:
            if place.read(mine) != b"driver":
                problem = f"does not see {place / mine}, which the driver has written"
            else:
                place.replace(name, executor.encode())
        except Exception as error:  # Each store has errors of its own; the driver tells of them.
            problem = f"{error}".strip().splitlines()[0]
        yield pa.RecordBatch.from_pydict({"executor": [executor], "name": [name], "problem": [problem]})

    return ask
