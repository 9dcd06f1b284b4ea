"""Described routes: the versions of routes that two neighbours have told each other of on one connection.

Control messages arrive all and in order, so both ends count descriptions alike, from 1 on. Answers on a route
(route_answers.py) then give the number of its description instead of its key. What is remembered is bounded: a route
whose description is long ago is named by its key.
"""

from overlane.core.units import MS, NEVER, Nanos

DESCRIBED_LATELY: Nanos = 500 * MS
"""A route that is not acknowledged for this long after it was described is described with its parcels, too."""
KEYS_MAX = 8192
NUMBERS_MAX = KEYS_MAX // 2
"""Fewer than the other end remembers: it may have described more meanwhile."""


class DescribedRoutes:
    def __init__(self) -> None:
        self._lately: dict[bytes, Nanos] = {}
        """Routes that the neighbour was told of lately, by their keys, and when."""
        self._sent = 0
        self._keys: dict[int, bytes] = {}
        self._received = 0
        self._numbers: dict[bytes, int] = {}

    def sent(self, key: bytes, now: Nanos) -> None:
        """The neighbour was told of a route."""
        lately = self._lately
        lately.pop(key, None)
        while lately and now - lately[oldest := next(iter(lately))] >= DESCRIBED_LATELY:
            del lately[oldest]
        lately[key] = now
        self._sent += 1
        self._keys[self._sent] = key
        self._keys.pop(self._sent - KEYS_MAX, None)

    def was_sent_lately(self, key: bytes, now: Nanos) -> bool:
        return now - self._lately.get(key, -NEVER) < DESCRIBED_LATELY

    def received(self, key: bytes) -> None:
        """The neighbour has told of a route."""
        self._received += 1
        numbers = self._numbers
        numbers.pop(key, None)
        numbers[key] = self._received
        if len(numbers) > NUMBERS_MAX:
            del numbers[next(iter(numbers))]

    def number_of(self, key: bytes) -> int:
        """By which an answer to the neighbour names a route; 0 if it has to give the key."""
        number = self._numbers.get(key, 0)
        return number if self._received - number < NUMBERS_MAX else 0

    def key_of(self, number: int, key: bytes) -> bytes:
        """Of the route that the neighbour answers for; empty if that is not known. `key`: given in place of 0."""
        return self._keys.get(number, b"") if number else key
