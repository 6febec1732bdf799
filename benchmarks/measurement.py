"""Rows and their metrics, the readings of a row, and the result over all rounds."""

from __future__ import annotations

import statistics
from typing import NamedTuple

from benchmarks.contestants import BEFORE, KAFKA, ODRADEK, Contestant
from benchmarks.kafka_versions import kafka_version

MORE, LESS = "more is better", "less is better"
TLS, ACLS = "TLS", "ACLs"
BUSY = 0.6
"""A broker that uses less of a core than this did not limit the row; then its CPU time per operation decides."""


class TakesNoPart(Exception):
    """A contestant cannot be measured by a row; the message gives the reason."""


class Metric(NamedTuple):
    """One line of the table. `wanted`: the required ratio of Odradek to Kafka, None if the metric is only reported."""

    name: str
    unit: str
    better: str
    wanted: float | None = 1.0


class Reading(NamedTuple):
    """One round's value. `cpu_seconds` is the broker's CPU time for `operations` in `seconds`; 0 if unknown."""

    value: float
    cpu_seconds: float = 0
    seconds: float = 0
    operations: int = 0

    @property
    def cpu_us_per_operation(self) -> float:
        return self.cpu_seconds * 1e6 / self.operations if self.operations else 0

    @property
    def is_busy(self) -> bool:
        return not self.seconds or self.cpu_seconds / self.seconds >= BUSY


class Row:
    """One or more metrics that are measured together on every broker."""

    name: str
    metrics: tuple[Metric, ...]
    needs_broker = True
    needs_warm_memory = False
    """Whether the row moves so much data that never-used memory would dominate it."""
    needs_fresh_broker = False
    """Whether each round gets a new broker (which is not started yet)."""
    secured = ""
    """How the broker is secured (secured.py): TLS, or ACLS as well; not at all by default."""

    def kafka_version(self) -> str:
        """The release of Kafka that is measured."""
        return kafka_version()

    def warm_up(self, contestant: Contestant) -> None:
        """Runs once per broker, before the first round."""

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        """Returns a reading for each metric, by its name. Raises Unavailable if a program is missing, TakesNoPart."""
        raise NotImplementedError


class Result(NamedTuple):
    """A metric's readings of all rounds, by the broker's name."""

    row: str
    metric: Metric
    readings: dict[str, list[Reading]]

    def median(self, name: str) -> Reading | None:
        """Returns the reading with the median value, so that its other numbers come from the same round."""
        readings = self.readings.get(name)
        if not readings:
            return None
        middle = statistics.median_low([reading.value for reading in readings])
        return next(reading for reading in readings if reading.value == middle)

    def ratio(self, name: str = KAFKA) -> float | None:
        """How many times better Odradek is than this broker. None if a reading is missing, or a value is 0."""
        ours, theirs = self.median(ODRADEK), self.median(name)
        if ours is None or theirs is None or not ours.value or not theirs.value:
            return None
        return ours.value / theirs.value if self.metric.better == MORE else theirs.value / ours.value

    def cpu_ratio(self, name: str = KAFKA) -> float | None:
        """How many times less CPU time per operation Odradek takes. None if unknown."""
        ours, theirs = self.median(ODRADEK), self.median(name)
        if ours is None or theirs is None or not ours.cpu_us_per_operation or not theirs.cpu_us_per_operation:
            return None
        return theirs.cpu_us_per_operation / ours.cpu_us_per_operation

    @property
    def verdict(self) -> str:
        """ahead, ahead by CPU (the client is the limit), behind; empty if nothing is wanted or known."""
        wanted, ratio = self.metric.wanted, self.ratio()
        ours, kafka = self.median(ODRADEK), self.median(KAFKA)
        if wanted is None or ours is None or kafka is None:
            return ""
        if self.metric.better == LESS and not ours.value:
            return "ahead"
        if (ratio or 0) >= wanted:
            return "ahead"
        if not ours.is_busy and (self.cpu_ratio() or 0) >= wanted:
            return "ahead by CPU"
        return "behind"

    @property
    def against_before(self) -> str:
        """slower, more CPU, or both, if our best round is worse than the worst round of the older checkout.

        Empty if the rounds overlap, and for a single round, whose variance is unknown.
        """
        sign = -1 if self.metric.better == MORE else 1
        ours, theirs = self.readings.get(ODRADEK, []), self.readings.get(BEFORE, [])
        if min(len(ours), len(theirs)) < 2:
            return ""
        is_slower = min(sign * each.value for each in ours) > max(sign * each.value for each in theirs)
        takes_more = min(each.cpu_us_per_operation for each in ours) > max(each.cpu_us_per_operation for each in theirs)
        return ", ".join(["slower"] * is_slower + ["more CPU"] * takes_more)
