"""A link becomes quicker: what was described as slow is described anew, and nothing that is in time is dropped."""

from overlane.core.units import MS, SECOND
from overlane.sim.story import Story


def test_messages_arrive_again_when_a_link_that_was_too_slow_for_them_is_quick_enough() -> None:
    net = Story(
        {("a", "b"): 250 * MS}, {"alarms": 100 * MS}, publishers=[("a", "alarms", 100)], subscribers=[("b", "alarms")]
    )
    net.run(5 * SECOND)
    assert net.late("alarms") > 0
    net.slow("a", "b", to=30 * MS)
    net.run(2 * SECOND)
    late, lost = net.late("alarms"), net.lost("alarms", patience=100 * MS)
    net.run(5 * SECOND)
    assert (net.late("alarms"), net.lost("alarms", patience=100 * MS)) == (late, lost)
    assert len(net.route_moves("alarms")) == 1


def test_a_link_that_becomes_a_little_quicker_is_no_news() -> None:
    net = Story(
        {("a", "b"): 30 * MS}, {"alarms": 100 * MS}, publishers=[("a", "alarms", 100)], subscribers=[("b", "alarms")]
    )
    net.run(3 * SECOND)
    version = net.broker("a").routes()[0].version
    net.slow("a", "b", to=27 * MS)
    net.run(5 * SECOND)
    assert net.broker("a").routes()[0].version == version
    net.slow("a", "b", to=5 * MS)
    net.run(5 * SECOND)
    assert net.broker("a").routes()[0].version == version + 1
    assert net.missed("alarms") == 0
