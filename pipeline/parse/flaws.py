"""Finds values, at any depth of a row, that a decoder accepted but that no table should contain."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

Test = Callable[[Column, DataType], Column | None]
"""Returns the condition that a value of a simple type is flawed. None for types that are never flawed."""


def flaws(value: Column, kind: DataType, test: Test) -> list[Column]:
    """Returns conditions, one of which holds if the value or a nested value is flawed. Empty if the type never is."""
    if isinstance(kind, StructType):
        return [flaw for one in kind for flaw in flaws(value[one.name], one.dataType, test)]
    if isinstance(kind, ArrayType):
        return _flaws_of_elements(value, kind.elementType, test)
    if isinstance(kind, MapType):
        keys = _flaws_of_elements(sf.map_keys(value), kind.keyType, test)
        return keys + _flaws_of_elements(sf.map_values(value), kind.valueType, test)
    condition = test(value, kind)
    return [] if condition is None else [condition]


def _flaws_of_elements(array: Column, kind: DataType, test: Test) -> list[Column]:
    if not flaws(array, kind, test):
        return []
    return [sf.exists(array, lambda one: any_of(flaws(one, kind, test)))]


def no_utf8(value: Column, kind: DataType) -> Column | None:
    """The Test for strings with invalid bytes: readers reject a Parquet file with such strings."""
    return ~sf.is_valid_utf8(value) if isinstance(kind, StringType) else None


def any_of(conditions: list[Column]) -> Column:
    """Whether one of the conditions holds. Null counts as false."""
    return reduce(or_, (sf.coalesce(one, sf.lit(False)) for one in conditions), sf.lit(False))
