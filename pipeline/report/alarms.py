"""What needs attention: alarms, for which `report` exits with ALARMED, and notes.

Alarms about records concern the batches that ended within alarm-period, so that an alarm ends some time after its
cause. Notes concern all batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from odradek.pipeline.settings import Settings
from odradek.pipeline.state.accounting import OUTCOMES

ALARMED = 3
"""The exit status of a report with alarms. 1: there is no report; 2: wrong arguments."""

Facts = Mapping[str, Any]


def alarms(facts: Facts, settings: Settings) -> Iterator[str]:
    """Yields the messages about what must not stay as it is."""
    recent, period = facts["recent"], settings.alarm_period
    if not facts["is_balanced"]:
        yield f"The counts do not add up: rows in and redriven differ from {' + '.join(OUTCOMES)}."
    if lost := recent["lost"]:
        yield f"{lost:,} offsets were deleted before they could be read, within {period}."
    if _exceeds(recent["dead"], recent["rows_in"], settings.max_dead):
        share = f"{recent['dead'] / recent['rows_in']:.2%}" if recent["rows_in"] else "none"
        yield (
            f"{recent['dead']:,} records ({share}) were dead letters within {period}, "
            f"more than max-dead: {settings.max_dead}."
        )
    if facts["lag"]["problem"]:
        yield f"The lag is unknown: {facts['lag']['problem']}"
    elif settings.max_lag and facts["lag"]["total"] > int(settings.max_lag):
        yield f"The lag is {facts['lag']['total']:,}, more than max-lag: {int(settings.max_lag):,}."
    for one in facts["lag"]["partitions"]:
        if one["problem"]:
            yield f"{one['topic']}-{one['partition']}: {one['problem']}"


def notes(facts: Facts) -> Iterator[str]:
    """Yields the messages that may be about nothing wrong, or about the past."""
    if lost := facts["totals"]["lost"]:
        yield f"{lost:,} offsets in all were deleted before they could be read."
    if late := facts["totals"]["late"]:
        yield f"{late:,} rows were too late; the newest event time is {facts['newest_event_time']}."
    if future := facts["reasons"].get("in_future"):
        yield f"{future:,} events were in the future, and are dead letters: check the clocks of the producers."


def _exceeds(dead: int, rows_in: int, limit: str) -> bool:
    """Whether there are more dead letters than the limit: a count, or a share of the records. "": no limit."""
    if not limit:
        return False
    if limit.endswith("%"):
        return dead * 100 > Decimal(limit[:-1]) * rows_in
    return dead > int(limit)
