"""A connection of a NATS client: a transient session whose subscriptions have numbers that the client has chosen.

A subscription of the session stands for all subscriptions of the client ("sids") with the same subject and queue group:
each gets what arrives for it, but of those in a queue group only one does, in turn. The identifier of a session's
subscription finds them (`subjects`).

A client that does not read is closed once more waits for it than its queue may hold: `-ERR 'Slow Consumer'`. Until then
publishers are slowed down for as long as it reads at all (`pubsub.backpressure`).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from overlane.core.topics import matches
from overlane.core.units import Nanos
from overlane.nats.headers import write_headers
from overlane.nats.subjects import subject_of
from overlane.pubsub.contract.connection import ClientConnection, Phase
from overlane.pubsub.contract.consumer import Ending, Peer
from overlane.pubsub.counters import Refusal
from overlane.pubsub.message import Message
from overlane.pubsub.state import State

if TYPE_CHECKING:
    from overlane.nats.fast_path import SubjectEntry

OK: Final = b"+OK\r\n"

_ENDING: Final = {
    Ending.TAKEN_OVER: "Connection Closed",
    Ending.BY_OPERATOR: "Connection Closed By Operator",
    Ending.LOGIN_EXPIRED: "User Authentication Expired",
    Ending.SHUTTING_DOWN: "Server Shutdown",
    Ending.INTERNAL_ERROR: "Internal Error",
}


class Options:
    """What a client has said in CONNECT."""

    __slots__ = ("echo", "headers", "no_responders", "pedantic", "verbose")

    def __init__(
        self,
        verbose: bool = False,
        pedantic: bool = False,
        echo: bool = True,
        headers: bool = False,
        no_responders: bool = False,
    ) -> None:
        self.verbose = verbose
        self.pedantic = pedantic
        self.echo = echo
        self.headers = headers
        self.no_responders = no_responders and headers


class Sid:
    """One subscription of the client. `left`: how many more messages it takes; negative for any number."""

    __slots__ = ("interest", "left", "sid", "taken")

    def __init__(self, sid: bytes, interest: "Interest") -> None:
        self.sid = sid
        self.interest = interest
        self.taken = 0
        self.left = -1


class Interest:
    """A subscription of the session, and the client's that it stands for."""

    __slots__ = ("filter", "identifier", "is_group", "name", "sids", "slashes", "turn")

    def __init__(self, name: str, identifier: int, is_group: bool, topic_filter: str) -> None:
        self.name = name
        self.identifier = identifier
        self.is_group = is_group
        self.filter = topic_filter
        self.slashes = topic_filter.count("/")
        """A topic with fewer is one that MQTT's `#` matches and `>` does not."""
        self.sids: list[Sid] = []
        self.turn = 0

    def has(self, topic: str) -> bool:
        return topic.count("/") >= self.slashes and matches(self.filter, topic)


