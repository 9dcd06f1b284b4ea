"""Attaching: links that come and go.

A link is granted as a whole or refused. A refusal is an attach without source or target, and a detach with the reason
behind it (part 2, section 2.6.3): so every client reports it.

    topic                     a session of the broker for the link, with one subscription; kept if it is durable
    queue, shared             the session of a shared queue, which the links of all clients use
    no source at all          the client wants to see a durable subscription again, to end it (JMS: unsubscribe)
    dynamic                   a topic of its own, which nobody else can guess
"""

from urllib.parse import quote

from overlane.amqp.addresses import QUEUE_GROUP, TEMPORARY, Address, NodeKind
from overlane.amqp.codec.malformed import (
    INVALID_FIELD,
    NOT_ALLOWED,
    NOT_FOUND,
    RESOURCE_LIMIT,
    UNAUTHORIZED,
    AmqpError,
)
from overlane.amqp.codec.performatives import RECEIVER, SENDER, Attach, Detach, Error, Modified, Source, Target
from overlane.amqp.codec.types import Symbol
from overlane.amqp.connection import Connection
from overlane.amqp.incoming_link import IncomingLink
from overlane.amqp.outgoing_link import OutgoingLink
from overlane.amqp.reasons import condition_of
from overlane.amqp.session import AmqpSession
from overlane.amqp.shared_queue import SharedQueue
from overlane.amqp.termini import DURABLE, EXPIRES_NEVER, Wanted, read_source, read_target
from overlane.amqp.unattended import Unattended
from overlane.core.units import Nanos
from overlane.pubsub.contract.refused import STORE_FAILS, SubscriptionNotGranted
from overlane.pubsub.counters import Refusal
from overlane.pubsub.service import PubSub
from overlane.pubsub.sessions.reserved_names import AMQP_LINK, AMQP_QUEUE, AMQP_SHARED
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.subscriptions.content_filters import WHERE
from overlane.pubsub.subscriptions.subscribing import Replay, SubscriptionRequest
from overlane.pubsub.subscriptions.table import Subscription

NAME_BYTES_MAX = 1_024
SETTLED = 1
UNSETTLED = 0
"""Settlement modes of a sender; the other one is mixed."""

OUTCOMES = tuple(Symbol(f"amqp:{name}:list") for name in ("accepted", "rejected", "released", "modified"))
LINK_QOS = 1


