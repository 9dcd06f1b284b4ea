"""The steps of the demo."""

from dataclasses import dataclass

from overlane.core.units import MS
from overlane.network.schema import Crash, Cut, Event, Heal, Restart, Slow


@dataclass(frozen=True, slots=True)
class Step:
    """`description` is printed when the step starts."""

    name: str
    description: str
    events: tuple[Event, ...] = ()


STEPS = (
    Step("normal", "No faults: alarms take two paths from Seattle to Washington, reports one to Orlando."),
    Step(
        "slow link",
        "Seattle - Denver takes 150 ms instead of 14: too slow for alarms, fast enough for reports.",
        (Slow(0, ("seattle", "denver"), 150 * MS),),
    ),
    Step(
        "cut link",
        "That link recovers, and Denver - Washington is cut.",
        (Heal(0, ("seattle", "denver")), Cut(0, ("denver", "washington"))),
    ),
    Step(
        "killed broker",
        "The broker in Los Angeles is killed (kill -9).",
        (Crash(0, "los-angeles"),),
    ),
    Step(
        "healed",
        "The link is restored, the broker restarts.",
        (Heal(0, ("denver", "washington")), Restart(0, "los-angeles")),
    ),
)
