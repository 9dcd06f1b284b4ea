"""Content filters: subscriptions that get only messages whose content meets a condition.

    overlane-where: temperature > 20 AND room = 'lab1'

as a user property of a subscription, in the language of selectors. A message goes to a session if at least one of its
matching subscriptions has no filter or one that holds; QoS and identifiers are those of the subscriptions that take it.
Conditions are evaluated at the subscriber's broker. The payload is decoded once for all of them.

    overlane-standby: yes

makes it a subscription of a client at the mirror of an item: it gets only messages with an identity (`message_ids`)
that clients publish at this broker. All others come from the primary, where the client has an ordinary subscription.
Other brokers are not told of it, so it costs the overlay nothing.

A shared subscription has none: which member a message goes to is decided where it is published, and a broker whose
members all turn it down could not give it back.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from overlane.pubsub.message import Message
from overlane.pubsub.publishing.message_ids import may_have_id
from overlane.selectors import Match, MessageValues, Selector, SelectorError

if TYPE_CHECKING:
    from overlane.pubsub.counters import Counters
    from overlane.pubsub.subscriptions.table import Receiver, Subscription

WHERE = "overlane-where"
STANDBY = "overlane-standby"


def read_content_filter(user_properties: Iterable[tuple[str, str]]) -> Selector | None:
    """SelectorError, which begins with the name of the property."""
    texts = [value for name, value in user_properties if name == WHERE]
    if len(texts) > 1:
        raise SelectorError(1, f"{len(texts)} properties {WHERE}", "one; combine conditions with AND or OR")
    return Selector.parse(texts[0]) if texts else None


def read_standby(user_properties: Iterable[tuple[str, str]]) -> bool:
    return any(name == STANDBY and value == "yes" for name, value in user_properties)


def values_of(message: Message) -> MessageValues:
    """The names that a selector may use of it."""
    properties = message.properties
    return MessageValues(
        message.topic,
        message.payload,
        properties.user_properties,
        properties.content_type,
        message.qos,
        message.retain,
    )


class ContentFilters:
    def __init__(self, counters: "Counters") -> None:
        self._counters = counters
        self.values_of: Callable[[Message], MessageValues] = values_of
        """A protocol whose properties have types may know more of them."""
        self._message: Message | None = None
        self._values = MessageValues("", b"")
        """Of the message that was looked at last: it is mostly looked at for several receivers in a row."""

    def chosen(self, receiver: "Receiver", message: Message, sender: str | None) -> "Receiver | None":
        """How a receiver with conditions gets the message, if at all. `sender` is a local client."""
        if not receiver.is_own and receiver.session.publishes_as == sender:
            if receiver.of_own is None:
                return None
            receiver = receiver.of_own
        if not receiver.choices:
            return receiver
        passing = [one for one in receiver.choices if self._match(one, message, sender)]
        if len(passing) == len(receiver.choices):
            return receiver
        if passing:
            return type(receiver)(receiver.session, passing)
        self._count(receiver.choices, message)
        return None

    def passes(self, subscription: "Subscription", message: Message) -> bool:
        if self._match(subscription, message):
            return True
        self._count((subscription,), message)
        return False

    def _match(self, subscription: "Subscription", message: Message, sender: str | None = None) -> Match:
        if subscription.is_standby and (sender is None or not may_have_id(message.encoded)):
            return Match.FALSE
        if subscription.where is None:
            return Match.TRUE
        if message is not self._message:
            self._message, self._values = message, self.values_of(message)
        return self._values.matched_by(subscription.where)

    def _count(self, subscriptions: "Iterable[Subscription]", message: Message) -> None:
        if any(self._match(one, message) is Match.NOT_JSON for one in subscriptions):
            self._counters.filtered_not_json += 1
        else:
            self._counters.filtered += 1
