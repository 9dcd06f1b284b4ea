"""A client's detectors, and which broker of an item it uses."""

from overlane.core.units import MS, SECOND
from overlane.items.directory import At, Entry
from overlane.items.switching import ASK_EVERY, RETURN, SILENCE, STALL, Switching

ITEM = Entry("i", "west", ("i/#",), 1, At("p"), At("m"))
OTHER = Entry("o", "west", ("o/#",), 1, At("m"), At("p"))


def up() -> Switching:
    switching = Switching()
    switching.connected("p", 0)
    switching.connected("m", 0)
    return switching


def run(switching: Switching, since: int, until: int, answering: str) -> list[tuple[int, str]]:
    """Ticks of the clock in which these brokers answer; who changed, and when."""
    changes = []
    for now in range(since, until, 10 * MS):
        asked, changed = switching.tick(now)
        changes += [(now, one) for one in changed]
        for one in asked:
            if one in answering:
                switching.heard(one, now)
    return changes


def test_a_lost_connection_moves_the_items_of_that_broker_alone_and_at_once() -> None:
    switching = up()
    assert (switching.target(ITEM), switching.target(OTHER)) == ("p", "m")
    assert switching.lost("p", 5)
    assert (switching.target(ITEM), switching.target(OTHER)) == ("m", "m")


def test_a_silent_broker_is_left_after_the_silence() -> None:
    switching = up()
    assert run(switching, 0, SECOND, "pm") == []
    (left,) = run(switching, SECOND, 2 * SECOND, "m")
    assert left[1] == "p"
    assert SILENCE <= left[0] - SECOND <= SILENCE + 2 * ASK_EVERY
    assert switching.target(ITEM) == "m"


def test_a_blip_is_not_a_failure() -> None:
    switching = up()
    run(switching, 0, SECOND, "pm")
    assert run(switching, SECOND, SECOND + SILENCE - ASK_EVERY, "m") == []
    assert run(switching, SECOND + SILENCE - ASK_EVERY, 3 * SECOND, "pm") == []


def test_a_broker_is_used_again_after_it_has_answered_for_a_while_longer_with_every_relapse() -> None:
    switching, now = up(), 0
    for relapse in range(3):
        switching.lost("p", now)
        switching.connected("p", now + 1)
        assert switching.target(ITEM) == "m"
        ((back, who),) = run(switching, now + 10 * MS, now + 20 * SECOND, "pm")
        assert who == "p"
        assert back - now >= RETURN << relapse
        assert switching.target(ITEM) == "p"
        now += 20 * SECOND


def test_messages_that_are_not_acknowledged_are_a_bottleneck() -> None:
    switching = up()
    switching.waits_since("p", 100 * MS)
    assert run(switching, 0, 100 * MS + STALL, "pm") == []
    assert run(switching, 100 * MS + STALL, 2 * SECOND, "pm") == [(100 * MS + STALL, "p")]


def test_a_client_that_did_not_run_blames_nobody() -> None:
    switching = up()
    run(switching, 0, SECOND, "pm")
    switching.tick(SECOND)
    switching.tick(SECOND + 10 * MS)
    assert run(switching, 60 * SECOND, 62 * SECOND, "pm") == []


def test_with_neither_the_one_that_is_connected_is_used() -> None:
    switching = up()
    switching.lost("p", 1)
    run(switching, 0, SECOND, "")
    assert not switching.is_usable("m")
    assert switching.target(ITEM) == "m"
    switching.lost("m", SECOND)
    assert switching.target(ITEM) == "p"
    assert Switching().target(ITEM) == "p"
