"""The releases of Spark that the pipeline supports, by minor version, and what belongs to each.

The connector's own jar lists what it was built with, in META-INF/DEPENDENCIES; a test compares.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from odradek.pipeline.errors import PipelineError

REMEDY = "install a PySpark that has one: pip install 'odradek[spark]'"


@dataclass(frozen=True, slots=True)
class Jars:
    """Versions of jars that belong together. `spark`: of the connector and of Spark's other jars."""

    spark: str
    kafka_clients: str
    commons_pool2: str


@dataclass(frozen=True, slots=True)
class Release:
    """A minor version of Spark. `java`: those on which it runs. `jars`: of a patch release that has all of them; they
    serve the patch releases that lack one."""

    java: tuple[int, ...]
    jars: Jars


RELEASES = {
    "4.0": Release((17, 21), Jars("4.0.0", "3.9.0", "2.12.0")),
    "4.1": Release((17, 21), Jars("4.1.1", "3.9.1", "2.12.1")),
    "4.2": Release((17, 21, 25), Jars("4.2.0", "3.9.2", "2.13.1")),
}


def release_of(pyspark: str) -> Release:
    """Returns the release of a PySpark version. Raises PipelineError unless it is supported."""
    minor = re.match(r"\d+\.\d+", pyspark)
    if minor is None or minor[0] not in RELEASES:
        *others, newest = RELEASES
        known = f"{', '.join(others)} and {newest}"
        raise PipelineError(f"PySpark is {pyspark}, but there is a Kafka connector for Spark {known} only", REMEDY)
    return RELEASES[minor[0]]


def fitting_jars(pyspark: str) -> list[Jars]:
    """Returns the jars for a PySpark version, the most fitting first: its own, then those of its minor version.

    Raises PipelineError."""
    there = release_of(pyspark).jars
    own = Jars(pyspark, there.kafka_clients, there.commons_pool2)
    return [own] if own == there else [own, there]
