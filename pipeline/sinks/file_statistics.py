"""Converts the statistics in a Parquet footer to Delta's `stats`: rows, and each column's minimum, maximum and nulls.

Readers use them to skip files, so bounds may be wide but never too narrow: bounds that are not certain are omitted.
(Delta's protocol, "Per-file Statistics".)
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

LONGEST_TEXT = 64
MILLISECOND = timedelta(milliseconds=1)


def statistics_of(footer: Any) -> str:
    """Returns the `stats` of a file, as JSON. `footer`: pyarrow's FileMetaData."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index in range(footer.num_columns):
        name = footer.schema.column(index).path
        if "." in name:  # Part of a nested column, or not distinguishable from one.
            continue
        chunks = [footer.row_group(number).column(index).statistics for number in range(footer.num_row_groups)]
        if not chunks or not all(chunk is not None and chunk.has_null_count for chunk in chunks):
            continue
        nulls[name] = sum(chunk.null_count for chunk in chunks)
        bounds = _bounds(chunks)
        if bounds is not None:
            least[name], greatest[name] = bounds
    content = {"numRecords": footer.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}
    return json.dumps(content)


def _bounds(chunks: Iterable[Any]) -> tuple[Any, Any] | None:
    """Returns the minimum and the maximum of a column over its row groups. None if they are not certain."""
    filled = [chunk for chunk in chunks if chunk.num_values > 0]
    if not filled or not all(chunk.has_min_max for chunk in filled):
        return None
    try:
        low, high = _json_value(min(one.min for one in filled)), _json_value(max(one.max for one in filled))
    except (TypeError, OverflowError):  # OverflowError: a time beyond Python's range.
        return None
    return None if low is None or high is None else (low, _rounded_up(high, max(one.max for one in filled)))


def _json_value(value: Any) -> Any:
    if isinstance(value, bool | bytes | float):  # NaN is greater than all numbers, but not in the statistics.
        return None
    if isinstance(value, datetime):
        return _text(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str):
        return value if len(value) <= LONGEST_TEXT else None
    if isinstance(value, Decimal):
        return float(value) if Decimal(float(value)) == value else None
    return value if isinstance(value, int) else None


def _rounded_up(text: Any, value: Any) -> Any:
    """Rounds a maximum up to whole milliseconds, the precision of times in `stats`."""
    if not isinstance(value, datetime) or value.microsecond % 1000 == 0:
        return text
    return _text(value + MILLISECOND) if value < value.max.replace(tzinfo=value.tzinfo) - MILLISECOND else text


def _text(time: datetime) -> str:
    """Formats a timestamp for Delta (instants with Z, local times without), truncated to milliseconds."""
    return time.replace(tzinfo=None).isoformat(timespec="milliseconds") + ("Z" if time.tzinfo else "")
