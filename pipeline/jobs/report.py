"""`odradek pipeline report`: lag, rates, rejects and files, as a page, as JSON, and in short on standard output.

Reads the ledger, the tables and the broker; starts no Spark, and may be run at any time, beside a running ingest too.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.ledger import Ledger
from odradek.pipeline.places import Places
from odradek.pipeline.settings import Settings

PATIENCE_MS = 5_000
"""For a broker that does not answer; the rest of the report does without it."""


def run(
    settings: Settings,
    out: TextIO | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    patience_ms: int = PATIENCE_MS,
) -> int:
    """Writes STATE/report.json and STATE/report.html. Raises PipelineError where there is nothing to report."""
    from odradek.pipeline.report_facts import facts_of
    from odradek.pipeline.report_page import alarms, page_of

    places = Places.of(settings)
    rows = Ledger(places.ledger).rows()
    if not rows:
        raise PipelineError(
            f"{places.ledger} holds no batch of the pipeline {settings.name!r}",
            "run `odradek pipeline ingest` first, or give the lake, state and name that it has",
        )
    facts = facts_of(settings, rows, now(), patience_ms)
    data, page = places.state / "report.json", places.state / "report.html"
    replace(data, json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
    replace(page, page_of(facts))
    out = sys.stdout if out is None else out
    for line in (*_summary(facts), *(f"! {text}" for text in alarms(facts)), *_places(page, data)):
        print(line, file=out)
    return 0


def replace(path: Path, text: str) -> None:
    """Readers see the old file or the new one, whole."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)


def _places(page: Path, data: Path) -> Iterator[str]:
    yield f"page       {page}"
    yield f"json       {data}"


def _summary(facts: Mapping[str, Any]) -> Iterator[str]:
    totals, rate, lag = facts["totals"], facts["rate"], facts["lag"]
    yield f"pipeline   {facts['name']}, {totals['batches']:,} batches, {rate['mean']:,.0f} rows/s"
    counts = ", ".join(f"{totals[name]:,} {name}" for name in ("good", "dead", "duplicates", "late", "lost"))
    yield f"rows in    {totals['rows_in']:,} = {counts.replace(', ', ' + ', 3)}"
    for reason, count in facts["reasons"].items():
        yield f"rejected   {count:,} {reason}"
    yield f"state      {facts['state_rows']:,} rows, watermark {facts['watermark'] or 'none'}"
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
