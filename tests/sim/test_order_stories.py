"""Order on reliable topics with a deadline, over a link that loses: strict by default, or after the deadline."""

from overlane.core.units import MS, SECOND
from overlane.sim.story import Story, link, topic

MESSAGES = 600
DEADLINE = 90 * MS


def lossy_line() -> Story:
    """Nothing is repaired on the way: what is lost comes again from its source, after its deadline or nearly so."""
    return Story(
        {("a", "b"): link(10 * MS, loss=0.1), ("b", "c"): 10 * MS},
        {
            "commands": topic(DEADLINE, reliability="reliable", routing="single"),
            "positions": topic(DEADLINE, reliability="reliable", routing="single", order="deadline"),
        },
        publishers=[("a", "commands", 50), ("a", "positions", 50)],
        subscribers=[("c", "commands"), ("c", "positions")],
    )


def test_order_is_strict_unless_a_topic_chooses_its_deadline_which_then_wins() -> None:
    net = lossy_line()
    net.run(MESSAGES // 50 * SECOND)
    net.silence()
    net.run(10 * SECOND)
    commands, positions = net.row("commands"), net.row("positions")
    assert commands.delivered == commands.published >= MESSAGES - 1
    assert positions.delivered == positions.published >= MESSAGES - 1
    assert commands.overtaken == 0
    assert positions.overtaken > 0
    assert net.late("commands") > 2 * net.late("positions") > 0
    assert net.in_order()
