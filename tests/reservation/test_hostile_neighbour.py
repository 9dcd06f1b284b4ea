"""A neighbour that sends well-formed RSVP messages of any content: nothing breaks, and no link promises too much."""

from contextlib import suppress
from dataclasses import replace

from any_messages import messages
from hypothesis import given
from hypothesis import strategies as st
from invariants import overbooked, unkept

from examples import examples
from overlane.planning.reserve import TSpec
from overlane.reservation.contract import Ask, Offer, Received
from overlane.reservation.link_ledger import LinkTerms
from overlane.reservation.rsvp.messages import Message, Path, PathErr, PathTear, Resv, ResvConf, ResvErr, ResvTear
from overlane.reservation.rsvp.objects import BadMessage, Hop, Sender, TreeNode, broker_address, session_of
from overlane.reservation.soft_state import SECOND
from overlane.sim.reservation_network import SimulatedReservations

TERMS = LinkTerms(10_000.0, 1000, 1.0, 1500)
TRAFFIC = TSpec(2000.0, 1000.0, 2000.0, 1000, 1000)
HOSTILE, VICTIM = 3, 2


def plausible(message: Message, data: st.DataObject) -> Message:
    """About the reservation that exists, or one that would pass the first checks."""
    session = session_of("video")
    senders = tuple(Sender(broker_address(broker), port) for broker in (1, HOSTILE) for port in (0, 1))
    sender = data.draw(st.sampled_from(senders))
    hop = Hop(broker_address(HOSTILE))
    match message:
        case Path():
            tree = message.tree
            if tree is not None:
                root = TreeNode(VICTIM, None, tree.nodes[0].is_leaf)
                others = [replace(one, broker=10 + place) for place, one in enumerate(tree.nodes[1:])]
                tree = replace(tree, nodes=(root, *others))
            # Where a Path message of another broker comes from is the neighbour's word: it is trusted.
            own = sender if sender.port == 0 else senders[-1]
            return replace(message, session=session, hop=hop, sender=own, tree=tree, topic_filter="video")
        case Resv() | ResvErr() | ResvTear():
            named = [replace(flow, senders=(sender,)) if flow.senders else flow for flow in message.flows[:1]]
            return replace(message, session=session, hop=hop, flows=tuple(named))
        case PathTear():
            return replace(message, session=session, hop=hop, sender=sender)
        case PathErr():
            return replace(message, session=session, sender=sender)
        case ResvConf():
            return replace(message, session=session)


@examples(60)
@given(st.lists(messages(), min_size=1, max_size=6), st.data())
def test_any_messages_of_a_neighbour_leave_the_reservations_of_others_as_they_are(
    told: list[Message], data: st.DataObject
) -> None:
    net = SimulatedReservations([(1, VICTIM, TERMS), (VICTIM, HOSTILE, TERMS), (VICTIM, 4, TERMS)])
    net.offer(1, Offer("video", TRAFFIC))
    net.ask(4, Ask("honest", "video", TRAFFIC))
    net.run(SECOND)
    assert unkept(net) == []
    for message in told:
        with suppress(BadMessage):
            net.tell(VICTIM, Received(HOSTILE, plausible(message, data)))
        assert overbooked(net) == []
        net.settle(SECOND)
    assert overbooked(net) == []
    (honest,) = (entry for entry in net.agents[4].paths if entry.sender.address == broker_address(1))
    assert honest.previous == VICTIM
    promised = {peer: ledger.promised for peer, ledger in net.agents[VICTIM].ledgers.items()}
    assert promised[4] >= TRAFFIC.rate
