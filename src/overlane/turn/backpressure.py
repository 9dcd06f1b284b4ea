"""Backpressure: clients that are not read from, since their messages have no room on the way to other brokers.

They wait in line, in the order of arrival. There is one line per *way*: topics whose messages join the same first link
queues share a way. When a way has room, the first client of its line continues until the way is full again, and joins
the end of the line; so all clients have their turn, and no more is accepted at once than the way takes.

A turn is ended after a while, however many clients have sent something: the others wait for the next one.

No client waits forever (`pubsub.backpressure`): not for a way on which nothing was sent for a while, and not longer
than a client can be kept waiting.
"""

from collections.abc import Hashable
from typing import Protocol

from overlane.core.units import MS, NEVER, Nanos
from overlane.pubsub.contract.connection import ClientConnection
from overlane.pubsub.publishing import backpressure as stops

MANY = 256
TURN_MAX: Nanos = 20 * MS
"""For so long clients are listened to before the turn is ended: neighbours wait meanwhile, and so do the pings."""


class Ways(Protocol):
    """The part of `pubsub.cluster.uplink.Uplink` that is used here."""

    def share_of(self, way: Hashable) -> float: ...
    def progress_of(self, way: Hashable) -> int: ...


class StoppedClient(Protocol):
    """A client that has been stopped."""

    @property
    def connection(self) -> ClientConnection: ...

    def go(self) -> None:
        """There is room: what was read is taken in, as far as there is."""


class Backpressure:
    def __init__(self, ways: Ways) -> None:
        self._ways = ways
        self._lines: dict[Hashable, dict[StoppedClient, tuple[Nanos, int]]] = {}
        """By way, those that wait: since when, and how much had left on the way when that was last looked at."""
        self._count = 0
        self.turn_until_ns: Nanos = NEVER
        """When input of clients has to wait for the next turn."""
        self.reads_little = False
        """Whether so many wait that what was read of each, and has to wait with it, is to be little."""

    def wait(self, client: StoppedClient, now: Nanos) -> None:
        """The client has stopped for the way that its connection names."""
        on = client.connection.stops_for
        self._lines.setdefault(on, {})[client] = now, self._ways.progress_of(on)
        self._counted(self._count + 1)

    def leave(self, client: StoppedClient) -> None:
        """It waits no longer."""
        on = client.connection.stops_for
        line = self._lines.get(on)
        if line is None or line.pop(client, None) is None:
            return
        self._counted(self._count - 1)
        if not line:
            del self._lines[on]

    def _counted(self, count: int) -> None:
        self._count = count
        self.reads_little = count > MANY

    def wait_on(self, client: StoppedClient, now: Nanos) -> bool:
        """Its patience is over; whether it is to wait once more as long, since its way moves."""
        on = client.connection.stops_for
        since_ns, progress = self._lines[on][client]
        moved = self._ways.progress_of(on)
        self._lines[on][client] = since_ns, moved
        is_moving = client.connection.waits_on and moved != progress
        return is_moving and now - since_ns < stops.stop_max_ns(client.connection)

    def let_go(self) -> None:
        """Whoever finds room goes on."""
        for on in list(self._lines):
            for client in list(self._lines.get(on, ())):
                if self._ways.share_of(on) > stops.GO_SHARE:
                    break
                client.go()
