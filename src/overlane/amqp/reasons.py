"""Conditions of AMQP for what pubsub refuses."""

from typing import assert_never

from overlane.amqp.codec.malformed import INVALID_FIELD, NOT_IMPLEMENTED, RESOURCE_LIMIT, UNAUTHORIZED
from overlane.pubsub.refused import Fault


def condition_of(fault: Fault) -> str:
    match fault:
        case Fault.NOT_ALLOWED:
            return UNAUTHORIZED
        case Fault.INVALID_TOPIC | Fault.INVALID_OVERRIDE:
            return INVALID_FIELD
        case Fault.UNPROCESSABLE:
            return NOT_IMPLEMENTED
        case Fault.NO_ROOM:
            return RESOURCE_LIMIT
        case _:
            assert_never(fault)
