r"""The fast path: plain messages passed on by the read instead of one by one.

    PUB subject size\r\n payload \r\n     in
    MSG subject sid size\r\n payload \r\n     out: all from the size on are the same bytes

A message without reply subject, of a client that is not verbose, on a subject whose receivers are all NATS clients of
this broker, is looked at only as far as to find its receivers and its end. Headers are passed on as they came if they
are written as the broker would write them itself. A subject enters after its first message was handled otherwise, so
that every check was made once for all clients with the same rights. When subscriptions, rights or the needs of other
brokers change, all subjects start anew. Whatever is not plain stops the fast path, for the server to handle.
"""

import re

from overlane.core.units import Nanos
from overlane.nats.connection import Connection, Sid
from overlane.nats.operations import LINE_BYTES_MAX
from overlane.nats.publishing import read_topic
from overlane.nats.subjects import subject_of
from overlane.pubsub.access import Rights
from overlane.pubsub.contract.connection import Phase
from overlane.pubsub.counters import TopicStats
from overlane.pubsub.publishing import backpressure
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.state import State
from overlane.pubsub.subscriptions.table import Receiver

RETURN, NEWLINE = b"\r\n"
HPUB = ord("H")

SUBJECTS_MAX = 50_000
"""Of clients with the same rights."""
SIZES = {b"%d" % size: size for size in range(4_097)}
"""By their digits, those of most messages: one look instead of two checks and a conversion."""
SIZE_DIGITS_MAX = 7

Target = tuple[Connection, Sid, bytes]
"""A receiver, its subscription, and what it gets in front of the size."""


_VALUE = rb"[!-~](?:[ -~]*[!-~])?\r\n"
_OTHER = rb"(?!(?:Content-Type|Nats-TTL|Mqtt-Correlation-Data|nats-status): )[!-9;-~]+: "
_usual_headers = re.compile(
    rb"NATS/1\.0\r\n(?=[^\r])(?:Content-Type: " + _VALUE + rb")?(?:" + _OTHER + _VALUE + rb")*\r\n"
)
"""At least one header, all as `headers` writes them."""


class SubjectEntry:
    __slots__ = ("stats", "takes_headers", "targets", "targets_with_headers")

    def __init__(self, targets: list[Target], stats: TopicStats) -> None:
        self.targets = targets
        self.targets_with_headers = [(target, sid, b"H" + head) for target, sid, head in targets]
        self.takes_headers = all(target.options.headers for target, _, _ in targets)
        self.stats = stats


