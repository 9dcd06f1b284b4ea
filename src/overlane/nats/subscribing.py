"""SUB and UNSUB: subscriptions of NATS clients, and their subscriptions of the session (`connection.Interest`).

A queue group is a shared subscription: members of one group may be at any broker, and MQTT clients among them. Nothing
that is retained is replayed: NATS has no such thing.
"""

from overlane.core.units import Nanos
from overlane.nats.connection import OK, Connection, Interest, Sid
from overlane.nats.subjects import BadSubject, filter_of, group_of
from overlane.pubsub.contract.refused import RequestFault, SubscriptionNotGranted
from overlane.pubsub.counters import Refusal
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.state import State
from overlane.pubsub.subscriptions.subscribing import Replay, Subscribing, SubscriptionRequest
from overlane.pubsub.subscriptions.table import SHARED

SUBJECT_SHOWN = 200


class SubscribeOperations:
    def __init__(self, state: State, subscribing: Subscribing) -> None:
        self._state = state
        self._subscribing = subscribing
        self._identifier = 0

    def subscribe(
        self, connection: Connection, session: Session, subject: bytes, group: bytes, sid: bytes, now: Nanos
    ) -> None:
        state = self._state
        if sid in connection.sids:
            self._granted(connection)
            return  # as nats-server does: the first one counts
        if len(connection.sids) >= state.limits.subscriptions_per_client:
            told = f"more than {state.limits.subscriptions_per_client} subscriptions"
            state.refuse(Refusal.QUOTA, told, connection)
            connection.complain("maximum subscriptions exceeded")
            return
        try:
            name = _name(subject, group)
            interest = connection.interests_by_name.get(name)
            if interest is None:
                interest = self._begin(connection, session, name, bool(group), now)
        except (UnicodeDecodeError, BadSubject) as bad:
            state.refuse(Refusal.PROTOCOL, f"SUB: {bad}", connection)
            connection.complain("Invalid Subject")
            return
        except SubscriptionNotGranted as refused:
            state.refuse(refused.why, refused.told, connection)
            shown = subject[:SUBJECT_SHOWN].decode(errors="replace")
            is_denied = refused.fault is RequestFault.NOT_ALLOWED
            told = f'Permissions Violation for Subscription to "{shown}"' if is_denied else "Invalid Subject"
            connection.complain("maximum subscriptions exceeded" if refused.fault is RequestFault.NO_ROOM else told)
            return
        one = connection.sids[sid] = Sid(sid, interest)
        interest.sids.append(one)
        state.subscriptions.forget()  # it may be one more for a subscription of the session that was there
        self._granted(connection)

    def _begin(self, connection: Connection, session: Session, name: str, is_group: bool, now: Nanos) -> Interest:
        self._identifier += 1
        no_local = not connection.options.echo and not is_group
        request = SubscriptionRequest(name, 0, no_local, identifier=self._identifier, replay=Replay.NEVER)
        subscription, _ = self._subscribing.subscribe(session, request, now)
        interest = Interest(name, self._identifier, is_group, subscription.filter)
        connection.interests[interest.identifier] = connection.interests_by_name[name] = interest
        return interest

    def unsubscribe(self, connection: Connection, session: Session, sid: bytes, most: int, now: Nanos) -> None:
        """`most`: the subscription ends when it has taken so many in all; 0 for at once."""
        one = connection.sids.get(sid)
        if one is not None:
            self._state.subscriptions.forget()
            if most > one.taken:
                one.left = most - one.taken
            else:
                if one in one.interest.sids:
                    one.interest.sids.remove(one)
                self._end(connection, session, one, now)
        self._granted(connection)

    def remove_ended(self, connection: Connection, now: Nanos) -> None:
        """Those that have taken all that they wanted."""
        ended, connection.ended = connection.ended, []
        for one in ended:
            if connection.session is not None and connection.sids.get(one.sid) is one:
                self._end(connection, connection.session, one, now)

    def _end(self, connection: Connection, session: Session, one: Sid, now: Nanos) -> None:
        del connection.sids[one.sid]
        interest = one.interest
        if not interest.sids and connection.interests.pop(interest.identifier, None) is not None:
            del connection.interests_by_name[interest.name]
            self._subscribing.unsubscribe(session, interest.name, False, now)

    @staticmethod
    def _granted(connection: Connection) -> None:
        if connection.options.verbose:
            connection.send(OK)


def _name(subject: bytes, group: bytes) -> str:
    """What the session subscribes to; UnicodeDecodeError or BadSubject."""
    topic_filter = filter_of(subject.decode())
    if topic_filter.startswith(SHARED):
        raise BadSubject(f"{SHARED} is no name of a topic")
    if not group:
        return topic_filter
    return f"{SHARED}{group_of(group.decode())}/{topic_filter}"
