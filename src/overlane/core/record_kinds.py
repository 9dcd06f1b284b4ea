"""The kinds of records that the core writes, in the order in which recovery takes them."""

from overlane.core.flows.held_messages import HELD_KIND
from overlane.core.flows.history import HISTORY_KIND
from overlane.core.flows.inflow import INFLOW_KIND
from overlane.core.flows.outflow import PARCEL_KIND
from overlane.core.flows.sink import SUBSCRIPTION_KIND
from overlane.core.gossip.incarnation import IDENTITY_KIND
from overlane.core.gossip.interest import INTEREST_KIND
from overlane.core.records import RecordKind

KINDS: tuple[RecordKind, ...] = (HELD_KIND, HISTORY_KIND, INFLOW_KIND, INTEREST_KIND, PARCEL_KIND, SUBSCRIPTION_KIND)

STORE_KINDS: tuple[RecordKind, ...] = (IDENTITY_KIND,)
"""Records of the store itself, given to the core at its start."""
