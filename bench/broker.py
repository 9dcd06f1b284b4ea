"""One broker beside its peers: Overlane, Mosquitto, NATS and Zenoh, measured side by side in one run.

    python bench/broker.py [--quick] [--only small,latency] [--systems overlane,nats] [--rounds 5] [--seconds 2]

    small, large       messages a second, 64 bytes and 1 KiB, QoS 0, one publisher that floods, one subscriber that
                       counts. Aim at 64 bytes: at least 2 x Mosquitto and 0.8 x NATS
    latency            at 5,000 messages a second; p99 at most 1.5 x that of the best. Where that is allowed, brokers
                       and load run with real-time priority for it, so that other work on the machine is not measured
    fanout             deliveries a second to 100 subscribers
    connections        memory per idle connection
    subscriptions      memory per subscription
    durable            acknowledged messages a second at QoS 1 into a persistent session, with and without waiting for
                       the disk. Aim: 20,000 with. Mosquitto beside it never waits: what it has acknowledged since it
                       last saved, every half an hour, is lost when it is killed

Load comes from processes of their own, over raw sockets for MQTT and NATS (`_load.py`), and by its own library for
Zenoh (`_zenoh_load.py`), so there what Python takes per message counts too. Every message has a number: what is lost or
out of order is seen. "no broker" is the load by itself.

Brokers take turns, round by round, each time in another order; figures are medians over rounds, ratios are taken within
a round. What is not installed is said and left out. Writes bench/out/broker.json.
"""

from rich.console import Console

from _broker_measures import MEASURES
from _broker_tables import COLUMNS, aims, show
from _peers import Mosquitto, NatsServer, Nobody, Overlane, Peer, ZenohRouter, running
from _side_by_side import key, options, run
from _turns import Found, Turns

PEERS: tuple[Peer, ...] = (Overlane(), Mosquitto(), NatsServer(), ZenohRouter())
KEEPERS: tuple[Peer, ...] = (
    Overlane(),
    Overlane("Overlane --no-sync", sync=False),
    Mosquitto("Mosquitto, no sync", persistent=True),
)
WITHOUT_BROKER = ("small", "large", "latency")


def main() -> None:
    chosen = options((__doc__ or "").partition("\n")[0], MEASURES, PEERS)

    def measured(turns: Turns, name: str) -> Found:
        peers = KEEPERS if name == "durable" else PEERS
        peers = tuple(peer for peer in peers if not chosen.systems or key(peer) in chosen.systems)
        if name in WITHOUT_BROKER:
            peers = (*peers, Nobody())
        return turns.measure(MEASURES[name], peers, running)

    run(chosen, "broker", MEASURES, PEERS, measured, _show, aims)


def _show(console: Console, name: str, found: Found) -> None:
    show(console, MEASURES[name].title, COLUMNS[name], found)


if __name__ == "__main__":
    main()
