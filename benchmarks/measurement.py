"""What a row measures, in which unit and which way is better; what was read; and what it comes to."""

from __future__ import annotations

import statistics
from typing import NamedTuple

from benchmarks.contestants import Contestant, Odradek

MORE, LESS = "more is better", "less is better"
BUSY = 0.6
"""A broker that uses less of a core than this was not what limited the row: then its CPU time per operation decides."""


class Metric(NamedTuple):
    """One line of the table. `wanted`: how many times better than Kafka ours should be, None where it is only told."""

    name: str
    unit: str
    better: str
    wanted: float | None = 1.0


class Reading(NamedTuple):
    """One round's value. `cpu_seconds` are the broker's while it served `operations` for `seconds`; 0 where untold."""

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
    """Something that is measured on both brokers."""

    name: str
    metrics: tuple[Metric, ...]
    needs_broker = True
    needs_warm_memory = False
    """Whether it writes or reads so much that memory nobody has used before would decide it."""
    needs_fresh_broker = False
    """Whether each round has a broker of its own that has done nothing yet (and is not started yet)."""

    def warm_up(self, contestant: Contestant) -> None:
        """Once per broker, before the first round."""

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        """A reading for each metric, by its name. Raises Unavailable where a program is missing."""
        raise NotImplementedError


class Result(NamedTuple):
    """A metric's readings of all rounds, by the broker's name."""

    row: str
    metric: Metric
    readings: dict[str, list[Reading]]

    def median(self, name: str) -> Reading | None:
        """The reading whose value is the median, so that its other numbers belong to the same round."""
        readings = self.readings.get(name)
        if not readings:
            return None
        middle = statistics.median_low([reading.value for reading in readings])
        return next(reading for reading in readings if reading.value == middle)

    @property
    def ratio(self) -> float | None:
        """How many times better ours is. None without Kafka, or where a value is 0."""
        ours, kafka = self.median(Odradek.name), self.median("kafka")
        if ours is None or kafka is None or not ours.value or not kafka.value:
            return None
        return ours.value / kafka.value if self.metric.better == MORE else kafka.value / ours.value

    @property
    def cpu_ratio(self) -> float | None:
        """How many times less CPU time per operation ours takes. None where it is not known."""
        ours, kafka = self.median(Odradek.name), self.median("kafka")
        if ours is None or kafka is None or not ours.cpu_us_per_operation or not kafka.cpu_us_per_operation:
            return None
        return kafka.cpu_us_per_operation / ours.cpu_us_per_operation

    @property
    def verdict(self) -> str:
        """ahead, ahead by CPU (the client is the limit), behind; empty where nothing is wanted or known."""
        wanted, ratio = self.metric.wanted, self.ratio
        ours, kafka = self.median(Odradek.name), self.median("kafka")
        if wanted is None or ours is None or kafka is None:
            return ""
        if self.metric.better == LESS and not ours.value:
            return "ahead"
        if (ratio or 0) >= wanted:
            return "ahead"
        if not ours.is_busy and (self.cpu_ratio or 0) >= wanted:
            return "ahead by CPU"
        return "behind"
