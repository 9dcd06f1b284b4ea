"""A broker that claims less latency than its links have: `python understating.py MICROSECONDS broker ...`."""

import sys

from msgspec import structs

from overlane.cli.main import run
from overlane.core.link_supervisor import LinkSupervisor
from overlane.core.links.neighbour import Neighbour
from overlane.core.units import Nanos
from overlane.core.wire.control_messages import LinkClaim

CLAIMED_US = int(sys.argv.pop(1))

honest = LinkSupervisor._claim


def claim(self: LinkSupervisor, neighbour: Neighbour, now: Nanos) -> LinkClaim | None:
    found = honest(self, neighbour, now)
    return None if found is None else structs.replace(found, latency_us=CLAIMED_US)


LinkSupervisor._claim = claim  # type: ignore[method-assign]
run()
