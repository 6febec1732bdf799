"""The files of a table that have changed keys, and their other rows. Executors read the keys, and the rows.

A file that has some is rewritten without them, together with the new rows of these keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import ByteType, DateType, IntegerType, LongType, ShortType, StringType, StructType

from odradek.pipeline.sinks.changed_keys import ChangedKeys
from odradek.pipeline.sinks.known_events import DataFiles
from odradek.pipeline.sinks.table_rows import PATH, rows_of

ROWS_PER_FILE = 1_000_000
"""The maximum number of rows in a file that a merge writes."""
ORDERED = (ByteType, ShortType, IntegerType, LongType, StringType, DateType)
"""Types whose statistics are exact, and ordered alike in Spark and Arrow."""


class ChangedFiles:
    """Those of `candidates` that have changed keys. `numbers`: their positions among the candidates. `kept`: the number
    of their other rows. `schema`: the table's columns."""

    def __init__(self, candidates: DataFiles, schema: StructType, changes: ChangedKeys, keys: Sequence[str]) -> None:
        self._spark = changes.keys.sparkSession
        self._keys = list(keys)
        self._changed = sf.broadcast(changes.keys) if changes.few else changes.keys
        self._schema = schema
        matches = {row[PATH]: row for row in self._matches(candidates)} if candidates.paths else {}
        self.numbers = [number for number, path in enumerate(candidates.paths) if path in matches]
        partitions = candidates.partitions
        self._files = DataFiles(
            candidates.place,
            [candidates.paths[number] for number in self.numbers],
            [partitions[number] for number in self.numbers] if partitions else [],
        )
        self.kept = sum(row["rows"] - row["changed"] for row in matches.values())

    def rows(self) -> DataFrame:
        """Returns the rows of the files whose keys are not changed."""
        if not self._files.paths:
            return self._spark.createDataFrame([], self._schema)
        there = rows_of(self._spark, self._files, self._schema, self._keys)
        return there.join(self._changed, self._keys, "left_anti").select(*(f"`{name}`" for name in self._schema.names))

    def _matches(self, candidates: DataFiles) -> list[Any]:
        """Returns the number of rows, and of those with changed keys, of each file that has some."""
        columns = StructType([self._schema[name] for name in self._keys])
        there = rows_of(self._spark, candidates, columns, self._keys, with_path=True)
        marked = there.join(self._changed.withColumn("_changed", sf.lit(1)), self._keys, "left")
        counted = marked.groupBy(PATH).agg(sf.count(sf.lit(1)).alias("rows"), sf.count("_changed").alias("changed"))
        return counted.where("changed > 0").collect()


def rows_with(
    keys: DataFrame, files: DataFiles, schema: StructType, key_names: Sequence[str], further: Sequence[str]
) -> DataFrame:
    """Returns the columns of the key and the `further` ones of the rows in `files` that have one of the keys.
    `schema`: the table's columns."""
    columns = StructType([schema[name] for name in (*key_names, *further)])
    there = rows_of(keys.sparkSession, files, columns, key_names)
    return there.join(keys, list(key_names), "left_semi").select(*(f"`{name}`" for name in columns.names))
