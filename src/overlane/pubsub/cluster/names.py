"""Cluster names: topics and filters that begin with `$`, with which brokers exchange more than messages of clients.

    $retained/TOPIC                   a retained message, for every broker; each needs `$retained/#`
    $share/GROUP/BROKER/TAG/FILTER    BROKER has members of this shared subscription
    $share/GROUP/BROKER/TAG/TOPIC     a message for one of them
    $want/DEADLINE/MORE/FILTER        the QoS override of a subscriber: the deadline in microseconds, and the
                                      sum of 1, reliable, and 2, in strict order. Nothing is published under it
    $advertise/FILTER                 publishers of the broker advertise a profile. Nothing is published under it
    $reserve/FILTER                   subscribers of the broker ask for a reservation. Nothing is published under it
    $seek/FILTER                      in two tiers: subscribers of the broker look for advertisements. It is told to
                                      nobody; it lets an edge be told what others advertise in the group of the filter
    $dead-letter/TOPIC                a message that could not be delivered
    $handout/BROKER/TOPIC             a retained message for one broker, in two tiers: there a broker that needs
                                      a topic gets its retained message without a filter for that

TAG is a digest of the filter: a message for a group must be matched to its filter, and a group can have several.

The length of topics and filters of clients is limited so that the longest of these names can still be carried.
"""

from hashlib import blake2b

from overlane.core import bundles, limits
from overlane.core.units import NEVER, US
from overlane.core.wire import frame_codec
from overlane.pubsub.publishing.qos_override import QosOverride

RESERVED = "$"
RETAINED = bundles.RETAINED
HANDOUT = bundles.HANDOUT
EVERYTHING_RETAINED = "$retained/#"
SHARE = "$share/"
WANT = "$want/"
ADVERTISED = bundles.ADVERTISED
SEEK = bundles.SEEK
RESERVE = "$reserve/"
DEAD_LETTERS = "$dead-letter/"

GROUP_BYTES_MAX = 256
"""The name of the group of a shared subscription."""

_TAG_BYTES = 6


def tag_of(topic_filter: str) -> str:
    return blake2b(topic_filter.encode(), digest_size=_TAG_BYTES).hexdigest()


def handout_name(broker: str, topic: str) -> str:
    return f"{HANDOUT}{broker}/{topic}"


def share_name(group: str, broker: str, topic_filter: str, topic: str) -> str:
    """The name for a topic, or for the filter itself, of a shared subscription at a broker."""
    return f"{SHARE}{group}/{broker}/{tag_of(topic_filter)}/{topic}"


def unplaced_share_name(group: str, tag: str, topic: str) -> str:
    """The name for a topic of a shared subscription of which it is not known yet where it has members."""
    return f"{SHARE}{group}//{tag}/{topic}"


def read_share_name(name: str) -> tuple[str, str, str, str]:
    """(group, broker, tag, topic or filter); ValueError if it is no such name."""
    group, broker, tag, rest = name[len(SHARE) :].split("/", 3)
    return group, broker, tag, rest


def want_name(override: QosOverride, topic_filter: str) -> str:
    deadline_us = 0 if override.deadline_ns >= NEVER else override.deadline_ns // US
    return f"{WANT}{deadline_us}/{override.reliable + 2 * override.strict}/{topic_filter}"


def read_want_name(name: str) -> tuple[QosOverride, str]:
    """The override and the filter; ValueError if it is no such name."""
    deadline_us, more, topic_filter = name[len(WANT) :].split("/", 2)
    deadline_ns = min(NEVER, max(0, int(deadline_us)) * US or NEVER)
    bits = int(more)
    return QosOverride(deadline_ns, bool(bits & 1), bool(bits & 2)), topic_filter


def topic_of(name: str) -> str:
    """The topic that clients know a message by; empty if it is for no client."""
    if name.startswith((RETAINED, HANDOUT)):
        return ""
    if name.startswith(SHARE):
        try:
            return read_share_name(name)[3]
        except ValueError:
            return ""
    return name


PREFIX_BYTES_MAX = max(
    len(RETAINED),
    len(DEAD_LETTERS),
    len(handout_name("b" * frame_codec.NAME_BYTES_MAX, "")),
    len(want_name(QosOverride(NEVER - 1, reliable=True), "")),
    len(share_name("g" * GROUP_BYTES_MAX, "b" * frame_codec.NAME_BYTES_MAX, "", "")),
)
TOPIC_BYTES_MAX = limits.TOPIC_BYTES_MAX - PREFIX_BYTES_MAX
"""A topic or filter of a client, without the group of a shared subscription."""
