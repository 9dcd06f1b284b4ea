"""A gateway that runs: two sides, the bridge between them, one timer, and its state on a topic of the broker."""

import asyncio
import time
from contextlib import suppress

import msgspec

from overlane.adminapi.views import GatewayView
from overlane.client import ClientError, Will
from overlane.core.units import NEVER, SECOND
from overlane.gateways.bridge import Bridge, Neighbourhood, neighbourhood
from overlane.gateways.lane_driver import LaneDriver, SideEvents, now_ns
from overlane.gateways.sides.choosing import foreign_side, password_in
from overlane.gateways.sides.mqtt5 import Mqtt5Options, Mqtt5Side
from overlane.gateways.sides.side import SideHost
from overlane.gateways.state import GatewayState
from overlane.network.endpoints import endpoints
from overlane.network.schema import Endpoint, Gateway, Network
from overlane.pubsub.access import GATEWAY_CLIENT, GATEWAY_STATE

STATE_EVERY_S = 1.0
LAST_WORD_S = 2.0
GONE = "the gateway does not run, or cannot reach the broker"


class RunningGateway:
    """`file`: how messages call the network file. ConfigError if a file that the gateway names cannot be read."""

    def __init__(self, network: Network, gateway: Gateway, file: str) -> None:
        others = neighbourhood(gateway, network.gateways)
        self._bridge = Bridge(gateway, others)
        self._state = state = GatewayState(gateway)
        self._topic = GATEWAY_STATE.format(name=gateway.name)
        self._changed = asyncio.Event()
        inwards = LaneDriver(self._bridge.inwards, self._changed.set)
        outwards = LaneDriver(self._bridge.outwards, self._changed.set)
        self._lanes = inwards, outwards
        ours = SideEvents(
            outwards, inwards, state.overlay, lambda kept: self._keep("outwards", kept), self._changed.set
        )
        its = SideEvents(inwards, outwards, state.foreign, lambda kept: self._keep("inwards", kept), self._changed.set)
        self._overlay = self._overlay_side(ours, gateway, others, endpoints(network, gateway.broker, file).mqtt)
        self._foreign = foreign_side(its, gateway, self._bridge.names.local_filters, _group(others))
        outwards.source = inwards.sink = self._overlay
        inwards.source = outwards.sink = self._foreign

    @property
    def view(self) -> GatewayView:
        return self._state.view(self._bridge.inwards, self._bridge.outwards, time.time())

    async def run(self, ended: asyncio.Event) -> None:
        """Until the event is set."""
        tasks = asyncio.gather(self._foreign.run(), self._overlay.run(), self._tick(), self._report())
        waiting = asyncio.create_task(ended.wait())
        try:
            await asyncio.wait((tasks, waiting), return_when=asyncio.FIRST_COMPLETED)
            if tasks.done():
                tasks.result()
            await self._tell(self._state.ended(time.time(), "the gateway was ended"))
        finally:
            for one in (tasks, waiting):
                one.cancel()
            await asyncio.gather(tasks, waiting, return_exceptions=True)

    def _overlay_side(self, host: SideHost, gateway: Gateway, others: Neighbourhood, mqtt: Endpoint) -> Mqtt5Side:
        reached = "127.0.0.1" if mqtt.is_wildcard() else mqtt.host
        options = Mqtt5Options(
            addresses=(f"[{reached}]:{mqtt.port}" if ":" in reached else f"{reached}:{mqtt.port}",),
            client_id=GATEWAY_CLIENT.format(name=gateway.name),
            filters=self._bridge.names.overlay_filters,
            group=_group(others),
            qos=gateway.qos,
            user=gateway.overlay_user,
            password=password_in(gateway.overlay_password_file),
            will=Will(self._topic, msgspec.json.encode(self._state.ended(time.time(), GONE)), qos=1, retain=True),
        )
        return Mqtt5Side(host, options)

    def _keep(self, direction: str, messages: int | None) -> None:
        self._state.kept[direction] = messages

    async def _tick(self) -> None:
        """Lanes go on when they may."""
        while True:
            for one in self._lanes:
                one.carry_out(one.lane.tick(now_ns()))
            at = min(one.lane.next_deadline() for one in self._lanes)
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(None if at >= NEVER else max(0.001, (at - now_ns()) / SECOND)):
                    await self._changed.wait()

    async def _report(self) -> None:
        while True:
            await self._tell(self.view)
            await asyncio.sleep(STATE_EVERY_S)

    async def _tell(self, view: GatewayView) -> None:
        with suppress(ClientError, TimeoutError):
            async with asyncio.timeout(LAST_WORD_S):
                await self._overlay.publish(self._topic, msgspec.json.encode(view))


def _group(others: Neighbourhood) -> str | None:
    return f"overlane-{others.group_name}" if others.is_shared else None
