"""Keep-alive: the connection of a client that is silent for one and a half times its keep-alive is ended; no other is.

Silent means that the broker has heard nothing, though it was reading. An end that has to wait for the disk, behind
acknowledgements that do, may come late: while the disk is in trouble, and `CLOSED_WITHIN` otherwise. It comes even if
the client says something meanwhile.

A connection of MQTT 3.1.1 may also be closed for a request that is refused, as there is no answer for that.
"""

from collections.abc import Callable, Mapping

from overlane.core.units import MS, NEVER, Nanos
from overlane.sim.whole.contact import Contact
from overlane.sim.whole.rules.history import History

Report = Callable[[str, str], None]

TIMED_OUT = 0x8D
CLOSED_WITHIN: Nanos = 500 * MS
CLOCK_SLACK: Nanos = 2 * MS


class KeepAliveRule:
    def __init__(self, broker_of: Mapping[str, str], history: History, report: Report) -> None:
        self._broker_of = broker_of
        self._history = history
        self._report = report
        self.timed_out = 0

    def woke_up(self, contact: Contact, now: Nanos) -> None:
        """A client that was silent says something again, or learns that its connection has ended."""
        allowed_ns = contact.keep_alive_ns * 3 // 2
        broker = self._broker_of[contact.client]
        if contact.keep_alive_ns == NEVER or contact.accepted_ns == NEVER:
            return
        due_ns = contact.heard_ns + allowed_ns
        ended_ns = min(contact.closed_ns, contact.ended_ns, now)
        self.timed_out += contact.closed_ns < NEVER
        if ended_ns > due_ns + CLOSED_WITHIN and not self._history.was_in_trouble(
            broker, contact.heard_ns - CLOSED_WITHIN, ended_ns
        ):
            told = f"connection {contact.number} of {contact.client} for {(ended_ns - contact.heard_ns) // MS} ms"
            self._report("a silent client is disconnected", told)

    def _silence_ns(self, contact: Contact) -> Nanos:
        """For how long the broker had heard nothing when it decided to close the connection."""
        disk_works_ns = self._history.trouble_ends(self._broker_of[contact.client], contact.last_silence_ended_ns)
        if contact.closed_ns <= disk_works_ns + CLOSED_WITHIN:
            return max(contact.silence_ns, contact.last_silence_ns)
        return contact.silence_ns

    def dismissed(self, contact: Contact, reason: int | None) -> None:
        """The broker has closed a connection: with a reason in MQTT 5, for want of an answer to what it owed, or so."""
        if reason is None and contact.owed_at_close:
            return
        if reason not in (None, TIMED_OUT):
            return
        if contact.keep_alive_ns == NEVER or self._silence_ns(contact) < contact.keep_alive_ns * 3 // 2 - CLOCK_SLACK:
            told = f"connection {contact.number} of {contact.client}, after {contact.silence_ns // MS} ms"
            self._report("a client that is not silent stays connected", told)
