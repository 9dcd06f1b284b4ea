"""Chaos: what may be done to an overlay by hand, to see what it makes of it.

Links are slowed, cut and healed at both of their ends, through the brokers' admin API; that needs brokers that were
started for it. Brokers are stopped, killed and started again by whoever runs them, where that can be asked. Everything
that is done is told in the timeline, with what it brought about after it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from overlane.errors import Unavailable
from overlane.monitor.asking import NoAnswer
from overlane.monitor.picture import link_name
from overlane.monitor.streams import Streams
from overlane.monitor.watch import Watch
from overlane.network.schema import Network
from overlane.network.units import parse_duration


class Keeper(Protocol):
    """Who runs the brokers. Unavailable if it cannot do what it is asked for."""

    async def stop(self, broker: str) -> None: ...
    async def kill(self, broker: str) -> None: ...
    async def restart(self, broker: str) -> None: ...


class Refused(Exception):
    """Why something is not done; the fault of who asks."""


Wanted = Mapping[str, str]


class Chaos:
    """`keeper` is None where nobody can start and stop brokers."""

    def __init__(self, network: Network, watch: Watch, keeper: Keeper | None, streams: Streams) -> None:
        self._network = network
        self._watch = watch
        self._keeper = keeper
        self._streams = streams
        self._brokers = {one.name for one in network.brokers}
        self._deeds: dict[str, Callable[[Wanted], Awaitable[None]]] = {
            "slow": self._slow,
            "cut": self._cut,
            "heal": self._heal,
            "stop": self._stop,
            "kill": self._kill,
            "restart": self._restart,
            "stream": self._stream,
            "hush": self._hush,
        }

    async def do(self, deed: str, wanted: Wanted) -> None:
        """Refused if it is nothing that can be done; Unavailable if those who should do it cannot."""
        found = self._deeds.get(deed)
        if found is None:
            raise Refused(f"{deed[:40]!a} is none of {', '.join(self._deeds)}")
        await found(wanted)
        self._watch.look_soon()

    # Links

    async def _slow(self, wanted: Wanted) -> None:
        one, other = self._link(wanted)
        latency = wanted.get("latency", "")
        try:
            if parse_duration(latency) <= 0:
                raise ValueError
        except ValueError:
            raise Refused(f"latency {latency[:40]!a}: allowed is a duration such as 80ms") from None
        self._note(f"{one} - {other} is slowed down to {latency}", one, other)
        await self._at_both_ends(one, other, {"latency": latency})

    async def _cut(self, wanted: Wanted) -> None:
        one, other = self._link(wanted)
        self._note(f"{one} - {other} is cut", one, other)
        await self._at_both_ends(one, other, {"cut": "true"})

    async def _heal(self, wanted: Wanted) -> None:
        one, other = self._link(wanted)
        self._note(f"{one} - {other} is healed", one, other)
        await self._at_both_ends(one, other, None)

    def _link(self, wanted: Wanted) -> tuple[str, str]:
        one, _, other = wanted.get("link", "").partition("|")
        if link_name(one, other) not in self._watch.observer.picture.links:
            raise Refused("there is no such link")
        return one, other

    async def _at_both_ends(self, one: str, other: str, conditions: dict[str, str] | None) -> None:
        """An end that does not run does not send either: one end suffices."""

        async def at(name: str, peer: str) -> str:
            source = self._watch.sources.get(name)
            try:
                if source is None:
                    return "it is not in the network file"
                await (source.heal(peer) if conditions is None else source.emulate(peer, conditions))
            except NoAnswer as reason:
                return str(reason)
            return ""

        reasons = await asyncio.gather(at(one, other), at(other, one))
        if all(reasons):
            raise Unavailable(one, reasons[0])

    # Brokers

    async def _stop(self, wanted: Wanted) -> None:
        broker, keeper = self._broker(wanted)
        self._note(f"{broker} is stopped", broker)
        await keeper.stop(broker)

    async def _kill(self, wanted: Wanted) -> None:
        broker, keeper = self._broker(wanted)
        self._note(f"{broker} is killed", broker)
        await keeper.kill(broker)

    async def _restart(self, wanted: Wanted) -> None:
        broker, keeper = self._broker(wanted)
        self._note(f"{broker} is started again", broker)
        await keeper.restart(broker)

    def _broker(self, wanted: Wanted) -> tuple[str, Keeper]:
        if self._keeper is None:
            raise Refused("nobody here can start and stop brokers: run them with overlane up --monitor --chaos")
        broker = wanted.get("broker", "")
        if broker not in self._brokers:
            raise Refused("there is no such broker")
        return broker, self._keeper

    # Messages

    async def _stream(self, wanted: Wanted) -> None:
        source, to, topic = wanted.get("from", ""), wanted.get("to", ""), wanted.get("topic", "")
        if source not in self._brokers or to not in self._brokers or source == to:
            raise Refused("a stream goes from one broker to another")
        rate = wanted.get("rate", "20")
        if not (rate.isascii() and rate.isdigit() and 1 <= int(rate) <= 1000):
            raise Refused(f"rate {rate[:40]!a}: allowed are 1 to 1000 messages a second")
        await self._streams.start(source, to, topic, int(rate))
        self._note(f"a test stream of {rate} messages a second on {topic} from {source} to {to}", source, to)

    async def _hush(self, _: Wanted) -> None:
        if await self._streams.stop():
            self._note("the test streams end")

    def _note(self, text: str, *brokers: str) -> None:
        link = link_name(*brokers) if len(brokers) == 2 else ""
        known = link if link in self._watch.observer.picture.links else ""
        self._watch.observer.timeline.deed(self._watch.now_s, text, brokers, known)
