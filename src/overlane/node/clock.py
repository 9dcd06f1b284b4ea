"""The time of a broker that runs: nanoseconds since 1970 at its start, from then on at the pace of the monotonic clock.

So durations are right whatever is done to the machine's clock meanwhile, and times written to the store mean something
after a restart.
"""

from time import monotonic_ns, time_ns

from overlane.core.gossip.incarnation import CLOCK_MAX
from overlane.core.units import SECOND, Nanos


class Clock:
    def __init__(self) -> None:
        # A clock beyond that is wrong, and would be later than what the state machines take for never.
        self._ahead_ns = min(time_ns(), CLOCK_MAX * SECOND) - monotonic_ns()

    def now(self) -> Nanos:
        return monotonic_ns() + self._ahead_ns
