"""Sessions, connections and subscriptions as views for operators."""

from collections.abc import Iterator

from overlane.adminapi.views import ClientView, ConnectionView, QueuesView, SubscriptionView, TrafficView
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.pubsub.contract.connection import ClientConnection
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.subscriptions.table import Subscription


def client_view(session: Session, now: Nanos) -> ClientView:
    window, consumer = session.window, session.consumer
    # A consumer may be a part of a connection, as a link of AMQP is.
    connection = consumer if isinstance(consumer, ClientConnection) else getattr(consumer, "connection", None)
    is_ending = consumer is None and session.expires_ns < NEVER
    return ClientView(
        id=session.client_id,
        user=session.user,
        connection=_connection_view(connection, now) if isinstance(connection, ClientConnection) else None,
        session_expiry_s=session.expiry_s,
        expires_s=max(0, session.expires_ns - now) // MS / 1000 if is_ending else None,
        subscriptions=len(session.subscriptions),
        queue=QueuesView(messages=len(window), bytes=window.bytes, in_flight=len(window.sent)),
    )


def _connection_view(connection: ClientConnection, now: Nanos) -> ConnectionView:
    peer, keep_alive_ns = connection.peer, connection.keep_alive_ns
    protocol, _, version = connection.protocol.partition(" ")
    return ConnectionView(
        address=peer.address,
        listener=peer.listener,
        via=peer.via or None,
        protocol=protocol,
        version=version,
        is_secure=peer.is_secure,
        connected_s=(now - connection.opened_ns) // MS / 1000,
        silent_s=(now - connection.heard_ns) // MS / 1000,
        keep_alive_s=None if keep_alive_ns >= NEVER else keep_alive_ns / SECOND,
        traffic=TrafficView(
            messages_in=connection.messages_in,
            messages_out=connection.messages_out,
            bytes_in=connection.bytes_in,
            bytes_out=connection.bytes_out,
        ),
        unsent_bytes=connection.backlog_bytes,
    )


def subscription_view(one: Subscription) -> SubscriptionView:
    return SubscriptionView(
        client=one.session.client_id,
        filter=one.filter,
        group=one.group,
        qos=one.qos,
        identifier=one.identifier,
        no_local=one.no_local,
        retain_as_published=one.retain_as_published,
        deadline_ms=None if one.override.deadline_ns >= NEVER else one.override.deadline_ns / MS,
        reliable=one.override.reliable,
        where="" if one.where is None else one.where.text,
    )


def all_subscriptions(sessions: list[Session]) -> Iterator[Subscription]:
    for session in sessions:
        yield from list(session.subscriptions.values())


def place(one: Subscription) -> str:
    """By this they are ordered. No identifier contains a null, so a shorter one comes first, as it should."""
    return f"{one.session.client_id}\0{one.name}"
