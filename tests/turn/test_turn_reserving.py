"""Reservations in the turns of a broker: what neighbours send that is no good, and what queues are told."""

from random import Random

import pytest

from overlane.core.config import BrokerConfig
from overlane.core.events import Deliver
from overlane.core.qos import QosTable
from overlane.core.units import MS, SECOND
from overlane.core.wire.frame_codec import broker_id
from overlane.membership.neighbours import NeighbourConfig
from overlane.planning.reserve import RSpec, TSpec
from overlane.pubsub.state import Settings
from overlane.reservation.rsvp.intserv import AdSpec, FlowSpec
from overlane.reservation.rsvp.messages import Flow, Path, Resv, encode
from overlane.reservation.rsvp.objects import Hop, Sender, Style, Tree, TreeNode, broker_address, session_of
from overlane.turn.assembly import assemble
from overlane.turn.delays import Delays
from overlane.turn.reserving import is_rsvp
from overlane.turn.turn import Turn

HERE, THERE = broker_id("here"), broker_id("there")
TSPEC = TSpec(10_000.0, 3000.0, 20_000.0, 100, 1000)
SESSION, SENDER = session_of("plant/video"), Sender(broker_address(THERE), 1)
TREE = Tree((TreeNode(HERE, None, True),))
GOOD = (
    encode(
        Path(
            SESSION,
            Hop(broker_address(THERE)),
            30_000,
            SENDER,
            TSPEC,
            AdSpec(1, 1e6, 1000, 1500),
            TREE,
            "plant/video",
        )
    ),
    encode(
        Resv(
            SESSION,
            Hop(broker_address(THERE)),
            30_000,
            Style.SE,
            (Flow(FlowSpec(TSPEC, RSpec(15_000.0, 0.0)), (Sender(broker_address(HERE), 1),)),),
        )
    ),
)


def broker() -> Turn:
    turn = assemble(BrokerConfig("here", QosTable({})), Settings(), 1, [], 0, lambda: "fresh")
    turn.reserving.configure({"there": NeighbourConfig(rate_bps=10_000_000)}, 0.8, 2 * SECOND, 0)
    turn.start(0)
    turn.end(0)
    return turn


@pytest.mark.parametrize("seed", range(5))
def test_what_a_neighbour_sends_that_is_no_rsvp_changes_nothing(seed: int) -> None:
    turn, chance = broker(), Random(seed)
    for number in range(200):
        data = bytearray(chance.choice(GOOD))
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(1, len(data))] = chance.randrange(256)
        body = bytes(data[: chance.choice((len(data), chance.randrange(1, len(data))))])
        assert is_rsvp(body)
        turn.reserving.heard("there", body, number * MS)
        turn.end(number * MS)
    assert turn.reserving.bad_messages > 150
    assert not turn.reserving.trees
    agent = turn.reserving.agent
    assert agent is None or not any(ledger.promised for ledger in agent.ledgers.values())


def test_delays_are_measured_by_the_filter_of_the_subscription() -> None:
    delays = Delays()
    assert not delays
    delays.watch("plant/+", 0.05)
    for topic, age_ns in (("plant/video", 10 * MS), ("plant/sound", 60 * MS), ("other", SECOND)):
        delays.arrived(Deliver([(topic, 0, b"")], {}, "there", age_ns, 0))
    found = delays.of("plant/+")
    assert (found.messages, found.sum_ns, found.max_ns, found.late(0.05)) == (2, 70 * MS, 60 * MS, 1)
    delays.watch("plant/+", 0.08)  # another bound: it begins anew
    assert delays.of("plant/+").messages == 0
    delays.forget("plant/+")
    assert not delays
