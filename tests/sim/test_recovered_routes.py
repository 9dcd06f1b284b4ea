"""What routes through a broker cost that is continued elsewhere: to its neighbours it was restarted (published for
QpidR: 12 KB per route)."""

from itertools import combinations

from overlane.core.units import MS, SECOND
from overlane.sim.story import Story

NEIGHBOURS = tuple(f"n{number}" for number in range(6))


def star() -> Story:
    """Neighbours publish to every two others through the hub: sixty routes, each over three links."""
    pairs = {f"t{number}": pair for number, pair in enumerate(combinations(NEIGHBOURS, 2))}
    return Story(
        links={("hub", name): 10 * MS for name in NEIGHBOURS},
        topics=dict.fromkeys(pairs, 500 * MS),
        publishers=[(name, topic, 2) for topic, pair in pairs.items() for name in NEIGHBOURS if name not in pair],
        subscribers=[(name, topic) for topic, pair in pairs.items() for name in pair],
    )


def routes(net: Story) -> int:
    return sum(len(net.broker(name).routes()) for name in NEIGHBOURS)


def control_bytes(net: Story, seconds: int) -> int:
    before = net.world.counter("control_bytes_sent")
    net.run(seconds * SECOND)
    return net.world.counter("control_bytes_sent") - before


def test_to_recover_a_route_takes_less_than_a_kilobyte_on_all_links_together() -> None:
    net = star()
    net.run(5 * SECOND)
    assert (routes(net), net.has_converged()) == (60, True)
    idle = control_bytes(net, 5)
    net.crash("hub")
    net.run(2 * SECOND)
    net.restart("hub")
    recovering = control_bytes(net, 5)
    assert (routes(net), net.has_converged()) == (60, True)
    assert 0 < recovering - idle < 60 * 1_000
