"""A domain with items in virtual time: management agents, clients that follow the directory, and what fails.

domain      agents of brokers with an ensemble of ZooKeeper servers that has all its weaknesses, and links that fail
traffic     publishers and subscribers of items: real detectors and identities, brokers that pass messages on
states      a case base applied state by state
running     one seed: faults, what must always hold, and what must hold when everything has been mended
"""

from overlane.sim.items.running import run_items_seed, run_items_seeds

__all__ = ["run_items_seed", "run_items_seeds"]
