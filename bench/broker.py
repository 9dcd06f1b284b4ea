"""One broker compared with others: Overlane, Mosquitto, NATS and Zenoh in one run.

    python bench/broker.py [--quick] [--only small,latency] [--systems overlane,nats] [--rounds 5] [--seconds 2]

    small, large       messages per second, 64 bytes and 1 KiB, QoS 0, one publisher at full rate, one subscriber that
                       counts. Target at 64 bytes: at least 2 x Mosquitto and 0.8 x NATS
    latency            at 5,000 messages per second; p99 at most 1.5 x that of the best. If allowed, brokers
                       and load run with real-time priority, so that other work on the machine is not measured
    fanout             deliveries per second to 100 subscribers
    connections        memory per idle connection
    subscriptions      memory per subscription
    durable            acknowledged messages per second at QoS 1 on 1,000 topics into a persistent session, with and
                       without waiting for the disk; 1,000 may be in flight to it. Target: 60,000 with. Mosquitto never
                       waits: what it has acknowledged since it last saved, every half hour, is lost when it is killed

The load comes from separate processes, over raw sockets for MQTT and NATS (`_load.py`), and by its own library for
Zenoh (`_zenoh_load.py`), which includes the cost of Python per message. Messages are numbered: losses and reordering
are detected. "no broker" is the load generator by itself.

Brokers alternate, round by round, each time in another order; figures are medians over rounds, ratios are computed
within a round. Missing systems are reported and skipped. Writes bench/out/broker.json.
"""

from rich.console import Console

from _broker_measures import MEASURES
from _broker_tables import COLUMNS, aims, show
from _peers import IN_FLIGHT_MAX, Mosquitto, NatsServer, Nobody, Overlane, Peer, ZenohRouter, running
from _side_by_side import key, options, others, run
from _turns import Found, Turns

PEERS: tuple[Peer, ...] = (Overlane(), Mosquitto(), NatsServer(), ZenohRouter())
KEEPERS: tuple[Peer, ...] = (
    Overlane(in_flight=IN_FLIGHT_MAX),
    Overlane("Overlane --no-sync", sync=False, in_flight=IN_FLIGHT_MAX),
    Mosquitto("Mosquitto, no sync", persistent=True),
)
WITHOUT_BROKER = ("small", "large", "latency")


def main() -> None:
    chosen = options((__doc__ or "").partition("\n")[0], MEASURES, PEERS)

    found = others(chosen)

    def measured(turns: Turns, name: str) -> Found:
        in_flight = IN_FLIGHT_MAX if name == "durable" else 0
        versions = [Overlane(told, sources=sources, in_flight=in_flight) for told, sources in found.items()]
        peers = (*(KEEPERS if name == "durable" else PEERS), *versions)
        peers = tuple(peer for peer in peers if not chosen.systems or key(peer) in chosen.systems)
        if name in WITHOUT_BROKER:
            peers = (*peers, Nobody())
        return turns.measure(MEASURES[name], peers, running)

    run(chosen, "broker", MEASURES, PEERS, measured, _show, aims)


def _show(console: Console, name: str, found: Found) -> None:
    show(console, MEASURES[name].title, COLUMNS[name], found)


if __name__ == "__main__":
    main()