class Attaching:
    def __init__(self, pubsub: PubSub) -> None:
        self._pubsub = pubsub
        self._state = pubsub.state
        self._unattended = Unattended(pubsub)
        for name, session in self._state.sessions.items():
            if name.startswith((AMQP_QUEUE, AMQP_SHARED)):
                session.is_operators = True  # rights are those of the clients that attach
                self._unattended.add(name, 0)

    # Links on which the client sends

    def attach_sender(self, channel: AmqpSession, frame: Attach, now: Nanos) -> None:
        try:
            address, target = self._target(channel, frame, now)
        except AmqpError as refused:
            self._refuse(channel, frame, refused)
            return
        limits = self._state.limits
        count = frame.initial_delivery_count or 0
        link = IncomingLink(channel, frame.handle, frame.name, address, limits.packet_bytes, count)
        channel.incoming[frame.handle] = link
        channel.say(
            Attach(
                frame.name,
                frame.handle,
                RECEIVER,
                frame.snd_settle_mode,
                0,
                frame.source,
                target,
                max_message_size=limits.packet_bytes,
            )
        )
        channel.connection.touch()

    def _target(self, channel: AmqpSession, frame: Attach, now: Nanos) -> tuple[Address | None, Target]:
        _check_name(frame)
        if frame.target is None:
            raise AmqpError(INVALID_FIELD, "a target is needed")
        target = frame.target
        if isinstance(target, Target) and target.dynamic and target.address is None:
            address: Address | None = self._fresh()
        else:
            address = read_target(target, self._state.limits)
        assert isinstance(target, Target)
        connection = channel.connection
        if address is not None and connection.session is not None:
            if not self._state.may_publish(connection.session, address.topic):
                self._state.refuse(Refusal.DENIED, f"not allowed to publish on {address.topic[:100]}", connection)
                raise AmqpError(UNAUTHORIZED, f"not allowed to publish on {address.topic[:100]}")
            if address.kind is NodeKind.QUEUE:
                self.need_queue(address.topic, now)
        granted = Target(
            target.address if not target.dynamic or address is None else address.topic,
            dynamic=target.dynamic,
            dynamic_node_properties=target.dynamic_node_properties,
            capabilities=target.capabilities,
        )
        return address, granted

    def _fresh(self) -> Address:
        return Address(f"{TEMPORARY}{self._state.name}/{self._state.fresh_id()}", NodeKind.TOPIC)

    def need_queue(self, topic: str, now: Nanos) -> None:
        """There is a queue from now on, here unless another broker has it; AmqpError if there cannot be."""
        state = self._state
        if state.subscriptions.group(QUEUE_GROUP, topic) is not None:
            return
        if any(one.group == QUEUE_GROUP and one.filter == topic for one in state.cluster.directory.shared(topic)):
            return
        expiry_s = state.limits.session_expiry_s_max
        session = self._begin_shared(AMQP_QUEUE + topic, f"$share/{QUEUE_GROUP}/{topic}", expiry_s, now)
        self._pubsub.sessions.unattended(session, now)
        self._unattended.add(session.client_id, now)

    # Links on which the client receives

    def attach_receiver(self, channel: AmqpSession, frame: Attach, now: Nanos) -> None:
        try:
            _check_name(frame)
            if frame.source is None:
                self._show(channel, frame, now)
                return
            wanted = read_source(frame.source, self._state.limits)
            is_queue = wanted.address is not None and wanted.address.kind is NodeKind.QUEUE
            if is_queue or wanted.is_shared:
                self._attach_shared(channel, frame, wanted, is_queue, now)
            else:
                self._attach_plain(channel, frame, wanted, now)
        except AmqpError as refused:
            self._refuse(channel, frame, refused)
        except SubscriptionNotGranted as refused:
            self._state.refuse(refused.why, refused.told, channel.connection)
            self._refuse(channel, frame, AmqpError(condition_of(refused.fault), refused.told))

    def _attach_plain(self, channel: AmqpSession, frame: Attach, wanted: Wanted, now: Nanos) -> None:
        connection, state, sessions = channel.connection, self._state, self._pubsub.sessions
        address = wanted.address or self._fresh()
        name = f"{AMQP_LINK}{connection.container_id}/{frame.name}"
        kept = state.sessions.get(name)
        if wanted.is_durable:
            if kept is not None and (kept.user != connection.user or isinstance(kept.consumer, Connection)):
                raise AmqpError(NOT_ALLOWED, "another client has a session of this name: use another container id")
            self._check_room(name)
            is_same = kept is not None and _is_same(kept, address.topic, wanted)
            session, is_present, _ = sessions.claim(name, connection.user, not is_same, wanted.expiry_s, now)
        else:
            if kept is not None:
                name = f"{name}#{state.fresh_id()}"
            session, is_present, _ = sessions.claim(name, connection.user, True, 0, now)
        qos = 0 if frame.snd_settle_mode == SETTLED else LINK_QOS
        replay = Replay.NEVER if is_present else Replay.ALWAYS
        request = SubscriptionRequest(
            address.topic, qos, wanted.no_local, replay=replay, user_properties=_where(wanted.selector)
        )
        if connection.session is not None and session.publishes_as != connection.session.client_id:
            session.publishes_as = connection.session.client_id
            if session.is_known:
                state.batch.add(session.saved())
        link = self._link(channel, frame, frame.snd_settle_mode)
        link.session, session.consumer = session, link
        link.is_durable = wanted.is_durable
        session.window.receive_max = 0
        try:
            subscription, is_replayed = self._pubsub.subscribing.subscribe(session, request, now)
        except SubscriptionNotGranted:
            sessions.leave(link, False, now)
            if not is_present and session.is_durable:
                sessions.end(session, now)
            raise
        self._grant(channel, frame, link, wanted, address)
        connection.waits |= session.is_known
        sessions.resume(session, link, now)
        if is_replayed:
            self._pubsub.subscribing.replay(session, link, subscription, now)

    def _link(self, channel: AmqpSession, frame: Attach, mode: int | None) -> OutgoingLink:
        return OutgoingLink(channel, frame.handle, frame.name, mode == UNSETTLED, frame.max_message_size or 0)

    def _grant(self, channel: AmqpSession, frame: Attach, link: OutgoingLink, wanted: Wanted, address: Address) -> None:
        channel.outgoing[frame.handle] = link
        asked = frame.source
        assert isinstance(asked, Source)
        source = Source(
            asked.address if wanted.address is not None else address.topic,
            DURABLE if wanted.is_durable else 0,
            asked.expiry_policy,
            wanted.expiry_s if wanted.is_durable and asked.expiry_policy != EXPIRES_NEVER else None,
            asked.dynamic,
            asked.dynamic_node_properties,
            asked.distribution_mode,
            wanted.filters or None,
            Modified(True),
            OUTCOMES,
            asked.capabilities,
        )
        mode = frame.snd_settle_mode
        if link.queue is not None and mode == SETTLED:
            mode = UNSETTLED  # or what is not settled could not be given to another consumer
        self._say_attach(channel, frame, source, mode)

    @staticmethod
    def _say_attach(channel: AmqpSession, frame: Attach, source: Source | None, mode: int | None) -> None:
        channel.say(
            Attach(
                frame.name,
                frame.handle,
                SENDER,
                mode,
                frame.rcv_settle_mode,
                source,
                frame.target if source is not None else None,
                initial_delivery_count=0,
            )
        )

    # Shared queues

    def _attach_shared(self, channel: AmqpSession, frame: Attach, wanted: Wanted, is_queue: bool, now: Nanos) -> None:
        connection, state = channel.connection, self._state
        if wanted.address is None:
            raise AmqpError(INVALID_FIELD, "a dynamic source cannot be shared")
        topic = wanted.address.topic
        rights = state.settings.access
        if connection.session is not None and not rights.may_subscribe(
            connection.user, connection.session.client_id, topic
        ):
            state.refuse(Refusal.DENIED, f"not allowed to subscribe to {topic[:100]}", connection)
            raise AmqpError(UNAUTHORIZED, f"not allowed to subscribe to {topic[:100]}")
        if is_queue:
            name, subscription = AMQP_QUEUE + topic, f"$share/{QUEUE_GROUP}/{topic}"
            expiry_s = state.limits.session_expiry_s_max
        else:
            name, group = _shared_names(frame.name, "" if wanted.is_global else connection.container_id)
            subscription, expiry_s = f"$share/{group}/{topic}", wanted.expiry_s
        queue = self._queue(name, subscription, expiry_s, wanted.selector, now)
        # A consumer cannot want to lose what another one could have.
        link = self._link(channel, frame, UNSETTLED)
        link.queue, link.is_durable = queue, expiry_s > 0 and not is_queue
        queue.links.append(link)
        self._grant(channel, frame, link, wanted, wanted.address)
        session = queue.session
        if session is not None:
            connection.waits |= session.is_known

    def _queue(self, name: str, subscription: str, expiry_s: int, selector: str, now: Nanos) -> SharedQueue:
        session = self._state.sessions.get(name)
        if session is not None and isinstance(session.consumer, SharedQueue):
            if subscription not in session.subscriptions:
                raise AmqpError(NOT_ALLOWED, "the shared subscription has another topic or selector, and is in use")
            return session.consumer
        if session is not None and subscription not in session.subscriptions:
            self._pubsub.sessions.end(session, now)
        session = self._begin_shared(name, subscription, expiry_s, now, selector)
        queue = SharedQueue(session)
        session.consumer = queue
        session.window.receive_max = 0
        self._pubsub.sessions.resume(session, queue, now)
        return queue

    def _begin_shared(self, name: str, subscription: str, expiry_s: int, now: Nanos, selector: str = "") -> Session:
        if expiry_s:
            self._check_room(name)
        session, is_present, _ = self._pubsub.sessions.claim(name, None, False, expiry_s, now)
        session.is_operators = True
        if not is_present:
            request = SubscriptionRequest(subscription, LINK_QOS, replay=Replay.NEVER, user_properties=_where(selector))
            try:
                self._pubsub.subscribing.subscribe(session, request, now)
            except SubscriptionNotGranted:
                self._pubsub.sessions.end(session, now)
                raise
        return session

    def _check_room(self, name: str) -> None:
        """AmqpError if no session can be kept under this name."""
        state = self._state
        if name in state.sessions:
            return
        if state.is_store_failing:
            raise AmqpError(RESOURCE_LIMIT, STORE_FAILS)
        if len(state.sessions) >= state.limits.sessions:
            raise AmqpError(RESOURCE_LIMIT, f"more than {state.limits.sessions} sessions")

    # Subscriptions that are to end

    def _show(self, channel: AmqpSession, frame: Attach, now: Nanos) -> None:
        """The client knows the name of a durable subscription, and nothing else of it."""
        name = f"{AMQP_LINK}{channel.connection.container_id}/{frame.name}"
        shared, _ = _shared_names(frame.name, channel.connection.container_id)
        everywhere, _ = _shared_names(frame.name, "")
        for one in (name, shared, everywhere):
            session = self._state.sessions.get(one)
            if session is None or not session.is_durable:
                continue
            if session.consumer is not None:
                raise AmqpError(NOT_ALLOWED, "the subscription is in use")
            if not self._may_end(channel, session):
                break
            self._pubsub.sessions.claim(one, session.user, False, session.expiry_s, now)
            link = self._link(channel, frame, frame.snd_settle_mode)
            link.session, session.consumer, link.is_durable = session, link, True
            session.window.receive_max = 0
            channel.outgoing[frame.handle] = link
            topic = next((kept.filter for kept in session.subscriptions.values()), None)
            source = Source(topic, DURABLE, Symbol(EXPIRES_NEVER), outcomes=OUTCOMES)
            self._say_attach(channel, frame, source, frame.snd_settle_mode)
            return
        raise AmqpError(NOT_FOUND, f"no durable subscription {frame.name[:100]}")

    def _may_end(self, channel: AmqpSession, session: Session) -> bool:
        """A shared subscription belongs to all who may subscribe to its topic."""
        connection, rights = channel.connection, self._state.settings.access
        if not session.is_operators or connection.session is None:
            return session.user == connection.user
        client = connection.session.client_id
        return all(
            rights.may_subscribe(connection.user, client, kept.filter) for kept in session.subscriptions.values()
        )

    # Detaching

    def _refuse(self, channel: AmqpSession, frame: Attach, refused: AmqpError) -> None:
        if frame.role is SENDER:
            channel.say(Attach(frame.name, frame.handle, RECEIVER, source=frame.source))
        else:
            self._say_attach(channel, frame, None, frame.snd_settle_mode)
        channel.say(Detach(frame.handle, True, Error(refused.condition, refused.told)))
        channel.detaching.add(frame.handle)

    def detach(self, channel: AmqpSession, frame: Detach, now: Nanos) -> None:
        """The client ends a link, for good or not, or answers that the broker has."""
        handle = frame.handle
        if handle in channel.detaching:
            channel.detaching.discard(handle)
            return
        if (incoming := channel.incoming.pop(handle, None)) is not None:
            incoming.drop_partial()
            channel.write_outcomes()
        elif (outgoing := channel.outgoing.pop(handle, None)) is not None:
            self.leave(channel, outgoing, bool(frame.closed), now)
            if outgoing.closing is not None:
                return
        channel.say(Detach(handle, frame.closed))

    def leave(self, channel: AmqpSession, link: OutgoingLink, is_closed: bool, now: Nanos) -> None:
        """A link on which the client receives is gone. `is_closed`: and so is the subscription."""
        tags = channel.forget(link)
        sessions, queue = self._pubsub.sessions, link.queue
        if queue is None:
            session = link.session
            sessions.leave(link, False, now)
            if is_closed and session is not None and session.is_durable and session.consumer is None:
                sessions.end(session, now)
            return
        if link in queue.links:
            queue.links.remove(link)
        session = queue.session
        if session is None:
            return
        queue.fit_window(len(tags))
        self._pubsub.returns.give_back(session, queue, tags, True, now)
        if not queue.links:
            sessions.leave(queue, False, now)
            self._unattended.add(session.client_id, now)
            if is_closed and link.is_durable:
                sessions.end(session, now)

    def leave_all(self, channel: AmqpSession, now: Nanos) -> None:
        """The session of the client, or its connection, is gone."""
        for incoming in channel.incoming.values():
            incoming.drop_partial()
        channel.incoming.clear()
        links = list(channel.outgoing.values())
        channel.outgoing.clear()
        for link in links:
            self.leave(channel, link, False, now)


def _check_name(frame: Attach) -> None:
    if not frame.name or len(frame.name.encode()) > NAME_BYTES_MAX or "\0" in frame.name:
        raise AmqpError(INVALID_FIELD, f"the name of a link has 1 to {NAME_BYTES_MAX} bytes, and no U+0000")


def _shared_names(link_name: str, container_id: str) -> tuple[str, str]:
    """Of the session and the group of a shared subscription. Clients number their links to it behind a bar."""
    name = link_name.partition("|")[0]
    scope = quote(container_id, safe="")
    group = quote(name, safe="")
    return f"{AMQP_SHARED}{scope}/{name}", f"{scope}:{group}" if scope else group


def _where(selector: str) -> tuple[tuple[str, str], ...]:
    return ((WHERE, selector),) if selector else ()


def _is_same(session: Session, topic: str, wanted: Wanted) -> bool:
    """Whether it has this subscription, with these filters: JMS begins another one where they have changed."""
    found: Subscription | None = session.subscriptions.get(topic)
    if found is None or len(session.subscriptions) != 1:
        return False
    return _selector_of(found) == wanted.selector and found.no_local == wanted.no_local


def _selector_of(subscription: Subscription) -> str:
    return "" if subscription.where is None else subscription.where.text
