"""How many messages a client may still publish by HTTP.

A request is not a connection: `messages_per_second` counts for a user at an address, over all requests. Everybody may
publish as many messages at once as are allowed in a second, and a batch counts when it has been accepted, so that a
large one has to be paid for later. What is kept is bounded: whoever has not published for a second is forgotten first.
"""

from collections import OrderedDict
from collections.abc import Hashable

from overlane.core.units import SECOND, Nanos

CLIENTS_MAX = 10_000


class Allowances:
    def __init__(self, clients_max: int = CLIENTS_MAX) -> None:
        self._clients_max = clients_max
        self._left: OrderedDict[Hashable, tuple[float, Nanos]] = OrderedDict()
        """What was left, and when; whoever has published last is last."""

    def has_left(self, client: Hashable, per_second: int, now: Nanos) -> bool:
        """Whether it may publish now."""
        return self._of(client, per_second, now) > 0

    def charge(self, client: Hashable, messages: int, per_second: int, now: Nanos) -> None:
        """It has published so many."""
        self._left[client] = self._of(client, per_second, now) - messages, now
        self._left.move_to_end(client)
        if len(self._left) > self._clients_max:
            self._left.popitem(last=False)

    def _of(self, client: Hashable, per_second: int, now: Nanos) -> float:
        left, at = self._left.get(client, (float(per_second), now))
        return min(float(per_second), left + (now - at) * per_second / SECOND)
