"""The directory: what other brokers announce by cluster names, indexed by topic.

It is updated name by name as the overlay reports them, so the cost of a change does not depend on the size.
"""

from dataclasses import dataclass

from overlane.core.topics import FilterTrie
from overlane.pubsub.cluster.names import SHARE, WANT, read_share_name, read_want_name, tag_of
from overlane.pubsub.publishing.qos_override import NONE, QosOverride

OVERRIDES_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class RemoteGroup:
    """A shared subscription with members at these other brokers."""

    group: str
    filter: str
    brokers: tuple[str, ...]


class ClusterDirectory:
    def __init__(self) -> None:
        self._shared: FilterTrie[tuple[str, str]] = FilterTrie()
        self._members: dict[tuple[str, str], RemoteGroup] = {}
        self._wants: FilterTrie[str] = FilterTrie()
        self._wanted: dict[str, dict[tuple[str, QosOverride], None]] = {}
        """By filter, who wants what."""
        self._strictest: dict[str, QosOverride] = {}
        """What that is for a topic, for those that were asked for since the last change."""

    def note(self, name: str, broker: str, is_needed: bool) -> None:
        """A broker needs a filter under a reserved name, or needs it no more."""
        try:
            if name.startswith(SHARE):
                group, at, tag, topic_filter = read_share_name(name)
                if at == broker and tag == tag_of(topic_filter):
                    self._note_member(group, topic_filter, broker, is_needed)
            elif name.startswith(WANT):
                override, topic_filter = read_want_name(name)
                self._note_want(topic_filter, (broker, override), is_needed)
        except ValueError:
            pass  # a name of another version

    def _note_member(self, group: str, topic_filter: str, broker: str, is_needed: bool) -> None:
        key = group, topic_filter
        known = self._members.get(key)
        brokers = set(() if known is None else known.brokers)
        if is_needed:
            brokers.add(broker)
        else:
            brokers.discard(broker)
        if brokers:
            self._members[key] = RemoteGroup(group, topic_filter, tuple(sorted(brokers)))
            self._shared.add(topic_filter, key)
        elif known is not None:
            del self._members[key]
            self._shared.remove(topic_filter, key)

    def _note_want(self, topic_filter: str, want: tuple[str, QosOverride], is_needed: bool) -> None:
        self._strictest.clear()
        wants = self._wanted.setdefault(topic_filter, {})
        if is_needed:
            wants[want] = None
            self._wants.add(topic_filter, topic_filter)
        else:
            wants.pop(want, None)
        if not wants:
            del self._wanted[topic_filter]
            self._wants.remove(topic_filter, topic_filter)

    def shared(self, topic: str) -> list[RemoteGroup]:
        return [self._members[key] for key in self._shared.match(topic)] if self._members else []

    def override(self, topic: str) -> QosOverride:
        """The strictest that a subscriber of another broker asks for a topic."""
        if not len(self._wants):
            return NONE
        found = self._strictest.get(topic)
        if found is None:
            if len(self._strictest) >= OVERRIDES_REMEMBERED:
                self._strictest.clear()
            wants = [want for topic_filter in self._wants.match(topic) for _, want in self._wanted[topic_filter]]
            found = NONE
            if wants:
                found = QosOverride(
                    min(want.deadline_ns for want in wants),
                    any(want.reliable for want in wants),
                    any(want.strict for want in wants),
                )
            self._strictest[topic] = found
        return found
