"""Reason codes of MQTT 5 (section 2.4) for what pubsub refuses or ends."""

from typing import Final

import mqtt5

from overlane.pubsub.contract.consumer import Ending
from overlane.pubsub.contract.refused import RequestFault

NO_SUBSCRIBERS: Final = 0x10
PROTOCOL_ERROR: Final = 0x82
IMPLEMENTATION: Final = 0x83
NOT_AUTHORIZED: Final = 0x87
TOPIC_INVALID: Final = 0x90
IDENTIFIER_UNKNOWN: Final = 0x92
RECEIVE_MAX: Final = 0x93
ALIAS_INVALID: Final = 0x94
QUOTA: Final = 0x97
RETAIN_UNAVAILABLE: Final = 0x9A

Granted = mqtt5.SubAckReasonCode

_PUBLISH: Final = {
    RequestFault.NOT_ALLOWED: NOT_AUTHORIZED,
    RequestFault.INVALID_TOPIC: TOPIC_INVALID,
    RequestFault.INVALID_OVERRIDE: IMPLEMENTATION,
    RequestFault.UNPROCESSABLE: IMPLEMENTATION,
    RequestFault.NO_ROOM: QUOTA,
}
_SUBSCRIBE: Final = {
    RequestFault.NOT_ALLOWED: Granted.NOT_AUTHORIZED,
    RequestFault.INVALID_TOPIC: Granted.TOPIC_FILTER_INVALID,
    RequestFault.INVALID_OVERRIDE: Granted.IMPLEMENTATION_SPECIFIC_ERROR,
    RequestFault.UNPROCESSABLE: Granted.IMPLEMENTATION_SPECIFIC_ERROR,
    RequestFault.NO_ROOM: Granted.QUOTA_EXCEEDED,
}
_ENDING: Final = {
    Ending.TAKEN_OVER: mqtt5.DisconnectReasonCode.SESSION_TAKEN_OVER,
    Ending.BY_OPERATOR: mqtt5.DisconnectReasonCode.ADMINISTRATIVE_ACTION,
    Ending.LOGIN_EXPIRED: mqtt5.DisconnectReasonCode.NOT_AUTHORIZED,
    Ending.SHUTTING_DOWN: mqtt5.DisconnectReasonCode.SERVER_SHUTTING_DOWN,
    Ending.INTERNAL_ERROR: mqtt5.DisconnectReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
}


def publish_reason(fault: RequestFault) -> int:
    """For PUBACK and PUBREC."""
    return _PUBLISH[fault]


def subscribe_reason(fault: RequestFault) -> Granted:
    return _SUBSCRIBE[fault]


def disconnect_reason(ending: Ending) -> int:
    return int(_ENDING[ending])
