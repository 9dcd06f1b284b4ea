"""What clients were promised and what they got, watched from outside the brokers.

- A message of QoS 1 or 2 that was acknowledged reaches every client that had subscribed before, with a QoS above 0.
- A message of QoS 2 reaches no client twice that has subscribed with QoS 2.
- What one publisher sends on one topic with QoS 1 or 2 arrives in order: a message that comes for the first time is
  later than all that came before. Messages of QoS 1 may come again (MQTT 5, section 4.6). One that was sent before a
  subscription counted at its broker, and sent again after, comes by that for the first time: with what followed it.
- Nobody gets what nobody has published, or what it has not asked for.
- A persistent session is there when its client comes back, and no client is disconnected that does nothing wrong.

Retained messages, wills, shared subscriptions and keep-alive have rules of their own (`rules`).

A subscription that is made during the run counts for publishers at the same broker from then on, and for all others
when everything has come to rest: it takes time to travel.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import blake2b

from overlane.core.topics import matches
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.pubsub.subscriptions.table import SHARED
from overlane.sim.soak.invariants import Broken
from overlane.sim.whole.contact import Contact
from overlane.sim.whole.message import SimulatedMessage
from overlane.sim.whole.rules.groups import GroupRule
from overlane.sim.whole.rules.history import History
from overlane.sim.whole.rules.keep_alive import TIMED_OUT, KeepAliveRule
from overlane.sim.whole.rules.retained import RetainedRule
from overlane.sim.whole.rules.wills import WillRule

TAKEN_OVER = 0x8E
PARTING = frozenset({TAKEN_OVER, TIMED_OUT})
"""Why a broker may end a connection: whether it was right to is judged by the rule of it."""

_matches = lru_cache(maxsize=1 << 14)(matches)
"""Every message is compared with every filter, and there are few topics."""


class WholeJudge:
    """A `message.Observer`."""

    def __init__(
        self,
        now: Callable[[], Nanos],
        broker_of: Mapping[str, str],
        passing: frozenset[str],
        *,
        excuses_absence: bool = False,
        queue_full_at: Callable[[str], int] | None = None,
    ) -> None:
        """`broker_of`: of each client. `passing`: clients whose session ends with their connection.

        `excuses_absence`: queues are short, so that one for a client that was away may have run over. `queue_full_at`:
        how many messages a broker has reported as dropped since queues were full, if that excuses it.
        """
        self._now = now
        self._broker_of = broker_of
        self._passing = passing
        self._excuses_absence = excuses_absence
        self._queue_full_at = queue_full_at
        self.broken: Broken | None = None
        """What was broken first."""
        self.deliveries = 0
        self.refusals = 0
        self.again = 0
        """Messages of QoS 1 that came once more."""
        self.history = History()
        self.retained = RetainedRule(broker_of, passing, self._break)
        self.wills = WillRule(broker_of, self.history, now, self._break)
        self.groups = GroupRule(broker_of, passing, self.history, self._break)
        self.keep_alive = KeepAliveRule(broker_of, self.history, self._break)
        self._back_since: dict[str, Nanos] = {}
        """When clients were last away, or silent; NEVER if they are."""
        self._readers: dict[str, dict[str, int]] = {}
        """Filters and QoS of each client, from the moment at which it was told that it has subscribed."""
        self._late: set[tuple[str, str]] = set()
        """Clients and filters of which other brokers need not know yet."""
        self._sent: dict[SimulatedMessage, Nanos] = {}
        self._expected: dict[tuple[str, SimulatedMessage], bool] = {}
        """Who was subscribed when a message was first sent, and whether it has it."""
        self._resent: set[SimulatedMessage] = set()
        self._acknowledged: set[SimulatedMessage] = set()
        self._wills: set[SimulatedMessage] = set()
        self._got: dict[str, set[SimulatedMessage]] = {}
        self._latest: dict[tuple[str, str, str], int] = {}
        self._digest = blake2b(digest_size=8)

    def digest_of(self) -> str:
        """A fingerprint of every delivery with its time."""
        return self._digest.hexdigest()

    def _break(self, invariant: str, detail: str) -> None:
        if self.broken is None:
            self.broken = Broken(invariant, f"{detail}, at {self._now() / SECOND:.3f} s")

    def come_to_rest(self) -> None:
        """Every broker knows of all subscriptions, and has everything that was acknowledged."""
        self._late.clear()
        self.retained.come_to_rest()

    # What clients tell

    def contacted(self, contact: Contact, will: SimulatedMessage | None) -> None:
        self.wills.contacted(contact)
        if will is not None:
            self._wills.add(will)
            self._expect(will)

    def sent(self, message: SimulatedMessage) -> None:
        if message.is_retained:
            self.retained.sent(message)
        if message.qos:
            self.groups.sent(message)
        self._expect(message)

    def _expect(self, message: SimulatedMessage) -> None:
        self._sent[message] = self._now()
        if not message.qos or message.clears:
            return
        here = self._broker_of[message.publisher]
        for client, filters in self._readers.items():
            is_near = self._broker_of[client] == here
            if any(
                qos and _matches(one, message.topic) and (is_near or (client, one) not in self._late)
                for one, qos in filters.items()
            ):
                self._expected[client, message] = False

    def resent(self, message: SimulatedMessage) -> None:
        self._resent.add(message)
        self.groups.resent(message)

    def acknowledged(self, message: SimulatedMessage) -> None:
        self._acknowledged.add(message)
        if message.is_retained:
            self.retained.acknowledged(message)

    def refused(self, _message: SimulatedMessage) -> None:
        self.refusals += 1

    def asked(self, client: str, topic_filter: str, _qos: int) -> None:
        self.retained.asked(client, topic_filter)

    def subscribed(self, client: str, topic_filter: str, qos: int) -> None:
        self.retained.subscribed(client, topic_filter, qos)
        if topic_filter.startswith(SHARED):
            self.groups.subscribed(client, topic_filter, qos)
        elif client not in self._passing:
            filters = self._readers.setdefault(client, {})
            if topic_filter not in filters and self._now() > 0:
                self._late.add((client, topic_filter))
            filters[topic_filter] = qos

    def got_retained(self, client: str, message: SimulatedMessage, qos: int) -> None:
        self._note(client, message, qos)
        self.retained.got(client, message, qos)

    def got(self, client: str, message: SimulatedMessage, qos: int) -> None:
        self._note(client, message, qos)
        if message in self._wills:
            self.wills.got(message)
        by_group = self.groups.got(client, message, qos)
        got = self._got.setdefault(client, set())
        is_again = message in got
        got.add(message)
        if (client, message) in self._expected:
            self._expected[client, message] = True
        if is_again:
            self.again += 1
            if qos == 2:
                self._break("nothing is delivered twice at QoS 2", f"{client} got {message} again")
        elif qos and not by_group:
            self._check_order(client, message)

    def _note(self, client: str, message: SimulatedMessage, qos: int) -> None:
        self.deliveries += 1
        self._digest.update(f"{self._now()} {client} {message} {qos}\n".encode())
        if message not in self._sent:
            self._break("nobody gets what nobody published", f"{client} got {message}")

    def _check_order(self, client: str, message: SimulatedMessage) -> None:
        stream = client, message.publisher, message.topic
        latest = self._latest.get(stream, 0)
        is_second_pass = message in self._resent and (client, message) not in self._expected
        if message.number < latest and not is_second_pass:
            self._break("order is kept", f"{client} got {message} after number {latest}")
        self._latest[stream] = max(latest, message.number)

    def came(self, client: str) -> None:
        self._back_since[client] = self._now()

    def went(self, client: str) -> None:
        """It is not connected any more, or does not read."""
        self._back_since[client] = NEVER

    def woke_up(self, contact: Contact) -> None:
        self.keep_alive.woke_up(contact, self._now())

    def session_lost(self, client: str) -> None:
        self._break("a persistent session is kept", f"the broker has forgotten {client}")

    def dismissed(self, contact: Contact, reason: int | None) -> None:
        if reason is not None and reason not in PARTING:
            self._break("no client is ended that does nothing wrong", f"{contact.client} was told {reason:#04x}")
        self.keep_alive.dismissed(contact, reason)

    # Verdicts

    def _is_excused(self, client: str, message: SimulatedMessage) -> bool:
        """Whether the client's queue may have run over: it was away at some time after the message was sent."""
        return self._excuses_absence and self._back_since[client] >= self._sent[message]

    def _is_promised(self, message: SimulatedMessage) -> bool:
        return message in self._acknowledged or (message in self._wills and self.wills.is_due(message))

    def _unreported(self, missing: list[tuple[str, SimulatedMessage]]) -> list[tuple[str, SimulatedMessage]]:
        if self._queue_full_at is None:
            return missing
        at = Counter(self._broker_of[client] for client, _ in missing)
        full = {broker for broker, count in at.items() if count <= self._queue_full_at(broker)}
        return [one for one in missing if self._broker_of[one[0]] not in full]

    def lost(self) -> Broken | None:
        missing = [
            (client, message)
            for (client, message), has_it in self._expected.items()
            if not has_it and self._is_promised(message) and not self._is_excused(client, message)
        ]
        missing = self._unreported(missing)
        if missing:
            client, message = missing[0]
            return Broken("no acknowledged message is lost", f"{message} for {client}, the first of {len(missing)}")
        return self.groups.missing(self._acknowledged, self._is_excused) or self.retained.missing()
