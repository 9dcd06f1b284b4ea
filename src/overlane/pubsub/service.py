"""The publish/subscribe service: all parts together, for protocols to use.

A protocol claims a session (`sessions`), publishes (`publishing`), subscribes (`subscribing`), passes confirmations on
(`delivery`), and implements `Consumer`. The turn of the driver:

    inputs of any protocol (`pubsub.protocol`), in any number
    records = service.take_records()
    make them durable; find out about who asks to be let in (`questions`)
    for each connection of service.take_touched(): send what connection.taken() gives, after the records if it waits
    call service.durable(turn, now) when the records of that turn are on disk: its results belong to the next turn
    call service.tick(t) at t = service.next_deadline()
"""

from collections.abc import Callable, Iterable

from overlane import __version__
from overlane.core.events import RecordChange
from overlane.core.records import Record
from overlane.core.units import Nanos
from overlane.errors import Failure
from overlane.pubsub import sys_topics
from overlane.pubsub.cluster.admission import Admission
from overlane.pubsub.cluster.arrivals import Arrivals, NoRuns, Runs
from overlane.pubsub.cluster.uplink import Uplink
from overlane.pubsub.contract.connection import ClientConnection
from overlane.pubsub.contract.consumer import Consumer, Ending
from overlane.pubsub.contract.questions import Placed, Question
from overlane.pubsub.contract.refused import STORE_FAILS
from overlane.pubsub.counters import Refusal
from overlane.pubsub.delivery.delivery import Delivery
from overlane.pubsub.delivery.returns import Returns
from overlane.pubsub.limits import uncarriable
from overlane.pubsub.message import Message
from overlane.pubsub.notices import Notice
from overlane.pubsub.policies.publishers import PublisherPolicies
from overlane.pubsub.publishing.publishing import Publishing
from overlane.pubsub.recovery import Recovery
from overlane.pubsub.reservations.advertisement import ADVERTISE
from overlane.pubsub.reservations.network import NoNetwork, ReservationNetwork
from overlane.pubsub.reservations.request import BadReservation
from overlane.pubsub.reservations.service import Reservations
from overlane.pubsub.retained.handouts import Handouts
from overlane.pubsub.retained.messages import RetainedMessages
from overlane.pubsub.sessions.lookup import Found, SessionLookup
from overlane.pubsub.sessions.registry import Sessions
from overlane.pubsub.sessions.session_export import SessionExport
from overlane.pubsub.sessions.transfer import NotTransferable, export_session, import_session
from overlane.pubsub.sessions.wills import Wills
from overlane.pubsub.state import Settings, State
from overlane.pubsub.streams.callbacks import Callbacks
from overlane.pubsub.streams.streams import Streams
from overlane.pubsub.streams.writers import Writers
from overlane.pubsub.subscriptions.subscribing import Subscribing
from overlane.pubsub.subscriptions.table import split_shared
from overlane.pubsub.timers import Timers


