"""What brokers tell each other beyond plain interest, in the words of plain interest.

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

from overlane.core.qos import QosClass
from overlane.core.topics import FilterTrie
from overlane.core.units import NEVER, US, Nanos
from overlane.mqtt.tightening import tightened

RETAINED = "$retained/"
SHARE = "$share/"
WANT = "$want/"
EVERYTHING_RETAINED = "$retained/#"

RETAINED_CLASS = QosClass(reliable=True, history=1)


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
