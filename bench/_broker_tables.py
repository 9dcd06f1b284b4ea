"""Tables of bench/broker.py: one for each measurement, and whether the targets are met. bench/chain.py uses parts of
it.

A ratio to another system is computed within each round, and the median over rounds is shown: other work on the machine
in a round affects both.
"""

from collections.abc import Callable, Mapping
from statistics import median

from rich.console import Console
from rich.table import Table

from _turns import Figures, Found

OURS, MOSQUITTO, NATS, NOBODY = "Overlane", "Mosquitto", "NATS", "no broker"
OF_MOSQUITTO_MIN = 2.0
OF_NATS_MIN = 0.8
P99_OF_BEST_MAX = 1.5
DURABLE_PER_SECOND_MIN = 60_000

Columns = Mapping[str, Callable[[list[Figures], Found], str]]


def typical(rounds: list[Figures], name: str) -> float:
    return median(figures[name] for figures in rounds)


def ratio(rounds: list[Figures], others: list[Figures] | None, name: str) -> float | None:
    pairs = [(one[name], other[name]) for one, other in zip(rounds, others or [], strict=False) if other[name]]
    return median(one / other for one, other in pairs) if pairs else None


def number(name: str, form: str = "{:,.0f}", per: float = 1) -> Callable[[list[Figures], Found], str]:
    return lambda rounds, _: form.format(typical(rounds, name) / per)


def spread(name: str) -> Callable[[list[Figures], Found], str]:
    return lambda rounds, _: f"{min(one[name] for one in rounds):,.0f} - {max(one[name] for one in rounds):,.0f}"


def against(peer: str, name: str) -> Callable[[list[Figures], Found], str]:
    def text(rounds: list[Figures], found: Found) -> str:
        value = ratio(rounds, found.get(peer), name)
        return "" if value is None else f"{value:.2f} x"

    return text


def worst(name: str, form: str) -> Callable[[list[Figures], Found], str]:
    return lambda rounds, _: form.format(max(one[name] for one in rounds))


STREAM: Columns = {
    "a second": number("per_second"),
    "least - most": spread("per_second"),
    "x Mosquitto": against(MOSQUITTO, "per_second"),
    "x NATS": against(NATS, "per_second"),
    "lost": number("lost", "{:.2%}"),
    "out of order": worst("disorder", "{:.0f}"),
    "CPU ns each": number("cpu_ns"),
}
MEMORY: Columns = {
    "before, MiB": number("empty_bytes", "{:,.1f}", 2**20),
    "each, bytes": number("each_bytes"),
    "x Mosquitto": against(MOSQUITTO, "each_bytes"),
    "x NATS": against(NATS, "each_bytes"),
}
LATENCY: Columns = {
    "p50": number("p50_us"),
    "p99": number("p99_us"),
    "p99.9": number("p999_us"),
    "p99, least - most": spread("p99_us"),
    "p99 x Mosquitto": against(MOSQUITTO, "p99_us"),
    "p99 x NATS": against(NATS, "p99_us"),
    "CPU ns each": number("cpu_ns"),
}
COLUMNS: dict[str, Columns] = {
    "small": STREAM,
    "large": STREAM,
    "latency": LATENCY,
    "fanout": STREAM,
    "connections": MEMORY,
    "subscriptions": MEMORY,
    "durable": {
        "acknowledged/s": number("per_second"),
        "least - most": spread("per_second"),
        "delivered/s": number("delivered_per_second"),
        "of it lost": worst("lost", "{:.2%}"),
        "out of order": worst("disorder", "{:.0f}"),
        "CPU ns each": number("cpu_ns"),
        "x --no-sync": against("Overlane --no-sync", "per_second"),
    },
}


def show(console: Console, title: str, columns: Columns, found: Found) -> None:
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("", no_wrap=True)
    for heading in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for system, rounds in found.items():
        table.add_row(system, *(text(rounds, found) for text in columns.values()))
    console.print(table)
    console.print()


def aims(results: Mapping[str, Found]) -> dict[str, bool]:
    """What is aimed at, as far as it was measured, and whether it was reached."""
    least = {MOSQUITTO: OF_MOSQUITTO_MIN, NATS: OF_NATS_MIN}
    verdicts = as_fast_as(least, results.get("small", {})) | as_soon_as_the_best(results.get("latency", {}))
    durable = results.get("durable", {}).get(OURS)
    if durable:
        rate, lost = typical(durable, "per_second"), max(one["lost"] for one in durable)
        text = f"durable QoS 1: {rate:,.0f} a second, at least {DURABLE_PER_SECOND_MIN:,}; {lost:.0%} of them lost"
        verdicts[text] = rate >= DURABLE_PER_SECOND_MIN and lost == 0
    return verdicts


def as_fast_as(least_of: Mapping[str, float], small: Found) -> dict[str, bool]:
    verdicts = dict[str, bool]()
    for peer, least in least_of.items():
        value = ratio(small.get(OURS, []), small.get(peer), "per_second")
        if value is not None:
            verdicts[f"64 bytes at QoS 0: {value:.2f} x {peer}, at least {least:g}"] = value >= least
    return verdicts


def as_soon_as_the_best(found: Found) -> dict[str, bool]:
    latency = {peer: rounds for peer, rounds in found.items() if peer != NOBODY}
    if OURS not in latency or len(latency) == 1:
        return {}
    best = min((peer for peer in latency if peer != OURS), key=lambda peer: typical(latency[peer], "p99_us"))
    value = ratio(latency[OURS], latency[best], "p99_us")
    if value is None:
        return {}
    return {f"p99: {value:.2f} x {best}, the best; at most {P99_OF_BEST_MAX:g}": value <= P99_OF_BEST_MAX}
