"""What a Parquet footer tells of a file, as Delta's `stats`: rows, and each column's least, greatest and nulls.

Readers skip files by them, so they may be wide but never too narrow: what cannot be told exactly is left out.
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
    """The `stats` of a file, as JSON. `footer`: pyarrow's FileMetaData."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index in range(footer.num_columns):
        name = footer.schema.column(index).path
        if "." in name:  # Part of a nested column, or hard to tell from one.
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
    """The least and the greatest of a column over its row groups; None where they are not known for certain."""
    filled = [chunk for chunk in chunks if chunk.num_values > 0]
    if not filled or not all(chunk.has_min_max for chunk in filled):
        return None
    try:
        low, high = _json_value(min(one.min for one in filled)), _json_value(max(one.max for one in filled))
    except (TypeError, OverflowError):  # A time beyond Python's is the latter.
        return None
    return None if low is None or high is None else (low, _rounded_up(high, max(one.max for one in filled)))


def _json_value(value: Any) -> Any:
    if isinstance(value, bool | bytes | float):  # A NaN is greater than all numbers, and in no statistics.
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
    """Times are told in whole milliseconds, so the greatest is the next one."""
    if not isinstance(value, datetime) or value.microsecond % 1000 == 0:
        return text
    return _text(value + MILLISECOND) if value < value.max.replace(tzinfo=value.tzinfo) - MILLISECOND else text


def _text(time: datetime) -> str:
    """As Delta writes timestamps (instants with Z, local times without), cut to milliseconds."""
    return time.replace(tzinfo=None).isoformat(timespec="milliseconds") + ("Z" if time.tzinfo else "")
