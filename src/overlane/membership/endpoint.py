"""A host and a port."""

import ipaddress

import msgspec


class Endpoint(msgspec.Struct, frozen=True):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def is_loopback(self) -> bool:
        """Whether only this machine can reach it; a name other than localhost counts as reachable from elsewhere."""
        address = self._address()
        return self.host.lower() == "localhost" if address is None else address.is_loopback

    def is_wildcard(self) -> bool:
        """Whether it means all addresses of the machine."""
        address = self._address()
        return address is not None and address.is_unspecified

    def dialled(self) -> "Endpoint":
        """The address for connections on the same machine: loopback if it is the wildcard."""
        return Endpoint("::1" if ":" in self.host else "127.0.0.1", self.port) if self.is_wildcard() else self

    def clashes(self, other: "Endpoint") -> bool:
        """Whether one machine cannot listen on both."""
        return self.port == other.port and (
            self.host.lower() == other.host.lower() or self.is_wildcard() or other.is_wildcard()
        )

    def _address(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
        try:
            address = ipaddress.ip_address(self.host)
        except ValueError:
            return None
        # What a listener on IPv6 calls a client that came by IPv4.
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return mapped or address
