"""What bench/broker.py shows: a table for each measurement, and whether the aims hold.

A ratio to a peer is taken within each round and the median over rounds is shown: whatever else the machine did in a
round, it did it to both.
"""

from collections.abc import Callable, Mapping
from statistics import median

from rich.console import Console
from rich.table import Table

from _broker_measures import Figures, Measure

Found = dict[str, list[Figures]]
"""By system, one entry for each round."""
OURS, MOSQUITTO, NATS, NOBODY = "Overlane", "Mosquitto", "NATS", "no broker"
OF_MOSQUITTO_MIN = 2.0
OF_NATS_MIN = 0.8
P99_OF_BEST_MAX = 1.5
DURABLE_PER_SECOND_MIN = 20_000

Columns = Mapping[str, Callable[[list[Figures], Found], str]]


def _typical(rounds: list[Figures], name: str) -> float:
    return median(figures[name] for figures in rounds)


def ratio(rounds: list[Figures], others: list[Figures] | None, name: str) -> float | None:
    pairs = [(one[name], other[name]) for one, other in zip(rounds, others or [], strict=False) if other[name]]
    return median(one / other for one, other in pairs) if pairs else None


def _number(name: str, form: str = "{:,.0f}", per: float = 1) -> Callable[[list[Figures], Found], str]:
    return lambda rounds, _: form.format(_typical(rounds, name) / per)


def _spread(name: str) -> Callable[[list[Figures], Found], str]:
    return lambda rounds, _: f"{min(one[name] for one in rounds):,.0f} - {max(one[name] for one in rounds):,.0f}"


def _against(peer: str, name: str) -> Callable[[list[Figures], Found], str]:
    def text(rounds: list[Figures], found: Found) -> str:
        value = ratio(rounds, found.get(peer), name)
        return "" if value is None else f"{value:.2f} x"

    return text


def _worst(name: str, form: str) -> Callable[[list[Figures], Found], str]:
    return lambda rounds, _: form.format(max(one[name] for one in rounds))


STREAM: Columns = {
    "a second": _number("per_second"),
    "least - most": _spread("per_second"),
    "x Mosquitto": _against(MOSQUITTO, "per_second"),
    "x NATS": _against(NATS, "per_second"),
    "lost": _number("lost", "{:.2%}"),
    "out of order": _worst("disorder", "{:.0f}"),
    "CPU ns each": _number("cpu_ns"),
}
MEMORY: Columns = {
    "before, MiB": _number("empty_bytes", "{:,.1f}", 2**20),
    "each, bytes": _number("each_bytes"),
    "x Mosquitto": _against(MOSQUITTO, "each_bytes"),
    "x NATS": _against(NATS, "each_bytes"),
}
COLUMNS: dict[str, Columns] = {
    "small": STREAM,
    "large": STREAM,
    "latency": {
        "p50": _number("p50_us"),
        "p99": _number("p99_us"),
        "p99.9": _number("p999_us"),
        "p99, least - most": _spread("p99_us"),
        "p99 x Mosquitto": _against(MOSQUITTO, "p99_us"),
        "p99 x NATS": _against(NATS, "p99_us"),
        "CPU ns each": _number("cpu_ns"),
    },
    "fanout": STREAM,
    "connections": MEMORY,
    "subscriptions": MEMORY,
    "durable": {
        "acknowledged/s": _number("per_second"),
        "least - most": _spread("per_second"),
        "delivered/s": _number("delivered_per_second"),
        "of it lost": _worst("lost", "{:.2%}"),
        "out of order": _worst("disorder", "{:.0f}"),
        "CPU ns each": _number("cpu_ns"),
        "x --no-sync": _against("Overlane --no-sync", "per_second"),
    },
}


def show(console: Console, name: str, measure: Measure, found: Found) -> None:
    columns = COLUMNS[name]
    table = Table(title=measure.title, title_justify="left", box=None)
    table.add_column("", no_wrap=True)
    for heading in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for system, rounds in found.items():
        table.add_row(system, *(text(rounds, found) for text in columns.values()))
    console.print(table)
    console.print()


def aims(results: Mapping[str, Found]) -> dict[str, bool]:
    """What is aimed at, as far as it was measured, and whether it was reached."""
    verdicts = dict[str, bool]()
    small = results.get("small", {})
    for peer, least in ((MOSQUITTO, OF_MOSQUITTO_MIN), (NATS, OF_NATS_MIN)):
        value = ratio(small.get(OURS, []), small.get(peer), "per_second")
        if value is not None:
            verdicts[f"64 bytes at QoS 0: {value:.2f} x {peer}, at least {least:g}"] = value >= least
    latency = {peer: rounds for peer, rounds in results.get("latency", {}).items() if peer != NOBODY}
    if OURS in latency and len(latency) > 1:
        best = min((peer for peer in latency if peer != OURS), key=lambda peer: _typical(latency[peer], "p99_us"))
        value = ratio(latency[OURS], latency[best], "p99_us")
        if value is not None:
            verdicts[f"p99: {value:.2f} x {best}, the best; at most {P99_OF_BEST_MAX:g}"] = value <= P99_OF_BEST_MAX
    durable = results.get("durable", {}).get(OURS)
    if durable:
        rate, lost = _typical(durable, "per_second"), max(one["lost"] for one in durable)
        text = f"durable QoS 1: {rate:,.0f} a second, at least {DURABLE_PER_SECOND_MIN:,}; {lost:.0%} of them lost"
        verdicts[text] = rate >= DURABLE_PER_SECOND_MIN and lost == 0
    return verdicts
