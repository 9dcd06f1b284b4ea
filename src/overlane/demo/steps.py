"""The story of the demo: what happens, step by step."""

from dataclasses import dataclass

from overlane.core.units import MS
from overlane.network.schema import Crash, Cut, Event, Heal, Restart, Slow


@dataclass(frozen=True, slots=True)
class Step:
    """`told` is what a person hears when it begins."""

    name: str
    told: str
    events: tuple[Event, ...] = ()


STEPS = (
    Step("normal", "All is well: alarms take two paths from Seattle to Washington, reports one to Orlando."),
    Step(
        "slow link",
        "Seattle - Denver takes 150 ms instead of 14: too slow for alarms; reports could bear it.",
        (Slow(0, ("seattle", "denver"), 150 * MS),),
    ),
    Step(
        "cut link",
        "That link is well again, and Denver - Washington is cut.",
        (Heal(0, ("seattle", "denver")), Cut(0, ("denver", "washington"))),
    ),
    Step(
        "killed broker",
        "The broker in Los Angeles is killed: kill -9, no goodbye.",
        (Crash(0, "los-angeles"),),
    ),
    Step(
        "healed",
        "The link is whole again, the broker is started again.",
        (Heal(0, ("denver", "washington")), Restart(0, "los-angeles")),
    ),
)
