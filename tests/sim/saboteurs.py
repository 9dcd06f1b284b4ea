"""Brokers of a story that break their word: they answer pings and forward nothing, or lie about latency."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from msgspec import structs

from overlane.core.broker import OverlayBroker
from overlane.core.link_supervisor import LinkSupervisor
from overlane.core.links.neighbour import Neighbour
from overlane.core.routing.signalling.route_establishment import RouteEntry
from overlane.core.wire.control_messages import LinkClaim, Receipt
from overlane.core.wire.frame_codec import Header
from overlane.core.wire.route_answers import Answer
from overlane.sim.story import Story

Drops = Callable[[Header], bool]


def everything(_: Header) -> bool:
    return True


def nothing(_: Header) -> bool:
    return False


class Blackhole:
    """A broker that passes nothing on that comes from others and that `drops` says; `receipts`: nor what they confirm.

    `routed`, `detours`: whether it treats parcels on routes so, and those that carry their own path.
    """

    def __init__(
        self,
        net: Story,
        name: str,
        drops: Drops = everything,
        *,
        receipts: bool = True,
        routed: bool = True,
        detours: bool = True,
    ) -> None:
        self.swallowed = 0
        self._drops = drops
        self._stack = ExitStack()
        core: OverlayBroker = net.world.hosts[name].core
        forwarding, cut_through = core._forwarding, core._cut_through
        forward, pass_on, post, confirm = forwarding.forward, forwarding.pass_on, forwarding.post, forwarding.confirm

        def keep_to_itself(
            entry: RouteEntry, header: Header, rest: object, entered: int, sender: str | None, now: int
        ) -> bool:
            if routed and sender is not None and self._swallows(header):
                return True
            return forward(entry, header, rest, entered, sender, now)  # type: ignore[arg-type]

        def end_detour(hops: object, position: int, header: Header, *more: object) -> None:
            if not (detours and self._swallows(header)):
                pass_on(hops, position, header, *more)  # type: ignore[arg-type]

        def lose_receipt(receipt: Receipt) -> None:
            if not receipts or receipt.sender == name:
                post(receipt)

        def lose_confirmation(entry: RouteEntry, told: Answer) -> None:
            if not receipts or entry.message.brokers[told.destination] == name:
                confirm(entry, told)

        for place, attribute, stand_in in (
            (forwarding, "forward", keep_to_itself),
            (forwarding, "pass_on", end_detour),
            (forwarding, "post", lose_receipt),
            (forwarding, "confirm", lose_confirmation),
            (cut_through, "try_forward", lambda *_: False),
        ):
            self._stack.enter_context(patch.object(place, attribute, stand_in))

    def _swallows(self, header: Header) -> bool:
        if self._drops(header):
            self.swallowed += 1
            return True
        return False

    def heal(self) -> None:
        self._stack.close()


@contextmanager
def lying_about_latency(name: str, claimed_us: int) -> Iterator[None]:
    """All links of this broker are as quick as that, it says, and no parcel got older while it was there."""
    honest = LinkSupervisor._claim

    def lying(self: LinkSupervisor, neighbour: Neighbour, now: int) -> LinkClaim | None:
        claim = honest(self, neighbour, now)
        return structs.replace(claim, latency_us=claimed_us) if claim is not None and self.me == name else claim

    with patch.object(LinkSupervisor, "_claim", lying):
        yield
