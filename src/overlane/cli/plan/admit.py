"""`overlane plan admit`: which subscribers of a network get the rate and latency that they ask for, and which do not.

The brokers of the problem run in virtual time and make their reservations hop by hop, in the order of the subscribers.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from overlane.cli.exit_status import fail
from overlane.cli.plan.command import AsJson, ProblemFile, run_solver
from overlane.cli.plan.reserve import ProfileGiven
from overlane.planning.problem import BadProblem
from overlane.planning.reserve import tspec_of
from overlane.reservation.contract import Admitted, Ask, Offer, ReservationRefused
from overlane.reservation.link_ledger import SHARE, LinkTerms
from overlane.reservation.rsvp.objects import FILTER_BYTES_MAX, Style, session_of
from overlane.reservation.rsvp.pcap import capture
from overlane.reservation.soft_state import ANSWER_NS, REFRESH_MS_MAX
from overlane.sim.reservation_network import SimulatedReservations

BROKERS_MAX = 128
REQUESTS_MAX = 2000


class LinkGiven(msgspec.Struct, forbid_unknown_fields=True):
    ends: tuple[str, str]
    rate: float | None
    latency_s: float


class PublisherGiven(ProfileGiven, forbid_unknown_fields=True, kw_only=True):
    broker: str
    topic: str


class SubscriberGiven(ProfileGiven, forbid_unknown_fields=True, kw_only=True):
    broker: str
    topic: str
    latency_s: float | None = None
    style: Literal["FF", "SE", "WF"] = "SE"


class AdmitProblem(msgspec.Struct, forbid_unknown_fields=True):
    links: list[LinkGiven]
    publishers: list[PublisherGiven]
    subscribers: list[SubscriberGiven]
    share: float = SHARE
    packet_bytes_max: int = 1500


class Decision(msgspec.Struct):
    broker: str
    topic: str
    admitted: bool
    rate: float | None = None
    delay_bound_s: float | None = None
    path: list[str] = []
    reason: str | None = None
    bottleneck: tuple[str, str] | None = None
    nearest_rate: float | None = None
    nearest_latency_s: float | None = None


class LinkUse(msgspec.Struct):
    source: str = msgspec.field(name="from")
    destination: str = msgspec.field(name="to")
    reserved: int
    capacity: int


class AdmitAnswer(msgspec.Struct):
    subscribers: list[Decision]
    links: list[LinkUse]


PcapFile = Annotated[
    str | None, typer.Option("--pcap", metavar="FILE", help="Write the RSVP messages, for Wireshark and tshark.")
]


def admit(problem: ProblemFile, as_json: AsJson = False, pcap: PcapFile = None) -> None:
    """Simulate the reservations of many subscribers, and show which are admitted, with their paths."""
    run_solver(problem, AdmitProblem, lambda given: _solve(given, pcap), show, as_json)


def _solve(problem: AdmitProblem, pcap: str | None) -> AdmitAnswer:
    names = sorted({name for link in problem.links for name in link.ends})
    net = SimulatedReservations(_links(problem, names), refresh_ms=REFRESH_MS_MAX)
    if pcap is not None:
        net.sent = []
    decisions = decide(net, names, problem.publishers, problem.subscribers)
    if pcap is not None:
        try:
            Path(pcap).write_bytes(capture(net.sent or ()))
        except OSError as refused:
            fail(f"cannot write {pcap}: {refused.strerror}")
    return AdmitAnswer(decisions, uses_of(net, names))


def decide(
    net: SimulatedReservations,
    names: list[str],
    publishers: Sequence[PublisherGiven],
    subscribers: Sequence[SubscriberGiven],
) -> list[Decision]:
    """Whom a network admits, one after the other. Broker n of it has the n-th name, counted from 1. BadProblem."""
    place = {name: at for at, name in enumerate(names, start=1)}
    for number, publisher in enumerate(publishers):
        where = f"publishers[{number}]"
        _check(publisher.broker, publisher.topic, place, where)
        net.offer(place[publisher.broker], Offer(publisher.topic, tspec_of(publisher.profile(), where)))
    return [_decide(net, names, place, number, one) for number, one in enumerate(subscribers)]


def uses_of(net: SimulatedReservations, names: list[str]) -> list[LinkUse]:
    return [
        LinkUse(names[broker - 1], names[peer - 1], ledger.promised, ledger.terms.capacity)
        for broker, agent in net.agents.items()
        for peer, ledger in sorted(agent.ledgers.items())
        if ledger.promised
    ]


def _links(problem: AdmitProblem, names: list[str]) -> list[tuple[int, int, LinkTerms]]:
    if not problem.links or len(names) > BROKERS_MAX:
        raise BadProblem("links", f"{len(names)} brokers", f"2 to {BROKERS_MAX}")
    if len(problem.subscribers) > REQUESTS_MAX:
        raise BadProblem("subscribers", f"{len(problem.subscribers)}", f"at most {REQUESTS_MAX}")
    if not 0 < problem.share <= 1:
        raise BadProblem("share", f"{problem.share:g}", "above 0, at most 1")
    if problem.packet_bytes_max < 1:
        raise BadProblem("packet_bytes_max", f"{problem.packet_bytes_max}", "1 or more")
    found = []
    for number, link in enumerate(problem.links):
        if link.ends[0] == link.ends[1]:
            raise BadProblem(f"links[{number}].ends", f"{link.ends[0]} twice", "two brokers")
        if not 0 <= link.latency_s <= 10:
            raise BadProblem(f"links[{number}].latency_s", f"{link.latency_s:g}", "0 to 10")
        if link.rate is not None and not 0 < link.rate < 1e15:
            raise BadProblem(f"links[{number}].rate", f"{link.rate:g}", "bytes per second, above 0; or null")
        terms = LinkTerms(link.rate, round(link.latency_s * 1e6), problem.share, problem.packet_bytes_max)
        found.append((names.index(link.ends[0]) + 1, names.index(link.ends[1]) + 1, terms))
    return found


def _check(broker: str, topic: str, place: dict[str, int], where: str) -> None:
    if broker not in place:
        raise BadProblem(f"{where}.broker", repr(broker), "a broker with a link")
    if not 0 < len(topic.encode()) <= FILTER_BYTES_MAX:
        raise BadProblem(f"{where}.topic", f"{len(topic.encode())} bytes", f"1 to {FILTER_BYTES_MAX}")


def _decide(
    net: SimulatedReservations, names: list[str], place: dict[str, int], number: int, one: SubscriberGiven
) -> Decision:
    where, request = f"subscribers[{number}]", str(number)
    _check(one.broker, one.topic, place, where)
    tspec = tspec_of(one.profile(), where)
    net.ask(place[one.broker], Ask(request, one.topic, tspec, one.latency_s, Style[one.style]))
    net.settle(ANSWER_NS)
    if request not in net.outcome:
        net.run(ANSWER_NS)
    match net.outcome.get(request):
        case Admitted(_, flowspec, bound_s):
            path = _path(net, names, place[one.broker], one.topic)
            return Decision(one.broker, one.topic, True, flowspec.rate, bound_s, path)
        case ReservationRefused(_, reason, link, rate, latency_s):
            bottleneck = None if link is None else (names[link[0] - 1], names[link[1] - 1])
            return Decision(one.broker, one.topic, False, None, None, [], reason, bottleneck, rate, latency_s)
        case _:
            return Decision(one.broker, one.topic, False, reason="interrupted")


def _path(net: SimulatedReservations, names: list[str], broker: int, topic: str) -> list[str]:
    """From the sender, the first where there are several."""
    session = session_of(topic)
    sender = next(iter(net.agents[broker].paths.serving(session, None)), None)
    found = [names[broker - 1]]
    while sender is not None and (entry := net.agents[broker].paths.get(session, sender)) is not None:
        if entry.previous is None:
            break
        broker = entry.previous
        found.insert(0, names[broker - 1])
    return found


def show(_: object, found: AdmitAnswer, console: Console) -> None:
    table = Table("broker", "topic", "rate", "delay", "path or reason", title="Reservations")
    for one in found.subscribers:
        if one.admitted:
            bound = "" if one.delay_bound_s is None else f"{one.delay_bound_s:.4g} s"
            table.add_row(one.broker, one.topic, f"{one.rate:,.6g} bytes/s", bound, " > ".join(one.path))
        else:
            table.add_row(one.broker, one.topic, "refused", "", _reason(one))
    console.print(table)
    links = Table("link", "reserved", "of", title="Links")
    for use in found.links:
        links.add_row(f"{use.source} > {use.destination}", f"{use.reserved:,} bytes/s", f"{use.capacity:,} bytes/s")
    if found.links:
        console.print(links)


def _reason(one: Decision) -> str:
    parts = [one.reason or ""]
    if one.bottleneck is not None:
        parts.append(f"bottleneck {one.bottleneck[0]} > {one.bottleneck[1]}")
    if one.nearest_rate is not None:
        parts.append(f"{one.nearest_rate:,.6g} bytes/s are left")
    if one.nearest_latency_s is not None:
        parts.append(f"nearest latency {one.nearest_latency_s:.4g} s")
    return "; ".join(parts)
