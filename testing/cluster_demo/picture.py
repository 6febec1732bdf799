"""Draws a recording as SVG: offsets, waiting requests, acknowledgements and the brokers' roles, all over time.

The picture has its own style sheet for light and dark backgrounds; text remains text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import groupby
from typing import NamedTuple

from odradek.testing.cluster_demo.samples import BEHIND, DOWN, IN_SYNC, LEADER, Event, Recording, Sample

WIDTH, LEFT, RIGHT = 960, 64, 24
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #333 }
  .title { font-size: 14px; font-weight: 600 }
  .small { font-size: 12px; fill: #666 }
  .grid { stroke: #ddd; stroke-width: 1 }
  .event { stroke: #888; stroke-width: 1; stroke-dasharray: 3 3 }
  .mark { fill: #444 } .number { fill: #fff; font-size: 11px; font-weight: 600 }
  .end { stroke: #7aa6d8 } .hw { stroke: #1f5fa8 } .read { stroke: #2e9e5b; stroke-dasharray: 5 3 }
  .line { fill: none; stroke-width: 2 }
  .gap { fill: #7aa6d8; opacity: .3 } .waiting { fill: #e08a2e; opacity: .75 }
  .dots { stroke: #b2432f; stroke-width: 4; stroke-linecap: round; opacity: .5 }
  .leader { fill: #1f5fa8 } .in-sync { fill: #9cc3ec } .out-of-sync { fill: #e08a2e } .down { fill: none; stroke: #aaa }
  @media (prefers-color-scheme: dark) {
    text { fill: #ddd } .small { fill: #aaa } .grid { stroke: #444 } .mark { fill: #ddd } .number { fill: #222 }
    .hw { stroke: #6aa9ee } .leader { fill: #6aa9ee } .in-sync { fill: #2f5f8f } .down { stroke: #777 }
  }
"""


class Panel(NamedTuple):
    """A part of the picture with its own vertical axis."""

    top: float
    height: float
    most: float

    def y(self, value: float) -> float:
        """Where a value is."""
        return self.top + self.height * (1 - value / self.most)


