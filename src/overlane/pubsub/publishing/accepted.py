"""What became of a message that was accepted from a client."""

from typing import NamedTuple


class Accepted(NamedTuple):
    """`is_stored`: the acknowledgement has to wait for the records of this turn. `crowding`: how full the fullest queue
    is that the message has joined, from 0 to 1. `is_mediated`: it may have gone elsewhere, or to nobody, by a rule.
    `told`: what its publisher is told where the protocol can say so; empty if there is nothing."""

    has_receivers: bool
    is_stored: bool
    crowding: float
    is_mediated: bool = False
    told: str = ""
