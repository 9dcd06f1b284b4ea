"""What must hold of reservations in a network, whatever happens to it; seen from outside, in all brokers at once."""

import math

from overlane.planning.problem import NoSolution
from overlane.reservation.contract import Admitted, Broker
from overlane.reservation.flowspecs import request_for
from overlane.reservation.link_ledger import LinkLedger
from overlane.reservation.rsvp.objects import Sender, Session, session_of
from overlane.reservation.soft_state import SECOND
from overlane.sim.reservation_network import SimulatedReservations


def overbooked(net: SimulatedReservations) -> list[str]:
    """At any moment: links that have promised more than they have. Empty if none has."""
    return [
        f"{broker} has promised {promised} of {ledger.terms.capacity} bytes/s to {peer}"
        for broker, agent in net.agents.items()
        for peer, ledger in agent.ledgers.items()
        if (promised := sum(rate for _, rate in ledger)) > ledger.terms.capacity or promised != ledger.promised
    ]


def unkept(net: SimulatedReservations) -> list[str]:
    """When nothing happens any more: admitted requests for which some link of their path has not set enough aside."""
    found = []
    for request, (broker, ask) in net.asks.items():
        if not isinstance(net.outcome.get(request), Admitted):
            if request in net.agents[broker].asked:
                found.append(f"{request}: neither admitted nor refused")
            continue
        session = session_of(ask.topic_filter)
        serving = net.agents[broker].paths.serving(session, None)
        if not serving:
            found.append(f"{request}: admitted without a path")
        for sender, entry in serving.items():
            try:
                rate = request_for(entry.tspec, ask.tspec, ask.latency_s, entry.adspec).rate
            except NoSolution:
                found.append(f"{request}: admitted though too slow")
                continue
            for ledger in ledgers_on_path(net, broker, session, sender):
                if ledger is None or rate_of(ledger, session, sender) < rate:
                    found.append(f"{request}: not {rate:g} bytes/s on every link from the sender to {broker}")
    return found


def ledgers_on_path(
    net: SimulatedReservations, broker: Broker, session: Session, sender: Sender
) -> list[LinkLedger | None]:
    """Of every link from the sender to a broker, the last one first; None where the path is broken."""
    found: list[LinkLedger | None] = []
    while True:
        entry = net.agents[broker].paths.get(session, sender)
        if entry is None or len(found) > len(net.agents):
            return [*found, None]
        if entry.previous is None:
            return found
        found.append(net.agents[entry.previous].ledgers.get(broker))
        broker = entry.previous


def rate_of(ledger: LinkLedger, session: Session, sender: Sender) -> int:
    rates = dict(ledger)
    return max(rates.get((session, ()), 0), rates.get((session, (sender,)), 0))


def disagreements(net: SimulatedReservations) -> list[str]:
    """When nothing is under way: neighbours that do not know the same of each other."""
    found = []
    for broker, agent in net.agents.items():
        for peer, ledger in agent.ledgers.items():
            asked = {
                (session, filters): math.ceil(upstream.flowspec.rate)
                for session, state in net.agents[peer].reservations
                for (previous, filters), upstream in state.upstream.items()
                if previous == broker
            }
            kept = dict(ledger)
            if kept.items() - asked.items():
                found.append(f"{broker} keeps for {peer} what it does not ask for")
        for entry in agent.paths:
            above = (
                None if entry.previous is None else net.agents[entry.previous].paths.get(entry.session, entry.sender)
            )
            if entry.previous is not None and (above is None or broker not in above.children):
                found.append(f"{broker} has a path that {entry.previous} does not know")
    return found


def admitted(net: SimulatedReservations) -> set[str]:
    return {request for request in net.asks if isinstance(net.outcome.get(request), Admitted)}


def left_over(net: SimulatedReservations) -> list[str]:
    """When nothing is asked for any more: what is still set aside or remembered."""
    return [
        f"{broker} still keeps {len(agent.reservations)} requests, and {promised} bytes/s"
        for broker, agent in net.agents.items()
        if (promised := sum(ledger.promised for ledger in agent.ledgers.values())) or len(agent.reservations)
    ]


def release_all(net: SimulatedReservations, within_ns: int = 2 * SECOND) -> None:
    for request in list(net.asks):
        net.release(request)
    net.run(within_ns)
