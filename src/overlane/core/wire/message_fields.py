"""Fields of control messages: their types, and the limits that decoding checks."""

from typing import Annotated

from msgspec import Meta

from overlane.core.bundles import BUNDLES
from overlane.core.limits import TOPIC_BYTES_MAX
from overlane.core.wire.frame_codec import NAME_BYTES_MAX

BROKERS_MAX = 4096
NUMBERED_NAMES_MAX = 4096
"""Names of brokers that have numbers on one connection."""
PAGE_MAX = 512
"""Brokers per page of the summary for a new neighbour."""
LINKS_MAX = 65536
REASON_LENGTH_MAX = 256
PART_FILTERS_MAX = 256
"""In one message, of those that it adds and of those that it removes. A receiver handles a message as a whole, and
takes about 15 us for each filter: clients must not wait for longer than a few milliseconds."""
CLAIMED_US_MAX = (1 << 40) - 1
"""Of times that a broker measures on its links."""
BEHIND_MAX = 64
BEHIND_PERCENT_MAX = 1000
PROOF_BYTES_MAX = 16384

RECEIPT_HOPS_MAX = 32
"""How many links a receipt passes."""

REFRESHED_MAX = 1024
"""Routes that one message refreshes or requests."""

NEIGHBOUR_BYTES_MAX = 2048
"""Of a message between two neighbours that is not for the core."""

GROUPS_TOLD_MAX = 1024
"""Groups of topics in one message, of those that it adds and of those that it removes."""

LIFETIME_S = 200
LIFETIME_S_MAX = 36_000
"""How long an advert is valid after it was received: default and maximum."""

Name = Annotated[str, Meta(min_length=1, max_length=NAME_BYTES_MAX)]
"""`check` looks at its characters."""
Bound = Annotated[str, Meta(max_length=NAME_BYTES_MAX)]
"""Of a range of names; empty where there is none."""
OptionalName = Annotated[str, Meta(max_length=NAME_BYTES_MAX)]
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Filters = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=TOPIC_BYTES_MAX)]], Meta(max_length=PART_FILTERS_MAX)
]
Places = Annotated[list[Annotated[int, Meta(ge=0, lt=BROKERS_MAX)]], Meta(max_length=2 * LINKS_MAX)]
"""Indices into a list of brokers."""
U32 = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
"""What parcels carry."""
Label = Annotated[str, Meta(max_length=10)]
"""Of QoS classes: a deadline in microseconds, with 32 bits."""
Version = Annotated[int, Meta(ge=0, le=0xFFFF)]
"""Of a route."""
RouteVersions = Annotated[dict[U32, Version], Meta(max_length=REFRESHED_MAX)]
Groups = Annotated[list[Annotated[int, Meta(ge=0)]], Meta(max_length=GROUPS_TOLD_MAX)]
"""Hashes of 64 bits; no larger number can be encoded."""
BundleSet = Annotated[bytes, Meta(max_length=BUNDLES // 8)]
"""Bit b of byte b // 8 stands for bundle b; bytes that are missing are 0."""
Millionths = Annotated[int, Meta(ge=0, le=1_000_000)]
