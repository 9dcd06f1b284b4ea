"""Conditions of AMQP for what pubsub refuses."""

from typing import assert_never

from overlane.amqp.codec.malformed import INVALID_FIELD, NOT_IMPLEMENTED, RESOURCE_LIMIT, UNAUTHORIZED
from overlane.pubsub.contract.refused import RequestFault


def condition_of(fault: RequestFault) -> str:
    match fault:
        case RequestFault.NOT_ALLOWED:
            return UNAUTHORIZED
        case RequestFault.INVALID_TOPIC | RequestFault.INVALID_OVERRIDE:
            return INVALID_FIELD
        case RequestFault.UNPROCESSABLE:
            return NOT_IMPLEMENTED
        case RequestFault.NO_ROOM:
            return RESOURCE_LIMIT
        case _:
            assert_never(fault)
