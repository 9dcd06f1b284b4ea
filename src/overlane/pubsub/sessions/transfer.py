"""Session transfer: a session to a value, and a value to a session that continues it.

Both functions are pure: they change nothing of a broker. `Sessions.adopt` adds an imported session to those of the
broker; `PubSub.export_session` and `import_session` are the functions for other parts. How far the overlay's history
was replayed to a subscription is not part of a session: if topics keep a history, it may be delivered again.
"""

from overlane.core.units import NEVER, Nanos
from overlane.errors import OverlaneError
from overlane.pubsub.delivery.window import DeliveryStage, Entry
from overlane.pubsub.message import Message
from overlane.pubsub.publishing.qos_override import QosOverride
from overlane.pubsub.reservations.request import ReservationRequest
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.sessions.session_export import (
    ExportedEntry,
    ExportedMessage,
    ExportedSubscription,
    ExportedWill,
    SessionExport,
)
from overlane.pubsub.sessions.wills import Will
from overlane.pubsub.subscriptions.table import Subscription, split_shared
from overlane.selectors import Selector


class NotTransferable(OverlaneError):
    """A session that cannot be exported or imported, and why."""

    error_code = "OVL-119"


def export_session(session: Session, will: Will | None, now: Nanos) -> SessionExport:
    """The session as it would be if its connection ended now."""
    window = session.window
    ends_ns, headway = session.expires_ns, max(session.headway, window.sent_up_to)
    if session.consumer is not None:
        ends_ns, headway = session.ends_ns(now), window.sent_up_to
    return SessionExport(
        client_id=session.client_id,
        user=session.user,
        expiry_s=session.expiry_s,
        expires_in_ns=_span(ends_ns, now),
        subscriptions=tuple(
            ExportedSubscription(
                one.name,
                one.qos,
                one.no_local,
                one.retain_as_published,
                one.identifier,
                *one.override[:3],
                where="" if one.where is None else one.where.text,
                is_standby=one.is_standby,
                reserve="" if one.reserve is None else one.reserve.encode(),
            )
            for one in session.subscriptions.values()
        ),
        replays=tuple(session.replays.items()),
        sent=tuple(_exported_entry(one, now) for one in window.sent.values()),
        waiting=tuple(_exported_entry(one, now) for one in window.waiting),
        next_sequence=window.last_sequence + 1,
        sent_up_to=window.sent_up_to,
        headway=headway,
        received=tuple(sorted(session.received)),
        deduplication=session.deduplication.exported(),
        will=None if will is None else _exported_will(will, will.due(session, now), now),
        publishes_as="" if session.publishes_as == session.client_id else session.publishes_as,
    )


def import_session(exported: SessionExport, now: Nanos) -> tuple[Session, Will | None]:
    session = Session(exported.client_id, exported.user, exported.expiry_s)
    session.expires_ns = _time(exported.expires_in_ns, now)
    session.publishes_as = exported.publishes_as or exported.client_id
    for one in exported.subscriptions:
        group, topic_filter = split_shared(one.name)
        override = QosOverride(one.deadline_ns, one.reliable, one.strict)
        session.subscriptions[one.name] = Subscription(
            session,
            one.name,
            group,
            topic_filter,
            one.qos,
            one.no_local,
            one.retain_as_published,
            one.identifier,
            override,
            Selector.parse(one.where) if one.where else None,
            is_local=one.is_standby,
            is_standby=one.is_standby,
            reserve=ReservationRequest.decode(one.reserve) if one.reserve else None,
        )
    session.replays = dict(exported.replays)
    session.received = dict.fromkeys(exported.received)
    session.deduplication.resume(exported.deduplication)
    session.window.resume(
        [_imported_entry(one, now) for one in exported.sent],
        [_imported_entry(one, now) for one in exported.waiting],
        exported.next_sequence,
        exported.sent_up_to,
    )
    session.headway = exported.headway
    return session, None if exported.will is None else _imported_will(exported.will, now)


def _exported_entry(entry: Entry, now: Nanos) -> ExportedEntry:
    one = entry.message
    message = ExportedMessage(
        one.topic,
        one.payload,
        one.qos,
        one.retain,
        one.encoded,
        one.sender,
        one.published_ns - now,
        _span(one.expires_ns, now),
    )
    return ExportedEntry(
        entry.sequence, entry.qos, entry.retain, entry.identifiers, entry.group, entry.stage, entry.tries, message
    )


def _imported_entry(exported: ExportedEntry, now: Nanos) -> Entry:
    one = exported.message
    message = Message(
        one.topic,
        one.payload,
        one.qos,
        one.retain,
        one.properties,
        one.sender,
        now + one.published_in_ns,
        _time(one.expires_in_ns, now),
    )
    entry = Entry(message, exported.qos, exported.retain, exported.identifiers, exported.group)
    entry.sequence, entry.stage, entry.tries = exported.sequence, DeliveryStage(exported.stage), exported.tries
    return entry


def _exported_will(will: Will, due_ns: Nanos, now: Nanos) -> ExportedWill:
    return ExportedWill(
        will.user,
        will.topic,
        will.payload,
        will.qos,
        will.retain,
        will.properties,
        tuple((name, value) for name, value in will.user_properties),
        will.expiry_s,
        will.delay_s,
        due_ns - now,
    )


def _imported_will(one: ExportedWill, now: Nanos) -> Will:
    return Will(
        one.user,
        one.topic,
        one.payload,
        one.qos,
        one.retain,
        one.properties,
        list(one.user_properties),
        one.expiry_s,
        one.delay_s,
        now + one.due_in_ns,
    )


def _span(at: Nanos, now: Nanos) -> int | None:
    return None if at >= NEVER else at - now


def _time(span: int | None, now: Nanos) -> Nanos:
    return NEVER if span is None else now + span
