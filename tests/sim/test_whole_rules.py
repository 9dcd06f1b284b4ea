"""The rules for order, retained messages, wills, groups and keep-alive tell right from wrong, on small stories."""

import pytest

from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.sim.whole.contact import Contact
from overlane.sim.whole.judge import WholeJudge
from overlane.sim.whole.message import SimulatedMessage
from overlane.sim.whole.rules.groups import GroupRule
from overlane.sim.whole.rules.history import History
from overlane.sim.whole.rules.keep_alive import TIMED_OUT, KeepAliveRule
from overlane.sim.whole.rules.retained import RetainedRule
from overlane.sim.whole.rules.wills import WillRule

BROKER_OF = {"near": "b0", "far": "b1", "late": "b0", "visitor": "b1", "pub": "b0"}
PASSING = frozenset({"visitor"})


class Told:
    def __init__(self) -> None:
        self.invariants: list[str] = []

    def __call__(self, invariant: str, _detail: str) -> None:
        self.invariants.append(invariant)


@pytest.fixture
def told() -> Told:
    return Told()


def retained(number: int, *, qos: int = 2, clears: bool = False) -> SimulatedMessage:
    return SimulatedMessage("pub", "r/pub", number, qos, is_retained=True, clears=clears)


# Order


@pytest.mark.parametrize(
    ("subscribed_at", "is_sent_again", "is_right"), [(2, True, True), (2, False, False), (1, True, False)]
)
def test_only_what_was_sent_again_and_missed_at_first_may_come_after_what_followed_it(
    subscribed_at: int, is_sent_again: bool, is_right: bool
) -> None:
    judge = WholeJudge(lambda: SECOND, BROKER_OF, PASSING)
    first, second = (SimulatedMessage("pub", "t/pub", number, 1) for number in (1, 2))
    for number, message in enumerate((first, second), 1):
        if number == subscribed_at:
            judge.subscribed("near", "t/#", 1)
        judge.sent(message)
    judge.got("near", second, 1)
    if is_sent_again:
        judge.resent(first)
    judge.got("near", first, 1)
    assert (judge.broken is None) == is_right


# Retained messages


@pytest.fixture
def rule(told: Told) -> RetainedRule:
    """Three messages were published, and two of them acknowledged."""
    rule = RetainedRule(BROKER_OF, PASSING, told)
    for number in (1, 2, 3):
        rule.sent(retained(number))
    rule.acknowledged(retained(1))
    rule.acknowledged(retained(2))
    return rule


@pytest.mark.parametrize(("number", "is_right"), [(1, False), (2, True), (3, True)])
def test_a_subscription_gets_what_was_acknowledged_last_or_something_later(
    rule: RetainedRule, told: Told, number: int, is_right: bool
) -> None:
    rule.asked("near", "r/#")
    rule.subscribed("near", "r/#", 1)
    assert rule.missing() is not None
    rule.got("near", retained(number), 1)
    assert (not told.invariants) == is_right
    assert rule.missing() is None


def test_nothing_from_before_an_acknowledged_clearing_comes_back(rule: RetainedRule, told: Told) -> None:
    rule.sent(retained(4, clears=True))
    rule.acknowledged(retained(4, clears=True))
    rule.asked("near", "r/#")
    rule.subscribed("near", "r/#", 1)
    assert rule.missing() is None
    rule.got("near", retained(3), 1)
    assert told.invariants


def test_another_broker_may_be_behind_but_not_go_back(rule: RetainedRule, told: Told) -> None:
    rule.asked("far", "r/#")
    rule.subscribed("far", "r/#", 1)
    rule.got("far", retained(1), 1)
    rule.asked("visitor", "r/#")
    rule.got("visitor", retained(3), 1)
    assert not told.invariants
    rule.asked("far", "r/pub")
    rule.got("far", retained(2), 1)
    assert told.invariants