class Connection(ClientConnection):
    __slots__ = (
        "_input",
        "_input_bytes",
        "_remove_ended",
        "_state",
        "ended",
        "entries",
        "entries_of",
        "input_needed",
        "interests",
        "interests_by_name",
        "nonce",
        "options",
        "payload_bytes_max",
        "pings_unanswered",
        "sids",
    )

    def __init__(
        self, peer: Peer, state: State, nonce: str, remove_ended: "Callable[[Connection, Nanos], None]", now: Nanos
    ) -> None:
        super().__init__(peer, state.touched, now)
        self._state = state
        self._remove_ended = remove_ended
        self.nonce = nonce
        """What a client with a key has to sign."""
        self.options = Options()
        self.payload_bytes_max = state.limits.packet_bytes
        """What INFO told: a client that keeps to it does nothing wrong, though it was lowered since."""
        self.sids: dict[bytes, Sid] = {}
        self.interests: dict[int, Interest] = {}
        """By identifier."""
        self.interests_by_name: dict[str, Interest] = {}
        self.ended: list[Sid] = []
        """Those that have taken all they wanted, and are to be removed."""
        self.entries: dict[bytes, SubjectEntry] = {}
        """The subjects that this client's plain messages pass on the fast path, by the beginning of their line."""
        self.entries_of = -1
        """The state of subscriptions and rights that `entries` holds for."""
        self.pings_unanswered = 0
        self._input: list[bytes] = []
        self._input_bytes = 0
        self.input_needed = 0
        """Bytes that have to be there before it is worth to look at them."""

    @property
    def protocol(self) -> str:
        return "NATS"

    @property
    def is_stranger(self) -> bool:
        return False  # it was sent INFO, and reads why it is closed

    # Input that waits

    @property
    def waiting_bytes(self) -> int:
        return self._input_bytes

    def feed(self, data: bytes) -> None:
        if data:
            self._input.append(data)
            self._input_bytes += len(data)

    def take_input(self) -> bytes:
        """All that waits, as one."""
        data = self._input[0] if len(self._input) == 1 else b"".join(self._input)
        self._input, self._input_bytes, self.input_needed = [], 0, 0
        return data

    # Messages to the client

    def take(
        self,
        message: Message,
        qos: int,  # noqa: ARG002 - NATS has one
        retain: bool,  # noqa: ARG002 - nor a flag
        identifiers: tuple[int, ...],
        now: Nanos,
        tag: int = 0,  # noqa: ARG002 - nor acknowledgements
        again: bool = False,  # noqa: ARG002
    ) -> bool:
        if self.phase is not Phase.OPEN:
            return True
        reply, headers = b"", b""
        if message.encoded:
            properties = message.properties
            if properties.response_topic is not None:
                reply = subject_of(properties.response_topic).encode() + b" "
            if self.options.headers:
                headers = write_headers(properties, message.remaining_s(now))
        elif self.options.headers and (expiry_s := message.remaining_s(now)) is not None:
            headers = write_headers(message.properties, expiry_s)
        size = len(headers) + len(message.payload)
        behind = b"%b%d %d\r\n" % (reply, len(headers), size) if headers else b"%b%d\r\n" % (reply, size)
        before = self.messages_out
        self.deliver(message.topic, identifiers, behind, headers + message.payload, bool(headers), message.sender)
        # Delivery counts one: here it is one for each subscription, or none.
        self._state.counters.messages_out += self.messages_out - before - 1
        return True

    def wants(self, topic: str, identifiers: tuple[int, ...]) -> bool:
        """Whether a message on the topic that comes by these is for any of its subscriptions."""
        found = (self.interests.get(identifier) for identifier in identifiers)
        return any(one is not None and one.sids and topic.count("/") >= one.slashes for one in found)

    def deliver(
        self, topic: str, identifiers: tuple[int, ...], behind: bytes, body: bytes, has_headers: bool, sender: str
    ) -> None:
        """To those of the client's subscriptions that these stand for. `behind`: the end of the line, from the reply
        subject on."""
        if not self.options.echo and self.session is not None and sender == self.session.client_id:
            return
        kind = b"HMSG " if has_headers else b"MSG "
        subject, slashes = subject_of(topic).encode(), topic.count("/")
        for identifier in identifiers:
            interest = self.interests.get(identifier)
            if interest is None or slashes < interest.slashes or not interest.sids:
                continue
            if interest.is_group:
                interest.turn = (interest.turn + 1) % len(interest.sids)
                receivers = [interest.sids[interest.turn]]
            else:
                receivers = interest.sids.copy()
            for one in receivers:
                self.send(b"".join((kind, subject, b" ", one.sid, b" ", behind, body, b"\r\n")))
                self.messages_out += 1
                one.taken += 1
                if one.left > 0:
                    one.left -= 1
                    if not one.left:
                        interest.sids.remove(one)
                        self.ended.append(one)
                        self._state.timers.at_with(self, 0, self._remove_ended, self._failed)
        self.close_if_slow()

    def close_if_slow(self) -> None:
        if self.backlog_bytes > self._state.limits.queue_bytes:
            told = f"more than {self._state.limits.queue_bytes} bytes wait for it"
            self._state.refuse(Refusal.SLOW_CLIENT, told, self)
            self.refuse("Slow Consumer", told)

    def _failed(self, _: "Connection", error: Exception) -> None:
        self._state.failed("timer", self.peer.address, error, self)

    # The end

    def complain(self, error: str) -> None:
        """Tell the client that something was not done; its connection stays."""
        self.send(b"-ERR '%b'\r\n" % error.encode())

    def refuse(self, error: str, why: str) -> None:
        """Tell the client the error and close the connection."""
        if self.phase is not Phase.CLOSED:
            self.complain(error)
            self.shut(why)

    def end(self, ending: Ending, why: str) -> None:
        self.refuse(_ENDING[ending], why)
