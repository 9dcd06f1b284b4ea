"""Two brokers with one name: the one that is linked keeps its place, and all concerned are told."""

from handwired import Overlay

from overlane.core.events import Close, Effect, LinkUp, NameConflict, NamesakeRefused
from overlane.core.wire import frame_codec
from overlane.core.wire.control_messages import Farewell, decode, encode

LINE = {"a-b": 10, "b-c": 10, "c-d": 10}
FIRST, SECOND = 11, 22


def settled() -> Overlay:
    net = Overlay(LINE)
    net.instances = {"d": FIRST}
    net.crash("d")
    net.restart("d")
    net.run(5_000)
    return net


def appears_at_a(net: Overlay, instance: int) -> list[Effect]:
    """A broker that calls itself d greets a, with which d has no link."""
    broker = net.brokers["a"]
    broker.handle(LinkUp("d"), net.now)
    greeting = frame_codec.hello("d", net.brokers["d"].incarnation + 100, instance)
    return broker.receive("d", greeting, net.now) + broker.flush(net.now)


def test_another_instance_is_refused_while_the_first_is_linked_elsewhere() -> None:
    net = settled()
    effects = appears_at_a(net, SECOND)
    (close,) = [effect for effect in effects if isinstance(effect, Close)]
    assert close.reason == "another broker named d is linked with c"
    (_, body), *_ = frame_codec.split(close.last_words)[0]
    assert decode(frame_codec.read_control(body)[1]) == Farewell(close.reason, is_name_taken=True)
    assert [effect for effect in effects if isinstance(effect, NameConflict)] == [NameConflict("d", close.reason)]
    assert net.brokers["a"].counters["name_conflicts"] == 1


def test_the_same_instance_was_restarted_and_is_welcome_wherever_it_is() -> None:
    net = settled()
    assert not [effect for effect in appears_at_a(net, FIRST) if isinstance(effect, Close | NameConflict)]


def test_another_instance_is_welcome_once_the_first_is_gone() -> None:
    net = settled()
    incarnation = net.brokers["d"].incarnation
    net.crash("d")
    net.run(3_000)
    broker = net.brokers["a"]
    broker.handle(LinkUp("d"), net.now)
    assert not broker.receive("d", frame_codec.hello("d", incarnation + 1, SECOND), net.now)


def test_the_one_that_is_linked_hears_that_another_was_refused() -> None:
    net = settled()
    for _ in range(5):
        net.handle("c", NamesakeRefused("d", "192.0.2.7:4000"))
        net.run(1_000)
    assert net.of("c", NameConflict) == [NameConflict("d", "the one at 192.0.2.7:4000 was refused")]
    assert net.of("d", NameConflict) == [NameConflict("d", "one at 192.0.2.7:4000 was refused by c")]
    assert {net.brokers[name].counters["name_conflicts"] for name in "cd"} == {5}


def test_who_is_refused_instead_of_greeted_knows_why() -> None:
    net = settled()
    broker = net.brokers["a"]
    broker.handle(LinkUp("e"), net.now)
    refusal = frame_codec.control(0, encode(Farewell("another broker named a is here", is_name_taken=True)))
    effects = broker.receive("e", refusal, net.now) + broker.flush(net.now)
    (close,) = [effect for effect in effects if isinstance(effect, Close)]
    assert close.reason == "closed by the neighbour: another broker named a is here"
    (conflict,) = [effect for effect in effects if isinstance(effect, NameConflict)]
    assert conflict == NameConflict("a", "e refuses this one: another broker named a is here")
    assert broker.counters["violations"] == 0
