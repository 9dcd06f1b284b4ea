"""Tables of bench/wan.py: one for each scenario, a plot of the share in time over time, and the targets."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from _wan_judge import Figures

IN_TIME_AIM, WORST_PHASE_AIM, BYTES_AIM, QUIET_MS_AIM = 0.99, 0.97, 2.0, 2.0
STEP_S = 0.5
"""Of the picture."""


class PhaseRow(msgspec.Struct, frozen=True):
    figures: Figures
    bytes_per_message: float
    """That all paths together have carried, headers included, per published message."""
    lost_packets: int


class SystemRow(msgspec.Struct, frozen=True):
    phases: dict[str, PhaseRow]
    in_time: float
    delivered: float
    duplicated: int
    worst_phase: float
    bytes_per_message: float
    over_time: list[float]
    struck: str | None
    """The broker that was killed, or the uplink that was unplugged."""
    load_average: float


class ScenarioRow(msgspec.Struct, frozen=True):
    title: str
    deadline_ms: float
    path_ms: float
    spans: list[tuple[str, float, float]]
    duration_s: float
    systems: dict[str, SystemRow]


def show(console: Console, found: ScenarioRow) -> None:
    """In each cell of a phase: the shares in time of the phase and of its first second, latencies, and when the
    stream had recovered."""
    title = f"{found.title}; deadline {found.deadline_ms:g} ms, the path itself {found.path_ms:g} ms"
    table = Table(title=title, title_justify="left")
    for heading in ("", *(name for name, _, _ in found.spans), "all", "lost", "twice", "bytes"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, row in found.systems.items():
        cells = [_phase_cell(row.phases[phase]) for phase, _, _ in found.spans]
        table.add_row(
            name,
            *cells,
            f"[bold]{row.in_time:.3f}[/]",
            f"{_lost(row):,}",
            f"{row.duplicated:,}",
            f"{row.bytes_per_message:,.0f}",
            end_section=True,
        )
    console.print(table)
    console.print(
        "shares in time of the phase and of its first second; p50 / p99 / p99.9 in ms; seconds until 99 % of a second "
        "were in time. bytes: on all paths, per message",
        highlight=False,
    )


def _phase_cell(row: PhaseRow) -> str:
    one = row.figures
    recovered = "never" if one.recovered_s is None else f"{one.recovered_s:.1f} s"
    return f"{one.in_time:.3f}, first {one.first_second:.3f}\n{_times(one)}\n{recovered}"


def _ms(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def described(found: ScenarioRow) -> Iterator[str]:
    """All figures of a scenario as tables for a document: shares first, then times."""
    phases = [name for name, _, _ in found.spans]
    yield f"## {found.title}"
    yield ""
    within = f"Within {found.deadline_ms:g} ms, where the path itself takes {found.path_ms:g}"
    yield f"{within}; {_seconds(found)} s a phase."
    yield ""
    yield from _markdown(
        ["in time", *phases, "all", "lost", "twice", "bytes", "load"],
        [
            [
                name,
                *(f"{row.phases[phase].figures.in_time:.3f}" for phase in phases),
                f"**{row.in_time:.3f}**",
                f"{_lost(row):,}",
                f"{row.duplicated:,}",
                f"{row.bytes_per_message:,.0f}",
                f"{row.load_average:.1f}",
            ]
            for name, row in found.systems.items()
        ],
    )
    yield from _markdown(
        ["in time in the first second", *phases],
        [
            [name, *(f"{row.phases[phase].figures.first_second:.3f}" for phase in phases)]
            for name, row in found.systems.items()
        ],
    )
    yield from _markdown(
        ["p50 / p99 / p99.9 in ms", *phases],
        [[name, *(_times(row.phases[phase].figures) for phase in phases)] for name, row in found.systems.items()],
    )
    yield from _markdown(
        ["recovered after, s; bytes per message", *phases],
        [[name, *(_recovery(row.phases[phase]) for phase in phases)] for name, row in found.systems.items()],
    )


def _markdown(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heading)} |"
    yield "|---" * len(heading) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def _seconds(found: ScenarioRow) -> str:
    lengths = {to_s - from_s for _, from_s, to_s in found.spans}
    return f"{min(lengths):g}"


def _lost(row: SystemRow) -> int:
    return round(sum((1 - one.figures.delivered) * one.figures.sent for one in row.phases.values()))


def _times(one: Figures) -> str:
    return f"{_ms(one.p50_ms)} / {_ms(one.p99_ms)} / {_ms(one.p999_ms)}"


def _recovery(row: PhaseRow) -> str:
    recovered_s = row.figures.recovered_s
    return f"{'never' if recovered_s is None else f'{recovered_s:.1f}'}; {row.bytes_per_message:,.0f}"


def aims(found: Mapping[str, ScenarioRow]) -> dict[str, bool]:
    """Of the first scenario: what Overlane is to reach."""
    direct = found.get("direct")
    own = direct.systems.get("Overlane") if direct is not None else None
    if direct is None or own is None:
        return {}
    verdicts = {
        f"in time over all phases: {own.in_time:.4f}, at least {IN_TIME_AIM:g} wanted": own.in_time >= IN_TIME_AIM,
        f"in time in the worst phase: {own.worst_phase:.4f}, at least {WORST_PHASE_AIM:g} wanted": (
            own.worst_phase >= WORST_PHASE_AIM
        ),
        f"delivered twice: {own.duplicated}, none wanted": own.duplicated == 0,
    }
    if (nats := direct.systems.get("NATS cluster")) is not None:
        ratio = own.bytes_per_message / nats.bytes_per_message
        verdicts[f"bytes: {ratio:.1f} x those of NATS, at most {BYTES_AIM:g} wanted"] = ratio <= BYTES_AIM
    quiet_ms = own.phases["quiet"].figures.p99_ms - direct.path_ms
    verdicts[f"p99 in quiet times: {quiet_ms:.1f} ms above the path, at most {QUIET_MS_AIM:g} wanted"] = (
        quiet_ms <= QUIET_MS_AIM
    )
    return verdicts


def draw(found: ScenarioRow, file: Path) -> None:
    """One line per system; which phase it is stands on top."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "overlane", "svg.fonttype": "none"})
    from matplotlib import pyplot

    figure, all_axes = pyplot.subplots(
        len(found.systems), 1, sharex=True, figsize=(11, 1 + 0.95 * len(found.systems)), squeeze=False
    )
    for number, (name, row) in enumerate(found.systems.items()):
        _draw_system(all_axes[number][0], found, name, row, f"C{number}")
    all_axes[0][0].set_title(f"{found.title}: share of messages within {found.deadline_ms:g} ms", pad=22, fontsize=10)
    _name_phases(all_axes[0][0], found.spans)
    all_axes[-1][0].set_xlabel("seconds")
    figure.tight_layout()
    figure.savefig(file)
    pyplot.close(figure)


def _draw_system(axes: Any, found: ScenarioRow, name: str, row: SystemRow, colour: str) -> None:
    times = [number * STEP_S for number in range(len(row.over_time))]
    axes.step(times, row.over_time, where="post", color=colour, linewidth=1.2)
    axes.fill_between(times, row.over_time, step="post", color=colour, alpha=0.25)
    axes.set_ylim(0, 1.05)
    axes.set_xlim(0, found.duration_s)
    axes.set_yticks([0, 1])
    axes.set_ylabel(f"{name}\n{row.in_time:.3f}", rotation=0, ha="right", va="center", fontsize=8)
    for _, from_s, _ in found.spans:
        axes.axvline(from_s, color="grey", linewidth=0.6, linestyle=":")


def _name_phases(axes: Any, spans: Sequence[tuple[str, float, float]]) -> None:
    for name, from_s, to_s in spans:
        axes.text((from_s + to_s) / 2, 1.1, name, ha="center", va="bottom", fontsize=8)
