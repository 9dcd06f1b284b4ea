"""Wills: a message for each connection that ends without DISCONNECT, and for no other.

- A connection that was accepted and then lost has its will published, after its delay, and delivered like any message
  that was acknowledged. It is not if the client comes back within the delay.
- No will is published while its connection stands, before its delay is over, after DISCONNECT has come to the broker,
  or if the client was back in time.

Excused is a broker that went down before it had written what it had to: within `WRITTEN_WITHIN` of DISCONNECT, or of
the return of the client, and as long as its disk was in trouble. A will that comes while the disk is in trouble is in
memory alone until the disk works. A broker whose disk is in trouble refuses requests, and ends a connection of
MQTT 3.1.1 for it, with its will. The end waits behind acknowledgements that wait for the disk, so that DISCONNECT may
come after it.
"""

from collections.abc import Callable, Mapping

from overlane.core.units import MS, NEVER, Nanos
from overlane.sim.whole.contact import Contact
from overlane.sim.whole.message import SimulatedMessage
from overlane.sim.whole.rules.history import History
from overlane.sim.whole.wire import NOTICED_WITHIN

Report = Callable[[str, str], None]

WRITTEN_WITHIN: Nanos = 400 * MS
CLOCK_SLACK: Nanos = MS
"""Clocks drift by up to 200 ppm."""
SAID_WITHIN: Nanos = 300 * MS
"""From the end of its delay, a will is published before a client that comes back takes it away."""


class WillRule:
    def __init__(
        self, broker_of: Mapping[str, str], history: History, now: Callable[[], Nanos], report: Report
    ) -> None:
        self._broker_of = broker_of
        self._history = history
        self._now = now
        self._report = report
        self._contacts: dict[str, list[Contact]] = {}
        """By client, in the order of their numbers."""
        self.said = 0

    def contacted(self, contact: Contact) -> None:
        self._contacts.setdefault(contact.client, []).append(contact)

    # What must not be

    def got(self, will: SimulatedMessage) -> None:
        """A client has got a will."""
        self.said += 1
        contact, back = self._contact(will)
        now, ended_ns = self._now(), min(contact.ended_ns, contact.closed_ns)
        if ended_ns == NEVER and not contact.was_silent:
            self._report("no will is published while its connection stands", f"{will}")
        elif (
            contact.ended_ns < NEVER
            and not contact.was_silent
            and now < contact.ended_ns + contact.will_delay_ns - CLOCK_SLACK
        ):
            self._report("a will waits for its delay", f"{will}, {contact.will_delay_ns // MS} ms")
        elif contact.goodbye_ns < NEVER and not self._is_goodbye_excused(contact):
            self._report("DISCONNECT takes the will away", f"{will}")
        elif self._is_back_in_time(contact, back) and not self._is_forgotten(
            contact, back.accepted_ns if back else now
        ):
            self._report("a client that is back in time takes its will away", f"{will}")

    def _contact(self, will: SimulatedMessage) -> tuple[Contact, Contact | None]:
        """The connection that a will is of, and the first one after it that was accepted."""
        contacts = self._contacts[will.publisher]
        index = next(index for index, one in enumerate(contacts) if one.number == will.number)
        return contacts[index], next((one for one in contacts[index + 1 :] if one.accepted_ns < NEVER), None)

    def _is_goodbye_excused(self, contact: Contact) -> bool:
        broker, at_ns = self._broker_of[contact.client], contact.goodbye_ns
        was_refused = contact.may_be_refused and self._history.was_in_trouble(broker, at_ns - WRITTEN_WITHIN, at_ns)
        return was_refused or self._is_forgotten(contact, at_ns)

    def _is_forgotten(self, contact: Contact, since: Nanos) -> bool:
        """Whether the broker may not know any more what happened then."""
        broker = self._broker_of[contact.client]
        until = self._history.trouble_ends(broker, since) + WRITTEN_WITHIN
        until = self._history.trouble_ends(broker, until) + WRITTEN_WITHIN
        return self._history.was_down(broker, since, until)

    def _is_back_in_time(self, contact: Contact, back: Contact | None) -> bool:
        if back is None or contact.will_delay_ns == 0 or contact.was_silent:
            return False
        return back.accepted_ns < contact.ended_ns + contact.will_delay_ns - CLOCK_SLACK

    # What must be

    def is_due(self, will: SimulatedMessage) -> bool:
        """Whether it must have been published."""
        contact, _ = self._contact(will)
        if contact.accepted_ns == NEVER or contact.ended_ns == NEVER or contact.goodbye_ns < NEVER:
            return False
        broker = self._broker_of[contact.client]
        if self._is_in_memory_alone(contact, broker):
            return False
        if not contact.will_delay_ns:
            return True
        return self._comes_back_ns(contact) > self._latest_due(contact, broker) + SAID_WITHIN

    def _is_in_memory_alone(self, contact: Contact, broker: str) -> bool:
        """Whether the disk was in trouble when it came, and the broker went down before it was well again."""
        works_ns = self._history.trouble_ends(broker, contact.asked_ns)
        works_ns = self._history.trouble_ends(broker, max(works_ns, contact.accepted_ns))
        was_in_trouble = self._history.was_in_trouble(broker, contact.asked_ns - WRITTEN_WITHIN, contact.accepted_ns)
        return was_in_trouble and self._history.was_down(broker, contact.asked_ns, works_ns + WRITTEN_WITHIN)

    def _comes_back_ns(self, contact: Contact) -> Nanos:
        later = (one.asked_ns for one in self._contacts[contact.client] if one.number > contact.number)
        return min(later, default=NEVER)

    def _latest_due(self, contact: Contact, broker: str) -> Nanos:
        """A broker that was down counts everybody as lost when it starts, unless it knew before."""
        lost_ns = contact.ended_ns + NOTICED_WITHIN
        until = lost_ns + contact.will_delay_ns
        return max(lost_ns, self._history.last_start(broker, until)) + contact.will_delay_ns
