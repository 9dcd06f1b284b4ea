"""Plots as SVG text: lines over time, bars, intervals, a heat map, a histogram.

Colours are classes of the page, so that they follow light and dark mode. Every mark has a title, shown by browsers and
read by screen readers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

WIDTH = 860
LEFT, RIGHT, TOP, BOTTOM = 64, 40, 12, 30
HOUR_S = 3_600


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    points: Sequence[tuple[float, float]]
    """(x, y), by x."""
    style: str = "line"


@dataclass(frozen=True, slots=True)
class Interval:
    name: str
    value: float
    low: float
    high: float
    told: str


def lines(
    drawn: Sequence[Line],
    told: str,
    y_min: float,
    y_max: float,
    y_text: str = "{:g}",
    height: int = 220,
    bands: Sequence[tuple[float, float]] = (),
) -> str:
    """Over time, in seconds since 1970; `bands` are spans of time to be set off."""
    xs = [x for line in drawn for x, _ in line.points]
    if not xs:
        return ""
    x_min = min(xs)
    x_max = max(x_min + 1, *xs)
    bottom = height - BOTTOM

    def at(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (x - x_min) / (x_max - x_min) * (WIDTH - LEFT - RIGHT)
        return across, bottom - (y - y_min) / ((y_max - y_min) or 1) * (bottom - TOP)

    parts = []
    for start, end in bands:
        left, right = at(max(start, x_min), y_min)[0], at(min(end, x_max), y_min)[0]
        if right > left:
            parts.append(_rect(left, TOP, right - left, bottom - TOP, "band", "a peak period"))
    parts += [_level(at(x_min, y)[1], y_text.format(y)) for y in _ticks(y_min, y_max)]
    for x in _hours(x_min, x_max):
        across = at(x, y_min)[0]
        parts.append(_text(across, height - 10, clock(x, x_max - x_min), "tick", "middle"))
    for line in drawn:
        points = " ".join(f"{across:.1f},{down:.1f}" for across, down in (at(x, y) for x, y in line.points))
        parts.append(f'<polyline class="{line.style}" points="{points}"><title>{escape(line.name)}</title></polyline>')
        if len(line.points) == 1:
            across, down = at(*line.points[0])
            parts.append(f'<circle class="{line.style}-dot" cx="{across:.1f}" cy="{down:.1f}" r="3"/>')
    return _svg(parts, height, told)


def bars(values: Sequence[tuple[str, float]], told: str, unit: str) -> str:
    """One row each, the name at the left, the value at its end."""
    if not values:
        return ""
    most = max(value for _, value in values) or 1.0
    name_width, row = 240, 22
    parts = []
    for number, (name, value) in enumerate(values):
        down = TOP + number * row
        width = value / most * (WIDTH - name_width - 130)
        parts.append(_text(name_width - 8, down + 14, _cut(name, 36), "name", "end", name))
        parts.append(_rect(name_width, down + 3, max(width, 1), row - 8, "bar", f"{name}: {value:,.4g} {unit}"))
        parts.append(_text(name_width + max(width, 1) + 6, down + 14, f"{value:,.4g} {unit}", "tick", "start"))
    return _svg(parts, TOP + len(values) * row + 8, told)


def intervals(drawn: Sequence[Interval], told: str) -> str:
    """Shares on a logarithmic axis, each with the interval that it is in."""
    if not drawn:
        return ""
    name_width, row = 240, 22
    least = max(1e-7, min(one.low for one in drawn if one.low > 0) if any(one.low > 0 for one in drawn) else 1e-6)
    decade_min, decade_max = math.floor(math.log10(least)), 0
    height = TOP + len(drawn) * row + BOTTOM

    def across(share: float) -> float:
        place = (math.log10(max(share, 10.0**decade_min)) - decade_min) / (decade_max - decade_min)
        return name_width + place * (WIDTH - name_width - RIGHT)

    parts = []
    for decade in range(decade_min, decade_max + 1):
        x = across(10.0**decade)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height - BOTTOM}"/>')
        parts.append(_text(x, height - 10, f"{10.0**decade:.6%}".rstrip("0%").rstrip(".") + " %", "tick", "middle"))
    for number, one in enumerate(drawn):
        down = TOP + number * row + 11
        parts.append(_text(name_width - 8, down + 4, _cut(one.name, 36), "name", "end", one.name))
        title = f"<title>{escape(one.told)}</title>"
        left, right = across(one.low), across(one.high)
        parts.append(f'<line class="span" x1="{left:.1f}" x2="{right:.1f}" y1="{down}" y2="{down}">{title}</line>')
        parts.append(f'<circle class="line-dot" cx="{across(one.value):.1f}" cy="{down}" r="4">{title}</circle>')
    return _svg(parts, height, told)


def heat_map(names: Sequence[str], rows: Sequence[Sequence[float]], told: str) -> str:
    """Correlations from -1 to 1: how much, by colour and by how much of its place a mark fills."""
    count = len(names)
    if not count:
        return ""
    name_width = 240
    cell = min(26.0, (WIDTH - name_width - RIGHT) / count)
    parts = []
    for down, (name, row) in enumerate(zip(names, rows, strict=True)):
        y = TOP + down * cell
        if cell >= 9 or down % 2 == 0:
            parts.append(_text(name_width - 8, y + cell * 0.7, _cut(name, 36), "name", "end", name))
        for over, value in enumerate(row):
            side = cell * math.sqrt(min(1.0, abs(value)))
            inset = (cell - side) / 2
            style = "warm" if value >= 0 else "cool"
            x = name_width + over * cell + inset
            parts.append(_rect(x, y + inset, side, side, style, f"{name} and {names[over]}: {value:+.2f}"))
    return _svg(parts, round(TOP + count * cell + 10), told)


def histogram(bins: Sequence[tuple[float, float]], told: str, marks: Sequence[tuple[str, float]] = ()) -> str:
    """(milliseconds, share) over a logarithmic axis; `marks` are values to be named."""
    if not bins:
        return ""
    height = 200
    bottom = height - BOTTOM
    first, last = math.log10(bins[0][0]), math.log10(bins[-1][0])
    span = (last - first) or 1.0
    most = max(share for _, share in bins) or 1.0

    def across(milliseconds: float) -> float:
        return LEFT + (math.log10(milliseconds) - first) / span * (WIDTH - LEFT - RIGHT)

    width = max(1.5, (WIDTH - LEFT - RIGHT) / (span / math.log10(1.02) + 1))
    parts = []
    for milliseconds, share in bins:
        tall = share / most * (bottom - TOP - 14)
        said = f"{milliseconds:.3g} ms: {share:.2%}"
        parts.append(_rect(across(milliseconds), bottom - tall, width, tall, "bar", said))
    for decade in range(math.floor(first), math.floor(last) + 1):
        for round_ms in (step * 10.0**decade for step in (1, 2, 5)):
            if first <= math.log10(round_ms) <= last:
                parts.append(_text(across(round_ms), height - 10, f"{round_ms:g} ms", "tick", "middle"))
    for name, value in marks:
        if bins[0][0] <= value <= bins[-1][0]:
            x = across(value)
            parts.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP + 12}" y2="{bottom}"/>')
            anchor, beside = ("end", -4) if x > WIDTH - 120 else ("start", 4)
            parts.append(_text(x + beside, TOP + 10, f"{name} {value:.3g} ms", "tick", anchor))
    return _svg(parts, height, told)


# Pieces


def _svg(parts: Sequence[str], height: int, told: str) -> str:
    inner = "\n".join(parts)
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(told)}">\n{inner}\n</svg>'


def _level(down: float, said: str) -> str:
    line = f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{down:.1f}" y2="{down:.1f}"/>'
    return line + _text(LEFT - 8, down + 4, said, "tick", "end")


def _rect(x: float, y: float, width: float, height: float, style: str, said: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{style}" {place}><title>{escape(said)}</title></rect>'


def _text(x: float, y: float, said: str, style: str, anchor: str, title: str = "") -> str:
    more = f"<title>{escape(title)}</title>" if title and title != said else ""
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(said)}{more}</text>'


def _ticks(least: float, most: float) -> list[float]:
    step = 10 ** math.floor(math.log10((most - least) / 3 or 1))
    for factor in (1, 2, 5, 10):
        if (most - least) / (step * factor) <= 5:
            step *= factor
            break
    first = math.ceil(least / step) * step
    return [first + number * step for number in range(int((most - first) / step + 1e-9) + 1)]


def _hours(start_s: float, end_s: float) -> list[float]:
    """Six or fewer round times."""
    span = end_s - start_s
    every = next((one for one in (60, 300, 900, HOUR_S, 6 * HOUR_S, 24 * HOUR_S) if span / one <= 7), 7 * 24 * HOUR_S)
    first = math.ceil(start_s / every) * every
    return [first + number * every for number in range(int((end_s - first) // every) + 1)]


def clock(at_s: float, span_s: float) -> str:
    when = datetime.fromtimestamp(at_s, UTC)
    return f"{when:%d %b}" if span_s > 5 * 24 * HOUR_S else f"{when:%d %b %H:%M}"


def _cut(name: str, letters: int) -> str:
    return name if len(name) <= letters else f"{name[: letters - 1]}…"
