"""`overlane reservations --what-if`: requests that would be admitted in addition to the reservations of running
brokers.

The brokers report the remaining rate of each link and the advertisements; the requests of the file are then simulated,
as in `overlane plan admit`. The running brokers do not change.
"""

from pathlib import Path

import msgspec
import typer

from overlane.adminapi.views import LinkList, ReservationsView
from overlane.cli.admin.admin_client import error_lines, get_all, targets_of
from overlane.cli.exit_status import exit_on_error
from overlane.cli.plan.admit import AdmitAnswer, PublisherGiven, SubscriberGiven, decide, show, uses_of
from overlane.cli.plan.command import run_solver
from overlane.cli.plan.reserve import BucketGiven
from overlane.planning.problem import BadProblem
from overlane.reservation.link_ledger import LinkTerms
from overlane.reservation.soft_state import REFRESH_MS_MAX
from overlane.sim.reservation_network import SimulatedReservations

PACKET_BYTES_MAX = 66_000
"""As running brokers count it."""
HEADER_BYTES = 96
NO_ANSWER = 1


class WhatIf(msgspec.Struct, forbid_unknown_fields=True):
    subscribers: list[SubscriberGiven]
    publishers: list[PublisherGiven] = []
    """Beside what is advertised now."""


def what_if_admitted(target: str, file: Path, as_json: bool, token_file: Path | None) -> None:
    with exit_on_error():
        targets = targets_of(target, token_file)
    promised = get_all(targets, "/reservations", {}, ReservationsView)
    linked = get_all(targets, "/links", {}, LinkList)
    names = [one.broker.name for one in promised if one.body is not None and one.broker.name]
    if not names:
        typer.echo(error_lines(promised) or f"{target}: got an address; expected a network file", err=True)
        raise typer.Exit(NO_ANSWER)
    views = {one.broker.name: one.body for one in promised if one.body is not None}
    latencies = {one.broker.name: one.body for one in linked if one.body is not None}
    terms = _terms(views, latencies)

    def solve(problem: WhatIf) -> AdmitAnswer:
        if not terms:
            raise BadProblem("links", "no link with a rate", "at least one")
        net = SimulatedReservations([(*link, one) for link, one in _both(terms, names)], refresh_ms=REFRESH_MS_MAX)
        for (one, other), found in terms.items():
            net.change(names.index(one) + 1, names.index(other) + 1, found)
        publishers = [*_advertised(views), *problem.publishers]
        for publisher in problem.publishers:
            _with_headers(publisher)
        for subscriber in problem.subscribers:
            _with_headers(subscriber)
        return AdmitAnswer(decide(net, names, publishers, problem.subscribers), uses_of(net, names))

    run_solver(str(file), WhatIf, solve, show, as_json)


def _terms(views: dict[str, ReservationsView], linked: dict[str, LinkList]) -> dict[tuple[str, str], LinkTerms]:
    """What is left of each link, in each direction."""
    found: dict[tuple[str, str], LinkTerms] = {}
    for name, links in linked.items():
        promised = {one.peer: one for one in views[name].links} if name in views else {}
        for link in links.items:
            if link.state != "up" or link.peer not in views:
                continue
            known = promised.get(link.peer)
            if known is None or not known.rate:
                continue
            share = max(0, known.capacity - known.promised) / known.rate
            latency_us = round((link.latency_ms or 0.0) * 1e3)
            found[name, link.peer] = LinkTerms(known.rate, latency_us, share, PACKET_BYTES_MAX)
    return found


def _both(terms: dict[tuple[str, str], LinkTerms], names: list[str]) -> list[tuple[tuple[int, int], LinkTerms]]:
    return [
        ((names.index(one) + 1, names.index(other) + 1), found)
        for (one, other), found in terms.items()
        if one < other or (other, one) not in terms
    ]


def _advertised(views: dict[str, ReservationsView]) -> list[PublisherGiven]:
    return [
        PublisherGiven(
            broker=name,
            topic=one.filter,
            size_min=one.tspec.m,
            size_max=one.tspec.M,
            token_bucket=BucketGiven(one.tspec.r, one.tspec.b, one.tspec.p),
        )
        for name, view in views.items()
        for one in view.advertised
    ]


def _with_headers(given: PublisherGiven | SubscriberGiven) -> None:
    """A message is larger on a link."""
    extra = HEADER_BYTES + len(given.topic.encode())
    for field in ("size", "size_min", "size_max"):
        if (size := getattr(given, field)) is not None:
            setattr(given, field, size + extra)
