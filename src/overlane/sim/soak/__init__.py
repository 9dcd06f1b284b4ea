"""The soak: random overlays, random traffic, random faults, and what must hold whatever happens.

    drawing      a network with its faults, drawn from a seed
    hostile      a broker at the edge that breaks its word, in some seeds
    invariants   what must hold, checked from outside the brokers
    running      one seed from the first fault to the last probe, and many of them

Everything a seed does follows from the seed. A failing one is run again by its number.
"""

from overlane.sim.soak.drawing import draw
from overlane.sim.soak.invariants import Broken
from overlane.sim.soak.running import Verdict, run_seed, run_seeds

__all__ = ["Broken", "Verdict", "draw", "run_seed", "run_seeds"]
