"""Finds the good rows that duplicate an event.

Two rows with the same dedup keys are the same event if their event times differ by at most the delay. In the order of
partitions and offsets, the first row of an event is kept; a row that is further than the delay from all kept rows is a
new event. All rows in the tables were kept. So the result does not depend on the number of batches or on the job: for
keys whose records are in one partition, which is how producers partition, it is the same to the row.

Only keys, times and places are shuffled, and only the places of duplicate rows are returned.
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
"""The columns that identify a record in Kafka."""
PLACES = "topic STRING, partition INT, offset LONG"
EVENT_US = "_event_us"
_NOWHERE = {"topic": "string", "partition": "int", "offset": "bigint"}


def repeated_places(
    good: DataFrame, known: DataFrame | None, keys: Sequence[str], delay: timedelta, few: bool = False
) -> DataFrame:
    """Returns the PLACE of each row of `good` that duplicates an event. `good`: parsed rows without a reason. `few`:
    their keys are few enough to broadcast.

    `known`: the keys and EVENT_US of rows in the table; None if there are none."""
    named = [sf.col("data")[name].alias(f"_key_{number}") for number, name in enumerate(keys)]
    columns = [f"_key_{number}" for number in range(len(keys))]
    events = good.select(*named, sf.unix_micros("event_time").alias(EVENT_US), *PLACE)
    if known is not None:
        stayed = known.select(*(sf.col(name).alias(one) for name, one in zip(keys, columns, strict=True)), EVENT_US)
        mine = events.select(*columns)
        asked = stayed.join(sf.broadcast(mine) if few else mine, columns, "left_semi")
        events = events.unionByName(asked.withColumns({n: sf.lit(None).cast(kind) for n, kind in _NOWHERE.items()}))
    several = events.withColumn("_events", sf.count(sf.lit(1)).over(Window.partitionBy(*columns)))
    # Known events have null places, so they are sorted first.
    in_order = several.where("_events > 1").sortWithinPartitions(*columns, *PLACE)
    return in_order.select(*columns, EVENT_US, *PLACE).mapInArrow(_walk(delay // timedelta(microseconds=1)), PLACES)


def _walk(delay_us: int) -> Callable[[Iterable[pa.RecordBatch]], Any]:
    """Returns a function that goes through the events key by key and yields the places of duplicates."""

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
    """Returns a column as comparable values. Times and days become numbers, as they may be beyond Python's years."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    return list(column.to_pylist())


def _is_near(times: list[int], time: int, delay_us: int) -> bool:
    """Whether a time of the sorted list is within the delay of `time`."""
    at = bisect_left(times, time)
    return (at < len(times) and times[at] - time <= delay_us) or (at > 0 and time - times[at - 1] <= delay_us)