def test_what_a_visitor_saw_is_no_promise_once_the_broker_was_down(rule: RetainedRule, told: Told) -> None:
    rule.asked("visitor", "r/#")
    rule.got("visitor", retained(3), 1)
    rule.broker_went_down("b1")
    rule.asked("far", "r/#")
    rule.got("far", retained(2), 1)
    assert not told.invariants


def test_at_rest_every_broker_has_the_last_one(rule: RetainedRule) -> None:
    rule.come_to_rest()
    rule.asked("visitor", "r/#")
    rule.subscribed("visitor", "r/#", 2)
    assert rule.missing() is not None


# Wills

WILL = SimulatedMessage("near", "w/near", 1, 2)


def lost_at(ended_ns: Nanos, *, delay_ns: Nanos = 0, goodbye_ns: Nanos = NEVER) -> Contact:
    contact = Contact("near", 1, -SECOND, will_delay_ns=delay_ns, accepted_ns=-SECOND // 2)
    contact.ended_ns, contact.goodbye_ns = ended_ns, goodbye_ns
    return contact


def wills(told: Told, now: Nanos, *contacts: Contact, history: History | None = None) -> WillRule:
    rule = WillRule(BROKER_OF, history or History(), lambda: now, told)
    for contact in contacts:
        rule.contacted(contact)
    return rule


def back_at(accepted_ns: Nanos) -> Contact:
    return Contact("near", 2, accepted_ns - 10 * MS, accepted_ns=accepted_ns)


@pytest.mark.parametrize(
    ("contact", "now", "is_right"),
    [
        (lost_at(NEVER), SECOND, False),
        (lost_at(SECOND), SECOND + MS, True),
        (lost_at(SECOND, delay_ns=SECOND), SECOND + 900 * MS, False),
        (lost_at(SECOND, delay_ns=SECOND), 2 * SECOND, True),
        (lost_at(SECOND, goodbye_ns=SECOND - MS), SECOND + MS, False),
    ],
)
def test_a_will_is_published_after_a_loss_and_its_delay_only(
    told: Told, contact: Contact, now: Nanos, is_right: bool
) -> None:
    wills(told, now, contact).got(WILL)
    assert (not told.invariants) == is_right


def test_a_client_that_is_back_in_time_takes_its_will_away(told: Told) -> None:
    contact = lost_at(SECOND, delay_ns=SECOND)
    wills(told, 3 * SECOND, contact, back_at(SECOND + 500 * MS)).got(WILL)
    assert told.invariants


@pytest.mark.parametrize(
    ("contact", "back", "is_due"),
    [
        (lost_at(SECOND), back_at(SECOND + 20 * MS), True),
        (lost_at(NEVER), back_at(2 * SECOND), False),
        (lost_at(SECOND, goodbye_ns=SECOND), back_at(2 * SECOND), False),
        (lost_at(SECOND, delay_ns=SECOND), back_at(2 * SECOND), False),
        (lost_at(SECOND, delay_ns=SECOND), back_at(4 * SECOND), True),
    ],
)
def test_a_will_is_due_when_its_connection_was_lost_for_long_enough(
    told: Told, contact: Contact, back: Contact, is_due: bool
) -> None:
    assert wills(told, 5 * SECOND, contact, back).is_due(WILL) == is_due


def test_a_crash_before_a_goodbye_is_on_disk_is_excused(told: Told) -> None:
    history = History()
    history.went_down("b0", SECOND + 100 * MS)
    wills(told, 2 * SECOND, lost_at(SECOND, goodbye_ns=SECOND), history=history).got(WILL)
    assert not told.invariants


@pytest.mark.parametrize(
    ("may_be_refused", "fails_ns", "is_right"),
    [(True, 900 * MS, True), (True, SECOND + MS, False), (False, 900 * MS, False)],
)
def test_a_refusal_before_a_goodbye_is_excused_where_the_disk_was_in_trouble(
    told: Told, may_be_refused: bool, fails_ns: Nanos, is_right: bool
) -> None:
    history = History()
    history.disk_failed("b0", fails_ns)
    contact = lost_at(SECOND, goodbye_ns=SECOND)
    contact.may_be_refused = may_be_refused
    wills(told, 2 * SECOND, contact, history=history).got(WILL)
    assert (not told.invariants) == is_right


# Groups

SHARED = SimulatedMessage("pub", "s/pub", 1, 2)


def group(told: Told, *members: str, qos: int = 2) -> GroupRule:
    rule = GroupRule(BROKER_OF, PASSING, History(), told)
    for member in members:
        rule.subscribed(member, "$share/g/s/#", qos)
    rule.sent(SHARED)
    return rule


def never(_client: str, _message: SimulatedMessage) -> bool:
    return False


def test_a_message_that_no_member_gets_is_missing_once_it_is_acknowledged(told: Told) -> None:
    rule = group(told, "near", "far")
    assert rule.missing(set(), never) is None
    assert rule.missing({SHARED}, never) is not None
    assert rule.got("far", SHARED, 2)
    assert rule.missing({SHARED}, never) is None


@pytest.mark.parametrize(
    ("qos", "is_resent", "is_right"), [(2, False, False), (2, True, False), (1, False, False), (1, True, True)]
)
def test_two_members_get_a_message_only_if_it_was_published_again_at_qos_1(
    told: Told, qos: int, is_resent: bool, is_right: bool
) -> None:
    rule = group(told, "near", "far", qos=qos)
    if is_resent:
        rule.resent(SHARED)
    rule.got("near", SHARED, qos)
    rule.got("far", SHARED, qos)
    assert (not told.invariants) == is_right


def test_a_group_of_visitors_is_promised_nothing(told: Told) -> None:
    assert group(told, "visitor").missing({SHARED}, never) is None


# Keep-alive


def heard_at(heard_ns: Nanos, *, closed_ns: Nanos = NEVER) -> Contact:
    contact = Contact("near", 1, 0, SECOND, accepted_ns=MS, heard_ns=heard_ns)
    contact.closed_ns, contact.silence_ns = closed_ns, closed_ns - heard_ns
    return contact


@pytest.mark.parametrize(("closed_ns", "is_right"), [(NEVER, False), (1_600 * MS, True), (2_500 * MS, False)])
def test_a_silent_client_is_disconnected_in_time(told: Told, closed_ns: Nanos, is_right: bool) -> None:
    KeepAliveRule(BROKER_OF, History(), told).woke_up(heard_at(0, closed_ns=closed_ns), 3 * SECOND)
    assert (not told.invariants) == is_right


@pytest.mark.parametrize("keep_alive_ns", [SECOND, NEVER])
@pytest.mark.parametrize("reason", [TIMED_OUT, None])
def test_nobody_else_is_disconnected(told: Told, keep_alive_ns: Nanos, reason: int | None) -> None:
    contact = heard_at(0, closed_ns=SECOND)
    contact.keep_alive_ns = keep_alive_ns
    KeepAliveRule(BROKER_OF, History(), told).dismissed(contact, reason)
    assert told.invariants


@pytest.mark.parametrize(("closed_ns", "is_right"), [(2_000 * MS, True), (2_200 * MS, False)])
def test_a_client_that_was_silent_may_be_disconnected_though_it_has_said_something_since(
    told: Told, closed_ns: Nanos, is_right: bool
) -> None:
    """Seed 300040: DISCONNECT waited for the disk, behind acknowledgements."""
    contact = heard_at(0)
    contact.hear(1_600 * MS)
    contact.closed_ns, contact.silence_ns = closed_ns, closed_ns - 1_600 * MS
    KeepAliveRule(BROKER_OF, History(), told).dismissed(contact, TIMED_OUT)
    assert (not told.invariants) == is_right


def test_a_request_that_is_refused_may_end_a_connection_of_3_1_1(told: Told) -> None:
    contact = heard_at(0, closed_ns=10 * MS)
    contact.owed_at_close = 1
    KeepAliveRule(BROKER_OF, History(), told).dismissed(contact, None)
    assert not told.invariants