def svg(recording: Recording) -> str:
    """Returns the picture."""
    length_s = recording.samples[-1].at_s
    done = [event for event in recording.events if event.is_done_to_it]

    def x(at_s: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * at_s / length_s

    ends = [sample.end for sample in recording.samples if sample.end is not None]
    waiting = [sample.purgatory_size for sample in recording.samples]
    waits = [each.waited_s for each in recording.acknowledgements]
    offsets = Panel(64, 190, _round_up(max(ends, default=1)))
    purgatory = Panel(offsets.top + offsets.height + 54, 80, _round_up(max(waiting, default=1)))
    acks = Panel(purgatory.top + purgatory.height + 54, 80, _round_up(max(waits, default=1)))
    lanes_top = acks.top + acks.height + 54
    lanes_end = lanes_top + 26 * len(recording.brokers)
    height = lanes_end + 58 + 20 * len(done)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img">',
        "<title>A cluster of three brokers under a producer with acks=all</title>",
        f"<style>{STYLE}</style>",
        *_marks(done, x, lanes_end),
        *_axis(offsets, "offsets", x, length_s),
        *_offsets(recording.samples, offsets, x),
        *_axis(purgatory, "PurgatorySize: produce requests that wait for replicas", x, length_s),
        *_purgatory(recording.samples, purgatory, x),
        *_axis(acks, "seconds until a record is acknowledged, by when it was sent", x, length_s),
        _dots([(x(each.at_s - each.waited_s), acks.y(each.waited_s)) for each in recording.acknowledgements]),
        *_lanes(recording, lanes_top, x),
        *_seconds(length_s, x, lanes_end + 18),
        *_story(done, lanes_end + 48),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _axis(panel: Panel, title: str, x: Callable[[float], float], length_s: float) -> Iterator[str]:
    yield f'<text class="title" x="{LEFT}" y="{panel.top - 10:.1f}">{escape(title)}</text>'
    for value in (0.0, panel.most / 2, panel.most):
        y = panel.y(value)
        yield f'<line class="grid" x1="{LEFT}" x2="{x(length_s):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="small" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'


def _offsets(samples: Sequence[Sample], panel: Panel, x: Callable[[float], float]) -> Iterator[str]:
    for is_led, group in groupby(samples, key=lambda sample: sample.end is not None):
        part = list(group)
        if not is_led or len(part) < 2:
            continue
        ends = [(x(sample.at_s), panel.y(sample.end or 0)) for sample in part]
        marks = [(x(sample.at_s), panel.y(sample.high_watermark or 0)) for sample in part]
        yield f'<polygon class="gap" points="{_points([*ends, *reversed(marks)])}"/>'
        yield f'<polyline class="line end" points="{_points(ends)}"/>'
        yield f'<polyline class="line hw" points="{_points(marks)}"/>'
    read = [(x(sample.at_s), panel.y(sample.read)) for sample in samples]
    yield f'<polyline class="line read" points="{_points(read)}"/>'
    legend = (("end", "log end of the leader"), ("hw", "high watermark"), ("read", "read by the consumer"))
    for number, (kind, text) in enumerate(legend):
        y = panel.top + 18 + 20 * number
        yield f'<line class="line {kind}" x1="{LEFT + 14}" x2="{LEFT + 42}" y1="{y}" y2="{y}"/>'
        yield f'<text x="{LEFT + 50}" y="{y + 4}">{text}</text>'


def _purgatory(samples: Sequence[Sample], panel: Panel, x: Callable[[float], float]) -> Iterator[str]:
    line = [(x(sample.at_s), panel.y(sample.purgatory_size)) for sample in samples]
    closed = [(line[0][0], panel.y(0)), *line, (line[-1][0], panel.y(0))]
    yield f'<polygon class="waiting" points="{_points(closed)}"/>'


def _lanes(recording: Recording, top: float, x: Callable[[float], float]) -> Iterator[str]:
    yield f'<text class="title" x="{LEFT}" y="{top - 10:.1f}">brokers</text>'
    position = LEFT + 110.0
    for role in (LEADER, IN_SYNC, BEHIND, DOWN):
        yield f'<rect class="{_css(role)}" x="{position:.0f}" y="{top - 21:.1f}" width="14" height="12"/>'
        yield f'<text class="small" x="{position + 20:.0f}" y="{top - 10:.1f}">{role}</text>'
        position += 44 + 7.0 * len(role)
    for row, broker_id in enumerate(recording.brokers):
        y = top + 26 * row
        yield f'<text class="small" x="{LEFT - 8}" y="{y + 14:.1f}" text-anchor="end">{broker_id}</text>'
        yield from _lane(recording.samples, broker_id, y, x)


def _lane(samples: Sequence[Sample], broker_id: int, y: float, x: Callable[[float], float]) -> Iterator[str]:
    for role, group in groupby(enumerate(samples), key=lambda numbered: numbered[1].roles[broker_id]):
        numbers = [number for number, _ in group]
        begin, end = samples[numbers[0]].at_s, samples[min(numbers[-1] + 1, len(samples) - 1)].at_s
        width = max(x(end) - x(begin), 0.5)
        yield f'<rect class="{_css(role)}" x="{x(begin):.1f}" y="{y:.1f}" width="{width:.1f}" height="18"/>'


def _marks(events: Sequence[Event], x: Callable[[float], float], bottom: float) -> Iterator[str]:
    for number, event in enumerate(events, 1):
        at = x(event.at_s)
        yield f'<line class="event" x1="{at:.1f}" x2="{at:.1f}" y1="28" y2="{bottom:.1f}"/>'
        yield from _mark(at, 20, number)


def _mark(x: float, y: float, number: int) -> Iterator[str]:
    yield f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="9"/>'
    yield f'<text class="number" x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle">{number}</text>'


def _seconds(length_s: float, x: Callable[[float], float], y: float) -> Iterator[str]:
    for second in range(0, int(length_s) + 1, 2):
        yield f'<text class="small" x="{x(second):.1f}" y="{y:.1f}" text-anchor="middle">{second} s</text>'


def _story(events: Sequence[Event], top: float) -> Iterator[str]:
    for number, event in enumerate(events, 1):
        y = top + 20 * (number - 1)
        yield from _mark(LEFT + 9, y, number)
        yield f'<text x="{LEFT + 28}" y="{y + 4:.1f}">{escape(event.text)}</text>'


def _dots(points: Sequence[tuple[float, float]]) -> str:
    """Lines without a length have round ends only."""
    return f'<path class="dots" d="{"".join(f"M{x:.1f} {y:.1f}h0" for x, y in points)}"/>'


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _css(role: str) -> str:
    return role.replace(" ", "-")


def _round_up(value: float) -> float:
    """Returns the next number of the form 1, 2, 3, 4, 5, 6 or 8 times a power of ten."""
    unit = 1.0
    while unit * 10 < value:
        unit *= 10
    while unit > value > 0:
        unit /= 10
    return next(unit * step for step in (1, 2, 3, 4, 5, 6, 8, 10) if unit * step >= value)
