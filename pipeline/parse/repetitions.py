"""Good rows that tell of an event that is there already.

Two rows with the same dedup keys are one event if no more than the delay is between their event times. In the order of
their partitions and offsets, the first row of an event stays; a row that is far enough from all that have stayed is an
event of its own. What is in the tables has stayed. So it makes no difference in how many batches records are read, or
by which job: for keys whose records are in one partition, as producers put them, the result is the same to the row.

Only keys, times and places are shuffled, and nothing but the places of rows that repeat is returned.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.window import Window

if TYPE_CHECKING:
    import pyarrow as pa

PLACE = ("topic", "partition", "offset")
"""What names a record in Kafka."""
PLACES = "topic STRING, partition INT, offset LONG"
EVENT_US = "_event_us"
_NOWHERE = {"topic": "string", "partition": "int", "offset": "bigint"}


def repeated_places(
    good: DataFrame, known: DataFrame | None, keys: Sequence[str], delay: timedelta, few: bool = False
) -> DataFrame:
    """The PLACEs of the rows of `good` that repeat an event. `good`: parsed rows without a reason; `few`: they are so
    few that each task may have the keys of all.

    `known`: the keys and EVENT_US of rows that are in the table; None where there are none."""
    named = [sf.col("data")[name].alias(f"_key_{number}") for number, name in enumerate(keys)]
    columns = [f"_key_{number}" for number in range(len(keys))]
    events = good.select(*named, sf.unix_micros("event_time").alias(EVENT_US), *PLACE)
    if known is not None:
        stayed = known.select(*(sf.col(name).alias(one) for name, one in zip(keys, columns, strict=True)), EVENT_US)
        mine = events.select(*columns)
        asked = stayed.join(sf.broadcast(mine) if few else mine, columns, "left_semi")
        events = events.unionByName(asked.withColumns({n: sf.lit(None).cast(kind) for n, kind in _NOWHERE.items()}))
    several = events.withColumn("_events", sf.count(sf.lit(1)).over(Window.partitionBy(*columns)))
    in_order = several.where("_events > 1").sortWithinPartitions(*columns, *PLACE)  # nulls, what is known, first
    return in_order.select(*columns, EVENT_US, *PLACE).mapInArrow(_walk(delay // timedelta(microseconds=1)), PLACES)


def _walk(delay_us: int) -> Callable[[Iterable[pa.RecordBatch]], Any]:
    """Passes over the events of one key after the other, and tells of those that repeat one."""

    def walk(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        key: tuple[Any, ...] = ()
        stayed: list[int] = []
        for batch in batches:
            columns = [_values(column) for column in batch.columns]
            repeated: list[tuple[str, int, int]] = []
            for *this, time, topic, partition, offset in zip(*columns, strict=True):
                if tuple(this) != key:
                    key, stayed = tuple(this), []
                if topic is None:
                    insort(stayed, time)
                elif _is_near(stayed, time, delay_us):
                    repeated.append((topic, partition, offset))
                else:
                    insort(stayed, time)
            arrays = list(zip(*repeated, strict=True)) or [(), (), ()]
            kinds = (pa.string(), pa.int32(), pa.int64())
            yield pa.RecordBatch.from_arrays(
                [pa.array(list(values), kind) for values, kind in zip(arrays, kinds, strict=True)], names=list(PLACE)
            )

    return walk


def _values(column: Any) -> list[Any]:
    """A column as values that are equal or not; times and days as numbers, which may be beyond Python's years."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    return list(column.to_pylist())


def _is_near(times: list[int], time: int, delay_us: int) -> bool:
    """Whether a time of the sorted list is within the delay."""
    at = bisect_left(times, time)
    return (at < len(times) and times[at] - time <= delay_us) or (at > 0 and time - times[at - 1] <= delay_us)
