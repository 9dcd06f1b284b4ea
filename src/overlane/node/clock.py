"""The time of a running broker: nanoseconds since 1970 at its start, then at the rate of the monotonic clock.

So durations are correct even if the clock of the machine is changed, and times in the store are valid after a restart.
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
