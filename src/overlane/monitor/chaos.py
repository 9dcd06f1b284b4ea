"""Fault injection by hand: slow, cut and heal links; stop, kill and restart brokers; test traffic.

Links are changed at both ends through the admin API, which requires brokers started with --chaos. Brokers are stopped
and started by their supervisor, if it can be reached. Every action is recorded in the timeline, so that its effects
appear after it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from overlane.adminapi.client import RequestFailed
from overlane.errors import OverlaneError, Unavailable
from overlane.monitor.live_monitor import LiveMonitor
from overlane.monitor.overlay_state import link_name
from overlane.monitor.traffic import TestTraffic
from overlane.network.schema import Network
from overlane.quantities import parse_duration


class BrokerControl(Protocol):
    """Stops and starts brokers; Unavailable if that fails."""

    async def stop(self, broker: str) -> None: ...
    async def kill(self, broker: str) -> None: ...
    async def restart(self, broker: str) -> None: ...


class InvalidAction(OverlaneError):
    """The requested action is invalid; the message says why."""

    error_code = "OVL-114"


Parameters = Mapping[str, str]


class Chaos:
    """`broker_control` is None if brokers cannot be stopped and started."""

    def __init__(
        self, network: Network, monitor: LiveMonitor, broker_control: BrokerControl | None, traffic: TestTraffic
    ) -> None:
        self._network = network
        self._monitor = monitor
        self._broker_control = broker_control
        self._traffic = traffic
        self._brokers = {one.name for one in network.brokers}
        self._actions: dict[str, Callable[[Parameters], Awaitable[None]]] = {
            "slow": self._slow,
            "cut": self._cut,
            "heal": self._heal,
            "stop": self._stop,
            "kill": self._kill,
            "restart": self._restart,
            "stream": self._start_traffic,
            "hush": self._stop_traffic,
        }

    async def do(self, action: str, parameters: Parameters) -> None:
        """InvalidAction if the action is invalid, Unavailable if it cannot be carried out."""
        found = self._actions.get(action)
        if found is None:
            raise InvalidAction(f"got action {action[:40]!a}; expected one of {', '.join(self._actions)}")
        await found(parameters)
        self._monitor.poll_soon()

    # Links

    async def _slow(self, parameters: Parameters) -> None:
        one, other = self._link(parameters)
        latency = parameters.get("latency", "")
        try:
            if parse_duration(latency) <= 0:
                raise ValueError
        except ValueError:
            raise InvalidAction(f"got latency {latency[:40]!a}; expected a duration such as 80ms") from None
        self._note(f"{one} - {other} is slowed down to {latency}", one, other)
        await self._at_both_ends(one, other, {"latency": latency})

    async def _cut(self, parameters: Parameters) -> None:
        one, other = self._link(parameters)
        self._note(f"{one} - {other} is cut", one, other)
        await self._at_both_ends(one, other, {"cut": "true"})

    async def _heal(self, parameters: Parameters) -> None:
        one, other = self._link(parameters)
        self._note(f"{one} - {other} is healed", one, other)
        await self._at_both_ends(one, other, None)

    def _link(self, parameters: Parameters) -> tuple[str, str]:
        one, _, other = parameters.get("link", "").partition("|")
        if link_name(one, other) not in self._monitor.observer.picture.links:
            raise InvalidAction("no such link")
        return one, other

    async def _at_both_ends(self, one: str, other: str, conditions: dict[str, str] | None) -> None:
        """An end that is not running sends nothing: success at one end is enough."""

        async def at(name: str, peer: str) -> str:
            client = self._monitor.clients.get(name)
            try:
                if client is None:
                    return "not in the network file"
                await (client.heal(peer) if conditions is None else client.emulate(peer, conditions))
            except RequestFailed as reason:
                return str(reason)
            return ""

        reasons = await asyncio.gather(at(one, other), at(other, one))
        if all(reasons):
            raise Unavailable(one, reasons[0])

    # Brokers

    async def _stop(self, parameters: Parameters) -> None:
        broker, broker_control = self._broker(parameters)
        self._note(f"{broker} is stopped", broker)
        await broker_control.stop(broker)

    async def _kill(self, parameters: Parameters) -> None:
        broker, broker_control = self._broker(parameters)
        self._note(f"{broker} is killed", broker)
        await broker_control.kill(broker)

    async def _restart(self, parameters: Parameters) -> None:
        broker, broker_control = self._broker(parameters)
        self._note(f"{broker} is started again", broker)
        await broker_control.restart(broker)

    def _broker(self, parameters: Parameters) -> tuple[str, BrokerControl]:
        if self._broker_control is None:
            raise InvalidAction(
                "brokers cannot be stopped and started here; run them with overlane up --monitor --chaos"
            )
        broker = parameters.get("broker", "")
        if broker not in self._brokers:
            raise InvalidAction("no such broker")
        return broker, self._broker_control

    # Messages

    async def _start_traffic(self, parameters: Parameters) -> None:
        source, to, topic = parameters.get("from", ""), parameters.get("to", ""), parameters.get("topic", "")
        if source not in self._brokers or to not in self._brokers or source == to:
            raise InvalidAction("a test stream needs two different brokers")
        rate = parameters.get("rate", "20")
        if not (rate.isascii() and rate.isdigit() and 1 <= int(rate) <= 1000):
            raise InvalidAction(f"got rate {rate[:40]!a}; expected 1 to 1000 messages per second")
        await self._traffic.start(source, to, topic, int(rate))
        self._note(f"a test stream of {rate} messages per second on {topic} from {source} to {to}", source, to)

    async def _stop_traffic(self, _: Parameters) -> None:
        if await self._traffic.stop():
            self._note("the test streams end")

    def _note(self, text: str, *brokers: str) -> None:
        link = link_name(*brokers) if len(brokers) == 2 else ""
        known = link if link in self._monitor.observer.picture.links else ""
        self._monitor.observer.timeline.action(self._monitor.now_s, text, brokers, known)
