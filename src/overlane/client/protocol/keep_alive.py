"""Keep-alive: the broker must receive something within the agreed interval, and the client must notice when it is gone.

If nothing was sent or received for half the interval, a PINGREQ is sent. If nothing is received for another half, the
connection is dead, whatever TCP reports. While the application reads too slowly, the client does not read from the
connection, so silence proves nothing; pings are still sent.
"""

from overlane.core.units import NEVER, Nanos


class KeepAlive:
    def __init__(self) -> None:
        self._half_ns: Nanos = NEVER
        self._sent_at: Nanos = 0
        self._heard_at: Nanos = 0
        self._asked_at: Nanos = NEVER
        self._listening = True

    def begin(self, interval_ns: Nanos, now: Nanos) -> None:
        """A connection is made; 0 turns it off."""
        self._half_ns = interval_ns // 2 if interval_ns else NEVER
        self._sent_at = self._heard_at = now
        self._asked_at = NEVER
        self._listening = True

    def end(self) -> None:
        self._half_ns = NEVER

    def sent(self, now: Nanos) -> None:
        self._sent_at = now

    def heard(self, now: Nanos) -> None:
        self._heard_at = now
        self._asked_at = NEVER

    def listen(self, listening: bool, now: Nanos) -> None:
        if listening and not self._listening:
            self.heard(now)
        self._listening = listening

    @property
    def heard_at(self) -> Nanos:
        return self._heard_at

    def asked(self, now: Nanos) -> None:
        """A PINGREQ went out."""
        self._asked_at = now

    @property
    def ask_at(self) -> Nanos:
        """When the next PINGREQ is due."""
        if self._half_ns >= NEVER:
            return NEVER
        quiet_since = self._sent_at
        if self._listening and self._asked_at >= NEVER:
            quiet_since = min(quiet_since, self._heard_at)
        return quiet_since + self._half_ns

    @property
    def dead_at(self) -> Nanos:
        """When silence proves that the broker is gone."""
        if self._half_ns >= NEVER or self._asked_at >= NEVER or not self._listening:
            return NEVER
        return max(self._asked_at, self._heard_at) + self._half_ns
