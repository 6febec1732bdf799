"""`odradek pipeline report`: lag, rates, rejects and files, as a page, as JSON, and as a summary on standard output.

Reads the ledger, the tables and the broker. Does not start Spark, and can run at any time, also during an ingest.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.settings import Settings
from odradek.pipeline.state.accounting import OPTIONAL, OUTCOMES
from odradek.pipeline.state.places import Places
from odradek.pipeline.variables import hidden

PATIENCE_MS = 5_000
"""How long the broker may take to respond. Without a response the rest of the report is still written."""


def run(
    settings: Settings,
    out: TextIO | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    patience_ms: int = PATIENCE_MS,
) -> int:
    """Writes STATE/report.json and STATE/report.html. Returns 0, or ALARMED if there are alarms. Raises PipelineError
    if the ledger has no batch.
    """
    from odradek.pipeline.jobs.one_line import one_line

    with one_line("the report failed"):
        return _report(settings, sys.stdout if out is None else out, now(), patience_ms)


def _report(settings: Settings, out: TextIO, now: datetime, patience_ms: int) -> int:
    from odradek.pipeline.report.alarms import ALARMED
    from odradek.pipeline.report.facts import facts_of
    from odradek.pipeline.report.page import page_of

    places = Places.of(settings)
    facts = facts_of(settings, now, patience_ms)
    if facts is None:
        raise PipelineError(
            f"{places.ledger} has no batch of the pipeline {settings.name!r}",
            "run `odradek pipeline ingest` first, or set its lake, state and name",
        )
    data = json.dumps(facts, indent=1, ensure_ascii=False) + "\n"
    places.state.replace("report.json", data.encode())
    places.state.replace("report.html", page_of(facts).encode())
    for line in (*_summary(facts), *_messages(facts), *hidden(list(_files(places)), settings.secrets)):
        print(line, file=out)
    return ALARMED if facts["alarms"] else 0


def _messages(facts: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"note       {text}" for text in facts["notes"])
    yield from (f"! {text}" for text in facts["alarms"])


def _files(places: Places) -> Iterator[str]:
    yield f"page       {places.state / 'report.html'}"
    yield f"json       {places.state / 'report.json'}"


def _summary(facts: Mapping[str, Any]) -> Iterator[str]:
    totals, rate, lag = facts["totals"], facts["rate"], facts["lag"]
    yield f"pipeline   {facts['name']}, {totals['batches']:,} batches, {rate['mean']:,.0f} rows/s"
    shown = [name for name in OUTCOMES if totals[name] or name not in OPTIONAL]
    counts = " + ".join(f"{totals[name]:,} {name}" for name in shown)
    redriven = f" + {totals['redriven']:,} redriven" if totals["redriven"] else ""
    yield f"rows in    {totals['rows_in']:,}{redriven} = {counts}, {totals['lost']:,} lost"
    for reason, count in facts["reasons"].items():
        yield f"rejected   {count:,} {reason}"
    for reason, count in facts["redriven"].items():
        yield f"redriven   {count:,} {reason}"
    if redriven:
        yield f"still dead {totals['dead'] - totals['redriven']:,} of {totals['dead']:,} dead letters"
    for rule, count in facts["warnings"].items():
        yield f"warned     {count:,} {rule}"
    yield f"watermark  {facts['watermark'] or 'none'}, newest event {facts['newest_event_time'] or 'none'}"
    for name, table in facts["tables"].items():
        version = "" if table["version"] is None else f", version {table['version']}"
        yield f"table      {name}: {table['files']:,} files, {table['bytes']:,} bytes{version}"
    total = "unknown" if lag["total"] is None else f"{lag['total']:,}"
    yield f"lag        {total}, shown by the group {lag['group']}"
    if lag["partitions"]:
        yield from _lag_table(lag["partitions"])


def _lag_table(partitions: list[Mapping[str, Any]]) -> Iterator[str]:
    width = max(len(one["topic"]) for one in partitions)
    yield f"  {'TOPIC':<{width}} {'PARTITION':>9} {'PROCESSED':>12} {'END':>12} {'LAG':>10}"
    for one in partitions:
        processed, end, lag = ("-" if one[name] is None else one[name] for name in ("processed", "end_offset", "lag"))
        yield f"  {one['topic']:<{width}} {one['partition']:>9} {processed:>12} {end:>12} {lag:>10}"
