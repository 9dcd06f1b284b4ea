"""The delay bound of an admitted flow, held against the worst that others may do on links that serve as is assumed.

A link serves reserved packets by virtual clock: each has a stamp, its arrival or the stamp of the packet before it in
its flow, whichever is later, and its size divided by the reserved rate; the smallest is sent first. It does not
interrupt a packet, and there is always a largest packet of best effort to be sent when no reserved one waits. All that
is left of a link is reserved for others, who send as much as they may, at the worst time.
"""

from dataclasses import dataclass, replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from examples import examples
from overlane.planning.reserve import TSpec
from overlane.reservation import agent
from overlane.reservation.contract import Admitted, Ask, Offer
from overlane.reservation.link_ledger import LinkLedger, LinkTerms, composed
from overlane.reservation.rsvp.intserv import AdSpec
from overlane.reservation.soft_state import SECOND
from overlane.sim.reservation_network import SimulatedReservations

PACKETS = 60


@dataclass(frozen=True, slots=True)
class Packet:
    arrival_s: float
    stamp_s: float
    size: float
    number: int
    """Of the flow that is measured; -1 for those of others."""


def greedy(tspec: TSpec) -> list[float]:
    """When packets of the largest size leave a source that sends as early as it may."""
    times: list[float] = []
    size, tokens, now = tspec.size_max_bytes, tspec.bucket_bytes, 0.0
    for _ in range(PACKETS):
        wait_s = max(0.0, (size - tokens) / tspec.rate)
        if times:
            wait_s = max(wait_s, times[-1] + size / tspec.peak - now)
        now += wait_s
        tokens = min(tspec.bucket_bytes, tokens + wait_s * tspec.rate) - size
        times.append(now)
    return times


def stamped(arrivals: list[float], size: float, rate: float, *, is_measured: bool) -> list[Packet]:
    packets, stamp_s = [], 0.0
    for number, arrival_s in enumerate(arrivals):
        stamp_s = max(arrival_s, stamp_s) + size / rate
        packets.append(Packet(arrival_s, stamp_s, size, number if is_measured else -1))
    return packets


def served(packets: list[Packet], link: LinkTerms, start_s: float) -> list[float]:
    """When the packets of the measured flow have left the link, each in its order."""
    assert link.rate is not None
    departures: dict[int, float] = {}
    left, now = sorted(packets, key=lambda one: one.arrival_s), start_s
    measured = sum(one.number >= 0 for one in packets)
    while len(departures) < measured:
        waiting = [one for one in left if one.arrival_s <= now]
        if not waiting:
            now += link.packet_bytes_max / link.rate
            continue
        chosen = min(waiting, key=lambda one: one.stamp_s)
        left.remove(chosen)
        now += chosen.size / link.rate
        if chosen.number >= 0:
            departures[chosen.number] = now
    return [departures[number] for number in range(measured)]


def check(data: st.DataObject) -> None:
    hops = data.draw(st.integers(1, 4))
    rates = data.draw(st.lists(st.sampled_from([20_000.0, 50_000.0, 200_000.0]), min_size=hops, max_size=hops))
    links = [LinkTerms(rate, data.draw(st.integers(0, 20_000)), 1.0, 1500) for rate in rates]
    rate = data.draw(st.sampled_from([500.0, 2000.0, 5000.0]))
    size = data.draw(st.sampled_from([100, 400, 1000]))
    bucket = size * data.draw(st.sampled_from([1.0, 3.0, 10.0]))
    tspec = TSpec(rate, bucket, data.draw(st.sampled_from([rate, 3 * rate, 1e6])), size, size)
    net = SimulatedReservations([(place, place + 1, terms) for place, terms in enumerate(links, start=1)])
    net.offer(1, Offer("flow", tspec))
    net.ask(hops + 1, Ask("flow", "flow", tspec, data.draw(st.floats(0.3, 20.0))))
    net.run(3 * SECOND)
    outcome = net.outcome["flow"]
    if not isinstance(outcome, Admitted):
        return
    reserved = outcome.flowspec.rate
    sent = arrivals = greedy(tspec)
    for link in links:
        assert link.rate is not None
        rest = link.rate - reserved
        cross: list[Packet] = []
        if rest > 1:
            # A burst that comes with the first packet, and as much as is allowed from then on.
            duration_s = arrivals[-1] - arrivals[0] + 1.0
            count = min(400, int(duration_s * rest / 1500) + 3)
            times = [arrivals[0] + max(0, number - 3) * 1500 / rest for number in range(count)]
            cross = stamped(times, 1500.0, rest, is_measured=False)
        # A packet of best effort has just begun when the first one comes.
        packets = [*stamped(arrivals, float(size), reserved, is_measured=True), *cross]
        start_s = arrivals[0] - 1e-9 + link.packet_bytes_max / link.rate
        arrivals = [left_s + link.latency_us / 1e6 for left_s in served(packets, link, start_s)]
    worst_s = max(arrived - left for arrived, left in zip(arrivals, sent, strict=True))
    assert outcome.delay_bound_s is not None
    assert worst_s <= outcome.delay_bound_s


@examples(60)
@given(st.data())
def test_no_message_of_an_admitted_flow_takes_longer_than_its_bound(data: st.DataObject) -> None:
    check(data)


@pytest.mark.parametrize("terms", [("c_tot",), ("d_tot_us",)])
def test_a_bound_without_the_terms_of_the_links_would_be_exceeded(
    terms: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def incomplete(adspec: AdSpec, ledger: LinkLedger, packet_bytes: float) -> AdSpec:
        return replace(composed(adspec, ledger, packet_bytes), **{name: getattr(adspec, name) for name in terms})

    @settings(max_examples=200, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
    @given(st.data())
    def run(data: st.DataObject) -> None:
        check(data)

    monkeypatch.setattr(agent, "composed", incomplete)
    with pytest.raises(AssertionError):
        run()
