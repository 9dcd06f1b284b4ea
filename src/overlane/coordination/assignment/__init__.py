"""Assignment: which routing broker carries which topics. Pure decisions of the leader.
The unit that is assigned and moved is a bundle of topics (`core.bundles`).

placement     where a new bundle, or one whose broker is gone, goes: strategies that can be exchanged
rebalancing   when bundles move from one broker to another that lives: seldom, few, and not back and forth
elasticity    how many routing brokers there should be
load_outlook  the load that a plan expects soon
"""

__all__ = ["elasticity", "load_outlook", "placement"]
