"""Listeners for other protocols, each compared with the native broker of its protocol in one run.

    python bench/gateways.py [--quick] [--only nats] [--systems overlane,nats] [--rounds 5] [--seconds 2]

    nats               1,000 subjects and 16 to 256 bytes in random order, from one NATS client that writes as fast as
                       the broker reads, to one that subscribes to everything; nats-server beside it. Target: at least
                       0.5 x nats-server, and nothing lost
    nats-100           the same from 100 clients
    nats-headers       the same from one client, with headers

Each round publishes at full rate, and counts the messages that were sent, those that arrived, and the CPU time of the
broker; then it measures the latency of a constant stream of 2,000 single messages per second. The load comes from
separate processes over raw sockets (`_mixed_load.py`).

Systems alternate, round by round, each time in another order; figures are medians over rounds, ratios are computed
within a round. Missing systems are reported and skipped. Writes bench/out/gateways.json.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from _broker_tables import NATS, OURS, Columns, against, number, ratio, show, worst
from _chain_peers import Joined
from _load import Load, SocketLoad
from _mixed_measures import PLAIN, WITH_PROPERTIES, WRITERS, Mixed
from _peers import NatsServer, Overlane, Peer, free_port, running
from _side_by_side import key, options, run
from _turns import Found, Measure, Turns
from _wire import HOST, Nats

OF_NATS_MIN = 0.5

MEASURES: dict[str, Measure[Joined]] = {
    "nats": Measure("NATS, one client", Mixed(PLAIN, 1)),
    "nats-100": Measure(f"NATS, {WRITERS} clients", Mixed(PLAIN, WRITERS)),
    "nats-headers": Measure("NATS with headers, one client", Mixed(WITH_PROPERTIES, 1)),
}


@dataclass(frozen=True, slots=True)
class OverlaneNats(Overlane):
    """With a listener for NATS, where the load goes."""

    @property
    def load(self) -> Load:
        return SocketLoad(Nats())

    def command(self, port: int, directory: Path) -> list[str]:
        file = directory / "network.toml"
        addresses = {"nats": port, "mqtt": free_port(), "overlay": free_port(), "admin": free_port()}
        lines = [f'{kind} = "{HOST}:{number}"' for kind, number in addresses.items()]
        file.write_text("\n".join(["[brokers.bench]", *lines, ""]))
        return self.broker(file, "bench", directory / "data")


PEERS: tuple[Peer, ...] = (OverlaneNats(), NatsServer())

COLUMNS: Columns = {
    "a second": number("per_second"),
    "x native": against(NATS, "per_second"),
    "CPU ns": number("cpu_ns"),
    "p50 us": number("p50_us"),
    "p99 us": number("p99_us"),
    "lost": worst("lost", "{:.2%}"),
    "disorder": worst("disorder", "{:.0f}"),
    "MiB": number("memory_bytes", "{:,.0f}", 2**20),
}


@contextmanager
def alone(peer: Peer, directory: Path) -> Iterator[Joined]:
    with running(peer, directory) as broker:
        yield Joined({"alone": broker})


def main() -> None:
    chosen = options((__doc__ or "").partition("\n")[0], MEASURES, PEERS)

    def measured(turns: Turns, name: str) -> Found:
        peers = tuple(peer for peer in PEERS if not chosen.systems or key(peer) in chosen.systems)
        return turns.measure(MEASURES[name], peers, alone)

    run(chosen, "gateways", MEASURES, PEERS, measured, _show, aims)


def _show(console: Console, name: str, found: Found) -> None:
    show(console, MEASURES[name].title, COLUMNS, found)


def aims(results: Mapping[str, Found]) -> dict[str, bool]:
    """What is aimed at, as far as it was measured, and whether it was reached."""
    verdicts: dict[str, bool] = {}
    for name, found in results.items():
        value = ratio(found.get(OURS, []), found.get(NATS), "per_second")
        if value is not None:
            verdicts[f"{name}: {value:.2f} x {NATS}, at least {OF_NATS_MIN:g}"] = value >= OF_NATS_MIN
        if OURS in found:
            lost = int(sum(one["lost_messages"] for one in found[OURS]))
            verdicts[f"{name}: {lost:,} messages lost, none allowed"] = lost == 0
    return verdicts


if __name__ == "__main__":
    main()
