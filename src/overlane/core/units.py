"""Time as the core counts it: integer nanoseconds of the broker's own clock."""

Nanos = int

US: Nanos = 1_000
MS: Nanos = 1_000_000
SECOND: Nanos = 1_000_000_000

NEVER: Nanos = 1 << 62
"""Later than anything: no deadline, no timer."""
