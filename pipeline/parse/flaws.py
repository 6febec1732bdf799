"""Values that a decoder let pass though no table should have them, found wherever they are inside a row."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

Test = Callable[[Column, DataType], Column | None]
"""The condition that a value of a simple type is flawed; None for types that cannot be."""


def flaws(value: Column, kind: DataType, test: Test) -> list[Column]:
    """Conditions, one of which holds where the value or one inside it is flawed; none where the type cannot be."""
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


def any_of(conditions: list[Column]) -> Column:
    """Whether one of the conditions holds; one that is null does not."""
    return reduce(or_, (sf.coalesce(one, sf.lit(False)) for one in conditions), sf.lit(False))
