"""The hook `transform = "module:function"`: a function of the user from a DataFrame to a DataFrame.

It gets the rows that are not rejected or left out so far: the row's columns, those derived, and the record's with an
underscore (_key, _value, _headers, _topic, _partition, _offset, _timestamp ...). It may change values of the row, and
leave rows out. It must return the same columns, and the record's columns unchanged: so each returned row is known to be
of one record, and the rows that it drops are counted. It must be deterministic, as a batch may be repeated.

The module is imported from the current directory or Python's path, once per process. Its functions are sent to Spark's
executors by value, so it need not be installed there; what it imports must be.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.parse.derived import refuse_names_of_records
from odradek.pipeline.parse.expressions import named
from odradek.pipeline.parse.flaws import any_of, flaws, no_utf8
from odradek.pipeline.parse.repetitions import PLACE
from odradek.pipeline.settings import Settings
from odradek.pipeline.spark.errors import first_line

OWN = ("data", "reason", "detail")
"""The columns of decoded rows that are not the record's."""


@dataclass(frozen=True, slots=True)
class Hook:
    """A function of the user in `file`. `digest`: of the file, which decides about records like a setting."""

    name: str
    function: Callable[[DataFrame], Any]
    file: str
    digest: str


@lru_cache
def load(name: str) -> Hook:
    """Imports the function `module:function`. Raises PipelineError."""
    module_name, colon, function_name = name.partition(":")
    if not colon or not module_name or not function_name.isidentifier():
        raise PipelineError(f"transform is {name!r}, not a function", "set it to 'module:function'")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        found = importlib.util.find_spec(module_name)
        if found is None or found.origin is None:
            raise PipelineError(
                f"transform {name}: there is no module {module_name}",
                "put it into the current directory, or install it",
            )
        digest = hashlib.sha256(Path(found.origin).read_bytes()).hexdigest()
        module = importlib.import_module(module_name)
    except PipelineError:
        raise
    except Exception as error:
        raise PipelineError(f"transform {name}: importing {module_name} failed: {_shown(error)}") from error
    finally:
        sys.path.remove(here)
    function = getattr(module, function_name, None)
    if not callable(function):
        raise PipelineError(f"transform {name}: {found.origin} has no function {function_name}", "define it there")
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return Hook(name, function, found.origin, digest)


def transformed(rows: DataFrame, schema: StructType, settings: Settings) -> DataFrame:
    """Applies the function to the decoded rows without a reason. Persist `rows`, which are used twice. Raises
    PipelineError if the function does, or returns something else than these columns."""
    if not settings.transform:
        return rows
    hook = load(settings.transform)
    refuse_names_of_records(schema, "transform")
    record = {name: name if name == "_raw" else f"_{name}" for name in rows.columns if name not in OWN}
    good = rows.where(sf.col("reason").isNull())
    seen = good.select(
        *(sf.col("data")[name].alias(name) for name in schema.names),
        *(sf.col(name).alias(alias) for name, alias in record.items()),
    )
    returned = _called(hook, seen)
    broken = any_of([flaw for one in schema for flaw in flaws(named(one.name), one.dataType, no_utf8)])
    back = returned.select(
        *(sf.col(alias).alias(name) for name, alias in record.items()),
        sf.struct(*(named(name) for name in schema.names)).alias("data"),
        sf.when(broken, "not_utf8").alias("reason"),
        sf.when(broken, "a string that transform returned is not UTF-8").alias("detail"),
    )
    return rows.where(sf.col("reason").isNotNull()).unionByName(back.select(*rows.columns))


def dropped_rows(before: DataFrame, after: DataFrame, settings: Settings) -> int:
    """Counts the records of `before` that `after` lacks. Both are persisted. Raises PipelineError if `after` has a
    record twice, or one that `before` lacks or has with other contents."""
    content = sf.xxhash64(*(sf.col(name) for name in before.columns if name not in (*OWN, "_raw", *PLACE)))

    def places(rows: DataFrame, had: int, has: int) -> DataFrame:
        return rows.select(*PLACE, content.alias("content"), sf.lit(had).alias("had"), sf.lit(has).alias("has"))

    each = places(before, 1, 0).unionByName(places(after, 0, 1)).groupBy(*PLACE, "content")
    summed = each.agg(sf.sum("had").alias("had"), sf.sum("has").alias("has"))
    found = summed.agg(
        sf.count_if((sf.col("had") > 0) & (sf.col("has") == 0)).alias("dropped"),
        sf.count_if(sf.col("had") == 0).alias("strange"),
        sf.count_if(sf.col("has") > 1).alias("twice"),
    ).first()
    assert found is not None
    if found["strange"]:
        raise PipelineError(
            f"transform {settings.transform} returns {found['strange']} rows that are not of a record of the batch, or "
            "have changed columns of the record (_topic, _offset, _value ...)",
            "return the columns with an underscore unchanged",
        )
    if found["twice"]:
        raise PipelineError(
            f"transform {settings.transform} returns the rows of {found['twice']} records more than once",
            "return at most one row for each row",
        )
    return int(found["dropped"])


def is_from_transform(error: BaseException, settings: Settings) -> bool:
    """Whether the function of `transform` raised an error of Spark on an executor."""
    return bool(settings.transform) and f'"{load(settings.transform).file}"' in str(error)


def _called(hook: Hook, seen: DataFrame) -> DataFrame:
    try:
        returned = hook.function(seen)
    except AnalysisException as error:
        raise PipelineError(f"transform {hook.name} failed: {first_line(error)}") from error
    except Exception as error:
        raise PipelineError(f"transform {hook.name} raised {_shown(error)}") from error
    if not isinstance(returned, DataFrame):
        raise PipelineError(f"transform {hook.name} returned {type(returned).__name__}", "return a DataFrame")
    had, has = ({one.name: one.dataType for one in frame.schema} for frame in (seen, returned))
    changes = [
        *(f"lacks {name}" for name in had if name not in has),
        *(f"has {name} in addition" for name in has if name not in had),
        *(f"has {name} as {_kind(has[name])} instead of {_kind(had[name])}"
          for name in had if name in has and _kind(has[name]) != _kind(had[name])),
        *(["has a column twice"] if len(returned.columns) > len(has) else []),
    ]  # fmt: skip
    if changes:
        raise PipelineError(
            f"transform {hook.name} returns other columns than it gets: it {', '.join(changes)}",
            "return the same columns; declare a new one in [columns] or the schema, and fill it",
        )
    return returned


def _kind(kind: Any) -> str:
    return str(kind.simpleString())


def _shown(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
