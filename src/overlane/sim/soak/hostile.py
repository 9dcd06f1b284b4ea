"""A hostile broker at the edge of a random overlay, in some seeds.

It has two neighbours, no clients, and no other broker depends on it: whatever it does, messages between honest brokers
must arrive. Its behaviour is random too:

    blackhole   it answers pings and hop acknowledgements, and forwards nothing
    liar        it claims that its links have almost no latency, so that routes prefer it; it forwards
    inventor    once per second it advertises brokers that do not exist, and filters that they need
"""

from types import MethodType
from typing import Any

from msgspec import structs

from overlane.core.broker import OverlayBroker
from overlane.core.units import SECOND
from overlane.core.wire.control_messages import Advert, InterestUpdate, LinkClaim, Receipt
from overlane.core.wire.route_answers import Answer
from overlane.sim.random_streams import one_of, stream
from overlane.sim.soak.drawing import HOSTILE
from overlane.sim.world import World

KINDS = ("blackhole", "liar", "inventor")
CLAIMED_US = 1
INVENTED = 20


def kind_of(world: World) -> str:
    """What the hostile broker of this overlay does; "" if there is none."""
    return one_of(stream(world.seed, "hostile kind"), KINDS) if HOSTILE in world.hosts else ""


def corrupt(world: World) -> None:
    """Let the hostile broker, if there is one, be so from zero on."""
    kind = kind_of(world)
    if kind:
        world.engine.at(0, _ACTS[kind], world)


def _swallow(world: World) -> None:
    """Nothing that comes from others leaves: neither parcels nor what confirms them."""
    core: OverlayBroker = world.hosts[HOSTILE].core
    forwarding = core._forwarding
    forward, post, confirm = forwarding.forward, forwarding.post, forwarding.confirm

    def keep(_: object, entry: Any, header: Any, rest: Any, entered: int, sender: str | None, now: int) -> bool:
        return sender is not None or forward(entry, header, rest, entered, sender, now)

    def lose(_: object, receipt: Receipt) -> None:
        if receipt.sender == HOSTILE:
            post(receipt)

    def lose_confirmation(_: object, entry: Any, told: Answer) -> None:
        if entry.message.brokers[told.destination] == HOSTILE:
            confirm(entry, told)

    forwarding.forward = MethodType(keep, forwarding)  # type: ignore[method-assign]
    forwarding.pass_on = MethodType(lambda *_: None, forwarding)  # type: ignore[method-assign]
    forwarding.post = MethodType(lose, forwarding)  # type: ignore[method-assign]
    forwarding.confirm = MethodType(lose_confirmation, forwarding)  # type: ignore[method-assign]
    core._cut_through.try_forward = MethodType(lambda *_: False, core._cut_through)  # type: ignore[method-assign]


def _lie(world: World) -> None:
    gossip = world.hosts[HOSTILE].core._gossip
    announce = gossip.announce

    def claim(_: object, links: list[LinkClaim], *more: Any) -> bool:
        return announce([structs.replace(one, latency_us=CLAIMED_US, jitter_us=0) for one in links], *more)

    gossip.announce = MethodType(claim, gossip)  # type: ignore[method-assign]


def _invent(world: World) -> None:
    core = world.hosts[HOSTILE].core
    claim = LinkClaim(HOSTILE, CLAIMED_US, 0, 0, 0, 1)
    at_s = world.engine.now // SECOND
    for neighbour in core._neighbours.values():
        if neighbour.greeted:
            for number in range(INVENTED):
                name = f"ghost-{at_s}-{number}"
                neighbour.send(Advert(name, 1, 1, [claim], {}, 0))
                neighbour.send(InterestUpdate(name, 1, 1, 0, ["#"], []))
    world.engine.at(world.engine.now + SECOND, _invent, world)


_ACTS = {"blackhole": _swallow, "liar": _lie, "inventor": _invent}
