"""Mixed traffic through one broker and through three in a row: Overlane, Mosquitto and NATS in one run.

    python bench/mixed.py [--quick] [--only one-1,chain-100] [--systems overlane,nats] [--rounds 5] [--seconds 2]

    one-..., chain-...   one broker; three in a row, with the publishers at the first and the subscriber at the last
    1, 100               1,000 topics and 16 to 256 bytes in random order, QoS 0, from one writer and from 100, that
                         write as fast as the broker reads; one subscriber to everything
    properties           the same from one writer of MQTT 5 with a content type, a user property and correlation data
                         that differs from message to message; NATS has headers of the same kind
    aliases              the same with topic aliases, as many as the broker allows; NATS has none
    qos1, qos1-100       a fifth of the messages at QoS 1, for a subscriber of QoS 1; NATS has plain messages instead

Each round publishes at full rate, and counts the messages that each writer has sent, those that arrived, and the CPU
time of all brokers; then it measures the latency of a constant stream of 2,000 single messages per second. Overlane has
a network file, Mosquitto bridges for all topics and no limit on queues and messages in flight, NATS leaf nodes.

Targets: one broker at least 1.5 x NATS; three at least 1 x NATS and 4 x Mosquitto from one writer and 0.8 x NATS from
100, and nothing lost.

Systems alternate, round by round, each time in another order; figures are medians over rounds, ratios are computed
within a round. Missing systems are reported and skipped. Writes bench/out/mixed.json.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from _broker_tables import MOSQUITTO, NATS, OURS, Columns, against, number, ratio, show, worst
from _chain_peers import Joined, Joining, Layout, MosquittoBridges, NatsLeafNodes, OverlaneBrokers, Site, joined, row
from _mixed_measures import CHAIN, MEASURES, ONE
from _peers import IN_FLIGHT_MAX
from _side_by_side import key, options, others, run
from _turns import Found, Turns

ALIASES = 1_000
ALONE = Layout({"a": []})
LEAST_OF = {
    f"{ONE}-1": {NATS: 1.5},
    f"{CHAIN}-1": {NATS: 1.0, MOSQUITTO: 4.0},
    f"{CHAIN}-100": {NATS: 0.8},
}


class Overlane(OverlaneBrokers):
    def network(self, site: Site) -> str:
        return super().network(site) + f"[limits]\ntopic_aliases = {ALIASES}\nin_flight = {IN_FLIGHT_MAX}\n"


class Mosquitto(MosquittoBridges):
    def lines(self, port: int, directory: Path) -> list[str]:
        # With its defaults it drops messages of QoS 1 for a subscriber that falls behind, and has 20 in flight.
        return [*super().lines(port, directory), "max_queued_messages 0", "max_inflight_messages 0"]


PEERS: tuple[Joining, ...] = (Overlane(), Mosquitto(), NatsLeafNodes())

COLUMNS: Columns = {
    "a second": number("per_second"),
    "x Mosq.": against(MOSQUITTO, "per_second"),
    "x NATS": against(NATS, "per_second"),
    "CPU ns": number("cpu_ns"),
    "p50 us": number("p50_us"),
    "p99 us": number("p99_us"),
    "lost": worst("lost", "{:.2%}"),
    "of one": worst("lost_worst", "{:.2%}"),
    "disorder": worst("disorder", "{:.0f}"),
    "least/avg": number("least_share", "{:.2f}"),
    "MiB": number("memory_bytes", "{:,.0f}", 2**20),
}


@contextmanager
def alone(peer: Joining, directory: Path) -> Iterator[Joined]:
    with joined(peer, ALONE, directory) as brokers:
        yield brokers


def main() -> None:
    chosen = options((__doc__ or "").partition("\n")[0], MEASURES, PEERS)

    versions = [Overlane(told, sources=sources) for told, sources in others(chosen).items()]

    def measured(turns: Turns, name: str) -> Found:
        peers = tuple(peer for peer in PEERS if not chosen.systems or key(peer) in chosen.systems)
        peers = (*peers, *versions)
        return turns.measure(MEASURES[name], peers, alone if name.startswith(ONE) else row)

    run(chosen, "mixed", MEASURES, PEERS, measured, _show, aims)


def _show(console: Console, name: str, found: Found) -> None:
    show(console, MEASURES[name].title, COLUMNS, found)


def aims(results: Mapping[str, Found]) -> dict[str, bool]:
    """What is aimed at, as far as it was measured, and whether it was reached."""
    verdicts: dict[str, bool] = {}
    for name, found in results.items():
        for peer, least in LEAST_OF.get(name, {}).items():
            value = ratio(found.get(OURS, []), found.get(peer), "per_second")
            if value is not None:
                verdicts[f"{name}: {value:.2f} x {peer}, at least {least:g}"] = value >= least
        if OURS in found:
            lost = int(sum(one["lost_messages"] for one in found[OURS]))
            verdicts[f"{name}: {lost:,} messages lost, none allowed"] = lost == 0
    return verdicts


if __name__ == "__main__":
    main()
