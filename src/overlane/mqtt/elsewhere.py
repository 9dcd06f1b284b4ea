"""Elsewhere: what of MQTT concerns the other brokers too, in words that the overlay understands.

The overlay knows filters and topics, and nothing of MQTT. Three things of MQTT concern all brokers at once; each is put
into names that begin with `$`, so that the overlay carries them like everything else, durably and in order:

    $retained/TOPIC                   every broker needs `$retained/#`: a retained message goes to all of them, and
                                      who comes late gets the last of each topic
    $share/GROUP/BROKER/TAG/FILTER    BROKER has members of this shared subscription. Where a message is published one
                                      of these brokers is chosen, and gets it under $share/GROUP/BROKER/TAG/TOPIC
    $want/DEADLINE/RELIABLE/FILTER    a subscriber somewhere asks for more than the file gives its topics: microseconds,
                                      and 1 or 0. Nothing is ever published under it

TAG tells filters of one group apart, since a message under it must find its filter again.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

from overlane.core.events import Published
from overlane.core.qos import QosClass
from overlane.core.topics import FilterTrie
from overlane.core.units import NEVER, US, Nanos
from overlane.mqtt import envelope
from overlane.mqtt.message import Message
from overlane.mqtt.tightening import tightened
from overlane.mqtt.uplink import Uplink

RESERVED = "$"
RETAINED = "$retained/"
SHARE = "$share/"
WANT = "$want/"
EVERYTHING_RETAINED = "$retained/#"

RETAINED_CLASS = QosClass(reliable=True, history=1)
EVERYBODY = "mqtt"
"""The overlay's name for all local subscribers together."""

_STAMP_BYTES = 8


def tag_of(topic_filter: str) -> str:
    return blake2b(topic_filter.encode(), digest_size=6).hexdigest()


def share_name(group: str, broker: str, topic_filter: str, topic: str) -> str:
    """The name for a topic, or for the filter itself, of a shared subscription at a broker."""
    return f"{SHARE}{group}/{broker}/{tag_of(topic_filter)}/{topic}"


def read_share_name(name: str) -> tuple[str, str, str, str]:
    """(group, broker, tag, topic or filter)."""
    group, broker, tag, rest = name[len(SHARE) :].split("/", 3)
    return group, broker, tag, rest


def want_name(deadline_ns: Nanos, reliable: bool, topic_filter: str) -> str:
    return f"{WANT}{0 if deadline_ns >= NEVER else deadline_ns // US}/{int(reliable)}/{topic_filter}"


@dataclass(frozen=True, slots=True)
class SharedElsewhere:
    """A shared subscription with members at these other brokers."""

    group: str
    filter: str
    brokers: tuple[str, ...]


class Directory:
    """What the other brokers' reserved needs mean."""

    def __init__(self, needs: Iterable[tuple[str, str]]) -> None:
        members: dict[tuple[str, str], list[str]] = {}
        self._shared: FilterTrie[tuple[str, str]] = FilterTrie()
        self._wants: FilterTrie[tuple[Nanos, bool]] = FilterTrie()
        for name, broker in needs:
            try:
                if name.startswith(SHARE):
                    group, at, tag, topic_filter = read_share_name(name)
                    if at == broker and tag == tag_of(topic_filter):
                        members.setdefault((group, topic_filter), []).append(broker)
                elif name.startswith(WANT):
                    deadline_us, reliable, topic_filter = name[len(WANT) :].split("/", 2)
                    deadline_ns = int(deadline_us) * US or NEVER
                    self._wants.add(topic_filter, (deadline_ns, reliable == "1"))
            except ValueError:
                continue  # names nothing we know: a broker of another age
        for key in members:
            self._shared.add(key[1], key)
        self._members = {key: SharedElsewhere(*key, tuple(sorted(brokers))) for key, brokers in members.items()}

    def shared(self, topic: str) -> list[SharedElsewhere]:
        return [self._members[key] for key in self._shared.match(topic)] if self._members else []

    def tighten(self, topic: str, qos: QosClass) -> QosClass:
        if len(self._wants):
            for deadline_ns, reliable in self._wants.match(topic):
                qos = tightened(qos, deadline_ns, reliable)
        return qos


class Elsewhere:
    """The other brokers, as the server sees them."""

    def __init__(self, me: str, uplink: Uplink) -> None:
        self._me = me
        self._uplink = uplink
        self._directory = Directory(())
        self._directory_of = -1
        self._turns: dict[tuple[str, str], int] = {}

    @property
    def directory(self) -> Directory:
        if self._directory_of != self._uplink.changes:
            self._directory_of = self._uplink.changes
            self._directory = Directory(self._uplink.reserved_needs())
        return self._directory

    def start(self, now: Nanos) -> None:
        """Retained messages of all brokers are kept at each of them."""
        if not self._uplink.is_alone:
            self._uplink.subscribe(EVERYBODY, EVERYTHING_RETAINED, False, now)

    # Retained messages

    def retain(self, message: Message, now: Nanos) -> None:
        """Let every broker keep it, or forget the one before. What is later by its stamp is what counts."""
        if not self._uplink.is_alone:
            flags, body = envelope.pack(message, now)
            stamp = message.published_ns.to_bytes(_STAMP_BYTES)
            self._uplink.publish(RETAINED + message.topic, stamp + body, flags, RETAINED_CLASS, now)

    @staticmethod
    def read_retained(name: str, flags: int, body: bytes) -> Message:
        """ValueError if it is none."""
        stamp = int.from_bytes(body[:_STAMP_BYTES])
        return envelope.unpack(name[len(RETAINED) :], flags, body[_STAMP_BYTES:], stamp)

    # Shared subscriptions

    def join_group(self, group: str, topic_filter: str, now: Nanos) -> None:
        """There are members here from now on."""
        self._uplink.subscribe(EVERYBODY, share_name(group, self._me, topic_filter, topic_filter), False, now)

    def leave_group(self, group: str, topic_filter: str, now: Nanos) -> None:
        self._uplink.unsubscribe(EVERYBODY, share_name(group, self._me, topic_filter, topic_filter), now)

    def choose(self, group: str, topic_filter: str, brokers: tuple[str, ...], is_here: bool) -> str:
        """Whose turn it is: another broker's name, or "" for this one. Those that cannot be reached come last."""
        reachable = [broker for broker in brokers if self._uplink.can_reach(broker)]
        candidates: list[str] = [*([""] if is_here else []), *reachable] or list(brokers)
        turn = self._turns.get((group, topic_filter), 0)
        self._turns[group, topic_filter] = turn + 1
        return candidates[turn % len(candidates)]

    def send_to_group(
        self, broker: str, one: SharedElsewhere, message: Message, qos: QosClass, now: Nanos
    ) -> Published:
        flags, body = envelope.pack(message, now)
        name = share_name(one.group, broker, one.filter, message.topic)
        return self._uplink.publish(name, body, flags, qos, now)

    # Wishes

    def want(self, deadline_ns: Nanos, reliable: bool, topic_filter: str, now: Nanos) -> None:
        self._uplink.subscribe(EVERYBODY, want_name(deadline_ns, reliable, topic_filter), False, now)

    def want_no_more(self, deadline_ns: Nanos, reliable: bool, topic_filter: str, now: Nanos) -> None:
        self._uplink.unsubscribe(EVERYBODY, want_name(deadline_ns, reliable, topic_filter), now)
