"""What clients were promised and what they got, watched from outside the brokers.

- A message of QoS 1 or 2 that was acknowledged reaches every client that had subscribed before, with a QoS above 0.
- A message of QoS 2 reaches no client twice that has subscribed with QoS 2.
- What one publisher sends on one topic with QoS 1 or 2 arrives in order: a message that comes for the first time is
  later than all that came before. Messages of QoS 1 may come again (MQTT 5, section 4.6).
- Nobody gets what nobody has published, or what it has not asked for.
- A persistent session is there when its client comes back.
"""

from collections.abc import Callable
from hashlib import blake2b

from overlane.core.topics import matches
from overlane.sim.soak.invariants import Broken
from overlane.sim.whole.client import Message

TAKEN_OVER = 0x8E
PARTING = frozenset({TAKEN_OVER})
"""Why a broker may end the connection of a client that does nothing wrong."""


class Judge:
    """A `client.Observer`."""

    def __init__(self, now_s: Callable[[], float], *, excuses_absence: bool = False) -> None:
        """`excuses_absence`: queues are short, so that one for a client that was away may have run over."""
        self._excuses_absence = excuses_absence
        self._absent: set[str] = set()
        self._now_s = now_s
        self.broken: Broken | None = None
        """What was broken first."""
        self.deliveries = 0
        self.refusals = 0
        self.again = 0
        """Messages of QoS 1 that came once more."""
        self._readers: dict[str, dict[str, int]] = {}
        """Filters and QoS of each client, from the moment at which it was told that it has subscribed."""
        self._sent: set[Message] = set()
        self._expected: dict[tuple[str, Message], bool] = {}
        """Who was subscribed when a message was first sent, and whether it has it."""
        self._acknowledged: set[Message] = set()
        self._got: dict[str, set[Message]] = {}
        self._latest: dict[tuple[str, str, str], int] = {}
        self._digest = blake2b(digest_size=8)

    def digest_of(self) -> str:
        """A fingerprint of every delivery with its time."""
        return self._digest.hexdigest()

    def _break(self, invariant: str, detail: str) -> None:
        if self.broken is None:
            self.broken = Broken(invariant, f"{detail}, at {self._now_s():.3f} s")

    # What clients tell

    def sent(self, message: Message) -> None:
        if message in self._sent:
            return
        self._sent.add(message)
        if message.qos:
            for client, filters in self._readers.items():
                if any(qos and matches(one, message.topic) for one, qos in filters.items()):
                    self._expected[client, message] = False

    def acknowledged(self, message: Message) -> None:
        self._acknowledged.add(message)

    def refused(self, _message: Message) -> None:
        self.refusals += 1

    def subscribed(self, client: str, topic_filter: str, qos: int) -> None:
        self._readers.setdefault(client, {})[topic_filter] = qos

    def got(self, client: str, message: Message, qos: int) -> None:
        self.deliveries += 1
        self._digest.update(f"{self._now_s():.9f} {client} {message} {qos}\n".encode())
        if message not in self._sent:
            self._break("nobody gets what nobody published", f"{client} got {message}")
        got = self._got.setdefault(client, set())
        is_again = message in got
        got.add(message)
        if (client, message) in self._expected:
            self._expected[client, message] = True
        if is_again:
            self.again += 1
            if qos == 2:
                self._break("nothing is delivered twice at QoS 2", f"{client} got {message} again")
            return
        if not qos:
            return
        stream = client, message.publisher, message.topic
        latest = self._latest.get(stream, 0)
        if message.number < latest:
            self._break("order is kept", f"{client} got {message} after number {latest}")
        self._latest[stream] = max(latest, message.number)

    def went(self, client: str) -> None:
        """It is not connected any more."""
        self._absent.add(client)

    def session_lost(self, client: str) -> None:
        self._break("a persistent session is kept", f"the broker has forgotten {client}")

    def dismissed(self, client: str, reason: int) -> None:
        if reason not in PARTING:
            self._break("no client is ended that does nothing wrong", f"{client} was told {reason:#04x}")

    # Verdicts

    def missing(self) -> list[tuple[str, Message]]:
        """Acknowledged, and not delivered to one that had subscribed."""
        excused = self._absent if self._excuses_absence else ()
        return [
            key
            for key, has_it in self._expected.items()
            if not has_it and key[1] in self._acknowledged and key[0] not in excused
        ]

    def lost(self) -> Broken | None:
        missing = self.missing()
        if not missing:
            return None
        client, message = missing[0]
        return Broken("no acknowledged message is lost", f"{message} for {client}, the first of {len(missing)}")
