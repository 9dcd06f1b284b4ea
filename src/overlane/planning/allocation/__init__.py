"""Allocation: items placed on brokers so that the risk of overload costs least.

`model` says what the problem is and checks it, `placement` what places cost. `roundrobin` and `greedy` place items
one by one, `search` improves places, `exact` proves the best for a few items (on the tables of `subsets`), `bound`
tells for many how good any places could be (by the prices of `pricing`, on the `variance_floor`), and `solve` puts
them together.
"""

from overlane.planning.allocation.model import Broker, Item, Problem
from overlane.planning.allocation.solve import Allocation, Outcome, allocate

__all__ = ["Allocation", "Broker", "Item", "Outcome", "Problem", "allocate"]
