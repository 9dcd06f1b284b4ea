"""Garbage collection of a process that simulates: most of what it makes lives long, and hardly any of it is in cycles.

With Python's own thresholds, looking through all of that again and again takes about a seventh of the time.
"""

import gc

GARBAGE_AT = 20_000
"""Objects more than before that make Python look for garbage; its own default is 700."""


def collect_rarely() -> None:
    """For this process, and for those that it forks from now on."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_AT)
