"""The uplinks of this broker: from which of its addresses it opens paths to its neighbours.

    interfaces in the file   all addresses of these interfaces, as they come and go
    several addresses in     those that this machine has now
    its own `reach`
    otherwise                the address that the kernel chooses for the neighbour

No I/O: it is told which addresses there are.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from overlane.node.links.multipath.netlink import LocalAddress


@dataclass(frozen=True, slots=True)
class OwnUplinks:
    hosts: tuple[str, ...] = ()
    """Addresses in the file."""
    interfaces: tuple[str, ...] = ()

    @property
    def are_several(self) -> bool:
        return len(self.hosts) > 1 or bool(self.interfaces)

    def local_hosts(self, addresses: Iterable[LocalAddress]) -> tuple[str, ...]:
        """The addresses to open paths from, of those that the machine has; none if the kernel is to choose."""
        if not self.are_several:
            return ()
        usable = [one for one in addresses if one.is_usable]
        by_interface = [one.host for name in self.interfaces for one in usable if one.interface == name]
        present = {one.host for one in usable}
        return tuple(dict.fromkeys([*by_interface, *(host for host in self.hosts if host in present)]))


def is_literal(host: str) -> bool:
    """Whether it is an address rather than a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def same_family(one: str, other: str) -> bool:
    return ipaddress.ip_address(one).version == ipaddress.ip_address(other).version
