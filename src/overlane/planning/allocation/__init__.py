"""Allocation: items are placed on brokers so that the expected cost of overload is minimal.

`model` defines and validates the problem, `placement` the cost of a placement. `round_robin` and `greedy` place items
one by one, `search` improves a placement, `exact` proves the optimum for a few items (on the tables of `subsets`),
`bound` gives an upper bound for many (by the prices of `pricing`, on the `variance_floor`), and `solve` combines them.
"""

from overlane.planning.allocation.model import BrokerCapacity, Item, Problem
from overlane.planning.allocation.solve import Allocation, AllocationOutcome, allocate

__all__ = ["Allocation", "AllocationOutcome", "BrokerCapacity", "Item", "Problem", "allocate"]
