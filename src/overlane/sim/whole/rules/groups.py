"""Shared subscriptions: of each group one member gets a message, wherever it is.

- A message of QoS 1 or 2 that was acknowledged reaches a member, where the group had one with a persistent session
  before it was sent. Members that come and go may get it; what they have not acknowledged when their session ends goes
  to another, and so does what was under way to their broker. Excused is what such a member may have been given when its
  broker went down.
- No message of QoS 2 reaches two members that have subscribed with QoS 2.
- One of QoS 1 reaches one persistent member, unless it was published again, or another member's session has ended.

Where queues are short, one that ran over while a member was away is excused.
"""

from collections.abc import Callable, Mapping

from overlane.core.topics import matches
from overlane.pubsub.subscriptions.table import split_shared
from overlane.sim.soak.invariants import Broken
from overlane.sim.whole.message import SimulatedMessage
from overlane.sim.whole.rules.history import History

Report = Callable[[str, str], None]
Group = tuple[str, str]
"""Name and filter."""


class GroupRule:
    def __init__(self, broker_of: Mapping[str, str], passing: frozenset[str], history: History, report: Report) -> None:
        self._broker_of = broker_of
        self._history = history
        self._passing = passing
        self._report = report
        self._members: dict[Group, dict[str, int]] = {}
        """And the QoS of each."""
        self._expected: dict[tuple[Group, SimulatedMessage], bool] = {}
        self._holders: dict[tuple[Group, SimulatedMessage], dict[str, int]] = {}
        """Who got a message, and with which QoS first."""
        self._resent: set[SimulatedMessage] = set()
        self._is_changing: set[Group] = set()
        """Groups that have had members whose session ends."""

    def subscribed(self, client: str, name: str, qos: int) -> None:
        group = split_shared(name)
        self._members.setdefault(group, {})[client] = qos
        if client in self._passing:
            self._is_changing.add(group)

    def sent(self, message: SimulatedMessage) -> None:
        for group, members in self._members.items():
            if matches(group[1], message.topic) and any(
                qos and client not in self._passing for client, qos in members.items()
            ):
                self._expected[group, message] = False

    def resent(self, message: SimulatedMessage) -> None:
        self._resent.add(message)

    def got(self, client: str, message: SimulatedMessage, qos: int) -> bool:
        """Whether the message has come by a group."""
        groups = [one for one, members in self._members.items() if client in members and matches(one[1], message.topic)]
        for group in groups:
            if (group, message) in self._expected:
                self._expected[group, message] = True
            holders = self._holders.setdefault((group, message), {})
            holders.setdefault(client, qos)
            if len(holders) > 1:
                self._judge(group, message, holders)
        return bool(groups)

    def _judge(self, group: Group, message: SimulatedMessage, holders: dict[str, int]) -> None:
        exactly = [client for client, qos in holders.items() if qos == 2]
        persistent = [client for client in holders if client not in self._passing]
        if len(exactly) > 1:
            told = f"{message} came to {exactly[0]} and {exactly[1]} of {group[0]}"
            self._report("one member of a group gets a message", told)
        elif len(persistent) > 1 and message not in self._resent and group not in self._is_changing:
            told = f"{message} came to {persistent[0]} and {persistent[1]} of {group[0]}"
            self._report("one member of a group gets a message", told)

    def missing(
        self, acknowledged: set[SimulatedMessage], was_away: Callable[[str, SimulatedMessage], bool]
    ) -> Broken | None:
        """`was_away`: whether a member is excused for a message."""
        for (group, message), has_it in self._expected.items():
            if not has_it and message in acknowledged:
                if any(was_away(one, message) or self._took_along(one) for one in self._members[group]):
                    continue
                return Broken("a member of each group gets a message", f"{message}, none of {group[0]}")
        return None

    def _took_along(self, member: str) -> bool:
        """Whether messages may have ended with the session of a member."""
        return member in self._passing and self._history.was_down(self._broker_of[member], 0)
