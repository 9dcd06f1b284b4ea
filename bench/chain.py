"""Three brokers in a row beside their peers: Overlane, Mosquitto bridges, NATS leaf nodes and Zenoh routers in one run.

    python bench/chain.py [--quick] [--only small,latency] [--systems overlane,nats] [--rounds 5] [--seconds 2]

    small, large       messages a second, 64 bytes and 1 KiB, QoS 0: one publisher at the first broker that floods, one
                       subscriber at the last that counts. Aim at 64 bytes: at least 2.5 x Mosquitto and 0.5 x NATS
    latency            from the publisher to the subscriber at 5,000 messages a second; p99 at most 1.5 x that of the
                       best. With real-time priority where that is allowed
    durable            messages a second at QoS 1 into a persistent session at the last broker, and acknowledged to the
                       publishers at the first. Overlane acknowledges what is on disk, Mosquitto what is in memory
    failover           four brokers as a square, two ways from the first to the last: how long after `kill -9` of the
                       broker on the way in use the first message arrives that was sent after it. Overlane and Zenoh
                       have both ways at once, bridges and leaf nodes the other way in reserve

The load is that of bench/broker.py. Before a round is measured, the subscriber waits until something published at the
first broker has reached it. Every message has a number: what is lost or out of order is seen.

Systems take turns, round by round, each time in another order; figures are medians over rounds, ratios are taken within
a round. What is not installed is said and left out. Writes bench/out/chain.json.
"""

from rich.console import Console

from _broker_tables import show
from _chain_measures import MEASURES
from _chain_peers import Joining, MosquittoBridges, NatsLeafNodes, OverlaneBrokers, ZenohRouters, row, square
from _chain_tables import COLUMNS, aims
from _side_by_side import key, options, run
from _turns import Found, Turns

PEERS: tuple[Joining, ...] = (OverlaneBrokers(), MosquittoBridges(), NatsLeafNodes(), ZenohRouters())
KEEPERS: tuple[Joining, ...] = (
    OverlaneBrokers(),
    OverlaneBrokers("Overlane --no-sync", sync=False),
    MosquittoBridges("Mosquitto, no sync", persistent=True),
)


def main() -> None:
    chosen = options((__doc__ or "").partition("\n")[0], MEASURES, PEERS)

    def measured(turns: Turns, name: str) -> Found:
        peers = KEEPERS if name == "durable" else PEERS
        peers = tuple(peer for peer in peers if not chosen.systems or key(peer) in chosen.systems)
        return turns.measure(MEASURES[name], peers, square if name == "failover" else row)

    run(chosen, "chain", MEASURES, PEERS, measured, _show, aims)


def _show(console: Console, name: str, found: Found) -> None:
    show(console, MEASURES[name].title, COLUMNS[name], found)


if __name__ == "__main__":
    main()