class PubSub:
    def __init__(
        self,
        name: str,
        settings: Settings,
        uplink: Uplink,
        fresh_id: Callable[[], str],
        records: Iterable[Record] = (),
        now: Nanos = 0,
        network: ReservationNetwork | None = None,
        timers: Timers | None = None,
    ) -> None:
        """`network`: makes reservations at other brokers, if that is possible."""
        retained = RetainedMessages(settings.limits, lambda: not uplink.is_alone)
        self.state = state = State(name, settings, uplink, fresh_id, retained, timers=timers or Timers())
        self.delivery = Delivery(state)
        self.returns = Returns(state, self.delivery)
        self.handouts = Handouts(state, self.delivery)
        self.policies = PublisherPolicies(state, self.delivery)
        self.reservations = Reservations(
            uplink, network or NoNetwork(), state.timers, state.subscriptions.forget, self._publish_here
        )
        self.subscribing = Subscribing(state, self.delivery, self.handouts, self.reservations)
        self.publishing = Publishing(state, self.delivery, self.policies, self.reservations)
        self.mediating = self.publishing.mediating
        self.streams = Streams(state, self.delivery, self.subscribing)
        self.writers = Writers(state, self.publishing)
        self.callbacks = Callbacks(state, self.streams)
        self.wills = Wills(state, self.publishing)
        self.sessions = Sessions(state, self.delivery, self.returns, self.subscribing, self.wills, self.reservations)
        self.lookup = SessionLookup(name, self.sessions, state.timers, uplink.send_to, self._session_found)
        self.admission = Admission(state)
        self.next_deadline = state.timers.next_deadline
        self._started_ns = now
        recovery = Recovery(
            state,
            self.subscribing,
            self.sessions,
            self.wills,
            self.streams,
            self.writers,
            self.handouts,
            self.callbacks,
            self.mediating,
        )
        announced = uplink.reserved_interest()
        for topic_filter, broker in announced:
            state.cluster.directory.note(topic_filter, broker, True)
        recovery.recover(records, now)
        self._recover_advertisements(now)
        for topic_filter, broker in announced:
            self.reservations.interest_changed(topic_filter, broker, True, now)
        state.cluster.start(now)
        self.handouts.reassigned(now)
        self.handouts.recovered(now)
        self._publish_sys(now)

    def _recover_advertisements(self, now: Nanos) -> None:
        """Those of the file, and retained documents."""
        for message in self.state.retained.walk(f"{ADVERTISE}#"):
            if message is not None:
                try:
                    self.reservations.document(message.topic[len(ADVERTISE) :], message.payload, "", True, now)
                except BadReservation as bad:
                    self.state.refuse(Refusal.PROTOCOL, f"{message.topic[:100]}: {bad}")
        self.follow_settings(now)

    def follow_settings(self, now: Nanos) -> None:
        """The settings of reservations, and the advertisements of the file, are these from now on."""
        reserving = self.state.settings.reserving
        self.reservations.reserving.answer_ns = reserving.answer_ns
        try:
            self.reservations.set_file(reserving.advertisements, now)
        except BadReservation as bad:
            self.state.refuse(Refusal.PROTOCOL, str(bad))

    def arrivals(self, runs: Runs | None = None) -> Arrivals:
        """What handles messages from other brokers; `runs`: the protocol that puts runs into the overlay."""
        return Arrivals(self.state, self.delivery, self.admission, runs or NoRuns(), self.handouts, self.policies)

    # Other brokers

    def interest_changed(self, topic_filter: str, broker: str, is_needed: bool, now: Nanos) -> None:
        """Another broker needs a filter, or needs it no more."""
        if topic_filter.startswith("$"):
            self.state.cluster.directory.note(topic_filter, broker, is_needed)
            self.state.subscriptions.forget()
            self.reservations.interest_changed(topic_filter, broker, is_needed, now)
        self.handouts.interest_changed(topic_filter, broker, is_needed)

    def _session_found(self, found: Found) -> None:
        assert isinstance(found.key, ClientConnection)
        self.state.questions.append(Placed(found.key, found))

    # Time

    def tick(self, now: Nanos) -> None:
        self.state.timers.run(now)

    def _publish_sys(self, now: Nanos) -> None:
        state = self.state
        state.timers.at(now + sys_topics.EVERY, self._publish_sys, lambda error: state.failed("timer", "$SYS", error))
        for message in sys_topics.messages(state, __version__, now - self._started_ns, now):
            state.retained.keep_own(message)
            self.policies.publish_here(message, now)

    def _publish_here(self, topic: str, payload: bytes, now: Nanos) -> None:
        self.policies.publish_here(Message(topic, payload, published_ns=now), now)

    def publish_own(self, topic: str, payload: bytes, now: Nanos) -> None:
        """A retained message of the broker itself, for local subscribers; without payload it is removed."""
        message = Message(topic, payload, retain=True, published_ns=now)
        if payload:
            self.state.retained.keep_own(message)
        else:
            self.state.batch.extend(self.state.retained.remove(topic))
        self.policies.publish_here(message, now)

    # For the driver

    def take_records(self) -> list[RecordChange]:
        """The records of the turn, which ends with this."""
        state = self.state
        state.turn += 1
        queue_records = state.queue_records.flush() if state.queue_records.has_changes else []
        return state.batch.take() + queue_records if state.batch.pending else queue_records

    def commits_since(self, since_ns: Nanos) -> None:
        """The submission time of the oldest batch that is not on disk; NEVER if there is none."""
        self.state.commit_since_ns = since_ns

    def durable(self, turn: int, now: Nanos) -> bool:
        """The records of all turns up to this one are on disk; whether there is something to be sent or written now."""
        state = self.state
        state.durable_turn = turn
        if not (state.postponed or self.delivery.has_stalled):
            return False
        if self.delivery.has_stalled:
            self.delivery.durable(now)
        if state.postponed and state.can_erase:
            state.handle_postponed(now)
        return self.has_output

    @property
    def last_turn(self) -> int:
        """The turn that was ended last."""
        return self.state.turn - 1

    @property
    def has_more(self) -> bool:
        """Whether there is anything for the end of a turn but packets."""
        state = self.state
        if state.batch.pending or state.queue_records.has_changes:
            return True
        return bool(state.failures or state.questions or state.notices.are_there)

    @property
    def has_output(self) -> bool:
        """Whether there is something to be sent to clients, or to be written."""
        state = self.state
        return bool(state.touched or state.batch.pending or state.queue_records.has_changes)

    @property
    def has_words(self) -> bool:
        """Whether there are questions or notices."""
        return bool(self.state.questions) or self.state.notices.are_there

    @property
    def has_failures(self) -> bool:
        return bool(self.state.failures)

    def take_notices(self) -> tuple[list[Notice], int]:
        """Notices for operators, and the number of notices beyond the limit."""
        return self.state.notices.take()

    def take_questions(self) -> list[Question]:
        asked, self.state.questions = self.state.questions, []
        return asked

    def take_touched(self) -> list[ClientConnection]:
        """Connections with something to send, or to be closed."""
        state = self.state
        if state.batch.pending or state.queue_records.has_changes:
            raise RuntimeError("records were made after those of the turn were taken: answers would not wait for them")
        if not state.touched:
            return []
        touched = state.touched.copy()
        state.touched.clear()  # every connection knows this list
        counters = state.counters
        for connection in touched:
            counters.bytes_out += connection.out_bytes
        return touched

    def take_failures(self, now: Nanos) -> list[Failure]:
        """Inputs that failed because of an internal error since the last call; their connections are closed."""
        failed, self.state.failures = self.state.failures, []
        for _, connection in failed:
            if connection is not None:
                self.sessions.leave_after_failure(connection, now)
        return [failure for failure, _ in failed]

    def reconfigure(self, settings: Settings) -> None:
        """New limits, permissions and classes; existing connections stay."""
        self.state.settings = settings
        self.state.retained.limits = settings.limits
        self.state.subscriptions.forget()
        self.mediating.reconfigured()

    def tier_changed(self, now: Nanos) -> None:
        """This broker has become an edge or a routing broker, or bundles have moved."""
        self.state.cluster.start(now)
        self.handouts.reassigned(now)

    def meet_others(self, now: Nanos) -> None:
        """Other brokers have joined, and need the messages that were retained before."""
        self.state.cluster.start(now)
        for kept in self.state.retained.walk("#"):
            if kept is not None:
                self.state.cluster.retain(kept, now)

    def store_is_failing(self, is_failing: bool, can_erase: bool = False) -> None:
        """`can_erase`: it fails because the disk is full, and erasing records is possible."""
        self.state.is_store_failing = is_failing
        self.state.can_erase = can_erase or not is_failing
        if not is_failing:
            self.wills.store_works()

    def export_session(self, client_id: str, now: Nanos) -> SessionExport:
        """A session as a value, as it would be if its connection ended now; nothing changes. NotTransferable if there
        is none that outlives its connection."""
        session = self.state.sessions.get(client_id)
        if session is None or not session.is_durable:
            raise NotTransferable(f"no session of {client_id[:60]!a} that outlives its connection")
        return export_session(session, self.wills.get(client_id), now)

    def import_session(self, exported: SessionExport, now: Nanos) -> None:
        """Continue a session of another broker, and publish its will when it is due. NotTransferable, and nothing
        changed, if that cannot be done now."""
        state, client_id = self.state, exported.client_id
        if client_id in state.sessions:
            raise NotTransferable(f"there is a session of {client_id[:60]!a} already")
        if len(state.sessions) >= state.limits.sessions:
            raise NotTransferable(f"more than {state.limits.sessions} sessions")
        if state.is_store_failing:
            raise NotTransferable(STORE_FAILS)
        if state.is_draining:
            raise NotTransferable("the broker is shutting down")
        for one in exported.subscriptions:
            if told := uncarriable(*split_shared(one.name)):
                raise NotTransferable(told)
        self.sessions.adopt(*import_session(exported, now), now)

    def disconnect(self, client_id: str, now: Nanos, with_session: bool = False) -> bool:
        """An operator ends a client's connection, and its session if that is wanted; False if it has none."""
        session = self.state.sessions.get(client_id)
        if session is None or (session.consumer is None and not with_session):
            return False
        if session.consumer is not None:
            self.sessions.end_connection(session.consumer, Ending.BY_OPERATOR, "ended by an operator", now)
        # One that was not to outlive its connection is gone already.
        if with_session and self.state.sessions.get(client_id) is session:
            self.sessions.end(session, now)
        return True

    def end_expired(self, connection: ClientConnection, now: Nanos) -> None:
        """The client has to log in again."""
        self.sessions.end_connection(connection, Ending.LOGIN_EXPIRED, "the login has expired", now)

    def remove_retained(self, topic: str, now: Nanos) -> None:
        """An operator removes the retained message of a topic; PublishRefused if it cannot be done now."""
        self.publishing.remove_retained(topic, now)

    def drain(self, now: Nanos) -> None:
        """Accept no more clients; connected ones are sent to another server."""
        state = self.state
        state.is_draining = True
        consumers = dict.fromkeys([*state.connections, *(one.consumer for one in state.sessions.values())])
        leaving: list[Consumer] = [one for one in consumers if one is not None]
        for consumer in leaving:
            consumer.end(Ending.SHUTTING_DOWN, "the broker is shutting down")
        self.sessions.leave_all(leaving, now)
