"""Gateways of a broker as views for operators: what they say of themselves, checked against what the broker knows.

A gateway of the file that has never run is `down`. So is one whose client is not connected, whatever it said last. How
many messages wait for a gateway, the broker knows better than the gateway.
"""

from collections.abc import Iterator

import msgspec

from overlane.adminapi.views import GatewayList, GatewayView
from overlane.network.schema import Network
from overlane.pubsub.access import GATEWAY_CLIENT, GATEWAY_STATES
from overlane.pubsub.state import State

DOWN = "down"
NOT_RUNNING = "the gateway does not run"


def gateway_list(broker: str, network: Network, state: State) -> GatewayList:
    told = dict(_told(state))
    for gateway in network.gateways:
        if gateway.broker == broker and gateway.name not in told:
            told[gateway.name] = GatewayView(
                name=gateway.name, broker=broker, to=gateway.to, last_error="the gateway has not run yet"
            )
    return GatewayList(items=tuple(_checked(view, state) for _, view in sorted(told.items())))


def _told(state: State) -> Iterator[tuple[str, GatewayView]]:
    """What clients say is checked as anything else that they send."""
    for message in state.retained.walk(f"{GATEWAY_STATES}+"):
        if message is None:
            continue
        try:
            view = msgspec.json.decode(message.payload, type=GatewayView)
        except msgspec.MsgspecError:
            continue
        name = message.topic.removeprefix(GATEWAY_STATES)
        yield name, msgspec.structs.replace(view, name=name)


def _checked(view: GatewayView, state: State) -> GatewayView:
    session = state.sessions.get(GATEWAY_CLIENT.format(name=view.name))
    if session is None:
        return msgspec.structs.replace(view, state=DOWN)
    outwards = msgspec.structs.replace(view.outwards, backlog=len(session.window))
    view = msgspec.structs.replace(view, outwards=outwards)
    if session.consumer is None and view.state != DOWN:
        return msgspec.structs.replace(view, state=DOWN, last_error=NOT_RUNNING)
    return view
