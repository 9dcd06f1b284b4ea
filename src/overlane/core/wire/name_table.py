"""Name table: brokers that descriptions of routes on one connection have named before, by their numbers.

Descriptions name the same brokers again and again. On a connection, control messages arrive all and in order, so both
ends can number names as they come: a description (`NumberedEstablish`) names a broker once, and later gives its number.
Each direction of a connection has a table, which begins empty with it.

    names before   denver, omaha                                  1 denver   2 omaha
    description    new names [boston], numbers 3 1 0 2            boston, denver, "", omaha

A table is bounded. Where a sender's is full, it describes routes by names alone (`Establish`).
"""

from msgspec import structs

from overlane.core.wire.control_messages import Establish, NumberedEstablish, check
from overlane.core.wire.message_fields import NUMBERED_NAMES_MAX
from overlane.core.wire.route_packing import pack, unpack
from overlane.errors import ProtocolViolation


class SentNames:
    """What was named to a neighbour."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": 0}

    def shorten(self, message: Establish) -> NumberedEstablish | None:
        """A description with numbers in the place of names; None if there is no room for its names, or no source would
        describe a route so. What it names is known once it was sent (`sent`)."""
        numbers, new = self._numbers, list[str]()
        places = list[int]()
        for name in message.brokers:
            number = numbers.get(name)
            if number is None:
                new.append(name)
                number = len(numbers) + len(new) - 1
            places.append(number)
        if len(numbers) + len(new) > NUMBERED_NAMES_MAX + 1:
            return None
        body = pack(message, places)
        return None if body is None else NumberedEstablish(new, body)

    def sent(self, message: NumberedEstablish) -> None:
        for name in message.names:
            self._numbers[name] = len(self._numbers)


class ReceivedNames:
    """What a neighbour has named."""

    def __init__(self) -> None:
        self._names: list[str] = [""]

    def expand(self, message: NumberedEstablish) -> Establish:
        """The description in full; ProtocolViolation if it uses a number that stands for nothing."""
        names = self._names
        if len(names) + len(message.names) > NUMBERED_NAMES_MAX + 1:
            raise ProtocolViolation(f"more than {NUMBERED_NAMES_MAX} names of brokers on one connection")
        names += message.names
        numbers, described, origin = unpack(message.body)
        if max(numbers, default=0) >= len(names) or origin >= len(numbers) or not numbers[origin]:
            raise ProtocolViolation("a route over brokers it does not name")
        brokers = [names[number] for number in numbers]
        found = structs.replace(described, origin=brokers[origin], brokers=brokers)
        check(found)
        return found
