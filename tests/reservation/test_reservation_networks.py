"""A thousand requests on a real network: no link overbooked, and more admitted than on shortest paths alone."""

from heapq import heappop, heappush
from itertools import pairwise
from pathlib import Path as FilePath
from random import Random

import pytest
from invariants import disagreements, left_over, overbooked, release_all, unkept

from overlane.network import read_network
from overlane.planning.reserve import TSpec
from overlane.reservation.contract import Admitted, Ask, Offer, ReservationRefused, Topology
from overlane.reservation.link_ledger import LinkTerms
from overlane.reservation.rsvp.objects import Style
from overlane.reservation.soft_state import REFRESH_MS_MAX, SECOND
from overlane.sim.reservation_network import SimulatedReservations

GEANT = FilePath(__file__).parents[2] / "examples" / "networks" / "geant.toml"
RATE = 10e6 / 8
REQUESTS = 1000


def geant(seed: int) -> SimulatedReservations:
    network = read_network(GEANT)
    places = {broker.name: place for place, broker in enumerate(network.brokers, start=1)}
    links = [
        (places[link.ends[0]], places[link.ends[1]], LinkTerms(RATE, max(1, link.latency_ns // 1000)))
        for link in network.links
    ]
    return SimulatedReservations(links, seed, REFRESH_MS_MAX)


def shortest(topology: Topology, source: int, destination: int) -> list[tuple[int, int]]:
    distance, before, heap = {source: 0}, {}, [(0, source)]
    while heap:
        latency, broker = heappop(heap)
        for neighbour, more in topology[broker].items():
            if latency == distance[broker] and latency + more < distance.get(neighbour, 1 << 62):
                distance[neighbour], before[neighbour] = latency + more, broker
                heappush(heap, (latency + more, neighbour))
    path = [destination]
    while path[0] != source:
        path.insert(0, before[path[0]])
    return list(pairwise(path))


@pytest.mark.slow
def test_a_fifth_more_requests_are_admitted_than_by_first_fit_on_shortest_paths() -> None:
    seed = 1
    print(f"seed {seed}")
    luck, net = Random(seed), geant(seed)
    topology = net.topology()
    left = {
        (broker, peer): ledger.available
        for broker, agent in net.agents.items()
        for peer, ledger in agent.ledgers.items()
    }
    first_fit = 0
    for number in range(REQUESTS):
        source, destination = luck.sample(sorted(net.agents), 2)
        rate = luck.choice([2000.0, 5000.0, 10_000.0, 20_000.0, 40_000.0])
        path = shortest(topology, source, destination)
        if all(left[link] >= rate for link in path):
            first_fit += 1
            left.update({link: left[link] - int(rate) for link in path})
        tspec = TSpec(rate, rate, 2 * rate, 100, 1000)
        net.offer(source, Offer(f"flow/{number}", tspec))
        net.ask(destination, Ask(f"{number}", f"flow/{number}", tspec, None, luck.choice(list(Style))))
        net.settle(3 * SECOND)
        if number % 20 == 0:
            assert overbooked(net) == []
    admitted = sum(isinstance(one, Admitted) for one in net.outcome.values())
    print(f"{admitted} admitted; first fit {first_fit}")
    assert overbooked(net) == unkept(net) == disagreements(net) == []
    assert admitted >= 1.2 * first_fit
    release_all(net)
    assert left_over(net) == []


def test_when_the_busiest_links_fail_every_subscriber_is_restored_or_told() -> None:
    luck, net = Random(5), geant(5)
    for number in range(100):
        source, destination = luck.sample(sorted(net.agents), 2)
        rate = luck.choice([10_000.0, 40_000.0])
        tspec = TSpec(rate, rate, 2 * rate, 100, 1000)
        net.offer(source, Offer(f"flow/{number}", tspec))
        net.ask(destination, Ask(f"{number}", f"flow/{number}", tspec, None, Style.FF))
        net.settle(3 * SECOND)
    before = {request for request, one in net.outcome.items() if isinstance(one, Admitted)}
    failed, moved = [], 0
    for _ in range(3):
        promises = {
            (one, other): ledger.promised
            for one, agent in net.agents.items()
            for other, ledger in agent.ledgers.items()
        }
        busiest = max(promises, key=lambda link: (promises[link], link))
        moved += sum(1 for _ in net.agents[busiest[0]].ledgers[busiest[1]])
        net.fail(*busiest)
        failed.append(busiest)
        net.run(SECOND)
        assert overbooked(net) == []
        net.settle(20 * SECOND)
        assert overbooked(net) == unkept(net) == disagreements(net) == []
    after = {request for request, one in net.outcome.items() if isinstance(one, Admitted)}
    assert {type(net.outcome[request]) for request in before - after} <= {ReservationRefused}
    # Many were on these links, and nearly all have found another path.
    assert moved > 10
    assert len(after) >= 0.9 * len(before)
    for link in failed:
        net.heal(*link)
    net.settle(20 * SECOND)
    assert overbooked(net) == unkept(net) == disagreements(net) == []
    release_all(net)
    assert left_over(net) == []