class FastPath:
    def __init__(self, state: State) -> None:
        self._state = state
        self._shared: dict[Rights, dict[bytes, SubjectEntry]] = {}
        self._shared_of = -1
        """The state of subscriptions and rights that these hold for."""

    def enter(self, connection: Connection, session: Session, subject: bytes) -> None:
        """A plain message on this subject was accepted: those that follow may take the fast path."""
        state, topic = self._state, read_topic(subject)
        if topic is None or topic.startswith("$") or topic not in state.topics or not state.may_publish(session, topic):
            return
        audience = state.subscriptions.audience(topic)
        if state.has_policy(topic):
            return
        if audience.groups or state.cluster.directory.shared(topic) or state.uplink.carries(topic):
            return
        if state.is_mediated(topic) or state.uplink.withheld_from(topic):
            return
        targets: list[Target] = []
        for receiver in audience.receivers:
            found = self._targets(receiver, topic, session)
            if found is None:
                return
            targets += found
        if connection.entries_of != state.changes:
            connection.entries, connection.entries_of = self._entries_of(connection, session), state.changes
        if len(connection.entries) >= SUBJECTS_MAX:
            connection.entries.clear()
        connection.entries[b"PUB " + subject] = SubjectEntry(targets, state.stats(topic))

    def _entries_of(self, connection: Connection, session: Session) -> dict[bytes, SubjectEntry]:
        """Those of all clients with the same rights. One that wants nothing back that it publishes has its own: whether
        a subject is plain depends on its subscriptions."""
        if not connection.options.echo:
            return {}
        state = self._state
        if self._shared_of != state.changes:
            self._shared, self._shared_of = {}, state.changes
        return self._shared.setdefault(state.settings.access.rights(session.user, session.client_id), {})

    @staticmethod
    def _targets(receiver: Receiver, topic: str, publisher: Session) -> list[Target] | None:
        """None if messages have to be given to this receiver one by one."""
        consumer = receiver.session.consumer
        if not isinstance(consumer, Connection) or (receiver.session is publisher and not consumer.options.echo):
            return None
        targets: list[Target] = []
        for identifier in receiver.identifiers:
            interest = consumer.interests.get(identifier)
            if interest is None or topic.count("/") < interest.slashes:
                continue
            if any(one.left >= 0 for one in interest.sids):
                return None
            targets += [(consumer, one, _message_head(topic, one.sid)) for one in interest.sids]
        return targets

    def pass_on(self, connection: Connection, data: bytes, position: int, now: Nanos) -> int:
        """Pass on the plain messages from the position on; the place of the first that is not plain and whole."""
        if connection.entries_of != self._state.changes:
            connection.entries = {}
            return position
        entries = connection.entries
        if not entries:
            return position
        find, find_space, find_entry, find_size = data.find, data.rfind, entries.get, SIZES.get
        end, size_max, begin = len(data), connection.payload_bytes_max, position
        out: dict[Connection, list[bytes]] = {}
        count, header_bytes, pairs_max = 0, 0, self._state.limits.user_properties
        while position < end:
            line_end = find(b"\r\n", position, position + LINE_BYTES_MAX)
            space = find_space(b" ", position, line_end)
            entry = find_entry(data[position:space])
            if line_end < 0:
                break
            size = find_size(data[space + 1 : line_end])
            if size is None and (size := _size(data[space + 1 : line_end])) is None:
                break
            following = line_end + 4 + size
            if entry is not None:
                targets = entry.targets
            else:
                if data[position] != HPUB or following > end:
                    break
                head_end = find_space(b" ", position, space)
                entry = find_entry(data[position + 1 : head_end])
                header_bytes = _size(data[head_end + 1 : space]) or 0
                if entry is None or not entry.takes_headers or not connection.options.headers or header_bytes > size:
                    break
                headers = data[line_end + 2 : line_end + 2 + header_bytes]
                if headers.count(b"\n") - 2 > pairs_max or not _usual_headers.fullmatch(headers):
                    break
                targets, space = entry.targets_with_headers, head_end
            stats = entry.stats
            if size > size_max or following > end or data[following - 1] != NEWLINE or stats.is_forgotten:
                break
            if data[following - 2] != RETURN:
                break
            stats.messages += 1
            stats.bytes += size if targets is entry.targets else size - header_bytes
            count += 1
            behind = data[space + 1 : following]
            for target, sid, prefix in targets:
                sid.taken += 1  # UNSUB may name a number of all
                pieces = out.get(target)
                if pieces is None:
                    out[target] = [prefix, behind]
                else:
                    pieces += (prefix, behind)
            position = following
        if position > begin:
            connection.messages_in += count
            self._state.counters.messages_in += count
            self._hand_out(connection, out, now)
        return position

    def _hand_out(self, publisher: Connection, out: dict[Connection, list[bytes]], now: Nanos) -> None:
        state = self._state
        queue_bytes = state.limits.queue_bytes
        for connection, pieces in out.items():
            if connection.phase is not Phase.OPEN:
                continue
            connection.send(b"".join(pieces))
            count = len(pieces) // 2
            connection.messages_out += count
            state.counters.messages_out += count
            crowding = connection.backlog_bytes / queue_bytes
            if crowding > backpressure.CROWDED and connection.keeps_reading(now):
                rests_until_ns = now + backpressure.rest_ns(min(1.0, crowding))
                publisher.rests_until_ns = max(publisher.rests_until_ns, rests_until_ns)
            if crowding > 1:
                connection.close_if_slow()


def _size(digits: bytes) -> int | None:
    return int(digits) if digits.isdigit() and len(digits) <= SIZE_DIGITS_MAX else None


def _message_head(topic: str, sid: bytes) -> bytes:
    return b"MSG %b %b " % (subject_of(topic).encode(), sid)
