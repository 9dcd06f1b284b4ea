"""Requests of subscribers: from the question to the network to what the subscriber is told, then and later.

    waiting   no publisher advertises the topic yet
    asking    the network was asked, for each advertised filter that the subscription gets
    held      granted by all of them; `lost` when one of them is interrupted, until it is restored

A request is answered once: granted, or refused after `answer_ns` at the latest. A subscriber that accepts less
(`class_min`) is given the best class that is admitted. What changes later is reported (`on_change`); one that was lost
and could not be restored is asked for again every `RETRY_NS`. A topic that is only advertised at this broker needs no
link: it is granted at once.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from overlane.core.topics import covers
from overlane.core.units import SECOND, Nanos
from overlane.planning.reserve import Service
from overlane.pubsub.cluster.cluster import LOCAL_SUBSCRIBERS
from overlane.pubsub.cluster.names import RESERVE, SEEK
from overlane.pubsub.cluster.uplink import Uplink
from overlane.pubsub.reservations.network import Denied, Granted, Interrupted, ReservationNetwork, ReservationOutcome
from overlane.pubsub.reservations.request import SERVICES, ReservationRequest, link_tspec
from overlane.pubsub.reservations.verdict import ReservationVerdict
from overlane.pubsub.timers import Timer, Timers

ANSWER_NS: Nanos = 2 * SECOND
RETRY_NS: Nanos = 30 * SECOND
FILTERS_MAX = 16
"""Advertised filters that one subscription may ask for."""
NOT_ADVERTISED = "no publisher advertises this topic"
LOST = "the reservation was lost"

Key = tuple[str, str]
"""The client, and what it calls the subscription."""
Answer = Callable[[ReservationVerdict, Nanos], None]


@dataclass(slots=True, eq=False)
class Reserved:
    key: Key
    filter: str
    request: ReservationRequest
    level: Service
    """The class that is asked for, or held."""
    asked: dict[str, str] = field(default_factory=dict)
    """Questions to the network, and the advertised filters that they are about."""
    granted: dict[str, Granted] = field(default_factory=dict)
    answer: Answer | None = None
    timer: Timer | None = None
    sought: str = ""
    """The name under which an edge looks for advertisements."""
    state: str = "waiting"
    verdict: ReservationVerdict = field(default_factory=lambda: ReservationVerdict(None))
    """What was told last."""

    @property
    def is_complete(self) -> bool:
        return len(self.granted) == len(self.asked)


class SubscriberReservations:
    def __init__(
        self,
        uplink: Uplink,
        network: ReservationNetwork,
        timers: Timers,
        own_filters: Callable[[], object],
        on_change: Callable[[Reserved, str, Nanos], None],
    ) -> None:
        """`own_filters`: a container of the filters that are advertised at this broker."""
        self._uplink = uplink
        self.network = network
        self._timers = timers
        self._own_filters = own_filters
        self._on_change = on_change
        self.answer_ns = ANSWER_NS
        self.requests: dict[Key, Reserved] = {}
        self._by_question: dict[str, Reserved] = {}
        self._number = 0
        self.advertised: dict[str, set[str]] = {}
        """What other brokers advertise: filters, and the brokers."""
        self._needed: dict[str, int] = {}
        """What this broker asks for and looks for (`$reserve/`, `$seek/`), and by how many questions and requests."""

    # Subscribers

    def ask(
        self, key: Key, topic_filter: str, request: ReservationRequest, answer: Answer | None, now: Nanos
    ) -> Reserved:
        """`answer` is called once, perhaps at once. Without it, only changes are reported."""
        self.release(key, now)
        one = self.requests[key] = Reserved(key, topic_filter, request, request.service, answer=answer)
        one.timer = self._timers.at(now + self.answer_ns, lambda at: self._overdue(one, at))
        if self._uplink.is_edge:  # other brokers hear of all advertisements
            one.sought = SEEK + topic_filter
            self._need(one.sought, 1, now)
        self._seek(one, now)
        return one

    def release(self, key: Key, now: Nanos) -> None:
        """The subscriber needs it no longer; an answer that it waits for is not given."""
        one = self.requests.pop(key, None)
        if one is not None:
            self._timers.cancel(one.timer)
            self._drop_questions(one, now)
            self._look_no_more(one, now)

    def _look_no_more(self, one: Reserved, now: Nanos) -> None:
        if one.sought:
            self._need(one.sought, -1, now)
            one.sought = ""

    def _matching(self, topic_filter: str) -> list[str]:
        found = [one for one in self.advertised if covers(topic_filter, one) or covers(one, topic_filter)]
        return sorted(found)[:FILTERS_MAX]

    def _is_own(self, topic_filter: str) -> bool:
        own = self._own_filters()
        return any(covers(topic_filter, one) or covers(one, topic_filter) for one in own)  # type: ignore[attr-defined]

    def _seek(self, one: Reserved, now: Nanos) -> None:
        """Ask for what is not asked for yet."""
        wanted = self._matching(one.filter)
        if not wanted and not self._is_own(one.filter):
            return
        if one.state == "waiting":
            one.state = "asking"
        latency_s = one.request.latency_s if one.level == "guaranteed" else None
        new = [topic_filter for topic_filter in wanted if topic_filter not in one.asked.values()]
        questions = []
        for topic_filter in new:
            self._number += 1
            question = str(self._number)
            questions.append((question, topic_filter))
            one.asked[question] = topic_filter
            self._by_question[question] = one
            self._need(RESERVE + topic_filter, 1, now)
        for question, topic_filter in questions:
            if question in self._by_question:
                tspec = link_tspec(one.request.profile, topic_filter, "subscriber")
                self.network.ask(question, topic_filter, tspec, latency_s, one.request.style, now)
        if not questions:
            self._settle(one, now)

    def _need(self, name: str, change: int, now: Nanos) -> None:
        count = self._needed.get(name, 0) + change
        if change > 0 and count == 1:
            self._uplink.subscribe(LOCAL_SUBSCRIBERS, name, False, now)
        elif not count:
            self._uplink.unsubscribe(LOCAL_SUBSCRIBERS, name, now)
        if count:
            self._needed[name] = count
        else:
            del self._needed[name]

    def _drop_questions(self, one: Reserved, now: Nanos, topic_filter: str | None = None) -> None:
        """All of them, or those about a filter."""
        for question, about in list(one.asked.items()):
            if topic_filter in (None, about):
                del one.asked[question]
                del self._by_question[question]
                one.granted.pop(question, None)
                self.network.release(question, now)
                self._need(RESERVE + about, -1, now)

    # What other brokers advertise

    def note_advertised(self, topic_filter: str, broker: str, is_advertised: bool, now: Nanos) -> None:
        brokers = self.advertised.setdefault(topic_filter, set())
        if is_advertised:
            brokers.add(broker)
            if len(brokers) == 1:
                self.own_changed(now)
            return
        brokers.discard(broker)
        if not brokers:
            del self.advertised[topic_filter]
            for one in list(self.requests.values()):
                if topic_filter in one.asked.values():
                    self._drop_questions(one, now, topic_filter)
                    self._publisher_gone(one, now)

    def own_changed(self, now: Nanos) -> None:
        """More may be advertised than before."""
        for one in list(self.requests.values()):
            if self.requests.get(one.key) is one and one.state != "denied":
                self._seek(one, now)

    def _publisher_gone(self, one: Reserved, now: Nanos) -> None:
        if one.asked or self._is_own(one.filter):
            self._settle(one, now)
            return
        was_held, one.state = one.state == "held", "waiting"
        if was_held and one.answer is None:
            self._tell(one, ReservationVerdict(None, reason=NOT_ADVERTISED), "lost", now)

    # What the network says

    def heard(self, outcome: ReservationOutcome, now: Nanos) -> None:
        one = self._by_question.get(outcome.request)
        if one is None:
            return
        match outcome:
            case Granted():
                one.granted[outcome.request] = outcome
                self._settle(one, now)
            case Interrupted():
                one.granted.pop(outcome.request, None)
                if one.state == "held":
                    one.state = "lost"
                    self._tell(one, ReservationVerdict(None, reason=LOST), "interrupted", now)
            case Denied():
                self._denied(one, outcome, now)

    def _settle(self, one: Reserved, now: Nanos) -> None:
        """Grant it, if everything that was asked for is there."""
        if not one.is_complete or one.state == "held" or self.requests.get(one.key) is not one:
            return
        rates = [granted.rate for granted in one.granted.values()]
        bounds = [granted.bound_s for granted in one.granted.values() if granted.bound_s is not None]
        bound_s = max(bounds, default=0.0) if one.level == "guaranteed" else None
        one.state = "held"
        self.network.watch_delay(one.filter, bound_s)
        self._tell(one, ReservationVerdict(one.level, sum(rates) or None, bound_s), "admitted", now)

    def _denied(self, one: Reserved, denied: Denied, now: Nanos) -> None:
        question_filter = one.asked.get(denied.request, one.filter)
        tspec = link_tspec(one.request.profile, question_filter, "subscriber")
        nearest = denied.nearest_rate
        refused = ReservationVerdict(
            None,
            reason=denied.reason,
            bottleneck=denied.bottleneck,
            nearest_rate=None if nearest is None else nearest / tspec.size_max_bytes,
            nearest_latency_s=denied.nearest_latency_s,
        )
        self._drop_questions(one, now)
        lesser = SERVICES[SERVICES.index(one.level) - 1]
        if SERVICES.index(lesser) < SERVICES.index(one.request.class_min) or one.level == "best-effort":
            self._refuse(one, refused, now)
        elif lesser == "best-effort":
            self._fall_back(one, refused, now)
        else:
            one.level, one.state = lesser, "asking"
            self._seek(one, now)

    def _fall_back(self, one: Reserved, refused: ReservationVerdict, now: Nanos) -> None:
        """Best effort is accepted; it is tried again later to have more."""
        one.level, one.state = "best-effort", "denied"
        granted = ReservationVerdict(
            "best-effort",
            reason=refused.reason,
            bottleneck=refused.bottleneck,
            nearest_rate=refused.nearest_rate,
            nearest_latency_s=refused.nearest_latency_s,
        )
        self._retry_later(one, now)
        self._tell(one, granted, "admitted", now)

    def _refuse(self, one: Reserved, refused: ReservationVerdict, now: Nanos) -> None:
        if one.answer is not None:
            answer, one.answer = one.answer, None
            del self.requests[one.key]
            self._timers.cancel(one.timer)
            self._look_no_more(one, now)
            answer(refused, now)
            return
        one.state = "denied"
        self._retry_later(one, now)
        if one.verdict.reason != refused.reason or one.verdict.is_granted:
            self._tell(one, refused, "lost", now)

    def _retry_later(self, one: Reserved, now: Nanos) -> None:
        self._timers.cancel(one.timer)
        one.timer = self._timers.at(now + RETRY_NS, lambda at: self._retry(one, at))

    def _retry(self, one: Reserved, now: Nanos) -> None:
        if self.requests.get(one.key) is one and one.state == "denied":
            one.level, one.state = one.request.service, "waiting"
            self._seek(one, now)
            if one.state == "waiting":
                one.state = "denied"
                self._retry_later(one, now)

    def _overdue(self, one: Reserved, now: Nanos) -> None:
        if one.answer is None or self.requests.get(one.key) is not one:
            return
        reason = "the path did not answer in time" if one.asked else NOT_ADVERTISED
        refused = ReservationVerdict(None, reason=reason)
        if one.request.class_min == "best-effort":
            self._drop_questions(one, now)
            self._fall_back(one, refused, now)
        else:
            self._drop_questions(one, now)
            self._refuse(one, refused, now)

    def _tell(self, one: Reserved, verdict: ReservationVerdict, change: str, now: Nanos) -> None:
        before, one.verdict = one.verdict, verdict
        if one.answer is not None:
            answer, one.answer = one.answer, None
            if one.state == "held":
                self._timers.cancel(one.timer)
            answer(verdict, now)
        elif before != verdict:
            self._on_change(one, change, now)
