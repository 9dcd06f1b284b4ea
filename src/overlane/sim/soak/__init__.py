"""The soak: random overlays, random traffic, random faults, and invariants.

    drawing      a network with its faults, drawn from a seed
    hostile      a hostile broker at the edge, in some seeds
    invariants   what must always hold, checked from outside the brokers
    running      one seed from the first fault to the last probe, and many of them

Everything in a run follows from the seed. A failing seed can be repeated by its number.
"""

from overlane.sim.soak.drawing import draw
from overlane.sim.soak.invariants import Broken
from overlane.sim.soak.running import SeedVerdict, run_seed, run_seeds

__all__ = ["Broken", "SeedVerdict", "draw", "run_seed", "run_seeds"]
