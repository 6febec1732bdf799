"""Renders the facts as one self-contained HTML page, with its style sheet and plots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from odradek.pipeline.report.plots import plots, size_text
from odradek.pipeline.state.accounting import OPTIONAL

TEMPLATE = files(__package__) / "page_template.html"
MOST_BATCHES_LISTED = 25
LAG_HEADS = ("partition", "processed", "end", "lag", "in open transactions", "log end", "group's offset")
TABLE_HEADS = ("table", "format", "version", "files", "rows", "size", "smallest", "median", "largest")
BATCH_HEADS = (
    *("batch", "finished", "seconds", "in", "good", "dead", "duplicates", "late", "lost"),
    *("rows/s", "files", "watermark"),
)

Facts = Mapping[str, Any]
Row = Sequence[object]


def page_of(facts: Facts) -> str:
    """Returns the page. Values from topics and tables are escaped."""
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        name=escape(facts["name"]),
        generated_at=_time(facts["generated_at"]),
        alarms="\n".join(
            f'<p class="{kind}">{escape(text)}</p>' for kind in ("alarm", "note") for text in facts[f"{kind}s"]
        ),
        tiles="\n".join(_tile(*tile) for tile in _tiles(facts)),
        plots="\n".join(_plot(title, svg) for title, svg in plots(facts)),
        tables="\n".join(_tables(facts)),
        footer=f"Kafka's tools show these offsets in the group {escape(facts['lag']['group'])}. Times are in UTC.",
    )


def _tiles(facts: Facts) -> Iterator[tuple[str, str, str]]:
    """Yields the name, value and color of each tile."""
    totals, lag = facts["totals"], facts["lag"]
    yield "lag", "?" if lag["total"] is None else f"{lag['total']:,}", "lag"
    yield "rows/s, last batch", f"{facts['rate']['last']:,.0f}", "rate"
    yield f"rows in, {totals['batches']:,} {_plural('batch', totals['batches'])}", f"{totals['rows_in']:,}", "text"
    yield "good", f"{totals['good']:,}", "good"
    yield "dead letters", f"{totals['dead']:,}", "dead"
    if totals["redriven"]:
        yield "redriven dead letters", f"{totals['redriven']:,}", "line"
    yield "duplicates", f"{totals['duplicates']:,}", "duplicates"
    yield "late", f"{totals['late']:,}", "late"
    yield from ((name, f"{totals[name]:,}", "line") for name in OPTIONAL if totals[name])
    yield "lost", f"{totals['lost']:,}", "alarm" if totals["lost"] else "line"
    yield "files written", f"{totals['files_written']:,}", "files"
    files = sum(table["files"] for name, table in facts["tables"].items() if name != "batches")
    size = sum(table["bytes"] for name, table in facts["tables"].items() if name != "batches")
    yield f"files now, {size_text(size)}", f"{files:,}", "files"
    yield "watermark", _time(facts["watermark"], "%H:%M:%S", "%Y-%m-%d") if facts["watermark"] else "none", "line"


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}es"


def _tile(name: str, value: str, colour: str) -> str:
    return f'<div class="tile" style="--colour: var(--{colour})"><span>{escape(name)}</span><b>{value}</b></div>'


def _plot(title: str, svg: str) -> str:
    drawing = svg.replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1)
    return f"<section><h2>{escape(title)}</h2>{drawing}</section>"


def _tables(facts: Facts) -> Iterator[str]:
    if partitions := facts["lag"]["partitions"]:
        names = ("processed", "end_offset", "lag", "in_open_transactions", "log_end_offset", "committed")
        rows = [(f"{one['topic']}-{one['partition']}", *(one[name] for name in names)) for one in partitions]
        yield _table("Lag", LAG_HEADS, rows)
    if tables := facts["tables"]:
        yield _table("Tables", TABLE_HEADS, [_table_row(name, tables[name]) for name in tables])
    if reasons := facts["reasons"]:
        dead = max(sum(reasons.values()), 1)
        rejects = [(reason, count, f"{count / dead:.1%}") for reason, count in reasons.items()]
        yield _table("Rejected", ("reason", "rows", "share"), rejects)
    if redriven := facts["redriven"]:
        yield _table("Redriven", ("reason", "rows"), list(redriven.items()))
    yield _batches(facts)


def _batches(facts: Facts) -> str:
    batches = facts["batches"][: -MOST_BATCHES_LISTED - 1 : -1]
    names = ("rows_in", "good", "dead", "duplicates", "late", "lost", "rows_per_second", "files_written")
    listed = [
        (
            f"{one['job']} {one['batch_id']}",
            _time(one["finished_at"], "%m-%d %H:%M:%S"),
            f"{one['seconds']:,.1f}",
            *(round(one[name]) for name in names),
            _time(one["watermark"], "%m-%d %H:%M:%S") if one["watermark"] else None,
        )
        for one in batches
    ]
    return _table("Batches", BATCH_HEADS, listed, f"the newest {len(batches):,} of {facts['totals']['batches']:,}")


def _table_row(name: str, table: Facts) -> Row:
    sizes = (size_text(table[key]) for key in ("bytes", "smallest", "median", "largest"))
    return (name.replace("_", " "), table["format"], table["version"], table["files"], table["rows"], *sizes)


def _table(title: str, heads: Sequence[str], rows: Sequence[Row], caption: str = "") -> str:
    caption_tag = f"<caption>{escape(caption)}</caption>" if caption else ""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    body = "\n".join("<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>" for row in rows)
    content = f"<table>{caption_tag}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<section><h2>{escape(title)}</h2><div class="scroll">{content}</div></section>'


def _cell(value: object) -> str:
    if value is None:
        return '<span class="quiet">\N{EN DASH}</span>'
    return f"{value:,}" if isinstance(value, int) else escape(str(value))


def _time(text: str, form: str = "%Y-%m-%d %H:%M:%S", small: str = "") -> str:
    time = datetime.fromisoformat(text)
    return time.strftime(form) + (f" <small>{time.strftime(small)}</small>" if small else "")
