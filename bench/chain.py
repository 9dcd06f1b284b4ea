"""Three brokers in a row compared: Overlane, Mosquitto bridges, NATS leaf nodes and Zenoh routers in one run.

    python bench/chain.py [--quick] [--only small,latency] [--systems overlane,nats] [--rounds 5] [--seconds 2]

    small, large       messages per second, 64 bytes and 1 KiB, QoS 0: a publisher at full rate at the first broker, a
                       subscriber at the last that counts. Target at 64 bytes: at least 2.5 x Mosquitto and 0.5 x NATS
    latency            from the publisher to the subscriber at 5,000 messages per second; p99 at most 1.5 x that of the
                       best. With real-time priority if allowed
    durable            messages per second at QoS 1 into a persistent session at the last broker, and acknowledged to
                       the publishers at the first. Overlane acknowledges what is on disk, Mosquitto what is in memory
    failover           four brokers as a square, two paths from the first to the last: how long after `kill -9` of the
                       broker on the path in use the first message arrives that was sent after it. Overlane and Zenoh
                       have both paths at once, bridges and leaf nodes have the other path as a fallback

The load is that of bench/broker.py. Each round begins when a message published at the first broker has reached the
subscriber. Messages are numbered: losses and reordering are detected.

Systems alternate, round by round, each time in another order; figures are medians over rounds, ratios are computed
within a round. Missing systems are reported and skipped. Writes bench/out/chain.json.
"""

from rich.console import Console

from _broker_tables import show
from _chain_measures import MEASURES
from _chain_peers import Joining, MosquittoBridges, NatsLeafNodes, OverlaneBrokers, ZenohRouters, row, square
from _chain_tables import COLUMNS, aims
from _side_by_side import key, options, others, run
from _turns import Found, Turns

PEERS: tuple[Joining, ...] = (OverlaneBrokers(), MosquittoBridges(), NatsLeafNodes(), ZenohRouters())
KEEPERS: tuple[Joining, ...] = (
    OverlaneBrokers(),
    OverlaneBrokers("Overlane --no-sync", sync=False),
    MosquittoBridges("Mosquitto, no sync", persistent=True),
)


def main() -> None:
    chosen = options((__doc__ or "").partition("\n")[0], MEASURES, PEERS)

    versions = [OverlaneBrokers(told, sources=sources) for told, sources in others(chosen).items()]

    def measured(turns: Turns, name: str) -> Found:
        peers = (*(KEEPERS if name == "durable" else PEERS), *versions)
        peers = tuple(peer for peer in peers if not chosen.systems or key(peer) in chosen.systems)
        return turns.measure(MEASURES[name], peers, square if name == "failover" else row)

    run(chosen, "chain", MEASURES, PEERS, measured, _show, aims)


def _show(console: Console, name: str, found: Found) -> None:
    show(console, MEASURES[name].title, COLUMNS[name], found)


if __name__ == "__main__":
    main()
