"""Pure solvers: paths, allocation, mirrors, case base, channels, reservations. Data in, plans out, no I/O."""

__all__ = [
    "allocation",
    "case_base",
    "channels",
    "constrained",
    "flooding",
    "graph",
    "mirrors",
    "network",
    "paths",
    "problem",
    "reserve",
    "resiliency",
    "shortest",
    "targeted",
]
