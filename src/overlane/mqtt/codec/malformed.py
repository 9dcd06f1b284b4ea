"""Errors in a packet, in the terms of MQTT 5: a reason code and a sentence.

The specification (section 4.13) distinguishes two kinds of errors. A malformed packet cannot be parsed. A protocol
error is a packet that can be parsed but has invalid contents, such as the same property twice. A few errors have
separate reason codes. Version 3.1.1 has no reason codes: there the connection is closed, and the reason is only logged.
"""

from typing import Final

from overlane.errors import OverlaneError

MALFORMED_PACKET: Final = 0x81
PROTOCOL_ERROR: Final = 0x82
UNSUPPORTED_PROTOCOL_VERSION: Final = 0x84
TOPIC_NAME_INVALID: Final = 0x90
TOPIC_ALIAS_INVALID: Final = 0x94
PACKET_TOO_LARGE: Final = 0x95
QUOTA_EXCEEDED: Final = 0x97
PAYLOAD_FORMAT_INVALID: Final = 0x99


class Malformed(OverlaneError, ValueError):
    """The peer's fault: the connection is to be closed with this reason."""

    error_code = "OVL-303"

    def __init__(self, reason: int, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason
