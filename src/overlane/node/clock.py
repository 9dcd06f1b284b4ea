"""The time of a broker that runs: nanoseconds since 1970 at its start, from then on at the pace of the monotonic clock.

So durations are right whatever is done to the machine's clock meanwhile, and times written to the store mean something
after a restart.
"""

from time import monotonic_ns, time_ns

from overlane.core.units import Nanos


class Clock:
    def __init__(self) -> None:
        self._ahead_ns = time_ns() - monotonic_ns()

    def now(self) -> Nanos:
        return monotonic_ns() + self._ahead_ns
