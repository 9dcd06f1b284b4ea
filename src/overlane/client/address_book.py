"""The addresses of a client: those that the application gave, and those that brokers have named.

A broker that shares its clients with others of its domain names these when it accepts a connection
(`overlane-alternative`). They are tried after the given ones. Attempts begin with the address that answered last,
because the session is there, unless that broker announced its shutdown or named another server. A named address is used
with TLS exactly where the broker that named it was.
"""

from collections.abc import Iterable, Sequence

from overlane.client.address import Address, parse_address
from overlane.client.errors import InvalidRequest

LEARNED_MAX = 16


class AddressBook:
    def __init__(self, given: Sequence[Address], *, learns: bool = True) -> None:
        self._given = list(dict.fromkeys(given))
        self._learns = learns
        self._learned: list[Address] = []
        self._first: Address = self._given[0]

    def in_order(self) -> list[Address]:
        """All addresses, in the order in which they are to be tried."""
        known = [*self._given, *self._learned]
        at = known.index(self._first) if self._first in known else 0
        return [*known[at:], *known[:at]]

    def connected(self, address: Address, named: Iterable[str]) -> None:
        """The broker at this address has accepted, and named others."""
        if self._learns:
            found = [one for text in named if (one := _named(text, address)) is not None]
            # Those that were named before may be of a broker that is away for the moment.
            fresh = dict.fromkeys(one for one in (*found, *self._learned) if one not in self._given)
            self._learned = list(fresh)[:LEARNED_MAX]
        if address not in (*self._given, *self._learned):
            self._learned = [address, *self._learned][:LEARNED_MAX]
        self._first = address

    def parted(self, *, is_sent_away: bool) -> None:
        """The last connection has ended. `is_sent_away`: that broker wants its clients to use another."""
        if is_sent_away:
            self._first = (*self.in_order()[1:], self._first)[0]

    @staticmethod
    def referred(by: Address, reference: str) -> Address | None:
        """The first address of a server reference (MQTT 5, section 4.11); None if there is none."""
        return _named(reference.split()[0], by) if reference.split() else None


def _named(text: str, by: Address) -> Address | None:
    try:
        return parse_address(text, tls=by.tls)
    except InvalidRequest:
        return None
