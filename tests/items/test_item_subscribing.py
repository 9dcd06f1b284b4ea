"""Which subscriptions a client that follows the directory has at which brokers, and when they end."""

from dataclasses import dataclass, field
from typing import cast
from unittest import mock

import pytest

from overlane.client.engine import Engine
from overlane.client.inbox import Inbox
from overlane.client.items import subscribing
from overlane.client.items.sessions import Sessions
from overlane.client.items.subscribing import OVERLAP, PLAIN_OVERLAP, STANDBY, ItemSubscription
from overlane.client.message import Message
from overlane.client.protocol import WantedSubscription
from overlane.core.units import MS, Nanos
from overlane.items.directory import At, Entry, ItemDirectory
from overlane.items.switching import Switching


@dataclass
class Session:
    """The engine of a session, as far as a subscription uses it."""

    broker: str
    online: bool = True
    grants: bool = True
    inboxes: dict[int, Inbox] = field(default_factory=dict)
    standby: dict[int, bool] = field(default_factory=dict)
    left: list[int] = field(default_factory=list)
    given: list[Message] = field(default_factory=list)

    def subscribe(self, wanted: WantedSubscription, unread_max: int, replaced: int | None = None) -> tuple[int, Inbox]:
        if replaced is not None:
            del self.inboxes[replaced], self.standby[replaced]
        number = 1 + max(self.standby, default=0) + len(self.left)
        self.inboxes[number] = Inbox(wanted.filters, unread_max, set())
        self.standby[number] = wanted.properties == STANDBY
        return number, self.inboxes[number]

    def is_granted(self, number: int) -> bool:
        return self.grants and number in self.standby

    def leave(self, number: int, *, for_good: bool = False) -> None:
        assert for_good
        del self.inboxes[number], self.standby[number]
        self.left.append(number)

    def done(self, message: Message) -> None:
        self.given.append(message)

    def deliver(self, message: Message) -> None:
        (inbox,) = self.inboxes.values()
        inbox.put(message)


def a_message(message_id: str = "", qos: int = 1) -> Message:
    pairs = (("overlane-id", message_id),) if message_id else ()
    return cast(Message, mock.Mock(property_pairs=pairs, retained=False, qos=qos, receipt=None, body=b"x", topic="t/1"))


class Client:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now: Nanos = 0
        monkeypatch.setattr(subscribing, "now_ns", lambda: self.now)
        self.engines = {name: Session(name) for name in "abc"}
        self.home = Session("home")
        self.switching = Switching()
        for name in self.engines:
            self.switching.connected(name, 0)
        self.directory = ItemDirectory()
        self.move(1, "a", "b")
        sessions = mock.Mock(switching=self.switching, engine=self.engines.get)
        self.subscription = ItemSubscription(
            WantedSubscription(("t/#",)),
            100,
            cast(Engine, self.home),
            cast(Sessions, sessions),
            self.directory,
            lambda _: None,
        )

    def move(self, epoch: int, primary: str, mirror: str) -> None:
        self.directory.take(Entry("t", "west", ("t/#",), epoch, At(primary), At(mirror)))

    def after(self, duration: Nanos) -> None:
        self.now += duration
        self.subscription.look()

    @property
    def standby(self) -> dict[str, bool]:
        """By broker, whether the subscription stands by there."""
        return {name: is_standby for name, one in self.engines.items() for is_standby in one.standby.values()}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    return Client(monkeypatch)


def test_it_is_subscribed_at_the_primary_and_stands_by_at_the_mirror(client: Client) -> None:
    assert client.standby == {"a": False, "b": True}


def test_when_the_primary_is_lost_the_mirror_is_subscribed_at_once_and_nothing_ends(client: Client) -> None:
    client.switching.lost("a", client.now)
    client.subscription.follow()
    assert client.standby == {"a": False, "b": False}
    client.after(10 * OVERLAP)
    assert client.standby == {"a": False, "b": False}, "it may have something for this session when it is back"


def test_a_moved_item_keeps_its_old_subscription_until_the_new_one_is_granted_and_known(client: Client) -> None:
    client.engines["c"].grants = False
    client.move(2, "c", "b")
    client.subscription.follow()
    client.after(10 * OVERLAP)
    assert client.standby == {"a": False, "b": True, "c": False}, "the new one is not granted"
    client.engines["c"].grants = True
    client.after(MS)
    client.after(OVERLAP - 2 * MS)
    assert client.standby == {"a": False, "b": True, "c": False}
    client.after(2 * MS)
    assert client.standby == {"b": True, "c": False}


def test_a_subscription_that_is_wanted_again_does_not_end(client: Client) -> None:
    client.move(2, "c", "b")
    client.subscription.follow()
    client.after(OVERLAP - MS)
    client.move(3, "a", "b")
    client.subscription.follow()
    client.after(2 * MS)
    assert client.standby == {"a": False, "b": True, "c": False}
    client.after(OVERLAP)
    assert client.standby == {"a": False, "b": True}


def test_what_a_broker_kept_for_the_old_subscription_is_delivered_and_copies_are_not(client: Client) -> None:
    client.switching.lost("a", client.now)
    client.move(2, "b", "c")
    client.subscription.follow()
    client.after(OVERLAP)
    client.engines["b"].deliver(a_message("run:1"))
    client.engines["a"].deliver(a_message("run:1"))
    client.engines["a"].deliver(a_message("run:2"))
    assert len(client.subscription.inbox.messages) == 2
    assert len(client.engines["a"].given) == 1, "the copy is acknowledged"


def test_messages_without_an_identity_come_from_the_old_broker_for_a_moment_only(client: Client) -> None:
    client.move(2, "c", "b")
    client.subscription.follow()
    client.engines["a"].deliver(a_message())
    client.after(MS)
    client.engines["a"].deliver(a_message())
    assert len(client.subscription.inbox.messages) == 2
    client.after(PLAIN_OVERLAP + MS)
    client.engines["a"].deliver(a_message())
    client.engines["c"].deliver(a_message())
    assert len(client.subscription.inbox.messages) == 3
