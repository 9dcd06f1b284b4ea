"""Rules at borders: which apply between two domains, and what is sent to whom."""

from collections.abc import Sequence

import pytest

from overlane.core.events import Deliver, PublishResult, Reception
from overlane.core.qos import QosClass
from overlane.core.units import Nanos
from overlane.errors import ConfigError
from overlane.mediation.border import BorderMediation, BorderRules
from overlane.mediation.rule import MediationRule
from overlane.network import format_network, parse_network
from overlane.pubsub.cluster import envelope
from overlane.pubsub.cluster.border import MediatedUplink
from overlane.pubsub.cluster.names import RETAINED, share_name
from overlane.pubsub.cluster.uplink import Alone
from overlane.pubsub.message import Message
from overlane.pubsub.properties import Properties

DOMAINS = {"a": "plant", "b": "plant", "c": "office", "d": "office", "e": ""}
QUIET = MediationRule(name="quiet", topic="press/#", where="level < 5", border="leave", domain="plant", drop=True)
HIDE = MediationRule(name="hide", topic="press/#", remove_fields=("operator",), border="leave", domain="plant")
UNITS = MediationRule(
    name="units",
    topic="press/+/temp",
    set_fields=(("kelvin", "level + 273"),),
    set_properties=(("unit", "K"),),
    border="enter",
    domain="office",
)
RULES = (QUIET, HIDE, UNITS)
NOW: Nanos = 10**12
QOS = QosClass(reliable=True)


class Sent(Alone):
    """Everybody else needs everything."""

    def __init__(self, others: Sequence[str] = "bcde") -> None:
        self.others = tuple(others)
        self.sent: list[tuple[str, bytes, tuple[str, ...]]] = []

    def needing(self, topic: str) -> Sequence[str]:  # noqa: ARG002
        return self.others

    def publish(
        self,
        topic: str,
        body: bytes,
        flags: int,  # noqa: ARG002
        qos: QosClass,
        now: Nanos,  # noqa: ARG002
        served: tuple[str, ...] = (),  # noqa: ARG002
    ) -> PublishResult:
        self.sent.append((topic, body, qos.only))
        return PublishResult.ACCEPTED


class Border:
    def __init__(self, rules: tuple[MediationRule, ...] = RULES, own: str = "plant") -> None:
        self.failed: list[str] = []
        self.core = Sent()
        border = BorderMediation(BorderRules(own, DOMAINS, rules))
        self.uplink = MediatedUplink(self.core, border, lambda _, reason, __: self.failed.append(reason))

    def publish(self, topic: str, payload: bytes) -> list[tuple[str, bytes, tuple[str, ...]]]:
        flags, body = envelope.pack(Message(topic, payload, 1, published_ns=NOW), NOW)
        self.core.sent.clear()
        assert self.uplink.publish(topic, body, flags, QOS, NOW) is PublishResult.ACCEPTED
        return self.core.sent


def test_each_domain_gets_what_the_rules_make_of_a_message_and_the_own_one_gets_it_as_it_is() -> None:
    sent = Border().publish("press/1/state", b'{"level":7,"operator":"x"}')
    assert sent == [
        ("press/1/state", b'{"level":7,"operator":"x"}', ("b",)),
        ("press/1/state", b'{"level":7}', ("c", "d", "e")),
    ]


def test_rules_of_both_domains_apply_between_two() -> None:
    _, office, other = Border().publish("press/1/temp", b'{"level":7,"operator":"x"}')
    properties = Properties(user_properties=(("unit", "K"),)).encode()
    assert office == ("press/1/temp", bytes((len(properties),)) + properties + b'{"level":7,"kelvin":280}', ("c", "d"))
    assert other == ("press/1/temp", b'{"level":7}', ("e",))


