"""Route settings: what parts above the core decide about routes: trees of reserved flows, what links have promised, and
the channels that messages share."""

from collections.abc import Mapping
from typing import assert_never

from overlane.core.events import SetChannels, SetLinkReservations, SetReservedTree
from overlane.core.flows.channels import Channels
from overlane.core.links.neighbour import Neighbour
from overlane.core.routing.selection.reserved_trees import ReservedTrees


def set_routes(
    event: SetReservedTree | SetLinkReservations | SetChannels,
    reserved: ReservedTrees,
    neighbours: Mapping[str, Neighbour],
    channels: Channels,
) -> bool:
    """Whether messages may go elsewhere from now on, so that it must be found out anew."""
    match event:
        case SetReservedTree(flow, links, leaves):
            return reserved.set(flow, links, leaves)
        case SetLinkReservations(peer, flows, fragment_bytes):
            if peer in neighbours:
                neighbours[peer].queue.reserve(flows, fragment_bytes)
            return False
        case SetChannels(plan):
            channels.set_plan(plan)
            return False
        case _:
            assert_never(event)
