"""The plots of the report, as SVG for a page whose style sheet defines the colors (see COLOURS).

matplotlib draws with placeholder colors, which become CSS variables in the SVG, so that a plot is readable on light and
dark backgrounds. Text remains text, in the page's font.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator

Facts = Mapping[str, Any]

COLOURS = {
    "text": "#010101",
    "grid": "#020202",
    "good": "#030303",
    "dead": "#040404",
    "duplicates": "#050505",
    "late": "#060606",
    "lag": "#070707",
    "rate": "#080808",
    "files": "#0a0a0a",
}
"""The placeholder colors, by the names of their CSS variables (`--good`)."""
MOST_BARS = 80
"""If there are more batches, they are drawn in groups."""
MOST_LINES = 16
LONGEST_LABEL = 34
STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "axes.edgecolor": COLOURS["grid"],
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": COLOURS["text"],
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": "none",
    "font.size": 9.5,
    "grid.color": COLOURS["grid"],
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "text.color": COLOURS["text"],
    "text.parse_math": False,
    "xtick.color": COLOURS["text"],
    "xtick.major.size": 0,
    "ytick.color": COLOURS["text"],
    "ytick.major.size": 0,
}
SIZE_INCHES = (6.4, 2.7)


def plots(facts: Facts) -> Iterator[tuple[str, str]]:
    """Yields the title and the SVG of each plot for which the facts have data."""
    batches: Sequence[Facts] = facts["batches"]
    groups = grouped(batches, MOST_BARS)
    each = "batch" if len(groups) == len(batches) else f"{-(-len(batches) // MOST_BARS)} batches"
    yield f"Rows per {each}", _drawn("rows", lambda axes: _outcomes(axes, groups))
    yield f"Rows per second, by {each}", _drawn("rate", lambda axes: _rates(axes, groups))
    waiting = [one for one in facts["lag"]["partitions"] if one["lag"] is not None]
    if waiting:
        most = sorted(waiting, key=lambda one: -one["lag"])[:MOST_LINES]
        shown = sorted(most, key=lambda one: (one["topic"], one["partition"]))
        lags = {f"{one['topic']}-{one['partition']}": one["lag"] for one in shown}
        more = "" if len(waiting) == len(most) else f": the {len(most)} longest of {len(waiting)}"
        yield f"Lag per partition{more}", _drawn("lag", lambda axes: _bars(axes, lags, "lag"))
    if facts["reasons"]:
        reasons = dict(list(facts["reasons"].items())[:MOST_LINES])
        yield "Rejected, by reason", _drawn("reasons", lambda axes: _bars(axes, reasons, "dead"))
    tables = {name: table for name, table in facts["tables"].items() if table["files"] and name != "batches"}
    if tables:
        yield "Files in the tables, by size", _drawn("files", lambda axes: _file_sizes(axes, tables))


def grouped(batches: Sequence[Facts], most: int) -> Sequence[Facts]:
    """Returns at most `most` groups, each with the sums of adjacent batches."""
    size = -(-len(batches) // most) or 1
    groups = []
    for start in range(0, len(batches), size):
        group = batches[start : start + size]
        names = ("good", "dead", "duplicates", "late", "rows_in", "seconds")
        sums = {name: sum(one[name] for one in group) for name in names}
        rate = sums["rows_in"] / sums["seconds"] if sums["seconds"] else 0.0
        job, first = group[0]["job"], group[0]["batch_id"]
        label = str(first) if job == "ingest" else f"{job} {first}"
        groups.append({**sums, "rate": rate, "label": label})
    return groups


def _drawn(salt: str, draw: Callable[[Axes], None]) -> str:
    """Returns the SVG of one plot, without its prolog. The salt makes ids unique among plots."""
    with mpl.rc_context(STYLE | {"svg.hashsalt": salt}), warnings.catch_warnings():
        # The browser has glyphs that matplotlib's font lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        figure = Figure(figsize=SIZE_INCHES, layout="constrained")
        axes = figure.add_subplot()
        draw(axes)
        out = io.StringIO()
        FigureCanvasSVG(figure).print_svg(out, metadata={"Date": None, "Creator": None})  # type: ignore[no-untyped-call]
    return _for_a_page(out.getvalue())


def _for_a_page(svg: str) -> str:
    text = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)  # Nothing refers to groups, and their ids would not be unique.
    text = re.sub(r'(<svg[^>]*?) width="[^"]*pt"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*pt"', r"\1", text))
    for name, colour in COLOURS.items():
        text = text.replace(colour, f"var(--{name})")
    return text


def _outcomes(axes: Axes, groups: Sequence[Facts]) -> None:
    names = ("good", "dead", "duplicates", "late")
    bottom = [0] * len(groups)
    for name in names:
        heights = [group[name] for group in groups]
        axes.bar(range(len(groups)), heights, 0.82, bottom=bottom, color=COLOURS[name], label=name, linewidth=0)
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=4, handlelength=0.8)
    _batch_axis(axes, groups)


def _rates(axes: Axes, groups: Sequence[Facts]) -> None:
    _line(axes, [group["rate"] for group in groups], "rate")
    _batch_axis(axes, groups)


def _line(axes: Axes, values: Sequence[float], colour: str) -> None:
    places = range(len(values))
    axes.fill_between(places, values, color=COLOURS[colour], alpha=0.14, linewidth=0)
    marker = "o" if len(values) <= 40 else ""
    axes.plot(places, values, color=COLOURS[colour], linewidth=1.8, marker=marker, markersize=4)


def _batch_axis(axes: Axes, groups: Sequence[Facts]) -> None:
    def label(place: float, _position: object) -> str:
        return groups[int(place)]["label"] if 0 <= place < len(groups) and place == int(place) else ""

    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(min(10, max(len(groups), 1)), integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(label))
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))


def _bars(axes: Axes, values: Mapping[str, int], colour: str) -> None:
    names = [_label(name) for name in values]
    drawn = axes.barh(range(len(names)), list(values.values()), 0.7, color=COLOURS[colour], linewidth=0)
    axes.bar_label(drawn, [f"{value:,}" for value in values.values()], padding=4)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, max([*values.values(), 1]) * 1.18)
    axes.grid(visible=False)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)


def _label(text: str) -> str:
    """Returns a short label without characters that SVG does not allow."""
    clean = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return clean if len(clean) <= LONGEST_LABEL else f"{clean[: LONGEST_LABEL - 1]}\N{HORIZONTAL ELLIPSIS}"


def _file_sizes(axes: Axes, tables: Mapping[str, Facts]) -> None:
    uppers = sorted({upper for table in tables.values() for upper, _ in table["sizes"]})
    bins = [1 << power for power in range(uppers[0].bit_length() - 1, uppers[-1].bit_length())]
    bottom = [0] * len(bins)
    for name, colour in (("rows", "good"), ("dead_letters", "dead"), ("windows", "files")):
        if name not in tables:
            continue
        counts = dict(tables[name]["sizes"])
        heights = [counts.get(upper, 0) for upper in bins]
        axes.bar(range(len(bins)), heights, 0.86, bottom=bottom, color=COLOURS[colour], label=name.replace("_", " "))
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, handlelength=0.8)
    step = -(-len(bins) // 8)
    labels = [f"\N{LESS-THAN OR EQUAL TO} {size_text(upper)}" for upper in bins[::step]]
    axes.set_xticks(range(0, len(bins), step), labels)
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))


def size_text(size: float) -> str:
    """Formats bytes with a binary unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if size >= 100 or size == int(size) else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
