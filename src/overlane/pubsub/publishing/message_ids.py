"""Identities of messages: one that was published to two brokers, or again after a switch, exists once at every broker.

    overlane-id: RUN:NUMBER

as a user property of a message. RUN is a unique word for each run of a client, NUMBER grows by one with each of its
messages. A broker remembers the latest WINDOW numbers of each run, of the latest RUNS_MAX runs:

    published   a second copy from a client is acknowledged, and nothing else is done
    delivered   a second copy, from a client or from another broker, is given to nobody here

They are two: a message whose copy has come from another broker is still passed on to others when its client publishes
it here, because that broker may be lost before it has done so. A number that lies further back than the window may be
new, so it is taken: nothing is ever lost for the sake of order. Memory only: after a restart copies of earlier messages
are recognised by those who have them, and by the client.

Messages without an identity are none of this module's business, and cost nothing.
"""

from collections import OrderedDict
from collections.abc import Iterable

PROPERTY = "overlane-id"
_NEEDLE = PROPERTY.encode()
WINDOW = 8_192
RUNS_MAX = 10_000
RUN_CHARS_MAX = 64
NUMBER_MAX = 1 << 62

MessageId = tuple[str, int]


def read_id(user_properties: Iterable[tuple[str, str]]) -> MessageId | None:
    """None if there is none, or none that can be read."""
    for name, value in user_properties:
        if name == PROPERTY:
            run, colon, digits = value.rpartition(":")
            if colon and run and len(run) <= RUN_CHARS_MAX and digits.isascii() and digits.isdecimal():
                number = int(digits) if len(digits) < 20 else NUMBER_MAX
                return (run, number) if number < NUMBER_MAX else None
            return None
    return None


def may_have_id(encoded: bytes) -> bool:
    """Whether the properties of a message have to be decoded to find out."""
    return bool(encoded) and _NEEDLE in encoded


class IdWindow:
    """The latest numbers of each run."""

    def __init__(self, runs_max: int = RUNS_MAX) -> None:
        self._runs_max = runs_max
        self._runs: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """By run: the highest number, and which of those before it were seen, as bits: bit 0 is the highest."""

    def has(self, message_id: MessageId) -> bool:
        run, number = message_id
        highest, bits = self._runs.get(run, (-1, 0))
        back = highest - number
        return 0 <= back < WINDOW and bool(bits >> back & 1)

    def add(self, message_id: MessageId) -> bool:
        """Whether it is new, as far as can be told."""
        run, number = message_id
        known = self._runs.get(run)
        if known is None:
            if len(self._runs) >= self._runs_max:
                self._runs.popitem(last=False)
            self._runs[run] = number, 1
            return True
        highest, bits = known
        self._runs.move_to_end(run)
        if number > highest:
            ahead = number - highest
            bits = (bits << ahead & (1 << WINDOW) - 1 if ahead < WINDOW else 0) | 1
            self._runs[run] = number, bits
            return True
        back = highest - number
        if back >= WINDOW:
            return True
        if bits >> back & 1:
            return False
        self._runs[run] = highest, bits | 1 << back
        return True


class MessageIds:
    """What a broker remembers."""

    def __init__(self) -> None:
        self.published = IdWindow()
        self.delivered = IdWindow()
        self.duplicates = 0
        """Copies that were dropped."""