def test_what_is_dropped_does_not_travel() -> None:
    border = Border()
    assert border.publish("press/1/state", b'{"level":3}') == [("press/1/state", b'{"level":3}', ("b",))]
    border.core.others = ("c", "d")
    assert border.publish("press/1/state", b'{"level":3}') == []


def test_topics_without_a_rule_are_sent_once() -> None:
    border = Border()
    assert border.publish("hall/1", b"x") == [("hall/1", b"x", ())]
    assert border.uplink.mediates("press/1")
    assert not border.uplink.mediates("hall/1")
    border.core.others = ("b",)
    assert not border.uplink.mediates("press/1"), "it does not leave the domain"


def test_a_message_for_a_member_of_a_shared_subscription_is_changed_for_its_broker() -> None:
    border = Border()
    flags, body = envelope.pack(Message("press/1", b'{"level":7,"operator":"x"}', 1, published_ns=NOW), NOW)
    for broker, payload in (("b", b'{"level":7,"operator":"x"}'), ("c", b'{"level":7}')):
        border.core.sent.clear()
        name = share_name("g", broker, "press/#", "press/1")
        border.uplink.publish(name, body, flags, QOS, NOW)
        assert border.core.sent == [(name, payload, ())]


def test_a_message_for_which_a_rule_fails_does_not_cross_and_is_reported() -> None:
    border = Border()
    assert border.publish("press/1/temp", b"no JSON") == [("press/1/temp", b"no JSON", ("b",))]
    assert any("rule hide" in reason for reason in border.failed)


def test_a_deadband_is_remembered_for_each_pair_of_domains() -> None:
    rule = MediationRule(name="calm", topic="t", deadband=("v", 1.0), border="leave", domain="plant")
    border = Border((rule,))
    assert [only for _, _, only in border.publish("t", b'{"v":1}')] == [("b", "c", "d", "e")]
    assert [only for _, _, only in border.publish("t", b'{"v":1.5}')] == [("b",)]
    assert [only for _, _, only in border.publish("t", b'{"v":2}')] == [("b", "c", "d", "e")]


def test_retained_messages_are_changed_where_they_arrive() -> None:
    border, got = Border(own="office"), list[list[tuple[str, int, bytes]]]()

    def receive(effect: Deliver, now: Nanos, opened: object) -> Reception:  # noqa: ARG001
        got.append(effect.messages)
        return Reception(True, {})

    deliver = border.uplink.receiver(receive)
    stamp = NOW.to_bytes(8)
    for origin, payload in (("a", b'{"level":7,"operator":"x"}'), ("d", b'{"operator":"x"}'), ("a", b'{"level":1}')):
        name = RETAINED + "press/1"
        deliver(Deliver([(name, 1, stamp + payload)], {name: ("mqtt",)}, origin, 0, 0, True), NOW, None)
    assert [[body[8:] for _, _, body in messages] for messages in got] == [[b'{"level":7}'], [b'{"operator":"x"}'], []]


BROKERS = '[brokers.a]\ndomain = "plant"\n[brokers.c]\n'


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ('border = "leave"\ndrop = true', "domain"),
        ('border = "leave"\ndomain = "plan"\ndrop = true', "the domain of a broker"),
        ('border = "leave"\ndomain = "plant"\nevery = "1s"', "nothing in a rule at a border"),
        ('domain = "plant"\ndrop = true', "nothing without border"),
        ('border = "leave"\ndomain = "plant"\ndrop = true\n[topics."#"]\nhistory = 3', "without history"),
    ],
)
def test_rules_that_cannot_hold_at_a_border_are_refused(lines: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_network(f'{BROKERS}[[mediation]]\nname = "x"\n{lines}\n')
    assert told in str(refused.value)


def test_a_rule_at_a_border_is_written_as_it_was_read() -> None:
    network = parse_network(f'{BROKERS}[[mediation]]\nname = "x"\nborder = "enter"\ndomain = "c"\ndrop = true\n')
    assert parse_network(format_network(network)).mediation == network.mediation
